"""Offsets that leaders know: of a time, of both ends, and of where a leader's epoch ended.

Invariant: of what is not there the answer is None, never a number that looks like an offset.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ottla.client.cluster_view import ClusterView
from ottla.errors import ErrorCode
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.apis import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from ottla.protocol.message import Message
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
from ottla.transport.channel import Channel, NotSupported

CONSUMER: Final = -1  # the replica that clients say they are
_WITH_OFFSET: Final = 1  # before this version several offsets came, of whole segments
_FOR_CLIENTS: Final = 3  # before this version only brokers may ask for the end of an epoch

P = TypeVar("P")


class FoundOffset(NamedTuple):
    """The first record from a time on, or an end of a partition."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """Where the records of a leader's epoch, or of the last one before it, end."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class OffsetsByTime:
    """Which offset a time has; -2 is the first record, -1 the end."""

    times_ms: Mapping[TopicPartition, int]
    isolation_level: int = 0

    def request(
        self, view: ClusterView, partitions: list[TopicPartition], channel: Channel
    ) -> Message:
        """The request to one leader."""
        if channel.version(LIST_OFFSETS) < _WITH_OFFSET:
            raise NotSupported(f"{channel.address} is too old to tell the offset of a time")

        def row(one: TopicPartition) -> ListOffsetsPartition:
            return ListOffsetsPartition(
                partition_index=one.partition,
                current_leader_epoch=epoch_of(view, one),
                timestamp=self.times_ms[one],
            )

        return ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=self.isolation_level,
            topics=[
                ListOffsetsTopic(name=topic, partitions=rows)
                for topic, rows in by_topic(partitions, row)
            ],
        )

    def outcomes(
        self, answer: Message
    ) -> Iterable[tuple[TopicPartition, ErrorCode, FoundOffset | None]]:
        """What one leader said; None where no record is so new."""
        assert isinstance(answer, ListOffsetsResponse)
        for topic in answer.topics:
            for one in topic.partitions:
                found = FoundOffset(one.offset, one.timestamp, one.leader_epoch)
                place = TopicPartition(topic.name, PartitionIndex(one.partition_index))
                yield place, ErrorCode.of(one.error_code), found if one.offset >= 0 else None


@dataclass(frozen=True, slots=True)
class EpochEnds:
    """Where leaders' epochs ended."""

    epochs: Mapping[TopicPartition, int]

    def request(
        self, view: ClusterView, partitions: list[TopicPartition], channel: Channel
    ) -> Message:
        """The request to one leader."""
        if channel.version(OFFSET_FOR_LEADER_EPOCH) < _FOR_CLIENTS:
            raise NotSupported(f"{channel.address} is too old to tell a client where epochs end")

        def row(one: TopicPartition) -> OffsetForLeaderPartition:
            return OffsetForLeaderPartition(
                partition=one.partition,
                current_leader_epoch=epoch_of(view, one),
                leader_epoch=self.epochs[one],
            )

        return OffsetForLeaderEpochRequest(
            replica_id=CONSUMER,
            topics=[
                OffsetForLeaderTopic(topic=topic, partitions=rows)
                for topic, rows in by_topic(partitions, row)
            ],
        )

    def outcomes(
        self, answer: Message
    ) -> Iterable[tuple[TopicPartition, ErrorCode, EpochEnd | None]]:
        """What one leader said; None where it knows no such epoch nor one before it."""
        assert isinstance(answer, OffsetForLeaderEpochResponse)
        for topic in answer.topics:
            for one in topic.partitions:
                end = EpochEnd(one.leader_epoch, one.end_offset)
                place = TopicPartition(topic.topic, PartitionIndex(one.partition))
                yield place, ErrorCode.of(one.error_code), end if one.end_offset >= 0 else None


def epoch_of(view: ClusterView, partition: TopicPartition) -> int:
    """The epoch of a partition's leader, as far as it is known."""
    leader = view.leader(*partition)
    return -1 if leader is None else int(leader.leader_epoch)


def by_topic(
    partitions: Iterable[TopicPartition], row: Callable[[TopicPartition], P]
) -> Iterable[tuple[str, list[P]]]:
    """Rows of partitions, those of a topic together."""
    topics: dict[str, list[P]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(row(one))
    return topics.items()
