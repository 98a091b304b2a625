"""Offsets from partition leaders: of a timestamp, of both ends, and the end of a leader epoch.

Invariant: a missing offset is None, never a special number. Lookups wait for missing partitions and
leaders until the deadline.
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

_FOR_CLIENTS: Final = 3  # in older versions only brokers may request epoch ends


class FoundOffset(NamedTuple):
    """The first record at or after a timestamp, or an end of a partition."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The end offset of a leader epoch, or of the last one before it."""

    leader_epoch: int
    end_offset: int


class LeaderOffsets:
    """Requests offsets from partition leaders."""

    def __init__(self, metadata: Metadata, asking: Caller, isolation_level: int) -> None:
        self._metadata = metadata
        self._asking = asking
        self._isolation_level = isolation_level

    async def at(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> Results[Partition, FoundOffset | None]:
        """Return the offsets of timestamps; None if no record is that new."""
        question = offsets_at(
            times_ms, _found, isolation_level=self._isolation_level, epoch=self._epoch
        )
        return await self._asking.many(self._to_leaders, times_ms, question, timeout_s)

    async def ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Results[Partition, EpochEnd | None]:
        """Return the end offsets of leader epochs; None if no such or earlier epoch exists."""
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
    """Return the known leader epoch of a partition."""
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
