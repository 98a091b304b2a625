"""`kafka-console-producer` reports each refused record at once."""

import select
import subprocess
from collections.abc import Generator
from typing import IO

import pytest

from cli.records.harness import BIN, PATIENCE_S, broker_with, environment, run
from judges.ottla_broker import OttlaBroker
from ottla.client.admin import NewTopic

TOO_LARGE = b"x" * 500 + b"\n"


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    topics = [
        NewTopic("small", partitions=1, config={"max.message.bytes": "200"}),
        NewTopic("synced", partitions=1, config={"max.message.bytes": "200"}),
        NewTopic("keyed", partitions=1, config={"cleanup.policy": "compact"}),
    ]
    with broker_with(*topics) as running:
        yield running


def words(broker: OttlaBroker, topic: str, *more: str) -> list[str]:
    said = ["--topic", topic, "--bootstrap-server", broker.bootstrap, *more]
    return [str(BIN / "kafka-console-producer"), *said]


def next_line(stream: IO[bytes]) -> bytes:
    """Return the next line, which must arrive soon."""
    assert select.select([stream], [], [], PATIENCE_S)[0], "nothing is said"
    return stream.readline()


def test_refused_record_is_reported_before_the_next_line(broker: OttlaBroker) -> None:
    with subprocess.Popen(
        words(broker, "small", "--timeout", "0"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=environment(),
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stderr is not None
            for _ in range(3):
                process.stdin.write(TOO_LARGE)
                told = next_line(process.stderr)
                assert told.startswith(b"Error when sending message to topic small with error: ")
            process.stdin.write(b"ok\n")
            _, rest = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, rest) == (0, b"")
    assert run("ottla", "consume", "small", "-b", broker.bootstrap).stdout == b"ok\n"


@pytest.mark.parametrize(
    ("topic", "stdin", "count"),
    [
        ("keyed", b"a\nb\nc\n", 3),  # one batch, refused completely
        ("small", TOO_LARGE * 4 + b"fits\n", 4),
    ],
)
def test_each_record_of_a_refused_batch_is_reported(
    broker: OttlaBroker, topic: str, stdin: bytes, count: int
) -> None:
    words_ = words(broker, topic)[1:]
    done = run("kafka-console-producer", *words_, stdin=stdin)
    assert done.returncode == 0
    begin = f"Error when sending message to topic {topic} with error: "
    told = done.stderr.decode().splitlines()
    assert [line.startswith(begin) for line in told] == [True] * count


def test_sync_stops_at_the_first_refused_record(broker: OttlaBroker) -> None:
    stdin = b"ok\n" + TOO_LARGE * 2
    done = run("kafka-console-producer", *words(broker, "synced", "--sync")[1:], stdin=stdin)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    assert run("ottla", "consume", "synced", "-b", broker.bootstrap).stdout == b"ok\n"
