"""Requests that wait until there is something to read.

Invariant: whoever waits is woken at most once, and is taken off every partition when its wait is
over, however it ended. Nothing is looked at again and again: appends tell.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Watched(Protocol):
    """A partition as those who wait see it."""

    waiting: "dict[BytesAwaited, None]"  # in the order in which they came


class BytesAwaited:
    """A wait for a number of bytes in any of some partitions."""

    __slots__ = ("_future", "_left", "_partitions")

    def __init__(self, partitions: Iterable[Watched], bytes_min: int) -> None:
        self._partitions = list(partitions)
        self._left = bytes_min
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in self._partitions:
            partition.waiting[self] = None

    def note(self, count: int) -> None:
        """So many bytes more can be read."""
        self._left -= count
        if self._left <= 0:
            self.wake()

    def wake(self) -> None:
        """Look again, whatever there is."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return when the bytes are there or the time is over."""
        try:
            await asyncio.wait((self._future,), timeout=seconds)
        finally:
            for partition in self._partitions:
                partition.waiting.pop(self, None)
