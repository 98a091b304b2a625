"""Waiters for offsets: callbacks that are called when a log has got that far.

A waiter is a small object, not a task. One call finishes all waiters up to an offset, for example
after a flush, or when the high watermark advances.

Invariant: a waiter is finished at most once: when its offset is reached, with a failure, or never
if it is removed before.
"""

from bisect import bisect_left, bisect_right, insort
from typing import Protocol


class OffsetWaiter(Protocol):
    """Waits until everything below an offset is flushed, replicated or the like."""

    @property
    def offset(self) -> int:
        """The offset; it does not change while the waiter waits."""
        ...

    def finish(self, failure: Exception | None) -> None:
        """End the wait: None when the offset is reached, otherwise why it will not be."""
        ...


class OffsetWaiters:
    """The waiters of one partition, sorted by offset; those with the same offset by arrival."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[OffsetWaiter] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def offset_max(self) -> int:
        """The highest offset that a waiter waits for; there must be one."""
        return self._waiting[-1].offset

    def add(self, waiter: OffsetWaiter) -> None:
        """Finish the waiter later, never in this call."""
        insort(self._waiting, waiter, key=_offset)

    def remove(self, waiter: OffsetWaiter) -> None:
        """Forget a waiter; it may have been finished before."""
        waiting = self._waiting
        start = bisect_left(waiting, waiter.offset, key=_offset)
        for at in range(start, len(waiting)):
            if waiting[at] is waiter:
                del waiting[at]
                return
            if waiting[at].offset != waiter.offset:
                return

    def finish_up_to(self, offset: int, failure: Exception | None = None) -> None:
        """Finish every waiter for an offset up to this one, the lowest first."""
        end = bisect_right(self._waiting, offset, key=_offset)
        finished, self._waiting = self._waiting[:end], self._waiting[end:]
        for waiter in finished:
            waiter.finish(failure)

    def fail_all(self, failure: Exception) -> None:
        """Finish every waiter with a failure, for example before a truncation."""
        finished, self._waiting = self._waiting, []
        for waiter in finished:
            waiter.finish(failure)


def _offset(waiter: OffsetWaiter) -> int:
    return waiter.offset
