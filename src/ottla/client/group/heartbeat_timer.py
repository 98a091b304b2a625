"""The pulse of a member: when a heartbeat is due, and when it has been silent for too long.

Invariant: all is counted in seconds that somebody else tells. A session is lost when nothing was
heard from the coordinator for its whole timeout, because then it has heard nothing either; a poll
is late when the application let its interval pass.
"""

from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class HeartbeatTimer:
    """Moments, and how far apart they may be."""

    interval_s: float
    session_s: float
    poll_interval_s: float
    polled_s: float
    _heard_s: float = 0.0
    _due_s: float = inf

    def begin(self, now_s: float) -> None:
        """The coordinator knows the member from now on."""
        self._heard_s = now_s
        self._due_s = now_s + self.interval_s

    def heard(self, now_s: float, asked_s: float) -> None:
        """A heartbeat was answered: its session lasts from when the coordinator can have got it."""
        self._heard_s = max(self._heard_s, asked_s)
        self._due_s = now_s + self.interval_s

    def failed(self, now_s: float, pause_s: float) -> None:
        """A heartbeat was not answered: the next comes after a pause."""
        self._due_s = now_s + min(pause_s, self.interval_s)

    def hurry(self) -> None:
        """There is something to say: a heartbeat is due."""
        self._due_s = -inf

    def is_lost(self, now_s: float) -> bool:
        """Whether the session is over."""
        return now_s - self._heard_s >= self.session_s

    def is_late(self, now_s: float) -> bool:
        """Whether the application has not polled for too long."""
        return now_s - self.polled_s >= self.poll_interval_s

    def end_s(self) -> float:
        """The moment at which a session or a poll would be too late."""
        return min(self._heard_s + self.session_s, self.polled_s + self.poll_interval_s)

    def next_s(self) -> float:
        """The moment at which there is something to do."""
        return min(self._due_s, self.end_s())
