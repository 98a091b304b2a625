"""Streams the records of a topic for commands that read.

Invariant: records are in order per partition and without a gap, not more than requested. For a
group, only what was yielded is committed.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from typing import Final

from ottla.cli.failures import Failed
from ottla.cli.offsets.positions import Position, PositionKind
from ottla.cli.records.cells import Taken
from ottla.cli.records.places import Limits, places
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.missing_partitions import NO_TOPIC
from ottla.client.group.interfaces import Rebalance
from ottla.client.partitions import no_partition, partition_of
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

WAIT_S: Final = 1.0
GIVEN_S: Final = 10.0
"""How long a member without partitions waits: others may be about to revoke some, which takes a
heartbeat of 3 or 5 s."""

GONE_S: Final = 5.0
"""How long a topic must be missing before it counts as deleted: a broker may have restarted."""


class ColumnConsumer(Consumer[bytes, bytes]):
    """A consumer that returns columns with the offset after them."""

    async def columns(self, timeout_s: float) -> Taken | None:
        """Return the next columns, which may have no record; None after the timeout."""
        found = await self.partition_reader.columns(timeout_s)
        return None if found is None else Taken(*found)

    async def meet(self) -> None:
        """Wait for the first response of a broker; raises RequestError."""
        await self.refresh_metadata()

    async def known_partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic; raises Failed at once if it does not exist."""
        known = (await self.refresh_metadata(topic)).topics.get(topic)
        if known is None or known.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
            raise Failed(f"topic {topic or repr(topic)} does not exist", code)
        return await self.partitions(topic)

    def gone(self, ends: Iterable[TopicPartition]) -> str | None:
        """Return a topic of these partitions that does not exist any more."""
        reader = self.partition_reader
        return next((one.topic for one in ends if reader.missing_reason(one) == NO_TOPIC), None)


async def begin_at(
    consumer: ColumnConsumer,
    topic: str,
    partitions: Sequence[int],
    position: Position,
    *,
    stops: bool,
) -> dict[TopicPartition, int] | None:
    """Assign partitions, all of a topic unless some are named; returns the ends to stop at."""
    chosen = await _chosen(consumer, topic, partitions)
    starts = await consumer.beginning_offsets(*chosen)
    ends = await consumer.end_offsets(*chosen)
    at_time: dict[TopicPartition, int] = {}
    if position.kind is PositionKind.TIME:
        found = await consumer.offsets_for_times(dict.fromkeys(chosen, position.value))
        at_time = {where: one.offset for where, one in found.items() if one is not None}
    begin = places(position, starts, ends, at_time)
    if stops:
        ends = {where: end for where, end in ends.items() if begin[where] < end}
        chosen = [*ends]
    if chosen:
        consumer.assign(*chosen)
    for where in chosen:
        consumer.seek(where, begin[where])
        if stops:
            consumer.partition_reader.stop_at(where, ends[where])
    return ends if stops else None


async def _chosen(
    consumer: ColumnConsumer, topic: str, partitions: Sequence[int]
) -> list[TopicPartition]:
    known = await consumer.known_partitions(topic)
    wanted = [partition_of((topic, one)) for one in dict.fromkeys(partitions)]
    for one in wanted:
        if one not in known:
            raise Failed(
                no_partition(topic, len(known), one.partition),
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
            )
    return wanted or known


async def taken(
    consumer: ColumnConsumer, limits: Limits, *, idle_s: float | None = None
) -> AsyncGenerator[tuple[Taken, int] | None]:
    """Yield what arrives with the number of wanted records; None when nothing is there now.

    It ends at the limits, or after `idle_s` without a record. Records deleted before they arrive
    count as read; raises Failed if their topic is deleted.
    """
    loop = asyncio.get_running_loop()
    since_s = loop.time()
    gone_s: float | None = None
    while not limits.is_reached:
        found = await consumer.columns(0)
        if found is None:
            yield None
            left_s = WAIT_S
            if idle_s is not None:
                left_s = min(left_s, since_s + idle_s - loop.time())
                if left_s <= 0:
                    return
            found = await consumer.columns(left_s)
            if found is None:
                gone_s = _without_lost(consumer, limits, gone_s)
                continue
        rows = limits.rows(found)
        if rows:
            since_s = loop.time()
            yield found, rows
        if rows < found.rows and found.partition in consumer.assignment:
            # Records that are not yielded are not read, and no more of the partition is wanted.
            consumer.seek(found.partition, found.offset_of(rows))
            consumer.pause(found.partition)


def _without_lost(consumer: ColumnConsumer, limits: Limits, gone_s: float | None) -> float | None:
    """Drop ends that cannot be reached; returns since when a topic is missing."""
    if limits.ends is None:
        return None
    for where in consumer.partition_reader.finished(limits.ends):
        del limits.ends[where]
    if (topic := consumer.gone(limits.ends)) is None:
        return None
    now_s = asyncio.get_running_loop().time()
    if gone_s is not None and now_s - gone_s >= GONE_S:
        raise Failed(
            f"topic {topic} was deleted before its end was reached",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
        )
    return now_s if gone_s is None else gone_s


async def join(consumer: ColumnConsumer, topic: str, limits: Limits, *, stops: bool) -> bool:
    """Read as a member of a group; sets the ends to stop at.

    Returns False if other members own all partitions and it should stop.
    """
    given = asyncio.Event()

    def assigned(partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        given.set()

    def revoked(partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        if limits.ends is not None:
            for one in partitions:
                limits.ends.pop(one, None)

    consumer.subscribe(topic, on_assigned=assigned, on_revoked=revoked)
    if stops:
        if not await _is_given(consumer, given):
            limits.ends = {}
            return False
        ends = await consumer.end_offsets(*consumer.assignment)
        limits.ends = {
            where: end for where, end in ends.items() if await consumer.position(where) < end
        }
    return True


async def _is_given(consumer: ColumnConsumer, given: asyncio.Event) -> bool:
    """Wait for partitions; False if the group is stable and has none for this member."""
    loop = asyncio.get_running_loop()
    rests_s: float | None = None
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                return await given.wait()
        if not consumer.is_stable_member:
            rests_s = None
        elif rests_s is None:
            rests_s = loop.time()
        elif loop.time() - rests_s >= GIVEN_S:
            return False
