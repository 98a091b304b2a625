"""Compares what the job has written to topics and files with what plain Python computes."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet

from ottla.sync import Admin, Consumer, Producer
from pipeline.sensors.plain import Results
from sensors.description import READINGS, load_example
from sensors.devices import Message, fails, is_slow, sends_invalid
from shared.example import Topic
from shared.monitor import create_topics

EXAMPLE = load_example()


def is_chosen(message: Message) -> bool:
    """Whether a job gets a message: those of some normal devices, and of all others."""
    device = int(message.key[-3:])
    return device < 20 or fails(device) or is_slow(device) or sends_invalid(device)


def send(servers: str, messages: Iterable[Message]) -> None:
    """Create the topics of the example if necessary, and send readings at once."""
    with Admin({"bootstrap.servers": servers}) as admin:
        create_topics(admin, EXAMPLE.counted_topics)
    with Producer({"bootstrap.servers": servers}) as producer:
        for one in messages:
            producer.send(READINGS, one.value, key=one.key.encode())


def check(servers: str, directory: Path, expected: Results) -> None:
    """Compare all outputs, each of which must be there once."""
    _, alerts, dead_letters = EXAMPLE.counted_topics
    _check_averages(directory / "device-averages", expected)
    _check_alerts(_read(servers, alerts), expected)
    _check_dead_letters(_read(servers, dead_letters), expected)


def _check_averages(directory: Path, expected: Results) -> None:
    parquet: Any = pyarrow.parquet
    files = [parquet.read_table(path) for path in directory.glob("*.parquet")]
    rows: list[dict[str, Any]] = [row for file in files for row in file.to_pylist()]
    found = {(round(row["start"].timestamp() * 1000), row["device"]): row for row in rows}
    assert len(found) == len(rows), "an average was written twice"
    assert found.keys() == expected.averages.keys()
    for which, (temperature, vibration, count) in expected.averages.items():
        assert math.isclose(found[which]["temperature"], temperature, rel_tol=1e-12)
        assert math.isclose(found[which]["vibration"], vibration, rel_tol=1e-12)
        assert found[which]["readings"] == count


def _check_alerts(records: list[Any], expected: Results) -> None:
    found = [json.loads(record.value) for record in records]
    columns = ("device", "signal", "value", "mean", "deviation")
    rows = [tuple(one[column] for column in columns) for one in found]
    assert sorted(rows) == sorted(expected.alerts)


def _check_dead_letters(records: list[Any], expected: Results) -> None:
    found = [(dict(record.headers)["ottla.error"].decode(), record.value) for record in records]
    assert sorted(found) == sorted(expected.dead_letters)


def _read(servers: str, topic: Topic) -> list[Any]:
    """Read all records of a topic."""
    found: list[Any] = []
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(*topic.partitions)
        ends = consumer.end_offsets(*topic.partitions)
        while any(consumer.position(one) < end for one, end in ends.items()):
            found += consumer.poll(10)
    return found
