"""Produce requests whose acknowledgement waits: the purgatory of appended records.

A DelayedProduce waits for offsets of one or more partitions: until they are flushed or, with
several replicas, until the high watermark reaches them. Callbacks complete it, not a task.

Invariant: a DelayedProduce is completed at most once, and its waits are removed from every
partition when it ends. It is never completed before `begin`, nor in the call that adds a wait.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.log.offset_waiters import OffsetWaiter
from ottla.replication.partition import Partition

T = TypeVar("T")


class AckCondition(Protocol):
    """What finishes waiters: the group commit of a log, or the high watermark of a partition."""

    def add(self, waiter: OffsetWaiter) -> None:
        """Finish a waiter later, when its offset is reached or with a failure."""
        ...

    def remove(self, waiter: OffsetWaiter) -> None:
        """Forget a waiter, which may have been finished."""
        ...


class _Wait(Generic[T]):
    """Waits for the offset of one partition."""

    __slots__ = ("_delayed", "condition", "is_limited", "offset", "partition", "response")

    def __init__(
        self,
        delayed: "DelayedProduce[T]",
        partition: Partition,
        condition: AckCondition,
        offset: int,
        response: T,
        is_limited: bool,
    ) -> None:
        self._delayed = delayed
        self.is_limited = is_limited
        self.partition = partition
        self.condition = condition
        self.offset = offset
        self.response = response

    def finish(self, failure: Exception | None) -> None:
        self._delayed.finish(self, failure)


class DelayedProduce(Generic[T]):
    """Acknowledges appended records when every wait has ended, or after the timeout.

    `on_error` gets the response of a partition and the error that it must return. A partition may
    have several waits; the last error counts.
    """

    __slots__ = ("_on_complete", "_on_error", "_timer", "_waits")

    def __init__(self, on_error: Callable[[T, RequestError], None]) -> None:
        self._on_error = on_error
        self._on_complete: Callable[[Exception | None], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waits: dict[_Wait[T], None] = {}

    def wait_for(
        self,
        partition: Partition,
        condition: AckCondition,
        offset: int,
        response: T,
        *,
        is_limited: bool = True,
    ) -> None:
        """Wait until a condition has reached an offset of a partition.

        The timeout does not end the wait unless it is limited.
        """
        wait = _Wait(self, partition, condition, offset, response, is_limited)
        self._waits[wait] = None
        condition.add(wait)

    def begin(
        self, on_complete: Callable[[Exception | None], None], timeout_ms: int | None = None
    ) -> None:
        """Call `on_complete` after the last wait; its argument is an error of our own, if any.

        Limited waits that have not ended after `timeout_ms` end with REQUEST_TIMED_OUT.
        """
        self._on_complete = on_complete
        if timeout_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._time_out)

    def finish(self, wait: _Wait[T], failure: Exception | None) -> None:
        """End a wait."""
        if wait not in self._waits:
            return
        del self._waits[wait]
        if isinstance(failure, StorageFailure):
            failure = wait.partition.storage_error(failure)
        if isinstance(failure, RequestError):
            self._on_error(wait.response, failure)
        elif failure is not None:
            self._complete(failure)
            return
        if not self._waits:
            self._complete(None)

    def _time_out(self) -> None:
        timed_out = RequestError(ErrorCode.REQUEST_TIMED_OUT)
        for wait in [*self._waits]:
            if wait.is_limited:
                wait.condition.remove(wait)
                wait.finish(timed_out)

    def _complete(self, failure: Exception | None) -> None:
        on_complete = self._on_complete
        self.cancel()
        if on_complete is not None:
            on_complete(failure)

    def cancel(self) -> None:
        """End all waits without completing: nobody needs the acknowledgement any more."""
        self._on_complete = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waits, self._waits = self._waits, {}
        for wait in waits:
            wait.condition.remove(wait)
