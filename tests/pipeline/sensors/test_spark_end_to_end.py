"""The job on real parts, with devices of a fixed seed: exactly what plain Python finds."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from sensors import job, topics
from sensors.devices import Message, messages

from judges.ottla_broker import OttlaBroker
from ottla.sync import Admin
from pipeline.sensors.judging import check, send
from pipeline.sensors.plain import computed

SEED = 7
START_MS = 1_800_000_000_000
PIECE_MS = 25_000
PIECES = 3


@pytest.fixture
def servers(broker: OttlaBroker) -> Generator[str]:
    """A broker with the topics of the example, which are gone afterwards."""
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        topics.create(admin)
        yield broker.bootstrap
        admin.delete_topics(topics.PARTITIONS).or_raise()


def piece(number: int) -> list[Message]:
    start_ms = START_MS + number * PIECE_MS
    return list(messages(SEED, start_ms, start_ms + PIECE_MS))


def test_averages_alerts_and_dead_letters_are_those_of_plain_python(
    spark: Any, servers: str, tmp_path: Path
) -> None:
    # A run for each piece: all but the first begin at the checkpoint.
    for number in range(PIECES):
        send(servers, piece(number))
        wanted = job.queries(spark, servers, str(tmp_path), availableNow=True)
        for start in wanted.values():
            start().awaitTermination()
    expected = computed(map(piece, range(PIECES)))
    assert expected.too_late > 0, "something is later than the watermark allows"
    assert len(expected.averages) > 1000
    assert len(expected.alerts) > 10
    check(servers, tmp_path, expected)
