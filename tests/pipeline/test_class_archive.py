"""The archive of Spark's classes: its name, its options, and that it is complete or not there."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from ottla.pipeline.class_archive import ClassArchive, Recording
from ottla.pipeline.java import Java, NoJava, found_java
from ottla.pipeline.spark_home import fast_spark_home

JAVA = Java(17, "17.0.15+6-Debian-1")


def write(recording: Recording, content: bytes) -> None:
    """Do what Java does when it ends."""
    option = shlex.split(recording.java_options)[-1]
    Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(content)


def files(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def test_each_version_of_java_has_its_own_archive(tmp_path: Path) -> None:
    archive = ClassArchive(JAVA, tmp_path)
    assert archive.path.parent == tmp_path
    assert archive.path.name.startswith("java-17.0.15+6-Debian-1-spark-")
    assert ClassArchive(Java(17, "17.0.16+8"), tmp_path).path != archive.path
    assert ClassArchive(Java(21, "21 (a/b)"), tmp_path).path.parent == tmp_path


def test_moved_directory_has_another_archive(tmp_path: Path) -> None:
    """Java ignores an archive with another class path, and the class path names the directory."""
    archive = ClassArchive(JAVA, tmp_path / "before")
    archive.directory.mkdir()
    archive.path.write_bytes(b"classes")
    archive.directory.rename(tmp_path / "after")
    assert not ClassArchive(JAVA, tmp_path / "after").exists


def test_link_to_the_directory_leads_to_the_same_archive(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "directory")
    linked = ClassArchive(JAVA, tmp_path / "link")
    archive = ClassArchive(JAVA, tmp_path / "directory")
    assert (linked.path, linked.spark_home) == (archive.path, archive.spark_home)


def test_environment_variable_chooses_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_SPARK_DIRECTORY", str(tmp_path))
    assert ClassArchive(JAVA).directory == tmp_path


def test_archives_are_in_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTTLA_SPARK_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = ClassArchive(JAVA)
    assert archive.directory.parent == tmp_path / "ottla" / "spark"
    gone = archive.directory.with_name("of a deleted environment")
    fast = fast_spark_home(archive.spark_home)
    (gone / "home").mkdir(parents=True)
    (gone / "home" / "jars").symlink_to(tmp_path / "deleted")
    with archive.recording():
        assert not gone.exists()
        assert (fast / "jars").is_dir()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert ClassArchive(JAVA).directory.parent == tmp_path / "home" / ".cache" / "ottla" / "spark"


def test_recordings_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    archive = ClassArchive(JAVA, tmp_path)
    old, new = tmp_path / "recording-old", tmp_path / "recording-new"
    for one in (old, new):
        one.mkdir()
        (one / "classes.jsa").write_bytes(b"half of the cla")
    os.utime(old, (0, 0))
    with archive.recording():
        assert not old.exists()
        assert new.exists(), "another process may be writing it"


def test_options_quote_the_path() -> None:
    archive = ClassArchive(JAVA, Path('/a "b" c'))
    share, option = shlex.split(archive.java_options)
    assert share == "-Xshare:auto"
    assert option == f"-XX:SharedArchiveFile={archive.path}"


def test_saved_recording_becomes_the_archive(tmp_path: Path) -> None:
    archive = ClassArchive(JAVA, tmp_path / "not there yet")
    with archive.recording() as recording:
        write(recording, b"classes")
        assert not archive.exists
        recording.save()
    assert archive.path.read_bytes() == b"classes"
    assert files(archive.directory) == [archive.path.name]


def test_recording_that_is_not_saved_is_deleted(tmp_path: Path) -> None:
    archive = ClassArchive(JAVA, tmp_path)
    with archive.recording() as recording:
        write(recording, b"half of the cla")
    assert files(tmp_path) == []


def test_java_that_records_nothing_leaves_no_archive(tmp_path: Path) -> None:
    with ClassArchive(JAVA, tmp_path).recording() as recording:
        recording.save()
    assert files(tmp_path) == []


def test_two_recordings_at_once_leave_one_complete_archive(tmp_path: Path) -> None:
    archive = ClassArchive(JAVA, tmp_path)
    with archive.recording() as one, archive.recording() as other:
        write(one, b"one")
        write(other, b"other")
        assert not other.is_saved
        one.save()
        assert other.is_saved
        other.save()
    assert archive.path.read_bytes() == b"other"
    assert files(tmp_path) == [archive.path.name]


def test_java_ignores_an_archive_that_does_not_match(tmp_path: Path) -> None:
    try:
        archive = ClassArchive(found_java(), tmp_path / "with a space")
    except NoJava as missing:
        pytest.skip(str(missing))
    archive.directory.mkdir()
    archive.path.write_bytes(b"not an archive" * 10_000)
    command = ["java", *shlex.split(archive.java_options), "-version"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
