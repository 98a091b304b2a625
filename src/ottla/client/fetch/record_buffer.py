"""The reader: hands out what was fetched, partition after partition, in the order of each.

Invariant: a record is handed out once, unless the application seeks; none is passed over.
Partitions take turns, a chunk each: a full one does not starve the others. Asking for more says
that what was handed out before is done: `done` of a cursor never includes what the application may
still be working on. One asks at a time. What did not arrive can be taken back until somebody asks
again; it counts as never handed out.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from itertools import islice
from typing import Final, Generic, TypeVar

from ottla.client.fetch.cursor import Cursor, HandedOut
from ottla.client.fetch.decoding import Corrupt, Decoder
from ottla.client.record import Record
from ottla.client.serializers import DeserializationFailed
from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.records import Batch, Columns, CorruptRecords, decode

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class RecordBuffer(Generic[K, V]):
    """Hands out records of cursors."""

    def __init__(self, decoder: Decoder[K, V], drained: Callable[[], None]) -> None:
        """`drained` hears when there is room for more."""
        self.cursors: Final[dict[TopicPartition, Cursor]] = {}
        self.asks = 0  # so often the application came for more
        self.failure: RequestError | None = None  # of all; told to who asks
        self._is_lasting = False  # that failure: who asks again is told again
        self._over: RequestError | None = None  # why it hands out nothing more
        self._decoder = decoder
        self._drained = drained
        self._ready: dict[TopicPartition, Cursor] = {}  # in turn
        self._handed: list[Cursor] = []
        self._before: list[tuple[Cursor, int, int, int]] = []  # where those were, and since when
        self._arrival: asyncio.Future[None] | None = None
        self.is_asked = False  # somebody waits for records
        self._owes_turn = False  # to the event loop: who never waits for it never hears from it
        self._comers: list[asyncio.Future[None]] = []

    # What others tell.

    def arrived(self, cursor: Cursor) -> None:
        """A cursor has records, or failed."""
        self._ready[cursor.partition] = cursor
        self.wake()

    def fail(self, failure: RequestError, *, lasting: bool = False) -> None:
        """Tell the application of a failure: once, or whenever it asks until `recover`."""
        self.failure, self._is_lasting = failure, lasting
        self.wake()

    def recover(self) -> None:
        """What failed begins anew."""
        self.failure = None

    def close(self, reason: RequestError) -> None:
        """Hand out nothing more: who waits, and who asks later, hears why."""
        self._over = reason
        self.remove([*self.cursors])
        self.wake()

    def wake(self) -> None:
        """Let who waits look again."""
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def add(self, partitions: Iterable[TopicPartition], *, hold: bool = False) -> None:
        """Read more partitions; nothing of those on hold is handed out until `release`."""
        for one in partitions:
            self.cursors.setdefault(one, Cursor(one)).is_held = hold

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out what was on hold."""
        for one in partitions:
            if (cursor := self.cursors.get(one)) is not None:
                cursor.is_held = False
        self.wake()

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Read some no more: what is here of them is dropped."""
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
        """The record that was handed out last, when they are handed out one by one."""
        return self._handed[-1].in_hand if self._handed else None

    def is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the application has records of these in its hands, as far as one can tell."""
        return not self.is_asked and any(one.partition in partitions for one in self._handed)

    async def came_back(self) -> None:
        """Wait until the application asks for more."""
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._comers.append(came)
        await came

    def let_go(self, *, is_done: bool) -> None:
        """The application asks for no more for now; `is_done`: what it had is done."""
        if is_done:
            self._settle()
        else:
            self._tell_comers()

    # What the application asks for.

    async def records(self) -> AsyncIterator[Record[K, V]]:
        """One record after the other, without an end."""
        while True:
            hand = self._hand(self._open_at_once() or await self._next(None))
            for record in hand.left:
                hand.record = record
                yield record
                if hand.is_over:
                    break
            else:
                hand.cursor.came_back()
                self._close(hand.cursor)

    async def hand(self, before: HandedOut | None) -> HandedOut:
        """A hand to take records out of, in any thread; `before` is the one that was used up."""
        if before is not None and not before.is_over:
            before.cursor.came_back()
            self._close(before.cursor)
        return self._hand(await self._next(None))

    async def take(
        self, records_max: int, timeout_s: float, *, one_partition: bool = False
    ) -> list[Record[K, V]]:
        """At most so many records that are here, or come in time; none otherwise."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while (cursor := await self._next(max(0.0, deadline_s - loop.time()))) is not None:
            # Of what a loop over records left there may be nothing but the end.
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
        """What is made of the columns of a chunk; None when nothing comes in time.

        `make` also tells which record ended it too early. What is before that is handed out first.
        It sees chunks without a record, of what only moves the place, when `empty_too`.
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
        """What was handed out last, many at once, did not arrive: the next who asks has it."""
        for cursor, moves, position, epoch in self._before:
            # Of several runs of one cursor the first counts: it has moved at the others.
            if self.cursors.get(cursor.partition) is cursor and cursor.moves == moves:
                cursor.move(position, epoch)
        self._before.clear()
        self._drained()

    # How it comes about.

    async def _next(
        self, timeout_s: float | None, *, as_columns: bool = False, empty_too: bool = False
    ) -> Cursor | None:
        """The cursor whose turn it is, with something to hand out; None when it takes too long."""
        if self.is_asked:
            raise RuntimeError("a consumer serves one task at a time, and another one waits")
        self.is_asked = True
        self._settle()
        try:
            self._owes_turn = False
            await asyncio.sleep(0)
            async with asyncio.timeout(timeout_s):
                while True:
                    cursor = self._open_next(as_columns=as_columns, empty_too=empty_too)
                    if cursor is not None:
                        return cursor
                    self._arrival = asyncio.get_running_loop().create_future()
                    await self._arrival
        except TimeoutError:
            return None
        finally:
            self.is_asked = False
            self._arrival = None

    def _hand_out(self, cursor: Cursor) -> None:
        """Many records of a cursor are about to be in the application's hands."""
        self._handed.append(cursor)
        self._before.append((cursor, cursor.moves, cursor.position, cursor.position_epoch))

    def _hand(self, cursor: Cursor | None) -> HandedOut:
        assert cursor is not None  # there is no timeout that would have ended the wait
        self._handed.append(cursor)
        return cursor.open_hand()

    def _open_at_once(self) -> Cursor | None:
        """The cursor whose turn it is, if that needs no wait."""
        if self._owes_turn or self.is_asked:
            return None
        self._settle()
        return self._open_next()

    def _settle(self) -> None:
        """The application came back: what it had is done."""
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
        """The next cursor with records; failures are raised, or left for later when quiet."""
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
        """Whether a cursor has something to hand out, which is then open."""
        if cursor.left is not None:
            return True
        while (batch := cursor.next_batch()) is not None:
            if as_columns:
                return True
            records, error = self._decoder.records(cursor.partition, batch, cursor.position)
            if error is not None and not records:
                raise error
            until = _until(batch, error)
            cursor.open_records(records, until)
            if records:
                return True
            self._close(cursor)
        return False

    def _close(self, cursor: Cursor) -> None:
        if cursor.close_records():
            self._turn(cursor)

    def _turn(self, cursor: Cursor) -> None:
        """A chunk is handed out: it is the others' turn, and there is room for another."""
        if self._ready.pop(cursor.partition, None) is not None:
            self._ready[cursor.partition] = cursor
        self._owes_turn = True
        self._drained()

    def _columns(self, cursor: Cursor) -> tuple[Columns, int | None]:
        """The first chunk of a cursor, or what comes before its first damaged batch and where."""
        batches = [*cursor.chunks[0].batches]
        try:
            return self._decode(batches, cursor.position), None
        except CorruptRecords:
            good: list[Batch] = []
            for batch in batches:
                try:
                    self._decode([batch], cursor.position)
                except CorruptRecords as error:
                    header, why = batch.header, str(error)
                    if not good:
                        offset, after = header.base_offset, header.next_offset
                        raise Corrupt(cursor.partition, offset, after, why) from error
                    return self._decode(good, cursor.position), good[-1].header.next_offset
                good.append(batch)
            raise

    def _decode(self, batches: Iterable[Batch], from_offset: int) -> Columns:
        return decode(batches, from_offset=from_offset, check_crc=self._decoder.checks_crc)


def _hand_out_chunk(cursor: Cursor, until: int | None) -> None:
    """The first chunk is handed out up to an offset, or whole."""
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


def _until(batch: Batch, error: RequestError | None) -> int:
    """Where what was decoded of a batch ends."""
    if isinstance(error, DeserializationFailed):
        return error.offset
    return int(batch.header.next_offset)
