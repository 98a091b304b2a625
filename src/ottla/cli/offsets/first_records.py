"""The time of the first record at an offset or behind it, which no request but a fetch tells.

Invariant: of each partition one batch is fetched, which a broker gives whole however large it is,
and more only where it holds no record. What cannot be fetched or read has no time, and is no
failure: who may see how far a group is need not be one who may read the records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.calls import Calls
from ottla.client.calls.caller import ONE_EACH, ApiCall
from ottla.client.calls.results import check, or_none, refused
from ottla.client.fetch.fetched_batches import fetched_batches
from ottla.client.partitions import Partition, by_partition, rows
from ottla.errors import ErrorCode, OttlaError, RequestError
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_BY_NAME: Final = 12  # the last version of Fetch that names topics
_ROUNDS_MAX: Final = 5  # batches without records are rare, and rarely follow each other
_BYTES_MIN: Final = 1
_WAIT_MS: Final = 500  # for a broker that has to get it from elsewhere


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a batch showed: a time, or where to look next."""

    time_ms: int | None
    next_offset: int


class FirstRecordCalls(Calls):
    """The call that looks at records."""

    async def first_times_ms(
        self, offsets: Mapping[Partition, int], *, timeout_s: float | None = None
    ) -> dict[Partition, int]:
        """The times of the first records from offsets on, where they can be told."""
        asking = self._asking
        deadline_s = asking.deadline_s(timeout_s)
        found: dict[Partition, int] = {}
        wanted = by_partition(offsets)
        for _ in range(_ROUNDS_MAX):
            question = _question(wanted)
            left_s = asking.left_s(deadline_s)
            told = await asking.many(asking.to_leaders, [*wanted], question, left_s)
            ahead: dict[Partition, int] = {}
            for where, seen in told.succeeded.items():
                if seen.time_ms is not None:
                    found[where] = seen.time_ms
                elif seen.next_offset > wanted[where]:
                    ahead[where] = seen.next_offset
            wanted = ahead
            if not wanted:
                break
        return found


def _question(offsets: Mapping[Partition, int]) -> ApiCall[Partition, FetchResponse, _Seen]:
    def request(keys: Sequence[Partition]) -> FetchRequest:
        ((topic, number),) = keys
        row = FetchPartition(
            partition=number,
            fetch_offset=offsets[topic, number],
            partition_max_bytes=_BYTES_MIN,
        )
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=_BYTES_MIN,
            max_bytes=_BYTES_MIN,
            topics=[FetchTopic(topic=topic, partitions=[row])],
        )

    def read(_: object, answer: FetchResponse) -> dict[Partition, _Seen | RequestError]:
        check(answer.error_code, "a fetch")
        return {
            where: refused(one.error_code, where) or _seen(one, offsets[where])
            for where, one in rows((topic.topic, topic.partitions) for topic in answer.responses)
        }

    return ApiCall(
        request=lambda keys, _: request(keys),
        answer=FetchResponse,
        read=read,
        newest=_BY_NAME,
        batched_since=ONE_EACH,  # a broker gives one batch whole in an answer, not one of each
    )


def _seen(told: PartitionData, offset: int) -> _Seen | RequestError:
    try:
        chunk = fetched_batches(told.records or b"", offset, None)
        for batch in () if chunk is None else chunk.batches:
            for record in batch.records(from_offset=offset):
                return _Seen(or_none(record.timestamp), record.offset + 1)
    except OttlaError as error:  # damaged, or compressed as nobody here can read
        return RequestError(ErrorCode.CORRUPT_MESSAGE, str(error))
    return _Seen(None, offset if chunk is None else chunk.next_offset)
