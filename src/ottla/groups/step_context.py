"""One step of a coordinator: its time and its effects.

Invariant: an active timer is known by its version until it fires, is cancelled or is set again.
Versions are never reused, so a stale timer is always recognised.
"""

from ottla.groups.config import GroupConfig
from ottla.groups.effects import Append, CancelTimer, Effect, Respond, SetTimer, Then, TopicRecord
from ottla.groups.events import TimerFired
from ottla.groups.responses import Response
from ottla.groups.types import RequestToken, Timer, Transaction
from ottla.ids import LeaderEpoch


class Timers:
    """The active timers of a coordinator."""

    __slots__ = ("_last_version", "_versions")

    def __init__(self) -> None:
        self._versions: dict[Timer, int] = {}
        self._last_version = 0

    def __contains__(self, timer: Timer) -> bool:
        return timer in self._versions

    def live(self) -> frozenset[Timer]:
        """Return the active timers."""
        return frozenset(self._versions)

    def set(self, timer: Timer) -> int:
        """Set a timer and return its version."""
        self._last_version += 1
        self._versions[timer] = self._last_version
        return self._last_version

    def cancel(self, timer: Timer) -> bool:
        """Cancel a timer; return False if it was not set."""
        return self._versions.pop(timer, None) is not None

    def take(self, fired: TimerFired) -> bool:
        """Remove a fired timer; return False if it is stale."""
        if self._versions.get(fired.timer) != fired.version:
            return False
        del self._versions[fired.timer]
        return True


class StepContext:
    """Time, settings and timers for a decision, and the list of its effects."""

    __slots__ = ("_leader_epoch", "_timers", "effects", "now_ms", "rules")

    def __init__(
        self, now_ms: int, rules: GroupConfig, timers: Timers, leader_epoch: LeaderEpoch
    ) -> None:
        self.now_ms = now_ms
        self.rules = rules
        self.effects: list[Effect] = []
        self._timers = timers
        self._leader_epoch = leader_epoch

    def respond(self, token: RequestToken, answer: Response) -> None:
        """Respond to a request."""
        self.effects.append(Respond(token, answer))

    def append(
        self,
        records: tuple[TopicRecord, ...],
        then: Then,
        *,
        transaction: Transaction | None = None,
        atomic: bool = True,
    ) -> None:
        """Append records, then continue with the result."""
        assert records
        self.effects.append(Append(self._leader_epoch, records, then, transaction, atomic))

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        """Set a timer, replacing an earlier one of the same name."""
        version = self._timers.set(timer)
        self.effects.append(SetTimer(timer, version, self.now_ms + delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        """Cancel a timer."""
        if self._timers.cancel(timer):
            self.effects.append(CancelTimer(timer))
