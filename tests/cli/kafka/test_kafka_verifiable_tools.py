"""The verifiable producer and consumer, ours beside Java's, on a real Kafka and on our broker."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from cli.records.harness import BIN, PATIENCE_S, environment
from judges.java import java_command
from judges.ottla_broker import ottla_broker
from kafka_java import judge_needed, kafka_broker
from ottla.client.admin import Admin, NewTopic

TOOLS = "org.apache.kafka.tools."
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-XX:TieredStopAtLevel=1")
CLASSES = {
    "kafka-verifiable-producer": TOOLS + "VerifiableProducer",
    "kafka-verifiable-consumer": TOOLS + "VerifiableConsumer",
}


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def server(request: pytest.FixtureRequest) -> Generator[str]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    with (ottla_broker if request.param == "ottla" else kafka_broker)(settings) as broker:
        asyncio.run(_create(broker.bootstrap))
        yield broker.bootstrap


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
    """Events without times and rates."""
    text = json.dumps(found).replace(f"{who}-topic", "topic")
    return [
        {**one, "timestamp": 0, **({"avg_throughput": 0} if "sent" in one else {})}
        for one in json.loads(text)
    ]


def both(tool: str, server: str, *arguments: str) -> list[dict[str, Any]]:
    """What both told, which is the same."""
    java_code, java = events("java", tool, server, *arguments)
    code, ours = events("ours", tool, server, *arguments)
    assert code == java_code
    assert plain(ours, "ours") == plain(java, "java")
    return ours


def test_what_is_written_and_read_is_told(server: str) -> None:
    told = both(
        "kafka-verifiable-producer", server,
        "--max-messages", "5", "--repeating-keys", "2", "--value-prefix", "7",
    )  # fmt: skip
    assert [one["name"] for one in told] == [
        "startup_complete", *["producer_send_success"] * 5, "shutdown_complete", "tool_data"
    ]  # fmt: skip
    told = both(
        "kafka-verifiable-consumer", server, "--group-id", "g", "--max-messages", "5", "--verbose"
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
def test_a_wrong_use_ends_as_javas(server: str, tool: str, arguments: list[str]) -> None:
    java = subprocess.run(
        command("java", tool, server, *arguments), capture_output=True, text=True, check=False
    )
    ours = subprocess.run(
        command("ours", tool, server, *arguments), capture_output=True, text=True, check=False
    )
    assert ours.returncode == java.returncode == 1
    # Long lines are broken, with more spaces between the words.
    assert ours.stderr.splitlines()[0] in " ".join(java.stderr.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(server: str, number: signal.Signals) -> None:
    for tool, arguments in (
        ("kafka-verifiable-producer", ["--throughput", "50"]),
        ("kafka-verifiable-consumer", ["--group-id", f"signal-{number}"]),
    ):
        with subprocess.Popen(
            command("ours", tool, server, *arguments),
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
