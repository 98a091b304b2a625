"""The locator: finds the place from which a partition is read, and sees whether it still is one.

Invariant: a cursor begins where its group has committed, and without that where `auto.offset.reset`
says; the application is told when neither says anything. A place is believed under a new leader
only after that leader said that the records before it are the same; when they are not, records are
lost and the application is told, unless it said where to go on in such a case.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from ottla.client.fetch.cursor import EARLIEST_MS, LATEST_MS, UNKNOWN, Cursor
from ottla.client.fetch.offsets import LeaderOffsets, epoch_of
from ottla.client.lifecycle.backoff import Backoff
from ottla.client.lifecycle.wakeup import Wakeup
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.transport.channel import NotSupported

_PLACES: Final = {EARLIEST_MS: "the first record", LATEST_MS: "the end"}

_log: Final = logging.getLogger(__name__)


class Committed(NamedTuple):
    """How far a group has read a partition."""

    offset: int
    leader_epoch: int = UNKNOWN


class NoPosition(RequestError):
    """There is no offset to begin at, or it is gone, and `auto.offset.reset` is none."""

    def __init__(self, partition: TopicPartition, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition}: {message}")
        self.partition = partition

    @property
    def hint(self) -> str:
        """What to do."""
        return "Seek to an offset, or set auto.offset.reset to earliest or latest."


class Truncated(RequestError):
    """A new leader lacks records that were read: they were lost when it was elected."""

    def __init__(self, partition: TopicPartition, position: int, end_offset: int | None) -> None:
        end = "at an offset it does not know" if end_offset is None else f"from {end_offset} on"
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition}: the log differs {end}; {position} was to be read next",
        )
        self.partition = partition
        self.position = position
        self.end_offset = end_offset

    @property
    def hint(self) -> str:
        """What to do."""
        return "Records that were read have been lost by the cluster. Seek to where to go on."


class PositionResolver:
    """Gives cursors their places."""

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
        """`reset_ms` is where to begin, as a timestamp; `located` hears of places and failures."""
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
        """Look no more."""
        await self._lookout.close()

    def stray(self, cursor: Cursor) -> None:
        """A cursor's place is out of range: begin anew, or tell."""
        if cursor.position < cursor.fetched:
            cursor.drop()  # what was fetched is older than what was refused
        where = cursor.position
        self._reset(cursor, NoPosition(cursor.partition, f"the offset {where} is out of range"))
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
        """Where the group is, or where the settings say."""
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
                why = "nothing is committed" if self._committed else "no offset was given"
                self._reset(cursor, NoPosition(cursor.partition, why))

    async def _find(self, cursors: list[Cursor]) -> None:
        """Look times up."""
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
                cursor.seek_ms = LATEST_MS  # nothing is so new: at the end
            else:
                cursor.move(place.offset, place.leader_epoch)
                cursor.valid_under = epoch_of(view, cursor.partition)  # its leader's own word
                cursor.tries = 0
                self._located(cursor)

    async def _verify(self, cursors: list[Cursor]) -> None:
        """See whether the records before a place are still the ones that were read."""
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
        """Of what was fetched some is gone; of what was handed out perhaps too."""
        if end_offset is not None and cursor.position <= end_offset:
            cursor.drop()  # nobody has seen what is gone
            cursor.fetched_epoch, cursor.valid_under = UNKNOWN, under
            return
        lost = Truncated(cursor.partition, cursor.position, end_offset)
        if self._reset_ms is not None and end_offset is not None:
            _log.warning("%s; going on there", lost)
            cursor.move(end_offset)
        else:
            self._reset(cursor, lost)

    def _reset(self, cursor: Cursor, why: RequestError) -> None:
        """Begin where the settings say; if they say nothing, the application is told."""
        if self._reset_ms is None:
            cursor.failure = why
            self._located(cursor)
            return
        time_ms = self._reset_ms()
        where = _PLACES.get(time_ms, f"the first record from {time_ms} ms on")
        _log.info("%s; reading goes on at %s", why.message, where)
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
        """Whether a cursor is still where it was when its place was asked for."""
        where = cursor.partition
        return self._cursors.get(where) is cursor and cursor.moves == moves[where]
