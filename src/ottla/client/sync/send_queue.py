"""The send queue: passes records from sending threads to the producer's event loop, in lots.

Invariant: records arrive in order and each gets a result. The loop is woken once, however many
records are queued before it looks. Queued bytes are bounded; a thread that sends too much waits,
but not forever. A record stays here for at most twice max.block.ms, half of it behind others. An
error that nobody has seen is raised by the next flush.

`given_bytes` is written by sending threads, `taken_bytes` only by the loop. The difference is
queued, and neither side needs the other's lock to know it. While the loop is awake and there is
room, a record is queued without a lock by compiled code, which no other thread interrupts
(`RecordQueue.give_at_once`).
"""

import asyncio
import os
import threading
import weakref
from collections import deque
from functools import partial
from typing import Final, Protocol

from ottla.client.producer.producer_batch import Ack as AsyncAck
from ottla.client.producer.producer_batch import ProducerBatch, Written
from ottla.client.sync.portal import CLOSED, FORKED, LOOK_S, Portal
from ottla.clock import Clock
from ottla.records import QueuedRecord, RecordQueue
from ottla.transport.failures import Disconnected, NotRunning, TimedOut

UNHEARD_MAX: Final = 1000
"""The number of unseen errors that are remembered; the first of them is always kept."""


class Receiver(Protocol):
    """Takes the records in the loop."""

    def take_many(self, entries: "deque[Ack | asyncio.Future[None]]") -> int:
        """Take records from the left that need not wait, and return the sum of their sizes.

        It may stop before any entry.
        """
        ...

    def take_at_once(self, record: QueuedRecord) -> AsyncAck | None:
        """Take a record; None if that has to wait."""
        ...

    async def take(self, record: QueuedRecord) -> AsyncAck:
        """Take a record, waiting for room or for metadata."""
        ...


class Ack(QueuedRecord):
    """The result of a record: `result()` waits for its offset or raises its error."""

    __slots__ = ()
    _queue: "SendQueue"
    _batch: ProducerBatch

    def result(self, timeout_s: float | None = None) -> Written:
        """Wait for the result; raises TimedOut, after which it may be called again."""
        if not self.is_queued and (known := self._reached().known()) is not None:
            return known
        return self._queue.portal.run(self._outcome(), timeout_s)

    def done(self) -> bool:
        """Whether the result is known."""
        if self.is_queued:
            return False
        return self.failure is not None or AsyncAck(self._batch, self._index).done

    async def _outcome(self) -> Written:
        if self.is_queued:
            await self._queue.come(self)
        return await self._reached()

    def _reached(self) -> AsyncAck:
        """Return the producer's result for the record; raises the error if it did not get there."""
        if self.failure is not None:
            self._queue.hear(self)
            raise self.failure
        return AsyncAck(self._batch, self._index)


def reached(queue: "SendQueue", topic: str, ack: AsyncAck) -> Ack:
    """Return the result of a record that the producer has already."""
    known = Ack(queue, topic, None, None, None, (), 0)
    known.leave_queue(ack)
    return known


