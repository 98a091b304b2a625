"""Logs that are not one record after the other: ranges of them are read whole, and nothing else."""

import time
from collections.abc import Generator
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.offset_ranges import OffsetRange
from ottla.pipeline.range_reader import RangeReader
from ottla.records.arrow import to_arrow
from ottla.sync import Admin, Producer
from pipeline.micro_batches import MicroBatches

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def own_broker() -> Generator[OttlaBroker]:
    settings = {"log.cleaner.backoff.ms": 100, "log.segment.delete.delay.ms": 100}
    with ottla_broker(settings) as running:
        yield running


@pytest.fixture
def query(own_broker: OttlaBroker, topic: str) -> MicroBatches:
    return MicroBatches(
        **{"kafka.bootstrap.servers": own_broker.bootstrap, "startingOffsets": "earliest"},
        subscribe=topic,
    )


@pytest.fixture
def reader(own_broker: OttlaBroker) -> Generator[RangeReader]:
    found = RangeReader({"bootstrap.servers": own_broker.bootstrap, "auto.offset.reset": "none"})
    yield found
    found.close()


def offsets(reader: RangeReader, topic: str, start: int, end: int) -> list[int]:
    """Of the records of a range; what was fetched behind it is not counted."""
    where = TopicPartition(topic, PartitionIndex(0))
    found: list[int] = []
    for columns in reader.read(OffsetRange(where, start, end), 60, skips_lost=False):
        batch: Any = to_arrow(columns)
        found += [one for one in batch.column("offset").to_pylist() if one < end]
    return found


def test_a_compacted_log_has_holes(
    own_broker: OttlaBroker, topic: str, reader: RangeReader, query: MicroBatches
) -> None:
    servers = {"bootstrap.servers": own_broker.bootstrap}
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "10000",
    }
    count, begun_ms = 200, int(time.time() * 1000)
    with Admin(servers) as admin:
        admin.create_topic(topic, 1, config=config)
    with Producer({**servers, "linger.ms": 0}) as producer:
        for n in range(count):  # one by one, for segments are rolled between batches
            key = b"often %d" % (n % 7) if n % 10 else b"once %d" % n
            producer.send(topic, b"%d" % n, key=key, timestamp_ms=begun_ms + 1000 * n).result()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(left := offsets(reader, topic, 0, count)) > 100:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.1)
    assert left[-1] == count - 1
    assert left == sorted(set(left))
    assert {*range(0, count, 10)} <= {*left}  # keys that came once
    # Ranges that begin in holes, end in them, or lie in them.
    for start in range(0, count - 30, 13):
        kept = [one for one in left if start <= one < start + 30]
        found = offsets(reader, topic, start, start + 30)
        assert set(kept) >= set(found)  # what was compacted meanwhile is gone from both
        assert {one for one in found if one % 10 == 0} == {one for one in kept if one % 10 == 0}
    taken = query.run(maxOffsetsPerTrigger="30")
    assert {*range(0, count, 10), count - 1} <= {*taken}
    assert len(query.batches) == 7
    assert len(taken) == len({*taken}) <= len(left)


def test_ranges_begin_and_end_inside_of_batches(
    own_broker: OttlaBroker, topic: str, reader: RangeReader
) -> None:
    servers = {"bootstrap.servers": own_broker.bootstrap}
    with Admin(servers) as admin:
        admin.create_topic(topic, 1)
    for compression in COMPRESSIONS:
        with Producer({**servers, "compression.type": compression, "linger.ms": 1000}) as producer:
            for n in range(20):
                producer.send(topic, b"%d" % n)
    for start, end in ((0, 100), (3, 7), (19, 21), (7, 93), (99, 100), (0, 1)):
        assert offsets(reader, topic, start, end) == [*range(start, end)]


def test_large_records_of_every_compression(
    own_broker: OttlaBroker, topic: str, reader: RangeReader
) -> None:
    size = 900 * 1024
    servers = {"bootstrap.servers": own_broker.bootstrap}
    with Admin(servers) as admin:
        admin.create_topic(topic, 1)
    for number, compression in enumerate(COMPRESSIONS):
        settings = {**servers, "compression.type": compression, "max.request.size": 2 * size}
        with Producer(settings) as producer:
            for n in range(3):
                producer.send(topic, b"%02d" % (10 * number + n) * (size // 2))
    where = TopicPartition(topic, PartitionIndex(0))
    found: list[bytes] = []
    for columns in reader.read(OffsetRange(where, 1, 14), 60, skips_lost=False):
        batch: Any = to_arrow(columns)
        found += batch.column("value").to_pylist()
    expected = [b"%02d" % (10 * number + n) for number in range(5) for n in range(3)]
    # What was fetched behind the end is cut off when rows are made of it.
    assert [value[:2] for value in found[:13]] == expected[1:14]
    assert {len(value) for value in found} == {size}


def test_empty_topics_have_nothing_and_then_something(
    own_broker: OttlaBroker, topic: str, query: MicroBatches
) -> None:
    servers = {"bootstrap.servers": own_broker.bootstrap}
    with Admin(servers) as admin:
        admin.create_topic(topic, 3)
    assert query.run() == []
    assert query.run() == []
    with Producer(servers) as producer:
        producer.send(topic, b"1", partition=1)
    assert query.run() == [1]
    assert query.run() == []
