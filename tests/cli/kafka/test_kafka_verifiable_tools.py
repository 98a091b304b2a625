"""Ottla's verifiable producer and consumer, compared with Kafka's Java tools.

On an Ottla broker, the output of Java's tools is recorded; `make judge` runs both kinds of tools on
both kinds of brokers.
"""

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest

from cli.records.harness import BIN, PATIENCE_S, environment
from judges.java import java_command
from judges.ottla_broker import ottla_broker
from judges.recording import Json, Recording, Scenario
from kafka_java import judge_needed, kafka_broker
from ottla.client.admin import Admin, NewTopic
from recorded import recording

__all__ = ["recording"]  # a fixture

pytestmark = pytest.mark.recorded

TOOLS = "org.apache.kafka.tools."
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-XX:TieredStopAtLevel=1")
CLASSES = {
    "kafka-verifiable-producer": TOOLS + "VerifiableProducer",
    "kafka-verifiable-consumer": TOOLS + "VerifiableConsumer",
}


class Bench(NamedTuple):
    """A broker, and the recorded output of Java's tools on an Ottla broker."""

    server: str
    scenario: Scenario | None

    def javas(self, what: str, ask: Callable[[], Json]) -> Any:
        """Return a recorded fact about Java's tools; Any because events have no fixed type."""
        return ask() if self.scenario is None else self.scenario.answer(what, ask)


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.judge)])
def server(request: pytest.FixtureRequest) -> Generator[tuple[str, str]]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    with (ottla_broker if request.param == "ottla" else kafka_broker)(settings) as broker:
        asyncio.run(_create(broker.bootstrap))
        yield request.param, broker.bootstrap


@pytest.fixture
def bench(
    request: pytest.FixtureRequest, server: tuple[str, str], recording: Recording
) -> Generator[Bench]:
    owner, bootstrap = server
    if owner == "kafka":
        yield Bench(bootstrap, None)
        return
    with recording.scenario(request.node.name) as scenario:
        yield Bench(bootstrap, scenario)


async def _create(server: str) -> None:
    async with Admin({"bootstrap.servers": server}) as admin:
        new = [NewTopic(f"{who}-topic", partitions=1) for who in ("java", "ours")]
        (await admin.create_topics(new)).or_raise()


def command(who: str, tool: str, server: str, *arguments: str) -> list[str]:
    more = [*arguments, "--topic", f"{who}-topic", "--bootstrap-server", server]
    if who == "ours":
        return [str(BIN / tool), *more]
    with judge_needed():
        return java_command(CLASSES[tool], *more, options=QUIET)


def events(who: str, tool: str, server: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        command(who, tool, server, *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=environment(),
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def plain(found: list[dict[str, Any]], who: str) -> list[dict[str, Any]]:
    """Return events without times and rates."""
    text = json.dumps(found).replace(f"{who}-topic", "topic")
    return [
        {**one, "timestamp": 0, **({"avg_throughput": 0} if "sent" in one else {})}
        for one in json.loads(text)
    ]


def both(bench: Bench, tool: str, *arguments: str) -> list[dict[str, Any]]:
    """Return the events of both tools, which must be equal."""

    def ask() -> Json:
        code, java = events("java", tool, bench.server, *arguments)
        return {"code": code, "events": [*plain(java, "java")]}

    code, ours = events("ours", tool, bench.server, *arguments)
    found: Json = {"code": code, "events": [*plain(ours, "ours")]}
    assert found == bench.javas(" ".join((tool, *arguments)), ask)
    return ours


def test_written_and_read_records_are_reported(bench: Bench) -> None:
    told = both(
        bench, "kafka-verifiable-producer",
        "--max-messages", "5", "--repeating-keys", "2", "--value-prefix", "7",
    )  # fmt: skip
    assert [one["name"] for one in told] == [
        "startup_complete", *["producer_send_success"] * 5, "shutdown_complete", "tool_data"
    ]  # fmt: skip
    told = both(
        bench, "kafka-verifiable-consumer", "--group-id", "g", "--max-messages", "5", "--verbose"
    )
    assert [one["name"] for one in told].count("record_data") == 5


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("kafka-verifiable-producer", ["--acks", "5"]),
        ("kafka-verifiable-producer", ["--max-messages", "x"]),
        ("kafka-verifiable-consumer", []),
        ("kafka-verifiable-consumer", ["--group-id", "g", "--nothing"]),
    ],
)
def test_wrong_use_ends_as_javas(bench: Bench, tool: str, arguments: list[str]) -> None:
    def ended(who: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(who, tool, bench.server, *arguments),
            capture_output=True,
            text=True,
            check=False,
        )

    def ask() -> Json:
        java = ended("java")
        # The message follows the usage. Long lines are broken, with extra spaces.
        _, found, message = " ".join(java.stderr.split()).rpartition(f"{tool}: error")
        return {"code": java.returncode, "err": found + message}

    java, ours = bench.javas(" ".join((tool, *arguments)), ask), ended("ours")
    assert ours.returncode == java["code"] == 1
    assert ours.stderr.splitlines()[0] in java["err"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_tool_in_order(bench: Bench, number: signal.Signals) -> None:
    for tool, arguments in (
        ("kafka-verifiable-producer", ["--throughput", "50"]),
        ("kafka-verifiable-consumer", ["--group-id", f"signal-{number}"]),
    ):
        with subprocess.Popen(
            command("ours", tool, bench.server, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as process:
            try:
                assert process.stdout is not None
                lines = [process.stdout.readline(), process.stdout.readline()]
                process.send_signal(number)
                rest, said = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
        told = [json.loads(line)["name"] for line in [*lines, *rest.splitlines()]]
        assert process.returncode == 128 + number, said
        assert told[0] == "startup_complete"
        assert "shutdown_complete" in told[-2:]
        assert "Traceback" not in said
