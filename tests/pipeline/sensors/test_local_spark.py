"""What Spark's errors are told as, and where what is written goes meanwhile."""

import os
import sys
from pathlib import Path

import pytest
from sensors.local_spark import first_line, redirected


class Silent(Exception):
    """An error whose text is to be asked of a Java that has ended."""

    def __str__(self) -> str:
        raise ConnectionRefusedError


def test_an_error_is_told_in_one_line() -> None:
    of_java = "An error occurred while calling o1.start.\n: java.io.IOException: full\n\tat a.b"
    told = "An error occurred while calling o1.start. java.io.IOException: full"
    assert first_line(RuntimeError(of_java)) == told
    assert first_line(RuntimeError("[GONE] Java has ended.\nmore")) == "[GONE] Java has ended."
    assert first_line(RuntimeError()) == "RuntimeError"
    assert first_line(Silent()) == "Silent"


def test_what_is_written_meanwhile_is_in_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    with redirected(log):
        os.write(1, b"out\n")
        os.write(2, b"err\n")
    print("after", file=sys.stderr, flush=True)
    assert log.read_text() == "out\nerr\n"
    told = capfd.readouterr()
    assert "out" not in told.out
    assert "err" not in told.err
