"""Kafka's own tools, in a virtual machine that stays for the next one unless one ends it.

Invariant: a tool reads, writes and ends as it does in a process of its own, but for threads that
it leaves behind, and for what it logs, which is nothing.
"""

import subprocess
from base64 import b64decode, b64encode
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Timer
from typing import NamedTuple

from judges.java import java_command
from kafka_java import judge_needed

SOURCE = Path(__file__).with_name("KafkaTools.java")
PATIENCE_S = 240
_TOOLS = "org.apache.kafka.tools."
CLASSES = {
    "kafka-broker-api-versions": _TOOLS + "BrokerApiVersionsCommand",
    "kafka-cluster": _TOOLS + "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": _TOOLS + "consumer.ConsoleConsumer",
    "kafka-console-producer": _TOOLS + "ConsoleProducer",
    "kafka-consumer-groups": _TOOLS + "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": _TOOLS + "ConsumerPerformance",
    "kafka-delete-records": _TOOLS + "DeleteRecordsCommand",
    "kafka-dump-log": _TOOLS + "DumpLogSegments",
    "kafka-e2e-latency": _TOOLS + "EndToEndLatency",
    "kafka-get-offsets": _TOOLS + "GetOffsetShell",
    "kafka-log-dirs": _TOOLS + "LogDirsCommand",
    "kafka-producer-perf-test": _TOOLS + "ProducerPerformance",
    "kafka-server-start": "kafka.Kafka",
    "kafka-topics": _TOOLS + "TopicCommand",
    "kafka-verifiable-consumer": _TOOLS + "VerifiableConsumer",
    "kafka-verifiable-producer": _TOOLS + "VerifiableProducer",
}
_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)


class Said(NamedTuple):
    """The exit code of a tool, of Kafka's or of ours, and what it wrote."""

    code: int
    out: str
    err: str

    @classmethod
    def by(cls, done: subprocess.CompletedProcess[str]) -> "Said":
        """What a process said that has ended."""
        return cls(done.returncode, done.stdout, done.stderr)


class KafkaTools:
    """Runs a tool at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._machine = self._started()

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Said:
        """Run a tool, by the name of its script."""
        assert self._machine.stdin is not None
        assert self._machine.stdout is not None
        words = [b64encode(one.encode()).decode() for one in (CLASSES[tool], stdin, *arguments)]
        hangs = Timer(PATIENCE_S, self._machine.kill)
        hangs.start()
        try:
            self._machine.stdin.write(" ".join(words) + "\n")
            self._machine.stdin.flush()
            answer = self._machine.stdout.readline()
        finally:
            hangs.cancel()
        assert answer, f"{tool} {' '.join(arguments)} does not end"
        code, out, err = answer.rstrip("\n").split(" ")
        if code == "-":
            code = self._machine.wait()
            self.close()
            self._machine = self._started()
        return Said(int(code), b64decode(out).decode(), b64decode(err).decode())

    def close(self) -> None:
        """End the virtual machine."""
        self._machine.kill()
        self._machine.communicate()

    def _started(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)


@contextmanager
def kafka_tools() -> Generator[KafkaTools]:
    """The tools, for as long as the `with` lasts."""
    with judge_needed():
        command = java_command(str(SOURCE), options=_OPTIONS)
    with closing(KafkaTools(command)) as tools:
        yield tools
