"""Group commit for the embedded store: requests run in order and share one sync.

Invariant: callers and listeners are notified only after the changes are on the device; listeners
first. A request that is cancelled before it runs has no effect. When the disk is full the changes
are rolled back and the requests fail with StorageExhausted. Provisional requests still succeed
then, and are written with the next group. After any other storage failure every request fails,
because the state of the device is unknown.

There is no background task: the caller that holds the lock runs all waiting requests.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from ottla.coordination.errors import CoordinationError
from ottla.coordination.journal import Journal
from ottla.coordination.tree import Transaction, Tree
from ottla.errors import OttlaError, StorageExhausted, StorageFailure
from ottla.log.disk import Disk

T = TypeVar("T")


class _Request:
    """A request; settled once the changes it read or made are on the device."""

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
    """The requests that share one sync."""

    __slots__ = ("afterwards", "requests", "taken_back", "transactions")

    def __init__(self, requests: list[_Request]) -> None:
        self.requests = requests
        self.transactions: list[Transaction] = []
        self.afterwards: list[Callable[[], None]] = []
        self.taken_back: list[Callable[[], None]] = []

    @property
    def provisional(self) -> bool:
        """Whether the requests are provisional; a group never mixes both kinds."""
        return self.requests[0].provisional

    def refuse(self, full: StorageExhausted) -> None:
        for call in self.taken_back:
            call()
        for request in self.requests:
            request.refused = type(full)(str(full))
            request.settled = True

    def publish(self) -> None:
        for call in self.afterwards:
            call()
        for request in self.requests:
            request.settled = True


class GroupCommit:
    """Applies requests to the tree and writes them to the journal, one group at a time."""

    def __init__(
        self, disk: Disk, journal: Journal, tree: Tree, put_off: Iterable[Transaction] = ()
    ) -> None:
        self.failure: StorageFailure | None = None
        self.failed: Callable[[], None] = lambda: None  # called once, on the first failure
        self._disk = disk
        self._journal = journal
        self._tree = tree
        self._queue: list[_Request] = []
        self._group = _Group([])
        self._put_off = list(put_off)  # applied but not written yet; written before anything else
        self._turn = asyncio.Lock()
        self._closed = False

    async def ask(self, act: Callable[[], T], *, provisional: bool = False) -> T:
        """Run `act` in its turn; it may call `add` and raise a CoordinationError.

        A provisional act succeeds even when a full disk postpones its write, because every start
        repeats it.
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
        """Add a transaction to the current group, with callbacks for success and rollback.

        Call this only from an act.
        """
        if transaction is not None:
            self._group.transactions.append(transaction)
        self._group.afterwards.append(afterwards)
        self._group.taken_back.append(taken_back)

    async def close(self) -> None:
        """Close the file after the current group has finished, with a mark if it is complete."""
        async with self._turn:
            if not self._closed:
                self._closed = True
                try:
                    if self.failure is None and not self._put_off:
                        with suppress(StorageFailure):  # the next start does without the mark
                            await self._disk.blocking(self._journal.mark_end)
                finally:
                    self._journal.close()

    def check_usable(self) -> None:
        """Raise if the store has failed or is closed."""
        if self.failure is not None:
            raise StorageFailure(str(self.failure)) from self.failure
        if self._closed:
            raise StorageFailure("the coordination store is closed")

    async def _carry_out_next(self) -> None:
        """Run the longest run of waiting requests of one kind. The caller holds the lock."""
        self.check_usable()
        group = self._group = _Group(self._next_requests())
        for request in group.requests:
            request.carry_out()
        if not group.transactions:
            group.publish()
            return
        unwritten = [*self._put_off, *group.transactions]

        def then(full: StorageExhausted | None) -> None:
            if full is not None and not group.provisional:
                self._tree.take_back()
                group.refuse(full)
                return
            self._tree.settle()
            self._put_off = [] if full is None else unwritten
            group.publish()

        await self._write(lambda: self._journal.append(unwritten), then)
        if self._journal.grown and not self._put_off:
            # The requests have been answered already. A full disk keeps the old file.
            with suppress(StorageFailure):
                await self._write(lambda: self._journal.rewrite(self._tree), lambda full: None)

    def _next_requests(self) -> list[_Request]:
        kind = self._queue[0].provisional
        others = (n for n, one in enumerate(self._queue) if one.provisional is not kind)
        count = next(others, len(self._queue))
        requests, self._queue = self._queue[:count], self._queue[count:]
        return requests

    async def _write(
        self, write: Callable[[], None], then: Callable[[StorageExhausted | None], None]
    ) -> None:
        """Run a blocking write in a thread, then call `then` on the event loop.

        `then` receives the StorageExhausted error if nothing was changed, otherwise None.
        """
        outcome: list[StorageExhausted | None] = []

        def whole() -> None:
            try:
                write()
            except StorageExhausted as full:
                outcome.append(full)
            else:
                outcome.append(None)

        try:
            await self._disk.blocking(whole)
        except BaseException as error:
            # A cancellation arrives here only after the write has finished.
            if not outcome:
                self.failure = StorageFailure(f"the coordination store has failed: {error}")
                self.failed()
            raise
        finally:
            if outcome:
                then(outcome[0])
