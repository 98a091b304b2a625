"""The archive of Spark's classes: its name, and that it is whole or not there."""

from pathlib import Path

import pytest
from sensors import archive

from ottla.pipeline.java import Java


@pytest.fixture(autouse=True)
def _java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that only says its version."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = 'openjdk version "17.0.15"\nOpenJDK VM (build 17.0.15+6-Debian, mixed mode)'
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(program.parents[1]))


def left(environment: Path) -> list[str]:
    return sorted(path.name for path in (environment / ".classes").iterdir())


def written(folder: Path, home: Path, option: str) -> None:
    """What Java does when it ends."""
    assert home == folder.parents[1] / "spark-home"
    name = option.strip('"').removeprefix("-XX:ArchiveClassesAtExit=")
    assert Path(name).parent == folder
    Path(name).write_bytes(b"classes")


def test_each_java_and_each_spark_has_its_own(tmp_path: Path) -> None:
    one = archive.place(Java(17, "17.0.15+6-Debian-1"), tmp_path)
    assert one.parent == tmp_path / ".classes"
    assert one.name.startswith("java-17.0.15+6-Debian-1-spark-")
    assert archive.place(Java(17, "17.0.16+8"), tmp_path) != one
    assert archive.place(Java(21, "21 (a/b)"), tmp_path).parent == one.parent


def test_options_are_one_word_each_also_with_a_space_in_the_path() -> None:
    said = archive.options(Path('/a "b" c/x.jsa'))
    assert said == r'-Xshare:auto "-XX:SharedArchiveFile=/a \"b\" c/x.jsa"'


def test_it_is_made_once_and_renamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert archive.main(tmp_path, written) == 0
    (name,) = left(tmp_path)
    assert name.endswith(".jsa")
    assert (tmp_path / ".classes" / name).read_bytes() == b"classes"
    assert capsys.readouterr().out.startswith("once: keeping Spark's classes")

    def again(folder: Path, home: Path, option: str) -> None:
        pytest.fail("it is there")

    assert archive.main(tmp_path, again) == 0
    assert capsys.readouterr().out == ""


def test_two_at_once_leave_one_whole(tmp_path: Path) -> None:
    def beside_another(folder: Path, home: Path, option: str) -> None:
        assert archive.main(tmp_path, written) == 0
        written(folder, home, option)

    assert archive.main(tmp_path, beside_another) == 0
    assert [name.endswith(".jsa") for name in left(tmp_path)] == [True]


@pytest.mark.parametrize("failure", [archive.Unmade("no\nreason"), OSError("no"), None])
def test_one_that_cannot_be_made_is_a_line_and_not_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failure: Exception | None
) -> None:
    tries: list[Path] = []

    def failing(folder: Path, home: Path, option: str) -> None:
        tries.append(folder)
        (folder / "half").write_bytes(b"cla")
        if failure is not None:
            raise failure

    assert archive.main(tmp_path, failing) == 0
    _, line = capsys.readouterr().out.splitlines()
    reason = "this Java keeps none" if failure is None else "no"
    assert line == f"Spark starts without kept classes: {reason}"
    assert [name.endswith(".refused") for name in left(tmp_path)] == [True]
    assert archive.main(tmp_path, failing) == 0
    assert len(tries) == 1


def test_ctrl_c_leaves_nothing_and_is_told_to_make(tmp_path: Path) -> None:
    def interrupted(folder: Path, home: Path, option: str) -> None:
        written(folder, home, option)
        raise KeyboardInterrupt

    assert archive.main(tmp_path, interrupted) == 130
    assert left(tmp_path) == []


def test_without_java_nothing_is_made_or_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert archive.main(tmp_path) == 0
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / ".classes").exists()
