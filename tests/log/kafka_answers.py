"""The answers of a real Kafka about its partitions: to a consumer and to single requests."""

import importlib
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from judges.kafka_broker import KafkaBroker
from judges.wire import Wire
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.records.batch import batches

# The type checker has the stubs of an earlier version.
kafka_python: Any = importlib.import_module("kafka")

LATEST_TIME = -3  # of ListOffsets: the record with the largest timestamp
EPOCHS = range(6)  # more epochs than exist
CONSUME_S_MAX = 30


class ConsumedRecord(NamedTuple):
    """A record as a consumer reads it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class AtTime(NamedTuple):
    """An answer of ListOffsets; all fields are -1 if there is no such record."""

    offset: int
    timestamp: int
    leader_epoch: int


class ProducerAnswer(NamedTuple):
    """An answer of DescribeProducers about one producer."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_first_offset: int


@dataclass(frozen=True, slots=True)
class KafkaAnswers:
    """All answers of Kafka about one partition."""

    log_start: int
    high_watermark: int
    last_stable: int
    raw: bytes  # the batches as they are on the disk of Kafka
    aborted: frozenset[tuple[int, int]]  # producer id and first offset
    seen: list[ConsumedRecord]
    committed: list[ConsumedRecord]
    times: dict[int, AtTime]
    producers: list[ProducerAnswer]
    epoch_ends: dict[int, tuple[int, int] | None]


def ask_all(
    kafka: KafkaBroker, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaAnswers]:
    """Ask Kafka about every partition."""
    with (
        kafka.wire() as wire,
        _consumer(kafka, "read_uncommitted") as consumer,
        _consumer(kafka, "read_committed") as committed,
    ):
        return {partition: _ask(wire, consumer, committed, partition) for partition in partitions}


@contextmanager
def _consumer(kafka: KafkaBroker, isolation_level: str) -> Generator[Any]:
    made = kafka_python.KafkaConsumer(
        bootstrap_servers=kafka.bootstrap,
        isolation_level=isolation_level,
        exclude_internal_topics=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=100,
    )
    try:
        yield made
    finally:
        made.close()


def _ask(wire: Wire, consumer: Any, committed: Any, partition: TopicPartition) -> KafkaAnswers:
    first = _fetch(wire, partition, 0, committed=False)
    start, end = first.log_start_offset, first.high_watermark
    raw = _fetch_all(wire, partition, start, end)
    stable = _fetch(wire, partition, start, committed=True).last_stable_offset
    seen = _consume(consumer, partition, start, end)
    return KafkaAnswers(
        start,
        end,
        stable,
        raw,
        _aborted(wire, partition, start, stable),
        seen,
        _consume(committed, partition, start, stable),
        _times(wire, partition, seen),
        _producers(wire, partition),
        {epoch: _epoch_end(wire, partition, epoch) for epoch in EPOCHS},
    )


def _fetch(wire: Wire, partition: TopicPartition, offset: int, *, committed: bool) -> PartitionData:
    asked = FetchPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=2**20
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=partition.topic, partitions=[asked])],
    )
    answer = wire.ask(request, 12, FetchResponse).responses[0].partitions[0]
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)
    if answer.error_code and not offset:
        return _fetch(wire, partition, _list(wire, partition, -2).offset, committed=committed)
    return answer


def _fetch_all(wire: Wire, partition: TopicPartition, offset: int, end: int) -> bytes:
    raw = b""
    while offset < end:
        records = bytes(_fetch(wire, partition, offset, committed=False).records or b"")
        if not records:
            break  # compaction removed the last records
        raw += records
        offset = list(batches(records))[-1].header.next_offset
    return raw


def _aborted(
    wire: Wire, partition: TopicPartition, offset: int, stable: int
) -> frozenset[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    while offset < stable:
        answer = _fetch(wire, partition, offset, committed=True)
        found |= {(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()}
        if not answer.records:
            break
        offset = list(batches(bytes(answer.records)))[-1].header.next_offset
    return frozenset(found)


def _consume(
    consumer: Any, partition: TopicPartition, start: int, end: int
) -> list[ConsumedRecord]:
    assigned = kafka_python.TopicPartition(partition.topic, partition.partition)
    consumer.assign([assigned])
    consumer.seek(assigned, start)
    found: list[ConsumedRecord] = []
    deadline_s = time.monotonic() + CONSUME_S_MAX
    while consumer.position(assigned) < end:
        assert time.monotonic() < deadline_s, f"{partition}: the consumer does not reach {end}"
        found += [
            ConsumedRecord(
                record.offset, record.timestamp, record.key, record.value, tuple(record.headers)
            )
            for record in consumer.poll(200).get(assigned, [])
        ]
    return found


def _list(wire: Wire, partition: TopicPartition, timestamp: int) -> AtTime:
    asked = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=partition.topic, partitions=[asked])]
    answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return AtTime(found.offset, found.timestamp, found.leader_epoch)


def _times(
    wire: Wire, partition: TopicPartition, seen: Iterable[ConsumedRecord]
) -> dict[int, AtTime]:
    """The answers for every timestamp, for its neighbours, and for the largest timestamp."""
    asked = {one.timestamp + beside for one in seen for beside in (-1, 0, 1)} | {0, 2**60}
    return {
        timestamp: _list(wire, partition, timestamp) for timestamp in (LATEST_TIME, *sorted(asked))
    }


def _producers(wire: Wire, partition: TopicPartition) -> list[ProducerAnswer]:
    asked = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
    request = DescribeProducersRequest(topics=[asked])
    answer = wire.ask(request, 0, DescribeProducersResponse).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    return sorted(
        ProducerAnswer(
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.current_txn_start_offset,
        )
        for one in answer.active_producers
    )


def _epoch_end(wire: Wire, partition: TopicPartition, epoch: int) -> tuple[int, int] | None:
    asked = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=epoch)
    topics = [OffsetForLeaderTopic(topic=partition.topic, partitions=[asked])]
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    answer = wire.ask(request, 4, OffsetForLeaderEpochResponse)
    found = answer.topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return None if found.end_offset < 0 else (found.leader_epoch, found.end_offset)
