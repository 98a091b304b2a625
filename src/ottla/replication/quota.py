"""Replication quotas: how fast followers that catch up may fetch (KIP-73).

A reassignment copies whole partitions. The quota keeps the rate of throttled replicas below a limit
on the leader's and on the follower's side, so that clients get the rest. The topic names the
throttled replicas. If the broker has no rate for these, and ottla.balance.enable is set, the quota
applies to all replicas that reassignments add. A replica in the ISR is never held back: it would
delay acks=all.

Invariant: the rate is that of Kafka's SimpleRate: the bytes of the last windows, divided by the
time since the oldest of them began, and at least by one window.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache

from ottla.clock import Clock
from ottla.ids import BrokerId, TopicPartition
from ottla.settings.config_types import LONG_MAX


@lru_cache(maxsize=1024)
def _replicas(text: str) -> frozenset[str]:
    return frozenset(one.strip() for one in text.split(","))


class ReplicationQuota:
    """The quota of one side, and the rate of its throttled replicas."""

    def __init__(
        self,
        node_id: BrokerId,
        clock: Clock,
        *,
        bytes_max: Callable[[], int],
        throttled: Callable[[str], str],
        copied_max: Callable[[], int] = lambda: LONG_MAX,
        is_copied: Callable[[TopicPartition], bool] = lambda name: False,
        windows: int = 11,
        window_s: float = 1.0,
    ) -> None:
        """A quota of `bytes_max` bytes per second.

        `throttled` returns the throttled replicas of a topic as its config has them: `*`, or
        partition:broker for each. Without a limit of these, `copied_max` limits the partitions for
        which `is_copied` returns True.
        """
        self._node_id = node_id
        self._clock = clock
        self._bytes_max = bytes_max
        self._throttled = throttled
        self._copied_max = copied_max
        self._is_copied = is_copied
        self._windows = windows
        self._window_s = window_s
        self._samples: deque[list[float]] = deque()  # when each window began, and its bytes

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit; without one, nothing is measured."""
        return self._limit < LONG_MAX

    @property
    def _limit(self) -> int:
        limit = self._bytes_max()
        return limit if limit < LONG_MAX else self._copied_max()

    @property
    def is_exceeded(self) -> bool:
        """Whether throttled replicas have to wait."""
        return self.bytes_per_s > self._limit

    @property
    def bytes_per_s(self) -> float:
        """The rate of the throttled replicas."""
        now_s = self._clock.elapsed_s()
        self._forget(now_s)
        if not self._samples:
            return 0.0
        elapsed_s = max(now_s - self._samples[0][0], self._window_s)
        return sum(count for _, count in self._samples) / elapsed_s

    def is_throttled(self, name: TopicPartition) -> bool:
        """Whether a partition is throttled on this broker."""
        if self._bytes_max() == LONG_MAX and self._copied_max() < LONG_MAX:
            return self._is_copied(name)
        text = self._throttled(name.topic)
        return bool(text) and (
            text == "*" or f"{name.partition}:{self._node_id}" in _replicas(text)
        )

    def record(self, count: int) -> None:
        """Count the bytes of throttled replicas."""
        now_s = self._clock.elapsed_s()
        self._forget(now_s)
        if not self._samples or now_s - self._samples[-1][0] >= self._window_s:
            self._samples.append([now_s, 0.0])
        self._samples[-1][1] += count

    def _forget(self, now_s: float) -> None:
        while self._samples and now_s - self._samples[0][0] >= self._windows * self._window_s:
            self._samples.popleft()
