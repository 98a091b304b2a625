"""How Spark starts and ends on this machine, with a Java that is not a real one."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.class_archive import ClassArchive
from ottla.pipeline.java import Java
from ottla.pipeline.local_spark import (
    LocalSpark,
    driver_address,
    error_summary,
    redirect_output,
    submit_arguments,
)


class NoText(Exception):
    """An error whose text was in a Java that has ended."""

    def __str__(self) -> str:
        raise ConnectionRefusedError


def test_error_summary_is_one_line() -> None:
    java = "An error occurred while calling o1.start.\n: java.io.IOException: full\n\tat a.b"
    summary = "An error occurred while calling o1.start. java.io.IOException: full"
    assert error_summary(RuntimeError(java)) == summary
    assert error_summary(RuntimeError("[GONE] Java has ended.\nmore")) == "[GONE] Java has ended."
    assert error_summary(RuntimeError()) == "RuntimeError"
    assert error_summary(NoText()) == "NoText"


def test_redirected_output_is_in_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    with redirect_output(log):
        os.write(1, b"out\n")
        os.write(2, b"err\n")
    print("after", file=sys.stderr, flush=True)
    assert log.read_text() == "out\nerr\n"
    assert capfd.readouterr() == ("", "after\n")


def test_secrets_are_hidden_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with redirect_output(log, lambda line: line.replace("hunter2", "***")):
        os.write(1, b"out hunter2\n")
        subprocess.run(["sh", "-c", "echo hunter2 >&2; printf end"], check=True)
    assert log.read_bytes() == b"out ***\n***\nend"


def test_settings_are_in_a_file_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars a.jar pyspark-shell")
    settings = {"spark.a": "=two words", "spark.b": 'C:\\x "ä"\n😀'}
    with submit_arguments(settings):
        words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert [*words[:1], *words[2:]] == [
            *("--properties-file", "--load-spark-defaults", "--jars", "a.jar", "pyspark-shell")
        ]
        file = Path(words[1])
        assert file.read_text().splitlines() == [
            "spark.a==two\\u0020words",
            'spark.b=C:\\u005cx\\u0020"\\u00e4"\\u000a\\ud83d\\ude00',
        ]
        assert file.parent.stat().st_mode & 0o077 == 0
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--jars a.jar pyspark-shell"
    assert not file.exists()


@contextmanager
def ending_java(
    spark: LocalSpark, directory: Path, script: str
) -> Generator[tuple[ClassArchive, "subprocess.Popen[bytes]"]]:
    """A process in place of Java, that runs a script with the path of the archive as $1."""
    archive = ClassArchive(Java(17, "17"), directory)
    with archive.recording() as recording:
        path = shlex.split(recording.java_options)[-1].partition("=")[2]
        command = ["sh", "-c", script, "java", path]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            parts: Any = spark
            parts._recording = recording
            parts._gateway = SimpleNamespace(proc=process)
            yield archive, process


def test_saved_classes_are_kept_when_java_ends(tmp_path: Path) -> None:
    spark = LocalSpark("test", tmp_path / "log")
    with ending_java(spark, tmp_path, 'cat; echo classes > "$1"') as (archive, _):
        assert spark.save_classes()
        spark.__exit__(None)
    assert archive.path.read_text() == "classes\n"


@pytest.mark.parametrize("is_starting", [False, True])
def test_errors_of_a_start_that_is_ended_at_once_are_in_the_log(
    tmp_path: Path, is_starting: bool
) -> None:
    log = tmp_path / "log"
    spark = LocalSpark("test", log)
    with ending_java(spark, tmp_path, "sleep 60") as (_, process):
        parts: Any = spark
        gateway = parts._gateway

        def start() -> None:
            if is_starting:
                stopping.wait()
                parts._gateway = gateway  # Java starts although the program has ended
            process.wait()
            os.write(2, b"Java has ended\n")

        stopping = threading.Event()
        if is_starting:
            parts._gateway = None
            parts._kill_java = lambda: (stopping.set(), LocalSpark._kill_java(spark))  # pyright: ignore[reportPrivateUsage]
        parts._resources.enter_context(redirect_output(log))
        parts._thread = threading.Thread(target=start)
        parts._thread.start()
        spark.__exit__(KeyboardInterrupt)
        assert not parts._thread.is_alive()
    assert log.read_text() == "Java has ended\n"


def test_classes_that_are_not_saved_are_not_written(tmp_path: Path) -> None:
    spark = LocalSpark("test", tmp_path / "log")
    with ending_java(spark, tmp_path, 'cat; echo classes > "$1"') as (archive, process):
        spark.__exit__(None)
        assert process.returncode == -signal.SIGKILL
    assert not archive.exists


def test_classes_that_another_process_has_saved_are_not_written(tmp_path: Path) -> None:
    spark = LocalSpark("test", tmp_path / "log")
    with ending_java(spark, tmp_path, 'cat; echo classes > "$1"') as (archive, process):
        archive.path.write_text("of another process")
        assert not spark.save_classes()
        spark.__exit__(None)
        assert process.returncode == -signal.SIGKILL
    assert archive.path.read_text() == "of another process"


def test_archive_of_a_java_that_failed_is_not_kept(tmp_path: Path) -> None:
    spark = LocalSpark("test", tmp_path / "log")
    with ending_java(spark, tmp_path, 'cat; echo half > "$1"; exit 1') as (archive, _):
        assert spark.save_classes()
        spark.__exit__(None)
    assert not archive.exists


def test_interrupt_skips_saving_classes(tmp_path: Path) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    spark = LocalSpark("test", tmp_path / "log")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with ending_java(spark, tmp_path, "cat; exec sleep 600") as (archive, process):
            assert spark.save_classes()
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            spark.__exit__(None)
            assert process.returncode == -signal.SIGKILL
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not archive.exists


def test_executors_reach_the_driver_at_its_address_towards_the_master() -> None:
    asked: list[str] = []

    def local_address(host: str) -> str | None:
        asked.append(host)
        return {"far": "10.0.0.7", "fd00::1": "fd00::2"}.get(host)

    def address(master: str, **environment: str) -> set[str]:
        return {*driver_address(master, environment, local_address).values()}

    assert address("local[2]") == {"127.0.0.1"}
    assert address("spark://far:7077") == {"10.0.0.7"}
    assert address("spark://far:7077,other:7077") == {"10.0.0.7"}
    assert address("spark://[fd00::1]:7077") == {"[fd00::2]"}
    assert address("spark://unknown:7077") == set(), "Spark chooses"
    assert address("spark://far:7077", SPARK_LOCAL_IP="10.0.0.8") == set(), "the user has chosen"
    assert asked == ["far", "far", "fd00::1", "unknown"]
    settings = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    assert driver_address("spark://127.0.0.1:7077", {}) == settings
