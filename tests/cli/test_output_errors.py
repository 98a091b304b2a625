"""Output that nobody reads, or that cannot be written: what a command ends with."""

import os
import subprocess

import pytest

from cases import each_case
from cli.console import PATIENCE_S, SCRIPTS, surroundings

WORDS = ("version", "--help", "topic", "topic --help", "topic list --help")


def ended(words: str, output: int) -> tuple[int, str]:
    done = subprocess.run(
        [str(SCRIPTS / "ottla"), *words.split()],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=surroundings("/nonexistent"),
    )
    return done.returncode, done.stderr


@each_case("words", WORDS)
def test_a_reader_that_left_is_141_for_help_too(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert ended(words, writer) == (141, "")
    finally:
        os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
@each_case("words", WORDS)
def test_a_full_disk_is_74_and_one_line(words: str) -> None:
    with open("/dev/full", "w") as full:
        code, told = ended(words, full.fileno())
    assert (code, told.count("\n")) == (74, 1), told


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_has_not_is_shown_and_ends_nothing(encoding: str) -> None:
    done = subprocess.run(
        [str(SCRIPTS / "ottla"), "profile", "set", "--help"],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        env={**surroundings("/nonexistent"), "PYTHONIOENCODING": encoding},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2026" in done.stdout  # there are three dots in one
