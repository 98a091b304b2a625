"""Resolves and validates the positions of cursors.

Invariant: a cursor starts at the committed offset of its group, or else where `auto.offset.reset`
says; if that is none, the application gets an error. Under a new leader a position is used only
after the leader has confirmed the records before it. If they differ, records were lost by
truncation, and the application gets an error unless `auto.offset.reset` says where to continue.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from ottla.client.consumer.cursor import EARLIEST_MS, LATEST_MS, UNKNOWN, Cursor
from ottla.client.consumer.offsets import LeaderOffsets, epoch_of
from ottla.client.lifecycle.wakeup import Wakeup
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.transport.backoff import Backoff
from ottla.transport.channel import NotSupported

_PLACES: Final = {EARLIEST_MS: "the earliest offset", LATEST_MS: "the latest offset"}

_log: Final = logging.getLogger(__name__)


class Committed(NamedTuple):
    """The committed offset of a partition."""

    offset: int
    leader_epoch: int = UNKNOWN


class NoPosition(RequestError):
    """There is no offset to start at, or it is out of range, and `auto.offset.reset` is none."""

    def __init__(self, partition: TopicPartition, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition}: {message}")
        self.partition = partition

    @property
    def hint(self) -> str:
        """How to fix it."""
        return "Seek to an offset, or set auto.offset.reset to earliest or latest."


class Truncated(RequestError):
    """A new leader lacks records that were consumed: an unclean election lost them."""

    def __init__(self, partition: TopicPartition, position: int, end_offset: int | None) -> None:
        end = "at an unknown offset" if end_offset is None else f"at offset {end_offset}"
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition}: the log was truncated {end}; the position of the consumer is {position}",
        )
        self.partition = partition
        self.position = position
        self.end_offset = end_offset

    @property
    def hint(self) -> str:
        """How to fix it."""
        return "The cluster lost records that the consumer has read. Seek to continue."


class PositionResolver:
    """Sets the positions of cursors."""

    def __init__(
        self,
        cursors: Mapping[TopicPartition, Cursor],
        metadata: Metadata,
        offsets: LeaderOffsets,
        clock: Clock,
        backoff: Backoff,
        *,
        reset_ms: Callable[[], int] | None,
        committed: Callable[
            [Iterable[TopicPartition]],
            Awaitable[Mapping[TopicPartition, Committed | RequestError | None]],
        ]
        | None,
        located: Callable[[Cursor], None],
    ) -> None:
        """`reset_ms` is where to start (a timestamp); `located` gets positions and errors."""
        self._cursors = cursors
        self._metadata = metadata
        self._offsets = offsets
        self._clock = clock
        self._backoff = backoff
        self._reset_ms = reset_ms
        self._committed = committed
        self._located = located
        self._lookout = Wakeup(self._look, clock)
        self.poke: Final = self._lookout.poke

    async def close(self) -> None:
        """Stop resolving."""
        await self._lookout.close()

    def stray(self, cursor: Cursor) -> None:
        """Reset a cursor whose offset is out of range, or report it."""
        if cursor.position < cursor.fetched:
            cursor.drop()  # it was fetched before the refused request
        where = cursor.position
        self._reset(cursor, NoPosition(cursor.partition, f"offset {where} is out of range"))
        self.poke()

    def _look(self) -> float:
        now_s = self._clock.elapsed_s()
        waiting = [
            cursor
            for cursor in self._cursors.values()
            if cursor.failure is None and (not cursor.is_located or self._is_doubtful(cursor))
        ]
        due = [cursor for cursor in waiting if cursor.not_before_s <= now_s]
        if due:
            self._lookout.start("locating", self._locate)
        return min((one.not_before_s for one in waiting if one not in due), default=inf)

    def _is_doubtful(self, cursor: Cursor) -> bool:
        leader = self._metadata.view.leader(*cursor.partition)
        return leader is not None and cursor.is_doubtful_under(leader.leader_epoch)

    async def _locate(self) -> None:
        now_s = self._clock.elapsed_s()
        ready = [
            cursor
            for cursor in self._cursors.values()
            if cursor.failure is None and cursor.not_before_s <= now_s
        ]
        new = [cursor for cursor in ready if not cursor.started]
        if new:
            await self._begin(new)
        timed = [cursor for cursor in ready if cursor.seek_ms is not None]
        if timed:
            await self._find(timed)
        doubtful = [one for one in ready if one.is_located and self._is_doubtful(one)]
        if doubtful:
            await self._verify(doubtful)

    async def _begin(self, cursors: list[Cursor]) -> None:
        """Start at the committed offsets or where the settings say."""
        moves = {cursor.partition: cursor.moves for cursor in cursors}
        found: Mapping[TopicPartition, Committed | RequestError | None] = {}
        if self._committed is not None:
            found = await self._committed(moves)
        for cursor in cursors:
            if not self._is_same(cursor, moves):
                continue
            place = found.get(cursor.partition)
            if isinstance(place, RequestError):
                self._failed(cursor, place)
            elif place is not None:
                cursor.move(place.offset, place.leader_epoch)
                self._located(cursor)
            else:
                why = (
                    "there is no committed offset"
                    if self._committed
                    else "there is no starting offset"
                )
                self._reset(cursor, NoPosition(cursor.partition, why))

    async def _find(self, cursors: list[Cursor]) -> None:
        """Look up timestamps."""
        moves = {cursor.partition: cursor.moves for cursor in cursors}
        times = {one.partition: one.seek_ms for one in cursors if one.seek_ms is not None}
        view = self._metadata.view
        found = (await self._offsets.at(times)).told
        for cursor in cursors:
            if not self._is_same(cursor, moves):
                continue
            place = found[cursor.partition]
            if isinstance(place, RequestError):
                self._failed(cursor, place)
            elif place is None:
                cursor.seek_ms = LATEST_MS  # no record is that new: start at the end
            else:
                cursor.move(place.offset, place.leader_epoch)
                cursor.valid_under = epoch_of(view, cursor.partition)  # confirmed by its leader
                cursor.tries = 0
                self._located(cursor)

    async def _verify(self, cursors: list[Cursor]) -> None:
        """Validate that the records before a position are still the same."""
        moves = {cursor.partition: cursor.moves for cursor in cursors}
        view = self._metadata.view
        asked = {
            cursor.partition: leader.leader_epoch
            for cursor in cursors
            if (leader := view.leader(*cursor.partition)) is not None
        }
        epochs = {one.partition: one.fetched_epoch for one in cursors if one.partition in asked}
        ends = (await self._offsets.ends(epochs)).told
        for cursor in cursors:
            where = cursor.partition
            if where not in ends or not self._is_same(cursor, moves):
                continue
            end = ends[where]
            if isinstance(end, NotSupported):
                cursor.valid_under = asked[where]
            elif isinstance(end, RequestError):
                self._failed(cursor, end)
                continue
            elif end is not None and end.end_offset >= cursor.fetched:
                cursor.valid_under = asked[where]
            else:
                self._cut(cursor, None if end is None else end.end_offset, asked[where])
            self._located(cursor)

    def _cut(self, cursor: Cursor, end_offset: int | None, under: int) -> None:
        """Handle truncation: of fetched records, and perhaps of consumed ones."""
        if end_offset is not None and cursor.position <= end_offset:
            cursor.drop()  # the application has not seen the lost records
            cursor.fetched_epoch, cursor.valid_under = UNKNOWN, under
            return
        lost = Truncated(cursor.partition, cursor.position, end_offset)
        if self._reset_ms is not None and end_offset is not None:
            _log.warning("%s; continuing at offset %s", lost, end_offset)
            cursor.move(end_offset)
        else:
            self._reset(cursor, lost)

    def _reset(self, cursor: Cursor, why: RequestError) -> None:
        """Reset to where the settings say, or report the error."""
        if self._reset_ms is None:
            cursor.failure = why
            self._located(cursor)
            return
        time_ms = self._reset_ms()
        where = _PLACES.get(time_ms, f"the first record at or after {time_ms} ms")
        _log.info("%s; resetting to %s", why.message, where)
        cursor.move_to_time(time_ms)
        self.poke()

    def _failed(self, cursor: Cursor, error: RequestError) -> None:
        if error.retriable:
            cursor.tries += 1
            pause_s = self._backoff.pause_s(cursor.tries)
            cursor.not_before_s = self._clock.elapsed_s() + pause_s
        else:
            cursor.failure = error
            self._located(cursor)

    def _is_same(self, cursor: Cursor, moves: Mapping[TopicPartition, int]) -> bool:
        """Whether a cursor has not moved since its lookup."""
        where = cursor.partition
        return self._cursors.get(where) is cursor and cursor.moves == moves[where]
