"""Records: offsets of partitions, and deleting the first records.

Invariant: only the partition leader is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.client.admin.calls import Calls
from ottla.client.calls.caller import ApiCall, Terms
from ottla.client.calls.list_offsets import offsets_at
from ottla.client.calls.results import Results, or_none, refused
from ottla.client.partitions import P, Partition, by_partition, rows, rows_by_topic
from ottla.errors import RequestError
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartitionResponse

HIGH_WATERMARK: Final = -1
"""As the offset before which records are deleted: all committed records."""

_ISOLATION_SINCE: Final = 2


class OffsetAt(IntEnum):
    """Special offsets, as on the wire."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


_SINCE: Final = {
    OffsetAt.MAX_TIMESTAMP: 7,
    OffsetAt.EARLIEST_LOCAL: 8,
    OffsetAt.LATEST_TIERED: 9,
    OffsetAt.EARLIEST_PENDING_UPLOAD: 11,
}


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The result of an offset lookup."""

    offset: int | None
    """None if no record is that late."""

    timestamp_ms: int | None
    """Of the record, for a lookup by time."""

    leader_epoch: int | None


class RecordCalls(Calls):
    """Calls about records."""

    async def list_offsets(
        self,
        partitions: Mapping[P, OffsetAt | int],
        *,
        read_committed: bool = False,
        timeout_s: float | None = None,
    ) -> Results[Partition, FoundOffset]:
        """Return the offset at an end, or of the first record at or after a timestamp.

        With read_committed, the latest offset is the first of an open transaction.
        """
        wanted = by_partition(partitions)
        since = max((_SINCE.get(OffsetAt(at), 0) for at in wanted.values() if at < 0), default=0)
        question = offsets_at(
            wanted,
            _found,
            isolation_level=int(read_committed),
            since=max(since, _ISOLATION_SINCE if read_committed else 0),
        )
        return await self._asking.many(self._asking.to_leaders, wanted, question, timeout_s)

    async def delete_records(
        self, before: Mapping[P, int], *, timeout_s: float | None = None
    ) -> Results[Partition, int]:
        """Delete the records before an offset; returns the new log start offset."""
        wanted = by_partition(before)
        question = ApiCall(
            request=lambda keys, terms: delete_request({key: wanted[key] for key in keys}, terms),
            answer=DeleteRecordsResponse,
            read=lambda _, answer: deleted(answer),
        )
        return await self._asking.many(self._asking.to_leaders, wanted, question, timeout_s)


def _found(told: ListOffsetsPartitionResponse) -> FoundOffset:
    return FoundOffset(or_none(told.offset), or_none(told.timestamp), or_none(told.leader_epoch))


def delete_request(before: Mapping[Partition, int], terms: Terms) -> DeleteRecordsRequest:
    """Build DeleteRecords."""

    def row(one: Partition) -> DeleteRecordsPartition:
        return DeleteRecordsPartition(partition_index=one[1], offset=before[one])

    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=topic, partitions=ones)
            for topic, ones in rows_by_topic(before, row).items()
        ],
        timeout_ms=terms.timeout_ms,
    )


def deleted(answer: DeleteRecordsResponse) -> dict[Partition, int | RequestError]:
    """Return the log start offset of each partition."""
    told: dict[Partition, int | RequestError] = {}
    for key, one in rows((topic.name, topic.partitions) for topic in answer.topics):
        error = refused(one.error_code, key)
        told[key] = one.low_watermark if error is None else error
    return told
