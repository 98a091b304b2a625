"""What Kafka and Ottla do with a flipped byte when they start after a kill.

Kafka is killed, a byte of each topic is flipped, and its checkpoint of the recovery points is
written as it could have been. Ottla opens a copy of the directory, and Kafka the original.
"""

import asyncio
import importlib
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from judges.kafka_broker import KafkaBroker
from kafka_java import kafka_broker
from log.kafka_directory import open_directory
from log.kafka_topics import INDEX_INTERVAL_BYTES, SEGMENT_BYTES, START_MS, create
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerEpoch, Offset, PartitionIndex, TopicPartition
from ottla.log.checkpoints import format_offsets, parse_offsets
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.names import CLEAN_SHUTDOWN, RECOVERY_POINTS
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.batch import batches
from ottla.records.builder import BatchBuilder

# The type checker has the stubs of an earlier version.
kafka_python: Any = importlib.import_module("kafka")

pytestmark = pytest.mark.judge

VALUE_BYTES = 1000
PER_SEGMENT = 7  # batches with one record each
COUNT = 40
SEGMENTS = range(0, COUNT, PER_SEGMENT)


class Case(NamedTuple):
    """A topic, the recovery point of its partition, and the offset of the flipped byte."""

    topic: str
    recovery_point: int
    damaged: int

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, PartitionIndex(0))


ABOVE = Case("above", recovery_point=14, damaged=16)
BELOW = Case("below", recovery_point=35, damaged=3)
BELOW_IN_ITS_SEGMENT = Case("below-in-its-segment", recovery_point=39, damaged=37)
CASES = (ABOVE, BELOW, BELOW_IN_ITS_SEGMENT)


def write(kafka: KafkaBroker, topic: str) -> None:
    """Write batches with one record each."""
    with kafka.wire() as wire:
        for number in range(COUNT):
            builder = BatchBuilder()
            builder.append(START_MS + number, None, bytes(VALUE_BYTES))
            data = PartitionProduceData(index=0, records=builder.build())
            request = ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=topic, partition_data=[data])],
            )
            answer = wire.ask(request, 9, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0


def files(data: Path, case: Case) -> dict[int, bytes]:
    """Return the segments of a partition, by their base offsets."""
    folder = data / str(case.partition)
    return {int(path.stem): path.read_bytes() for path in sorted(folder.glob("*.log"))}


def flip(data: Path, case: Case) -> None:
    """Flip a bit in the value of a record."""
    base = case.damaged // PER_SEGMENT * PER_SEGMENT
    content = bytearray(files(data, case)[base])
    position = 0
    for batch in batches(bytes(content)):
        position += batch.header.size
        if batch.header.base_offset == case.damaged:
            content[position - VALUE_BYTES // 2] ^= 1
            break
    (data / str(case.partition) / f"{base:020d}.log").write_bytes(content)


def fetch(kafka: KafkaBroker, case: Case, offset: int) -> PartitionData:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=case.topic, partitions=[asked])],
    )
    with kafka.wire() as wire:
        return wire.ask(request, 12, FetchResponse).responses[0].partitions[0]


def sent(kafka: KafkaBroker, case: Case, offset: int) -> dict[int, bool]:
    """Return the offsets of the batches that Kafka sends, and whether their CRC is right."""
    answer = fetch(kafka, case, offset)
    assert answer.error_code == ErrorCode.NONE
    found = batches(bytes(answer.records or b""))
    return {one.header.base_offset: one.crc_ok for one in found}


def consumed(kafka: KafkaBroker, case: Case) -> int:
    """Return the position at which a consumer cannot go on."""
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=kafka.bootstrap, auto_offset_reset="none", enable_auto_commit=False
    )
    partition = kafka_python.TopicPartition(case.topic, 0)
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        with pytest.raises(kafka_python.errors.CorruptRecordError):
            _poll_all(consumer, partition)
        return consumer.position(partition)
    finally:
        consumer.close()


def _poll_all(consumer: Any, partition: object) -> None:
    while consumer.position(partition) < COUNT:
        consumer.poll(200)


async def no_pause(_: int) -> None:
    """Scrub without a pause."""


async def read_by_ottla(disk: OsDisk, data: Path) -> None:
    rules = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=INDEX_INTERVAL_BYTES)
    logs = await open_directory(disk, data, lambda topic: rules)
    try:
        above, below, in_its_segment = (logs[case.partition].log for case in CASES)
        assert above.log_end_offset == ABOVE.damaged
        aside = (data / str(ABOVE.partition)).glob("*.log.truncated")
        assert sorted(int(path.name.split(".")[0]) for path in aside) == [16, 21, 28, 35]
        assert not below.is_damaged  # a start does not read what is below the recovery point
        await below.scrub(no_pause)
        assert in_its_segment.is_damaged
        for log, case in ((below, BELOW), (in_its_segment, BELOW_IN_ITS_SEGMENT)):
            assert log.log_end_offset == COUNT
            for offset in range(COUNT):
                if offset != case.damaged:
                    assert (await log.read(offset, COUNT, 100)).size
            with pytest.raises(RequestError) as refused:
                await log.read(case.damaged, COUNT, 100)
            assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    finally:
        await logs.close(BrokerEpoch(1))


@pytest.fixture
def disk() -> Generator[OsDisk]:
    disk = OsDisk()
    yield disk
    disk.close()


def test_flipped_byte_above_or_below_the_recovery_point(disk: OsDisk, tmp_path: Path) -> None:
    with kafka_broker() as kafka:
        create(kafka, {one.topic: (1, {}) for one in CASES})
        for case in CASES:
            write(kafka, case.topic)
        kafka.kill()
        assert not (kafka.data / CLEAN_SHUTDOWN).exists()
        points = kafka.data / RECOVERY_POINTS
        known = parse_offsets(points.read_text()) if points.exists() else {}
        known |= {one.partition: Offset(one.recovery_point) for one in CASES}
        points.write_text(format_offsets(known))
        for case in CASES:
            assert [*files(kafka.data, case)] == [*range(0, COUNT, PER_SEGMENT)]
            flip(kafka.data, case)
        damaged = {one: files(kafka.data, one) for one in CASES}
        shutil.copytree(kafka.data, tmp_path / "ours")
        kafka.start()
        # Above the recovery point: cut off, with all that follows.
        assert fetch(kafka, ABOVE, 0).high_watermark == ABOVE.damaged
        assert [*files(kafka.data, ABOVE)] == [0, 7, 14]
        # Below it, in an earlier segment: not looked at, and sent as it is.
        assert fetch(kafka, BELOW, 0).high_watermark == COUNT
        assert files(kafka.data, BELOW) == damaged[BELOW]
        assert sent(kafka, BELOW, 2) == {2: True, 3: False, 4: True, 5: True, 6: True}
        assert consumed(kafka, BELOW) == BELOW.damaged
        # Below it, in the segment that it is in: cut off, although it was flushed.
        end = fetch(kafka, BELOW_IN_ITS_SEGMENT, 0).high_watermark
        assert end == BELOW_IN_ITS_SEGMENT.damaged
        kafka.stop()
    asyncio.run(read_by_ottla(disk, tmp_path / "ours"))
