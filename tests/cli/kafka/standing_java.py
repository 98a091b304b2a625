"""Kafka's own tools, in a virtual machine that stays for the next one."""

import subprocess
from base64 import b64decode, b64encode
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from judges.java import java_command
from kafka_java import judge_needed

SOURCE = Path(__file__).with_name("JavaTools.java")
CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
}
_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx256m",
    # What a tool logs is no output of it.
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)


class Said(NamedTuple):
    """The exit code of a tool, and what it wrote."""

    code: int
    out: str
    err: str


class JavaTools:
    """A virtual machine that runs tools."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, tool: str, *arguments: str) -> Said:
        """Run a tool, by the name of its script."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [b64encode(word.encode()).decode() for word in (CLASSES[tool], *arguments)]
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        code, out, err = self._process.stdout.readline().rstrip("\n").split(" ")
        return Said(int(code), b64decode(out).decode(), b64decode(err).decode())


@contextmanager
def java_tools() -> Generator[JavaTools]:
    """A virtual machine for as long as the `with` lasts."""
    with judge_needed():
        command = java_command(str(SOURCE), options=_OPTIONS)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield JavaTools(process)
        finally:
            process.kill()
