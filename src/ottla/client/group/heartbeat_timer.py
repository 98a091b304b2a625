"""Timers of a member: heartbeats, session and poll interval.

Invariant: the time is an argument. A session is lost if nothing was received from the coordinator
for the whole session timeout. A poll is late if the application exceeds max.poll.interval.ms.
"""

from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class HeartbeatTimer:
    """Deadlines and intervals."""

    interval_s: float
    session_s: float
    poll_interval_s: float
    polled_s: float
    _heard_s: float = 0.0
    _due_s: float = inf

    def begin(self, now_s: float) -> None:
        """Start the session."""
        self._heard_s = now_s
        self._due_s = now_s + self.interval_s

    def heard(self, now_s: float, asked_s: float) -> None:
        """Note a heartbeat response: the session lasts from the time of the request."""
        self._heard_s = max(self._heard_s, asked_s)
        self._due_s = now_s + self.interval_s

    def failed(self, now_s: float, pause_s: float) -> None:
        """Note a failed heartbeat: the next one follows after a backoff."""
        self._due_s = now_s + min(pause_s, self.interval_s)

    def hurry(self) -> None:
        """Make a heartbeat due now: there is something to report."""
        self._due_s = -inf

    def is_lost(self, now_s: float) -> bool:
        """Whether the session has expired."""
        return now_s - self._heard_s >= self.session_s

    def is_late(self, now_s: float) -> bool:
        """Whether the application has not polled for too long."""
        return now_s - self.polled_s >= self.poll_interval_s

    def end_s(self) -> float:
        """The time at which the session expires or the poll is late."""
        return min(self._heard_s + self.session_s, self.polled_s + self.poll_interval_s)

    def next_s(self) -> float:
        """The time of the next event."""
        return min(self._due_s, self.end_s())
