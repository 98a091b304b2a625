"""The handover: records go from threads that send to the loop of the producer, many at a time.

Invariant: records arrive in the order in which they were given, and each is told what became of it.
The loop is woken once, however many are given before it looks. What was given and not taken is
bounded in bytes; who gives too much waits, and not forever. No record waits here for longer than
twice max.block.ms, half of it behind others. One that failed on its way, and about which nobody
asked, is told of by the next flush.

`given_bytes` is written by those who give, under a lock, and `taken_bytes` by the loop alone: what
lies between them is on its way, and nobody needs the other's lock to know how much that is.
"""

import asyncio
import os
import threading
import weakref
from collections import deque
from functools import partial
from typing import Final, Protocol, TypeAlias

from ottla.client.produce.outbox import Headers
from ottla.client.produce.pending_batch import Ack as AsyncAck
from ottla.client.produce.pending_batch import Written
from ottla.client.sync.portal import CLOSED, FORKED, LOOK_S, Portal
from ottla.clock import Clock
from ottla.transport.failures import Disconnected, NotRunning, TimedOut

RECORD_BYTES: Final = 200
"""About what a record takes here beside its key and value."""

UNHEARD_MAX: Final = 1000
"""So many failures are remembered until somebody asks; the first of them is told anyway."""

Content: TypeAlias = tuple[str, bytes | None, bytes | None, int | None, Headers, int]
"""The topic, key, value, partition, headers and time of a record."""


class Receiver(Protocol):
    """Who takes the records in the loop."""

    def take_at_once(self, content: Content) -> AsyncAck | None:
        """Take a record; None when that needs a wait."""
        ...

    async def take(self, content: Content) -> AsyncAck:
        """Take a record, waiting for room or for news of the topic."""
        ...


class Ack:
    """What becomes of a record: `result()` waits for where it is, or raises why it is not."""

    __slots__ = ("_handover", "state")

    def __init__(self, handover: "SendQueue", state: "Content | AsyncAck | Exception") -> None:
        self._handover = handover
        self.state = state  # the record itself, as long as it is on its way to the loop

    def result(self, timeout_s: float | None = None) -> Written:
        """Wait until it is known; TimedOut when that takes too long, and one may ask again."""
        state = self.state
        if isinstance(state, Exception):
            self._handover.hear(self)
            raise state
        if isinstance(state, AsyncAck) and (known := state.known()) is not None:
            return known
        return self._handover.portal.run(self._outcome(), timeout_s)

    def done(self) -> bool:
        """Whether it is known already."""
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
        self._lock = threading.Lock()  # of those who give
        self._room = threading.Condition(self._lock)
        self._waiting = 0
        self._is_open = True
        self._why = CLOSED
        self._is_awake = False  # the loop will look, and need not be told
        self._given_bytes = 0
        self._taken_bytes = 0
        self._draining: asyncio.Task[None] | None = None
        self._hindrance: Exception | None = None  # why the last that waited did so in vain
        self._hindered_bytes = 0  # what was given before that one began to wait, of all that was
        self._awaited: dict[Ack, asyncio.Future[None]] = {}
        self._unheard: dict[Ack, Exception] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_forked, weakref.ref(self)))

    def leave_behind(self) -> None:
        """Take nothing more: in a process that was forked nobody is there to send it."""
        self._lock = threading.Lock()  # the other may be held by a thread that is not here
        self._room = threading.Condition(self._lock)
        self._is_open, self._why = False, FORKED

    # In the threads that send.

    def give(self, content: Content) -> Ack:
        """Hand a record over, waiting for room; TimedOut when there is none for too long."""
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
        """Wait until the loop has taken enough; the lock is held, but not while it waits."""
        until_s = self._clock.elapsed_s() + self._timeout_s
        # First this, then a look at what was taken: the loop does it the other way round.
        self._waiting += 1
        try:
            while self._is_open and self._given_bytes - self._taken_bytes >= self._bytes_max:
                left_s = until_s - self._clock.elapsed_s()
                if not self._room.wait(min(LOOK_S, left_s)) and left_s <= LOOK_S:
                    raise TimedOut(
                        f"no room for a record after {self._timeout_s:g} s: the brokers take fewer "
                        "than are sent; raise buffer.memory or max.block.ms, or send less"
                    )
        finally:
            self._waiting -= 1

    def _wake(self) -> None:
        self._is_awake = True
        try:
            self.portal.loop.call_soon_threadsafe(self._begin)
        except BaseException:  # an interrupt too: the next one has to try again
            self._is_awake = False
            raise

    def shut(self) -> None:
        """Take nothing more."""
        with self._lock:
            self._is_open = False
            self._room.notify_all()

    # In the loop.

    async def passed(self) -> None:
        """Return when all that was given before has come to the producer, or failed."""
        here: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entries.append(here)
        self._begin()
        await here

    async def come(self, ack: Ack) -> None:
        """Return when a record has come to the producer, or failed."""
        coming = self._awaited.get(ack)
        if coming is None:
            coming = self._awaited[ack] = asyncio.get_running_loop().create_future()
        await asyncio.shield(coming)

    def raise_unheard(self) -> None:
        """Raise the first failure about which nobody asked, and forget the others."""
        for failure in self._unheard.values():
            self._unheard = {}
            raise failure

    def hear(self, ack: Ack) -> None:
        """Somebody asked."""
        self._unheard.pop(ack, None)

    async def close(self) -> None:
        """End: what has not come to the producer fails."""
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.gather(self._draining, return_exceptions=True)
        failure = Disconnected("the producer was closed before this was written")
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
                entry = entries[0]  # it stays until it is told: `close` finds it here
                if not isinstance(entry, Ack):
                    if not entry.done():
                        entry.set_result(None)
                    entries.popleft()
                    continue
                content = entry.state
                assert isinstance(content, tuple)
                try:
                    taken = take_at_once(content) or await self._take(content)
                # What a partitioner of the user's raises is anybody's; the ack passes it on.
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
            # First this, then another look: who gives does it the other way round.
            self._is_awake = False
            if not entries:
                return
            self._is_awake = True

    async def _take(self, content: Content) -> AsyncAck:
        failure = self._hindrance
        # Who waited behind one that failed, for all of its time, does not wait as long again.
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
