"""Requests to the embedded store, carried out in their order, with one sync for all that wait.

Invariant: whoever asked is answered, and whatever is to be told is told, only when everything that
the answer rests on is on the device; what is to be told comes first. Whoever is cancelled before
the turn came has not asked at all. After a failure nothing is carried out any more: nobody knows
what is on the device.

There is no task: whoever asks and gets the turn carries out all that waits.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ottla.coordination.errors import CoordinationError
from ottla.coordination.journal import Journal
from ottla.coordination.tree import Transaction, Tree
from ottla.errors import StorageFailure
from ottla.log.disk import Disk

T = TypeVar("T")


class _Request:
    """Settled when what it saw or did is on the device."""

    __slots__ = ("_act", "refused", "settled")

    def __init__(self, act: Callable[[], None]) -> None:
        self.refused: CoordinationError | None = None
        self.settled = False
        self._act = act

    def carry_out(self) -> None:
        try:
            self._act()
        except CoordinationError as error:
            self.refused = error


class _Group:
    """What is carried out with one sync."""

    __slots__ = ("afterwards", "requests", "transactions")

    def __init__(self, requests: list[_Request]) -> None:
        self.requests = requests
        self.transactions: list[Transaction] = []
        self.afterwards: list[Callable[[], None]] = []

    def publish(self) -> None:
        for call in self.afterwards:
            call()
        for request in self.requests:
            request.settled = True


class Commits:
    """The one place where the tree changes while sessions use it."""

    def __init__(self, disk: Disk, journal: Journal, tree: Tree) -> None:
        self.failure: StorageFailure | None = None
        self.failed: Callable[[], None] = lambda: None  # called once, when it fails
        self._disk = disk
        self._journal = journal
        self._tree = tree
        self._queue: list[_Request] = []
        self._group = _Group([])
        self._turn = asyncio.Lock()
        self._closed = False

    async def ask(self, act: Callable[[], T]) -> T:
        """Have something done in its turn; it may call `add`, and raise a CoordinationError."""
        outcome: list[T] = []
        request = _Request(lambda: outcome.append(act()))
        self._queue.append(request)
        try:
            async with self._turn:
                if not request.settled:
                    await self._carry_out_queue()
        finally:
            if not request.settled and request in self._queue:
                self._queue.remove(request)
        if request.refused is not None:
            raise request.refused
        return outcome[0]

    def add(self, transaction: Transaction | None, afterwards: Callable[[], None]) -> None:
        """From within an act: what is to be written, and done once it is on the device."""
        if transaction is not None:
            self._group.transactions.append(transaction)
        self._group.afterwards.append(afterwards)

    async def close(self) -> None:
        """Let go of the file when everything under way is done."""
        async with self._turn:
            if not self._closed:
                self._closed = True
                self._journal.close()

    def check_usable(self) -> None:
        """Raise if nothing can be asked for any more."""
        if self.failure is not None:
            raise StorageFailure(str(self.failure)) from self.failure
        if self._closed:
            raise StorageFailure("coordination has stopped: it was closed")

    async def _carry_out_queue(self) -> None:
        """Do all that waits. The caller has the turn."""
        self.check_usable()
        requests, self._queue = self._queue, []
        group = self._group = _Group(requests)
        for request in requests:
            request.carry_out()
        if not group.transactions:
            group.publish()
            return
        await self._write(lambda: self._journal.append(group.transactions), group.publish)
        if self._journal.grown:
            # The requests are answered, whatever becomes of this.
            with suppress(StorageFailure):
                await self._write(lambda: self._journal.rewrite(self._tree), lambda: None)

    async def _write(self, write: Callable[[], None], then: Callable[[], None]) -> None:
        """Do something that waits for the device, and what may only be done after it."""
        written = False

        def whole() -> None:
            nonlocal written
            write()
            written = True

        try:
            await self._disk.blocking(whole)
        except BaseException as error:
            # A cancellation comes up when the write has been done to its end.
            if not written:
                self.failure = StorageFailure(f"coordination has stopped: {error}")
                self.failed()
            raise
        finally:
            if written:
                then()
