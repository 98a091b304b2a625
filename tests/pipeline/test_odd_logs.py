"""Ranges of logs with gaps and large batches are read completely and exactly."""

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
    """The offsets of the records in a range, without those fetched after its end."""
    where = TopicPartition(topic, PartitionIndex(0))
    found: list[int] = []
    for columns in reader.read(OffsetRange(where, start, end), 60, skips_lost=False):
        batch: Any = to_arrow(columns)
        found += [one for one in batch.column("offset").to_pylist() if one < end]
    return found


def test_compacted_log_with_gaps_is_read(
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
        for n in range(count):  # one by one, because segments roll between batches
            key = b"often %d" % (n % 7) if n % 10 else b"once %d" % n
            producer.send(topic, b"%d" % n, key=key, timestamp_ms=begun_ms + 1000 * n).result()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(left := offsets(reader, topic, 0, count)) > 100:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.1)
    assert left[-1] == count - 1
    assert left == sorted(set(left))
    assert {*range(0, count, 10)} <= {*left}  # keys with one record
    # Ranges that start, end or lie in gaps.
    for start in range(0, count - 30, 13):
        kept = [one for one in left if start <= one < start + 30]
        found = offsets(reader, topic, start, start + 30)
        assert set(kept) >= set(found)  # records compacted meanwhile are missing in both
        assert {one for one in found if one % 10 == 0} == {one for one in kept if one % 10 == 0}
    taken = query.run(maxOffsetsPerTrigger="30")
    assert {*range(0, count, 10), count - 1} <= {*taken}
    assert len(query.batches) == 7
    assert len(taken) == len({*taken}) <= len(left)


def test_ranges_can_start_and_end_inside_batches(
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


def test_large_records_of_every_codec_are_read(
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
    # Records fetched after the end are dropped when rows are made.
    assert [value[:2] for value in found[:13]] == expected[1:14]
    assert {len(value) for value in found} == {size}


def test_empty_topic_is_read_before_and_after_a_write(
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
