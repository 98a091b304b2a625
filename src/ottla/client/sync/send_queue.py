"""The send queue: passes records from sending threads to the producer's event loop, in lots.

Invariant: records arrive in order and each gets a result. The loop is woken once, however many
records are queued before it looks. Queued bytes are bounded; a thread that sends too much waits,
but not forever. A record stays here for at most twice max.block.ms, half of it behind others. An
error that nobody has seen is raised by the next flush.

`given_bytes` is written by sending threads under a lock, `taken_bytes` only by the loop. The
difference is queued, and neither side needs the other's lock to know it.
"""

import asyncio
import os
import threading
import weakref
from collections import deque
from functools import partial
from typing import Final, Protocol, TypeAlias

from ottla.client.producer.pending_batch import Ack as AsyncAck
from ottla.client.producer.pending_batch import Written
from ottla.client.producer.record_accumulator import Headers
from ottla.client.sync.portal import CLOSED, FORKED, LOOK_S, Portal
from ottla.clock import Clock
from ottla.transport.failures import Disconnected, NotRunning, TimedOut

RECORD_BYTES: Final = 200
"""About what a record takes here besides its key and value."""

UNHEARD_MAX: Final = 1000
"""The number of unseen errors that are remembered; the first of them is always kept."""

Content: TypeAlias = tuple[str, bytes | None, bytes | None, int | None, Headers, int]
"""Topic, key, value, partition, headers and timestamp of a record."""


class Receiver(Protocol):
    """Takes the records in the loop."""

    def take_at_once(self, content: Content) -> AsyncAck | None:
        """Take a record; None if that has to wait."""
        ...

    async def take(self, content: Content) -> AsyncAck:
        """Take a record, waiting for room or for metadata."""
        ...


class Ack:
    """The result of a record: `result()` waits for its offset or raises its error."""

    __slots__ = ("_handover", "state")

    def __init__(self, handover: "SendQueue", state: "Content | AsyncAck | Exception") -> None:
        self._handover = handover
        self.state = state  # the record itself while it is queued

    def result(self, timeout_s: float | None = None) -> Written:
        """Wait for the result; raises TimedOut, after which it may be called again."""
        state = self.state
        if isinstance(state, Exception):
            self._handover.hear(self)
            raise state
        if isinstance(state, AsyncAck) and (known := state.known()) is not None:
            return known
        return self._handover.portal.run(self._outcome(), timeout_s)

    def done(self) -> bool:
        """Whether the result is known."""
        state = self.state
        return state.done if isinstance(state, AsyncAck) else isinstance(state, Exception)

    async def _outcome(self) -> Written:
        if isinstance(self.state, tuple):
            await self._handover.come(self)
        if isinstance(self.state, Exception):
            self._handover.hear(self)
            raise self.state
        assert isinstance(self.state, AsyncAck)
        return await self.state


class SendQueue:
    """Takes records in any thread and sends them in the loop."""

    def __init__(
        self, portal: Portal, receiver: Receiver, clock: Clock, bytes_max: int, timeout_s: float
    ) -> None:
        self.portal: Final = portal
        self._receiver = receiver
        self._clock = clock
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._entries: deque[Ack | asyncio.Future[None]] = deque()
        self._lock = threading.Lock()  # of sending threads
        self._room = threading.Condition(self._lock)
        self._waiting = 0
        self._is_open = True
        self._why = CLOSED
        self._is_awake = False  # the loop will look and need not be woken
        self._given_bytes = 0
        self._taken_bytes = 0
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
        self._is_open, self._why = False, FORKED

    # In the sending threads.

    def give(self, content: Content) -> Ack:
        """Queue a record, waiting for room; raises TimedOut."""
        ack = Ack(self, content)
        with self._lock:
            if self._given_bytes - self._taken_bytes >= self._bytes_max:
                self._wait_for_room()
            if not self._is_open:
                raise NotRunning(self._why)
            self._entries.append(ack)
            self._given_bytes += _size(content)
            if not self._is_awake:
                self._wake()
        return ack

    def _wait_for_room(self) -> None:
        """Wait until the loop has taken enough; releases the lock while it waits."""
        until_s = self._clock.elapsed_s() + self._timeout_s
        # First this, then check what was taken: the loop does it in the opposite order.
        self._waiting += 1
        try:
            while self._is_open and self._given_bytes - self._taken_bytes >= self._bytes_max:
                left_s = until_s - self._clock.elapsed_s()
                if not self._room.wait(min(LOOK_S, left_s)) and left_s <= LOOK_S:
                    raise TimedOut(
                        f"no buffer memory for a record after {self._timeout_s:g} s: records are "
                        "sent faster than the brokers accept them; raise buffer.memory or "
                        "max.block.ms, or send fewer"
                    )
        finally:
            self._waiting -= 1

    def _wake(self) -> None:
        self._is_awake = True
        try:
            self.portal.loop.call_soon_threadsafe(self._begin)
        except BaseException:  # also an interrupt: the next thread has to try again
            self._is_awake = False
            raise

    def shut(self) -> None:
        """Take no more records."""
        with self._lock:
            self._is_open = False
            self._room.notify_all()

    # In the loop.

    async def passed(self) -> None:
        """Wait until everything queued so far has reached the producer or failed."""
        here: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entries.append(here)
        self._begin()
        await here

    async def come(self, ack: Ack) -> None:
        """Wait until a record has reached the producer or failed."""
        coming = self._awaited.get(ack)
        if coming is None:
            coming = self._awaited[ack] = asyncio.get_running_loop().create_future()
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
        for entry in self._entries:
            if isinstance(entry, Ack):
                self._tell(entry, failure)
            elif not entry.done():
                entry.set_result(None)
        self._entries.clear()

    def _begin(self) -> None:
        if self._draining is None or self._draining.done():
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        entries, take_at_once = self._entries, self._receiver.take_at_once
        while True:
            while entries:
                entry = entries[0]  # it stays until it has a result: `close` finds it here
                if not isinstance(entry, Ack):
                    if not entry.done():
                        entry.set_result(None)
                    entries.popleft()
                    continue
                content = entry.state
                assert isinstance(content, tuple)
                try:
                    taken = take_at_once(content) or await self._take(content)
                # A user's partitioner may raise anything; the result passes it on.
                except Exception as error:
                    taken = error
                    if len(self._unheard) < UNHEARD_MAX:
                        self._unheard[entry] = error
                self._tell(entry, taken)
                entries.popleft()
                self._taken_bytes += _size(content)
                if self._waiting:
                    with self._room:
                        self._room.notify_all()
            # First this, then look again: sending threads do it in the opposite order.
            self._is_awake = False
            if not entries:
                return
            self._is_awake = True

    async def _take(self, content: Content) -> AsyncAck:
        failure = self._hindrance
        # A record that waited behind a failed one for its full time does not wait that long again.
        if failure is not None and self._taken_bytes < self._hindered_bytes:
            raise failure
        given_bytes = self._given_bytes
        try:
            taken = await self._receiver.take(content)
        except (Disconnected, TimedOut) as error:
            self._hindrance, self._hindered_bytes = error, given_bytes
            raise
        self._hindrance = None
        return taken

    def _tell(self, ack: Ack, state: AsyncAck | Exception) -> None:
        ack.state = state
        if self._awaited and (coming := self._awaited.pop(ack, None)) is not None:
            coming.set_result(None)


def _size(content: Content) -> int:
    """About what a record takes here."""
    _, key, value, _, _, _ = content
    return RECORD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)


def _forked(handover: "weakref.ref[SendQueue]") -> None:
    if (left := handover()) is not None:
        left.leave_behind()
