"""Whether the job has found exactly what plain Python finds, in topics and in files."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet
from sensors import job, topics
from sensors.devices import Message

from ottla.sync import Consumer, Producer
from pipeline.sensors.plain import Found


def send(servers: str, sent: Iterable[Message]) -> None:
    """Send readings now, whenever they were due."""
    with Producer({"bootstrap.servers": servers}) as producer:
        for one in sent:
            producer.send(topics.READINGS, one.value, key=one.key.encode())


def check(servers: str, folder: Path, expected: Found) -> None:
    """Compare everything, and see that nothing is there twice."""
    _check_averages(folder / job.AVERAGES, expected)
    _check_alerts(servers, expected)
    _check_dead_letters(servers, expected)


def _check_averages(folder: Path, expected: Found) -> None:
    parquet: Any = pyarrow.parquet
    files = [parquet.read_table(path) for path in folder.glob("*.parquet")]
    rows: list[dict[str, Any]] = [row for file in files for row in file.to_pylist()]
    found = {(round(row["start"].timestamp() * 1000), row["device"]): row for row in rows}
    assert len(found) == len(rows), "each is there once"
    assert found.keys() == expected.averages.keys()
    for which, (temperature, vibration, count) in expected.averages.items():
        assert math.isclose(found[which]["temperature"], temperature, rel_tol=1e-12)
        assert math.isclose(found[which]["vibration"], vibration, rel_tol=1e-12)
        assert found[which]["readings"] == count


def _check_alerts(servers: str, expected: Found) -> None:
    found = [json.loads(record.value) for record in _read(servers, topics.ALERTS)]
    parts = ("device", "signal", "value", "mean", "deviation")
    assert sorted(tuple(one[part] for part in parts) for one in found) == sorted(expected.alerts)


def _check_dead_letters(servers: str, expected: Found) -> None:
    found = [
        (dict(record.headers)["reason"], record.value)
        for record in _read(servers, topics.DEAD_LETTERS)
    ]
    assert sorted(found) == sorted((reason.encode(), value) for reason, value in expected.dead)


def _read(servers: str, topic: str) -> list[Any]:
    """All records of a topic."""
    found: list[Any] = []
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        partitions = topics.partitions(topic)
        consumer.assign(*partitions)
        ends = consumer.end_offsets(*partitions)
        while any(consumer.position(one) < end for one, end in ends.items()):
            found += consumer.poll(10)
    return found
