"""Offsets that leaders know: of a time, of both ends, and of where a leader's epoch ended.

Invariant: of what is not there the answer is None, never a number that looks like an offset. Who
asks waits for partitions and leaders that are not there yet, until the deadline.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.calls.caller import ApiCall, Caller
from ottla.client.calls.list_offsets import CONSUMER, offsets_at
from ottla.client.calls.results import Results, refused
from ottla.client.calls.targets import ToLeaders
from ottla.client.network.cluster_view import ClusterView
from ottla.client.network.metadata import Metadata
from ottla.client.partitions import Partition, by_partition, partition, rows_by_topic
from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.protocol.messages.list_offsets import ListOffsetsPartitionResponse
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_FOR_CLIENTS: Final = 3  # before this version only brokers may ask for the end of an epoch


class FoundOffset(NamedTuple):
    """The first record from a time on, or an end of a partition."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """Where the records of a leader's epoch, or of the last one before it, end."""

    leader_epoch: int
    end_offset: int


class LeaderOffsets:
    """Asks the leaders of partitions."""

    def __init__(self, metadata: Metadata, asking: Caller, isolation_level: int) -> None:
        self._metadata = metadata
        self._asking = asking
        self._isolation_level = isolation_level

    async def at(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> Results[Partition, FoundOffset | None]:
        """Which offset times have; None where no record is so new."""
        question = offsets_at(
            times_ms, _found, isolation_level=self._isolation_level, epoch=self._epoch
        )
        return await self._asking.many(self._to_leaders, times_ms, question, timeout_s)

    async def ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Results[Partition, EpochEnd | None]:
        """Where leaders' epochs ended; None where no such epoch is known, nor one before it."""
        wanted = by_partition(epochs)

        def row(one: Partition) -> OffsetForLeaderPartition:
            return OffsetForLeaderPartition(
                partition=one[1], current_leader_epoch=self._epoch(one), leader_epoch=wanted[one]
            )

        question = ApiCall[Partition, OffsetForLeaderEpochResponse, EpochEnd | None](
            request=lambda keys, _: OffsetForLeaderEpochRequest(
                replica_id=CONSUMER,
                topics=[
                    OffsetForLeaderTopic(topic=topic, partitions=rows)
                    for topic, rows in rows_by_topic(keys, row).items()
                ],
            ),
            answer=OffsetForLeaderEpochResponse,
            read=lambda _, answer: _ends(answer),
            since=_FOR_CLIENTS,
        )
        return await self._asking.many(self._to_leaders, wanted, question)

    @property
    def _to_leaders(self) -> ToLeaders:
        return ToLeaders(self._metadata, waits=True)

    def _epoch(self, one: Partition) -> int:
        return epoch_of(self._metadata.view, one)


def epoch_of(view: ClusterView, one: Partition) -> int:
    """The epoch of a partition's leader, as far as it is known."""
    leader = view.leader(*one)
    return -1 if leader is None else int(leader.leader_epoch)


def _found(told: ListOffsetsPartitionResponse) -> FoundOffset | None:
    found = FoundOffset(told.offset, told.timestamp, told.leader_epoch)
    return found if told.offset >= 0 else None


def _ends(
    answer: OffsetForLeaderEpochResponse,
) -> dict[Partition, EpochEnd | RequestError | None]:
    told: dict[Partition, EpochEnd | RequestError | None] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            key = partition(topic.topic, one.partition)
            end = EpochEnd(one.leader_epoch, one.end_offset) if one.end_offset >= 0 else None
            told[key] = refused(one.error_code, key) or end
    return told