class SendQueue(RecordQueue[Ack]):
    """Takes records in any thread and sends them in the loop."""

    def __init__(
        self, portal: Portal, receiver: Receiver, clock: Clock, bytes_max: int, timeout_s: float
    ) -> None:
        super().__init__(Ack, bytes_max)
        self.portal: Final = portal
        self._receiver = receiver
        self._clock = clock
        self._timeout_s = timeout_s
        self._lock = threading.Lock()  # of sending threads
        self._room = threading.Condition(self._lock)
        self._waiting = 0
        self._why = CLOSED
        self._draining: asyncio.Task[None] | None = None
        self._hindrance: Exception | None = None  # why the last record that had to wait failed
        self._hindered_bytes = 0  # total bytes given before that record started to wait
        self._awaited: dict[Ack, asyncio.Future[None]] = {}
        self._unheard: dict[Ack, Exception] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_forked, weakref.ref(self)))

    def leave_behind(self) -> None:
        """Take no more records: a forked process has no loop to send them."""
        self._lock = (
            threading.Lock()
        )  # the old one may be held by a thread that does not exist here
        self._room = threading.Condition(self._lock)
        self.is_open, self._why = False, FORKED

    # In the sending threads.

    def give(self, ack: Ack) -> Ack:
        """Queue a record, waiting for room; raises TimedOut."""
        with self._lock:
            if self.given_bytes - self.taken_bytes >= self.bytes_max:
                self._wait_for_room()
            if not self.is_open:
                raise NotRunning(self._why)
            self.add(ack)
            if not self.is_awake:
                self._wake()
        return ack

    def _wait_for_room(self) -> None:
        """Wait until the loop has taken enough; releases the lock while it waits."""
        until_s = self._clock.elapsed_s() + self._timeout_s
        # First this, then check what was taken: the loop does it in the opposite order.
        self._waiting += 1
        try:
            while self.is_open and self.given_bytes - self.taken_bytes >= self.bytes_max:
                left_s = until_s - self._clock.elapsed_s()
                if self._room.wait(min(LOOK_S, left_s)) or left_s > LOOK_S:
                    continue
                # The loop notifies when half of the room is free, so there may be some now.
                if self.given_bytes - self.taken_bytes >= self.bytes_max:
                    raise TimedOut(
                        f"no buffer memory for a record after {self._timeout_s:g} s: records are "
                        "sent faster than the brokers accept them; raise buffer.memory or "
                        "max.block.ms, or send fewer"
                    )
        finally:
            self._waiting -= 1

    def _wake(self) -> None:
        self.is_awake = True
        try:
            self.portal.loop.call_soon_threadsafe(self._begin)
        except BaseException:  # also an interrupt: the next thread has to try again
            self.is_awake = False
            raise

    def shut(self) -> None:
        """Take no more records."""
        with self._lock:
            self.is_open = False
            self._room.notify_all()

    # In the loop.

    async def passed(self) -> None:
        """Wait until everything queued so far has reached the producer or failed."""
        here: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.entries.append(here)
        self._begin()
        await here

    def count(self) -> int:
        """The number of records that have not reached the producer."""
        return sum(isinstance(entry, Ack) for entry in self.entries)

    @property
    def wait_s_max(self) -> float:
        """How long a record that is queued now can stay: those after the first one wait again."""
        return self._timeout_s * (2 if self.count() > 1 else 1)

    async def come(self, ack: Ack) -> None:
        """Wait until a record has reached the producer or failed."""
        coming = self._awaited.get(ack)
        if coming is None:
            coming = self._awaited[ack] = asyncio.get_running_loop().create_future()
        self._begin()  # the thread that had to wake the loop may have been interrupted
        await asyncio.shield(coming)

    def raise_unheard(self) -> None:
        """Raise the first unseen error and forget the others."""
        for failure in self._unheard.values():
            self._unheard = {}
            raise failure

    def hear(self, ack: Ack) -> None:
        """Note that the result was seen."""
        self._unheard.pop(ack, None)

    async def close(self) -> None:
        """Close; records that have not reached the producer fail."""
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.gather(self._draining, return_exceptions=True)
        failure = Disconnected("the producer was closed before this record was written")
        for entry in self.entries:
            if isinstance(entry, Ack):
                entry.fail(failure)
                self._tell(entry)
            elif not entry.done():
                entry.set_result(None)
        self.entries.clear()

    def _begin(self) -> None:
        if self._draining is not None and not self._draining.done():
            return
        if not self._drain_at_once():
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        """Take the first record, which has to wait, and those after it."""
        while True:
            record: Ack = self.entries[0]  # it stays until it has a result: `close` finds it here
            try:
                taken = await self._take(record)
            # A user's partitioner may raise anything; the result passes it on.
            except Exception as error:
                self._remove_first(record, error)
            else:
                self._remove_first(record, taken)
            if self._drain_at_once():
                return

    def _drain_at_once(self) -> bool:
        """Take records up to the first that has to wait; returns whether there is none."""
        entries: deque[Ack | asyncio.Future[None]] = self.entries
        take_at_once, take_many = self._receiver.take_at_once, self._receiver.take_many
        while True:
            while entries:
                # One by one while a caller waits for a record to reach the producer.
                if not self._awaited and (size := take_many(entries)):
                    self._take_bytes(size)
                    continue
                entry = entries[0]
                if not isinstance(entry, Ack):
                    if not entry.done():
                        entry.set_result(None)
                    entries.popleft()
                    continue
                try:
                    taken = take_at_once(entry)
                except Exception as error:
                    self._remove_first(entry, error)
                    continue
                if taken is None:
                    return False
                self._remove_first(entry, taken)
            # First this, then look again: sending threads do it in the opposite order.
            self.is_awake = False
            if not entries:
                return True
            self.is_awake = True

    def _remove_first(self, record: Ack, result: AsyncAck | Exception) -> None:
        """Remove a record that has reached the producer or failed."""
        if isinstance(result, Exception):
            record.fail(result)
            if len(self._unheard) < UNHEARD_MAX:
                self._unheard[record] = result
        else:
            record.leave_queue(result)
        self._tell(record)
        self.entries.popleft()
        self._take_bytes(record.size)

    def _take_bytes(self, size: int) -> None:
        """Note that bytes left the queue; waiting threads continue when half of it is free.

        A thread that continued after each record would queue one record and wait again.
        """
        self.taken_bytes += size
        if self._waiting and self.given_bytes - self.taken_bytes <= self.bytes_max // 2:
            with self._room:
                self._room.notify_all()

    async def _take(self, record: QueuedRecord) -> AsyncAck:
        failure = self._hindrance
        # A record that waited behind a failed one for its full time does not wait that long again.
        if failure is not None and self.taken_bytes < self._hindered_bytes:
            raise failure
        given_bytes = self.given_bytes
        try:
            taken = await self._receiver.take(record)
        except (Disconnected, TimedOut) as error:
            self._hindrance, self._hindered_bytes = error, given_bytes
            raise
        self._hindrance = None
        return taken

    def _tell(self, ack: Ack) -> None:
        if self._awaited and (coming := self._awaited.pop(ack, None)) is not None:
            coming.set_result(None)


def _forked(handover: "weakref.ref[SendQueue]") -> None:
    if (left := handover()) is not None:
        left.leave_behind()
