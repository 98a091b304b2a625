"""ListOffsets: the offset of a timestamp.

Negative timestamps are special: -1 is the end, -2 the first record.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from ottla.client.calls.caller import ApiCall, Terms
from ottla.client.calls.results import refused
from ottla.client.partitions import P, Partition, by_partition, rows, rows_by_topic
from ottla.errors import RequestError
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CONSUMER: Final = -1
"""The replica id of a client."""

V = TypeVar("V")


def offsets_at(
    times_ms: Mapping[P, int],
    value: Callable[[ListOffsetsPartitionResponse], V],
    *,
    isolation_level: int = 0,
    epoch: Callable[[Partition], int] = lambda _: -1,
    since: int = 0,
) -> ApiCall[Partition, ListOffsetsResponse, V]:
    """Build the call for the offsets of timestamps; `value` converts what a leader returned.

    `epoch` returns the leader epoch that the client knows, -1 to skip the check.
    """
    wanted = by_partition(times_ms)

    def row(one: Partition) -> ListOffsetsPartition:
        return ListOffsetsPartition(
            partition_index=one[1], current_leader_epoch=epoch(one), timestamp=wanted[one]
        )

    def request(keys: Iterable[Partition], terms: Terms) -> ListOffsetsRequest:
        topics = rows_by_topic(keys, row)
        return ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=name, partitions=ones) for name, ones in topics.items()],
            timeout_ms=terms.timeout_ms,
        )

    def read(_: object, answer: ListOffsetsResponse) -> dict[Partition, V | RequestError]:
        told: dict[Partition, V | RequestError] = {}
        for key, one in rows((topic.name, topic.partitions) for topic in answer.topics):
            error = refused(one.error_code, key)
            told[key] = value(one) if error is None else error
        return told

    return ApiCall(request=request, answer=ListOffsetsResponse, read=read, since=since)
