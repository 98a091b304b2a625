"""Fetch requests that wait for records: the purgatory of a partition.

Invariant: a waiter is woken at most once, and removed from every partition when its wait ends.
There is no polling: appends notify the waiters.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol


class WatchedPartition(Protocol):
    """What a waiter needs of a partition."""

    waiting: "dict[DelayedFetch, None]"  # in arrival order


class DelayedFetch:
    """Waits until a number of bytes was appended to any of some partitions."""

    __slots__ = ("_future", "_left", "_partitions")

    def __init__(self, partitions: Iterable[WatchedPartition], bytes_min: int) -> None:
        self._partitions = list(partitions)
        self._left = bytes_min
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in self._partitions:
            partition.waiting[self] = None

    def note(self, count: int) -> None:
        """Count appended bytes; wake at the minimum."""
        self._left -= count
        if self._left <= 0:
            self.wake()

    def wake(self) -> None:
        """End the wait at once."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return when the bytes have arrived or the time is over."""
        try:
            await asyncio.wait((self._future,), timeout=seconds)
        finally:
            for partition in self._partitions:
                partition.waiting.pop(self, None)
