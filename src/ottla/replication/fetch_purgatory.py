"""Fetch requests that wait for records: the purgatory of a partition.

Consumers wait in the partitions that they fetch. The fetch session of a follower stays registered
with its partitions, which mark it when they change; so a fetch visits only what has changed.

Invariant: a waiter is woken at most once, and removed from every partition when its wait ends.
There is no polling: a partition notifies the waiters of consumers when its high watermark advances,
and those of followers after an append.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from ottla.ids import BrokerId, Uuid

WatchKey = tuple[Uuid | str, int]
"""A topic id or name, and a partition index."""


class FetchWaiter(Protocol):
    """A Fetch that waits for records, of a consumer or of a follower."""

    def note(self, count: int) -> None:
        """Count appended bytes."""
        ...

    def wake(self) -> None:
        """End the wait at once."""
        ...


class WatchedPartition(Protocol):
    """What a waiter needs of a partition."""

    waiting: dict[FetchWaiter, None]  # in arrival order


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
        timer = asyncio.get_running_loop().call_later(seconds, self.wake)
        try:
            await self._future
        finally:
            timer.cancel()
            for partition in self._partitions:
                partition.waiting.pop(self, None)


class MarkingPartition(Protocol):
    """A partition that marks the sessions of its followers."""

    watches: "dict[ReplicaWatch, None]"


class ReplicaWatch:
    """The partitions in the fetch session of a follower, and which of them have to be visited.

    A partition that is not marked has nothing for the follower: the follower has all its records,
    and knows its high watermark and log start offset.
    """

    __slots__ = ("_keys", "_partitions", "broker_id", "fetched_s", "marked", "marks", "waiter")

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.fetched_s = float("-inf")  # time of the last fetch of the session
        self.marks = 0  # a number for each mark
        self.marked: dict[WatchKey, int] = {}  # in the order in which they are visited
        self.waiter: FetchWaiter | None = None
        self._partitions: dict[WatchKey, MarkingPartition] = {}
        self._keys: dict[MarkingPartition, WatchKey] = {}

    def mark(self, partition: MarkingPartition, appended_bytes: int) -> None:
        """Visit a partition with the next fetch, or now if one waits for these bytes."""
        self.mark_key(self._keys[partition])
        if appended_bytes and self.waiter is not None:
            self.waiter.note(appended_bytes)

    def mark_key(self, key: WatchKey) -> None:
        """Visit the partition with this key with the next fetch."""
        self.marks += 1
        self.marked[key] = self.marks

    def mark_last(self, key: WatchKey) -> None:
        """Visit a partition again, after all others."""
        self.marked.pop(key, None)
        self.mark_key(key)

    def is_marked(self, partition: MarkingPartition) -> bool:
        """Whether the partition has to be visited."""
        return self._keys[partition] in self.marked

    def unmark(self, key: WatchKey, mark: int) -> None:
        """Do not visit a partition any more, unless it was marked again since that mark."""
        if self.marked.get(key) == mark:
            del self.marked[key]

    def wake(self) -> None:
        """End the wait of the session at once."""
        if self.waiter is not None:
            self.waiter.wake()

    def register(self, partition: MarkingPartition, key: WatchKey) -> None:
        """Let a partition mark its key; it replaces an earlier partition with this key."""
        if self._partitions.get(key) is not partition:
            self._unregister(key)
            self._partitions[key] = partition
            self._keys[partition] = key
            partition.watches[self] = None

    def partition(self, key: WatchKey) -> MarkingPartition | None:
        """Return the partition that marks a key; None if no Fetch has visited it yet."""
        return self._partitions.get(key)

    def forget(self, key: WatchKey) -> None:
        """Forget a partition that the follower does not fetch any more."""
        self.marked.pop(key, None)
        self._unregister(key)

    def _unregister(self, key: WatchKey) -> None:
        partition = self._partitions.pop(key, None)
        if partition is not None:
            del self._keys[partition]
            partition.watches.pop(self, None)

    def close(self) -> None:
        """Forget every partition: the session has ended."""
        for key in [*self._partitions]:
            self.forget(key)
