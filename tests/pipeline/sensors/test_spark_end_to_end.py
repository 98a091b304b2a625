"""The job on real parts, with devices of a fixed seed: exactly what plain Python finds."""

import json
import math
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from sensors import job, topics
from sensors.devices import Message, messages

from judges.ottla_broker import OttlaBroker
from ottla.sync import Admin, Consumer, Producer
from pipeline.sensors.plain import Average, Found, computed

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
        wanted = job.queries(spark, servers, tmp_path.as_uri(), availableNow=True)
        for writer in wanted.values():
            writer.start().awaitTermination()
    expected = computed(map(piece, range(PIECES)))
    assert expected.too_late > 0, "something is later than the watermark allows"
    assert len(expected.averages) > 1000
    assert len(expected.alerts) > 10
    check_averages(spark, tmp_path, expected)
    check_alerts(servers, expected)
    check_dead_letters(servers, expected)


def send(servers: str, sent: list[Message]) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        for one in sent:
            producer.send(topics.READINGS, one.value, key=one.key.encode())


def check_averages(spark: Any, folder: Path, expected: Found) -> None:
    rows = spark.read.parquet((folder / job.AVERAGES).as_uri()).collect()
    found: dict[tuple[int, str], Average] = {
        (round(row.start.timestamp() * 1000), row.device): (
            row.temperature,
            row.vibration,
            row.readings,
        )
        for row in rows
    }
    assert len(found) == len(rows), "each is there once"
    assert found.keys() == expected.averages.keys()
    for which, (temperature, vibration, count) in expected.averages.items():
        assert math.isclose(found[which][0], temperature, rel_tol=1e-12)
        assert math.isclose(found[which][1], vibration, rel_tol=1e-12)
        assert found[which][2] == count


def check_alerts(servers: str, expected: Found) -> None:
    found = [json.loads(record.value) for record in read(servers, topics.ALERTS)]
    parts = ("device", "signal", "value", "mean", "deviation")
    assert sorted(tuple(one[part] for part in parts) for one in found) == sorted(expected.alerts)


def check_dead_letters(servers: str, expected: Found) -> None:
    found = [
        (dict(record.headers)["reason"], record.value)
        for record in read(servers, topics.DEAD_LETTERS)
    ]
    assert sorted(found) == sorted((reason.encode(), value) for reason, value in expected.dead)


def read(servers: str, topic: str) -> list[Any]:
    """All records of a topic."""
    found: list[Any] = []
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        partitions = topics.partitions(topic)
        consumer.assign(*partitions)
        ends = consumer.end_offsets(*partitions)
        while any(consumer.position(one) < end for one, end in ends.items()):
            found += consumer.poll(10)
    return found
