"""Runs Kafka's command-line tools, one after the other, in one Java process.

A tool reads, writes and exits as in its own process, except that it logs nothing and may leave
threads running. The Java process starts with the first tool, and again after a tool that ended it.
The fixture `java_tools` is shared by all tests of a process.
"""

import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple, cast

from judges.java import source_command
from judges.recording import Json
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
    "kafka-leader-election": _TOOLS + "LeaderElectionCommand",
    "kafka-log-dirs": _TOOLS + "LogDirsCommand",
    "kafka-producer-perf-test": _TOOLS + "ProducerPerformance",
    "kafka-reassign-partitions": _TOOLS + "reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": _TOOLS + "ReplicaVerificationTool",
    "kafka-server-start": "kafka.Kafka",
    "kafka-topics": _TOOLS + "TopicCommand",
    "kafka-verifiable-consumer": _TOOLS + "VerifiableConsumer",
    "kafka-verifiable-producer": _TOOLS + "VerifiableProducer",
}


class Said(NamedTuple):
    """The exit code and the output of a tool, of Kafka or of Ottla."""

    code: int
    out: str
    err: str

    @classmethod
    def by(cls, done: subprocess.CompletedProcess[str]) -> "Said":
        """The output of a process that has ended."""
        return cls(done.returncode, done.stdout, done.stderr)

    @classmethod
    def of(cls, recorded: Json) -> "Said":
        """The recorded output of a tool."""
        found = cast("dict[str, Any]", recorded)
        return cls(found["code"], "\n".join(found["out"]), "\n".join(found["err"]))

    @property
    def json(self) -> Json:
        """The output for a recording, as lists of lines."""
        return {"code": self.code, "out": [*self.out.split("\n")], "err": [*self.err.split("\n")]}


class KafkaTools:
    """Runs one tool at a time."""

    def __init__(self) -> None:
        self._machine: subprocess.Popen[str] | None = None

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Said:
        """Run a tool, by the name of its script."""
        machine = self._machine = self._machine or self._started()
        assert machine.stdin is not None
        assert machine.stdout is not None
        words = [b64encode(one.encode()).decode() for one in (CLASSES[tool], stdin, *arguments)]
        hangs = Timer(PATIENCE_S, machine.kill)
        hangs.start()
        try:
            machine.stdin.write(" ".join(words) + "\n")
            machine.stdin.flush()
            answer = machine.stdout.readline()
        finally:
            hangs.cancel()
        if not answer:
            self.close()
        assert answer, f"{tool} {' '.join(arguments)} does not end"
        code, out, err = answer.rstrip("\n").split(" ")
        if code == "-":
            code = machine.wait()
            self.close()
        return Said(int(code), b64decode(out).decode(), b64decode(err).decode())

    def close(self) -> None:
        """End the Java process."""
        if self._machine is not None:
            self._machine.kill()
            self._machine.communicate()
            self._machine = None

    def _started(self) -> subprocess.Popen[str]:
        with judge_needed():
            command = source_command(SOURCE, log_level="off")
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
