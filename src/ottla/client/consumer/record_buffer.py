"""The record buffer: hands out fetched records, partition by partition, in order.

Invariant: a record is handed out once unless the application seeks, and none is skipped. Partitions
take turns, one fetch response each, so that a full one does not starve the others. Asking for more
marks what was handed out before as done; `done` never includes records that the application may
still be processing. One caller at a time. Records that did not arrive can be taken back until the
next call; they count as never handed out.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from functools import partial
from itertools import islice
from sys import maxsize
from typing import Final, Generic, TypeVar

from ottla.client.consumer.cursor import Cursor, HandedOut
from ottla.client.consumer.decoding import Decoder, corrupt
from ottla.client.consumer.record import Record
from ottla.client.serializers import DeserializationFailed
from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.records import Batch, Columns, decode
from ottla.records.errors import UNREADABLE

DECODED_MIN: Final = 1000
"""The number of records that are decoded together, if a fetch response has so many."""

DECODED_BYTES: Final = 256 << 10
"""The bytes after which no further batch is decoded: more records would leave the CPU's cache."""

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class RecordBuffer(Generic[K, V]):
    """Hands out the records of cursors."""

    def __init__(self, decoder: Decoder[K, V], drained: Callable[[], None]) -> None:
        """`drained` is called when there is room for more records."""
        self.cursors: Final[dict[TopicPartition, Cursor]] = {}
        self.asks = 0  # how often the application asked for more
        self.failure: RequestError | None = None  # of the whole consumer; raised to the caller
        self._is_lasting = False  # whether the failure is raised again on every call
        self._over: RequestError | None = None  # why nothing is handed out any more
        self._decoder = decoder
        self._decoded_bytes = DECODED_BYTES
        self._drained = drained
        self._ready: dict[TopicPartition, Cursor] = {}  # in turn
        self._handed: list[Cursor] = []
        self._before: list[
            tuple[Cursor, int, int, int]
        ] = []  # the positions before the last call, and the number of moves
        self._arrival: asyncio.Future[None] | None = None
        self.is_asked = False  # a caller waits for records
        self._owes_turn = False  # to the event loop: a caller that never waits would block it
        self._comers: list[asyncio.Future[None]] = []

    # Events.

    def arrived(self, cursor: Cursor) -> None:
        """Note that a cursor has records or failed."""
        self._ready[cursor.partition] = cursor
        self.wake()

    def fail(self, failure: RequestError, *, lasting: bool = False) -> None:
        """Raise a failure to the application: once, or on every call until `recover`."""
        self.failure, self._is_lasting = failure, lasting
        self.wake()

    def recover(self) -> None:
        """Clear the failure."""
        self.failure = None

    def close(self, reason: RequestError) -> None:
        """Stop handing out; waiting and later callers get the reason."""
        self._over = reason
        self.remove([*self.cursors])
        self.wake()

    def wake(self) -> None:
        """Let a waiting caller look again."""
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def add(self, partitions: Iterable[TopicPartition], *, hold: bool = False) -> None:
        """Add partitions; those on hold are handed out after `release`."""
        for one in sorted(partitions):  # the same order in every process
            self.cursors.setdefault(one, Cursor(one)).is_held = hold

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out partitions that were on hold."""
        for one in partitions:
            if (cursor := self.cursors.get(one)) is not None:
                cursor.is_held = False
        self.wake()

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions and drop their records."""
        for one in partitions:
            cursor = self.cursors.pop(one, None)
            self._ready.pop(one, None)
            if cursor is not None:
                cursor.drop()

    def resume(self, cursor: Cursor) -> None:
        """Hand out records of a cursor again."""
        cursor.resume()
        if cursor.has_records or cursor.failure is not None:
            self.arrived(cursor)

    @property
    def in_hand(self) -> Record[K, V] | None:
        """The record that was handed out last, when iterating."""
        return self._handed[-1].in_hand if self._handed else None

    def is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the application is processing records of these partitions, as far as known."""
        return not self.is_asked and any(one.partition in partitions for one in self._handed)

    async def came_back(self) -> None:
        """Wait until the application asks for more."""
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._comers.append(came)
        await came

    def let_go(self, *, is_done: bool) -> None:
        """End the iteration; `is_done` marks what was handed out as done."""
        if is_done:
            self._settle()
        else:
            self._tell_comers()

    # Calls of the application.

    def records(self) -> AsyncIterator[Record[K, V]]:
        """Iterate over records without end."""
        return _Records(self)

    async def hand_at_once(self, before: HandedOut | None) -> HandedOut:
        """Like `hand`, for a caller on the event loop: do not yield to it if records are ready."""
        self._end(before)
        return self._hand(self._open_at_once() or await self._next(None))

    async def hand(self, before: HandedOut | None) -> HandedOut:
        """Return records to take in any thread; `before` is the object that was used up."""
        self._end(before)
        # Waking another thread takes longer than reading records that have left the cache.
        self._decoded_bytes = maxsize
        return self._hand(await self._next(None))

    async def take(
        self, records_max: int, timeout_s: float, *, one_partition: bool = False
    ) -> list[Record[K, V]]:
        """Return up to `records_max` records that are buffered or arrive in time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while (cursor := await self._next(max(0.0, deadline_s - loop.time()))) is not None:
            # After an iteration only the end of the decoded records may be left.
            if taken := self._taken_from(cursor, records_max, one_partition=one_partition):
                return taken
        return []

    def _taken_from(
        self, first: Cursor, records_max: int, *, one_partition: bool
    ) -> list[Record[K, V]]:
        taken: list[Record[K, V]] = []
        cursor: Cursor | None = first
        while cursor is not None:
            assert cursor.left is not None
            run = [*islice(cursor.left, records_max - len(taken))]
            if run:
                taken += run
                self._hand_out(cursor)
                cursor.handed_out(run[-1].offset + 1, run[-1].leader_epoch)
            if len(taken) >= records_max:
                break
            self._close(cursor)
            cursor = self._open_next(quiet=bool(taken))
            if one_partition and cursor is not first:
                break
        return taken

    async def take_columns(
        self,
        timeout_s: float,
        make: Callable[[TopicPartition, Columns], tuple[T | None, DeserializationFailed | None]],
        *,
        empty_too: bool = False,
    ) -> T | None:
        """Return what `make` makes of the columns of a fetch response; None after the timeout.

        `make` also returns the record that ended it early; what is before it is handed out first.
        With `empty_too`, it also gets responses without records, which only move the position.
        """
        while True:
            cursor = await self._next(timeout_s, as_columns=True, empty_too=empty_too)
            if cursor is None:
                return None
            columns, until = self._columns(cursor)
            made: T | None = None
            failed: DeserializationFailed | None = None
            if columns.rows or empty_too:
                made, failed = make(cursor.partition, columns)
            if failed is not None and made is None:
                raise failed
            self._hand_out(cursor)
            _hand_out_chunk(cursor, until if failed is None else failed.offset)
            self._turn(cursor)
            if made is not None:
                return made

    def take_back(self) -> None:
        """Take back the last result, which did not arrive; the next caller gets it."""
        for cursor, moves, position, epoch in self._before:
            # Of several runs of one cursor the first one counts: it has moved at the others.
            if self.cursors.get(cursor.partition) is cursor and cursor.moves == moves:
                cursor.move(position, epoch)
        self._before.clear()
        self._drained()

    # Implementation.

    async def _next(
        self, timeout_s: float | None, *, as_columns: bool = False, empty_too: bool = False
    ) -> Cursor | None:
        """Return the next cursor with records; None after the timeout."""
        if self.is_asked:
            raise RuntimeError(
                "another task is already waiting for records: a consumer serves one task at a time"
            )
        self.is_asked = True
        self._settle()
        try:
            self._owes_turn = False
            await asyncio.sleep(0)
            open_next = partial(self._open_next, as_columns=as_columns, empty_too=empty_too)
            cursor = open_next()
            if cursor is None:
                async with asyncio.timeout(timeout_s):  # only now, because it starts a timer
                    while cursor is None:
                        self._arrival = asyncio.get_running_loop().create_future()
                        await self._arrival
                        cursor = open_next()
            return cursor
        except TimeoutError:
            return None
        finally:
            self.is_asked = False
            self._arrival = None

    def _hand_out(self, cursor: Cursor) -> None:
        """Note that many records of a cursor are about to be handed out."""
        self._handed.append(cursor)
        self._before.append((cursor, cursor.moves, cursor.position, cursor.position_epoch))

    def _hand(self, cursor: Cursor | None) -> HandedOut:
        assert cursor is not None  # without a timeout the wait cannot end otherwise
        self._handed.append(cursor)
        return cursor.open_hand()

    def _end(self, hand: HandedOut | None) -> None:
        """Mark records that the application took one by one as done."""
        if hand is not None and not hand.is_over:
            hand.cursor.came_back()
            self._close(hand.cursor)

    def _open_at_once(self) -> Cursor | None:
        """Return the next cursor if that needs no wait."""
        if self._owes_turn or self.is_asked:
            return None
        self._settle()
        return self._open_next()

    def _settle(self) -> None:
        """Mark what was handed out as done: the application asks for more."""
        self.asks += 1
        for cursor in self._handed:
            cursor.came_back()
        self._handed.clear()
        self._before.clear()
        self._tell_comers()

    def _tell_comers(self) -> None:
        comers, self._comers = self._comers, []
        for comer in comers:
            if not comer.done():
                comer.set_result(None)

    def _open_next(
        self, *, as_columns: bool = False, empty_too: bool = False, quiet: bool = False
    ) -> Cursor | None:
        """Return the next cursor with records; raises failures unless quiet."""
        if self._over is not None and not quiet:
            raise self._over
        if self.failure is not None and not quiet:
            failure = self.failure
            if not self._is_lasting:
                self.failure = None
            raise failure
        for where in [*self._ready]:
            cursor = self._ready[where]
            if cursor.is_paused or cursor.is_held:
                continue
            try:
                if (empty_too and cursor.chunks) or self._has_more(cursor, as_columns=as_columns):
                    return cursor
            except RequestError:
                if quiet:
                    return None
                raise
            if cursor.failure is not None:
                if quiet:
                    return None
                failure, cursor.failure = cursor.failure, None
                del self._ready[where]
                self._drained()
                raise failure
            del self._ready[where]
        return None

    def _has_more(self, cursor: Cursor, *, as_columns: bool) -> bool:
        """Whether a cursor has records to hand out; opens them."""
        if cursor.left is not None:
            return True
        while cursor.next_batch() is not None:
            if as_columns:
                return True
            records, until = self._decoder.records(
                cursor.partition,
                cursor.chunks[0].batches,
                cursor.position,
                DECODED_MIN,
                self._decoded_bytes,
            )
            cursor.open_records(records, until)
            if records:
                return True
            self._close(cursor)
        return False

    def _close(self, cursor: Cursor) -> None:
        if cursor.close_records():
            self._turn(cursor)

    def _turn(self, cursor: Cursor) -> None:
        """Move a cursor to the end of the queue; there is room for more records."""
        if self._ready.pop(cursor.partition, None) is not None:
            self._ready[cursor.partition] = cursor
        self._owes_turn = True
        self._drained()

    def _columns(self, cursor: Cursor) -> tuple[Columns, int | None]:
        """Return the columns of the first response, up to its first corrupt batch."""
        batches = [*cursor.chunks[0].batches]
        try:
            return self._decode(batches, cursor.position), None
        except UNREADABLE:
            good: list[Batch] = []
            for batch in batches:
                try:
                    self._decode([batch], cursor.position)
                except UNREADABLE as error:
                    if not good:
                        raise corrupt(cursor.partition, batch, error) from error
                    return self._decode(good, cursor.position), good[-1].header.next_offset
                good.append(batch)
            raise

    def _decode(self, batches: Iterable[Batch], from_offset: int) -> Columns:
        return decode(batches, from_offset=from_offset, check_crc=self._decoder.checks_crc)


class _Records(AsyncIterator[Record[K, V]]):
    """Iterates over the records of a buffer, without end.

    An async generator is slower: it raises an exception per record to pass a tuple on.
    """

    __slots__ = ("_buffer", "_hand")

    def __init__(self, buffer: RecordBuffer[K, V]) -> None:
        self._buffer = buffer
        self._hand: HandedOut | None = None

    async def __anext__(self) -> Record[K, V]:
        while True:
            hand = self._hand
            if hand is not None and not hand.is_over:
                for record in hand.left:
                    hand.record = record
                    return record
            self._hand = await self._buffer.hand_at_once(hand)


def _hand_out_chunk(cursor: Cursor, until: int | None) -> None:
    """Note that the first response was handed out, up to an offset or completely."""
    if until is None:
        cursor.chunk_handed_out()
        return
    cursor.left = None
    batches = cursor.chunks[0].batches
    epoch = batches[0].header.leader_epoch
    while batches and batches[0].header.base_offset < until:
        epoch = batches[0].header.leader_epoch
        if batches[0].header.next_offset > until:
            break
        batches.popleft()
    cursor.handed_out(until, epoch)
