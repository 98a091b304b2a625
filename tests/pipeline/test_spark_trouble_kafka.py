"""`format("ottla")` on Apache Kafka: reads of transactions, writes and group offsets."""

from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from judges.kafka_broker import KafkaBroker
from kafka_java import kafka_broker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.offset_ranges import OffsetRange
from ottla.pipeline.range_reader import RangeReader
from ottla.records.arrow import to_arrow
from ottla.sync import Admin, Producer
from pipeline.queries import numbers, source, taken
from sampling import sample

TOPIC = "transactions"
COMMITTED = [*range(10), *range(20, 30)]
ABORTED = [*range(10, 20), *range(30, 40)]
OPEN = [*range(40, 45)]
EVERYTHING = sorted(COMMITTED + ABORTED + OPEN)


class AbortTransaction(Exception):
    """Aborts a transaction."""


def send(producer: Producer[Any, Any], values: list[int]) -> None:
    for one in [producer.send(TOPIC, b"%d" % n, partition=n % 2) for n in values]:
        one.result()


@pytest.fixture(scope="module")
def kafka() -> Generator[KafkaBroker]:
    """A topic with committed and aborted transactions, and an open one at its end."""
    with kafka_broker() as broker:
        servers = {"bootstrap.servers": broker.bootstrap}
        with Admin(servers) as admin:
            admin.create_topic(TOPIC, 2)
        with Producer({**servers, "transactional.id": "first"}) as producer:
            for start in range(0, 40, 10):
                with suppress(AbortTransaction), producer.transaction():
                    send(producer, [*range(start, start + 10)])
                    if start in ABORTED:
                        raise AbortTransaction
        # By default the broker aborts a transaction after a minute.
        settings = {**servers, "transactional.id": "second", "transaction.timeout.ms": 900_000}
        with Producer(settings) as producer, suppress(AbortTransaction), producer.transaction():
            send(producer, OPEN)
            yield broker
            raise AbortTransaction


@pytest.mark.parametrize(
    ("start", "end"), [(0, 24), (18, 24), (19, 22), (23, 24), (5, 6), (5, 12), (7, 9), (11, 14)]
)
def test_range_without_committed_records_ends(kafka: KafkaBroker, start: int, end: int) -> None:
    """Each transaction has five records in a partition, and a marker."""
    where = TopicPartition(TOPIC, PartitionIndex(0))
    settings: dict[str, object] = {
        "bootstrap.servers": kafka.bootstrap,
        "auto.offset.reset": "none",
        "isolation.level": "read_committed",
    }
    reader = RangeReader(settings)
    try:
        parts: list[Any] = [
            to_arrow(columns)
            for columns in reader.read(OffsetRange(where, start, end), 60, skips_lost=False)
        ]
    finally:
        reader.close()
    found = [one for part in parts for one in part.column("offset").to_pylist() if one < end]
    assert found == [one for one in (*range(5), *range(12, 17)) if start <= one < end]


def rows(frame: Any) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


LEVELS = {"read_committed": COMMITTED, "read_uncommitted": EVERYTHING}
CASES = [
    *((level, "ottla") for level in sample(LEVELS, 1)),
    *(pytest.param(level, "kafka", marks=pytest.mark.judge) for level in LEVELS),
]


@pytest.mark.parametrize(("level", "streams"), CASES)
def test_transactions_are_read_as_by_the_connector(
    spark: Any, kafka: KafkaBroker, tmp_path: Path, level: str, streams: str
) -> None:
    """The last transaction that ended was aborted: only its markers are read.

    A test run takes one isolation level; `make soak` and `make judge` take both.
    """
    expected = LEVELS[level]
    found: dict[str, list[Any]] = {}
    options: dict[str, Any] = {"subscribe": TOPIC, "kafka.isolation.level": level}
    for name in ("ottla", "kafka"):
        found[name] = rows(source(spark, kafka.bootstrap, name, stream=False, **options))
        assert sorted(int(row.value) for row in found[name]) == expected
    assert found["ottla"] == found["kafka"]
    stream = source(spark, kafka.bootstrap, streams, **options, maxOffsetsPerTrigger=12)
    batches = taken(stream.select("value"), tmp_path)
    assert len(batches) > 1
    assert numbers(spark, tmp_path) == expected
    assert taken(stream.select("value"), tmp_path) == []


def test_topic_is_copied_and_group_offsets_are_committed(
    spark: Any, kafka: KafkaBroker, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "subscribe": TOPIC,
        "maxOffsetsPerTrigger": 20,
        "kafka.isolation.level": "read_committed",
        "kafka.group.id": "copied",
    }
    frame = source(spark, kafka.bootstrap, **options)
    writer = frame.select("key", "value").writeStream.format("ottla")
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap).option("topic", "copy")
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        admin.create_topic("copy", 3)
        query = (
            writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(300)
        copied = source(spark, kafka.bootstrap, "kafka", stream=False, subscribe="copy").collect()
        assert sorted(int(row.value) for row in copied) == COMMITTED
        kept = admin.list_group_offsets("copied")["copied"]
    assert {one[1] for one in kept} == {0, 1}
