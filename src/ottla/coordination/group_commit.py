"""Requests to the embedded store, carried out in their order, with one sync for all that wait.

Invariant: whoever asked is answered, and whatever is to be told is told, only when everything that
the answer rests on is on the device; what is to be told comes first. Whoever is cancelled before
the turn came has not asked at all. On a full disk what was asked for is taken back and refused, but
for what is provisional: that counts, and is written with what is written next. After any other
failure nothing is carried out any more: nobody knows what is on the device.

There is no task: whoever asks and gets the turn carries out all that waits.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from ottla.coordination.errors import CoordinationError
from ottla.coordination.journal import Journal
from ottla.coordination.tree import Transaction, Tree
from ottla.errors import DiskFull, OttlaError, StorageFailure
from ottla.log.disk import Disk

T = TypeVar("T")


class _Request:
    """Settled when what it saw or did is on the device."""

    __slots__ = ("_act", "provisional", "refused", "settled")

    def __init__(self, act: Callable[[], None], *, provisional: bool) -> None:
        self.refused: OttlaError | None = None
        self.settled = False
        self.provisional = provisional
        self._act = act

    def carry_out(self) -> None:
        try:
            self._act()
        except CoordinationError as error:
            self.refused = error


class _Group:
    """What is carried out with one sync."""

    __slots__ = ("afterwards", "requests", "taken_back", "transactions")

    def __init__(self, requests: list[_Request]) -> None:
        self.requests = requests
        self.transactions: list[Transaction] = []
        self.afterwards: list[Callable[[], None]] = []
        self.taken_back: list[Callable[[], None]] = []

    @property
    def provisional(self) -> bool:
        """As all of its requests are, or none."""
        return self.requests[0].provisional

    def refuse(self, full: DiskFull) -> None:
        for call in self.taken_back:
            call()
        for request in self.requests:
            request.refused = DiskFull(str(full))
            request.settled = True

    def publish(self) -> None:
        for call in self.afterwards:
            call()
        for request in self.requests:
            request.settled = True


class GroupCommit:
    """The one place where the tree changes while sessions use it."""

    def __init__(
        self, disk: Disk, journal: Journal, tree: Tree, put_off: Iterable[Transaction] = ()
    ) -> None:
        self.failure: StorageFailure | None = None
        self.failed: Callable[[], None] = lambda: None  # called once, when it fails
        self._disk = disk
        self._journal = journal
        self._tree = tree
        self._queue: list[_Request] = []
        self._group = _Group([])
        self._put_off = list(put_off)  # carried out, and to be written before anything else
        self._turn = asyncio.Lock()
        self._closed = False

    async def ask(self, act: Callable[[], T], *, provisional: bool = False) -> T:
        """Have something done in its turn; it may call `add`, and raise a CoordinationError.

        What is provisional counts though a full disk puts it off: a start makes it anew.
        """
        outcome: list[T] = []
        request = _Request(lambda: outcome.append(act()), provisional=provisional)
        self._queue.append(request)
        try:
            async with self._turn:
                while not request.settled:
                    await self._carry_out_next()
        finally:
            if not request.settled and request in self._queue:
                self._queue.remove(request)
        if request.refused is not None:
            raise request.refused
        return outcome[0]

    def add(
        self,
        transaction: Transaction | None,
        afterwards: Callable[[], None],
        taken_back: Callable[[], None] = lambda: None,
    ) -> None:
        """From within an act: what is to be written, and done once it is on the device or not."""
        if transaction is not None:
            self._group.transactions.append(transaction)
        self._group.afterwards.append(afterwards)
        self._group.taken_back.append(taken_back)

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

    async def _carry_out_next(self) -> None:
        """Do what waits, as far as all of it is provisional or none. The caller has the turn."""
        self.check_usable()
        group = self._group = _Group(self._next_requests())
        for request in group.requests:
            request.carry_out()
        if not group.transactions:
            group.publish()
            return
        unwritten = [*self._put_off, *group.transactions]

        def then(full: DiskFull | None) -> None:
            if full is not None and not group.provisional:
                self._tree.take_back()
                group.refuse(full)
                return
            self._tree.settle()
            self._put_off = [] if full is None else unwritten
            group.publish()

        await self._write(lambda: self._journal.append(unwritten), then)
        if self._journal.grown and not self._put_off:
            # The requests are answered, whatever becomes of this; a full disk keeps the old file.
            with suppress(StorageFailure):
                await self._write(lambda: self._journal.rewrite(self._tree), lambda full: None)

    def _next_requests(self) -> list[_Request]:
        kind = self._queue[0].provisional
        others = (n for n, one in enumerate(self._queue) if one.provisional is not kind)
        count = next(others, len(self._queue))
        requests, self._queue = self._queue[:count], self._queue[count:]
        return requests

    async def _write(
        self, write: Callable[[], None], then: Callable[[DiskFull | None], None]
    ) -> None:
        """Do something that waits for the device, and what may only be done after it.

        That is told when the disk was full, and nothing was changed.
        """
        outcome: list[DiskFull | None] = []

        def whole() -> None:
            try:
                write()
            except DiskFull as full:
                outcome.append(full)
            else:
                outcome.append(None)

        try:
            await self._disk.blocking(whole)
        except BaseException as error:
            # A cancellation comes up when the write has been done to its end.
            if not outcome:
                self.failure = StorageFailure(f"coordination has stopped: {error}")
                self.failed()
            raise
        finally:
            if outcome:
                then(outcome[0])
