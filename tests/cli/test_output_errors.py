"""Output that is not read or cannot be written: exit codes."""

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
def test_closed_reader_exits_with_141_also_for_help(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert ended(words, writer) == (141, "")
    finally:
        os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
@each_case("words", WORDS)
def test_full_disk_exits_with_74_and_one_line(words: str) -> None:
    with open("/dev/full", "w") as full:
        code, told = ended(words, full.fileno())
    assert (code, told.count("\n")) == (74, 1), told


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_missing_in_the_encoding_are_escaped(encoding: str) -> None:
    done = subprocess.run(
        [str(SCRIPTS / "ottla"), "profile", "set", "--help"],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        env={**surroundings("/nonexistent"), "PYTHONIOENCODING": encoding},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2026" in done.stdout  # one character for three dots
