"""The timestamp of the first record at or after an offset, which only Fetch returns.

Invariant: one batch per partition is fetched, and more only if it has no record. A record that
cannot be fetched or read has no time; that is not a failure, because a user who may see a group's
lag may not be allowed to read records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.calls import Calls
from ottla.client.calls.caller import ONE_EACH, ApiCall
from ottla.client.calls.results import check, or_none, refused
from ottla.client.consumer.fetched_batches import fetched_batches
from ottla.client.partitions import Partition, by_partition, rows
from ottla.errors import ErrorCode, OttlaError, RequestError
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_BY_NAME: Final = 12  # the last version of Fetch with topic names
_ROUNDS_MAX: Final = 5  # batches without records are rare, and rarely consecutive
_BYTES_MIN: Final = 1
_WAIT_MS: Final = 500  # for a broker with remote storage


@dataclass(frozen=True, slots=True)
class _Seen:
    """A timestamp, or the next offset to look at."""

    time_ms: int | None
    next_offset: int


class FirstRecordCalls(Calls):
    """The call that reads first records."""

    async def first_times_ms(
        self, offsets: Mapping[Partition, int], *, timeout_s: float | None = None
    ) -> dict[Partition, int]:
        """Return the timestamps of the first records from offsets on."""
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
        batched_since=ONE_EACH,  # a broker returns one whole batch per response, not per partition
    )


def _seen(told: PartitionData, offset: int) -> _Seen | RequestError:
    try:
        chunk = fetched_batches(told.records or b"", offset, None)
        for batch in () if chunk is None else chunk.batches:
            for record in batch.records(from_offset=offset):
                return _Seen(or_none(record.timestamp), record.offset + 1)
    except OttlaError as error:  # corrupt, or an unsupported codec
        return RequestError(ErrorCode.CORRUPT_MESSAGE, str(error))
    return _Seen(None, offset if chunk is None else chunk.next_offset)
