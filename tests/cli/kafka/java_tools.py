"""Kafka's own tools beside ours: one virtual machine that runs them on demand."""

import contextlib
import io
import subprocess
from base64 import b64decode
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from judges.java import source_command
from kafka_java import judge_needed
from ottla.cli.kafka.flags import Given, Usage
from ottla.cli.kafka.tool import conducted

TALK = Path(__file__).with_name("ToolTalk.java")


class Said(NamedTuple):
    """What a tool said, and how it ended."""

    status: int
    out: str
    err: str


class JavaTools:
    """Runs a tool at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, tool: str, *arguments: str) -> Said:
        """Run one, by the class that its script starts."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((tool, *arguments)) + "\n")
        self._process.stdin.flush()
        status, out, err = self._process.stdout.readline().rstrip("\n").split("\t")
        return Said(int(status), b64decode(out).decode(), b64decode(err).decode())


@contextmanager
def java_tools() -> Generator[JavaTools]:
    """The tools, for as long as the `with` lasts."""
    with judge_needed():
        command = source_command(TALK)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        yield JavaTools(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def ours(usage: Usage, act: Callable[[Given], Coroutine[Any, Any, int]], *arguments: str) -> Said:
    """Run one of ours, here."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = conducted(usage, act, [*arguments])
    return Said(status, out.getvalue(), err.getvalue())
