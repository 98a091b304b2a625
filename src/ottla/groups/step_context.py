"""One step of a coordinator: the time it happens at, and the effects it gathers.

Invariant: a timer that was set is known by its version until it fires, is cancelled or is set
anew; no two timers ever have the same version, so a stale one is always recognised.
"""

from ottla.groups.config import GroupConfig
from ottla.groups.effects import Append, CancelTimer, Effect, Respond, SetTimer, Then, TopicRecord
from ottla.groups.events import TimerFired
from ottla.groups.responses import Response
from ottla.groups.types import RequestToken, Timer, Transaction
from ottla.ids import LeaderEpoch


class Timers:
    """The timers of a coordinator that have been set and have not fired."""

    __slots__ = ("_last_version", "_versions")

    def __init__(self) -> None:
        self._versions: dict[Timer, int] = {}
        self._last_version = 0

    def __contains__(self, timer: Timer) -> bool:
        return timer in self._versions

    def live(self) -> frozenset[Timer]:
        """Those that are set."""
        return frozenset(self._versions)

    def set(self, timer: Timer) -> int:
        """Note that a timer is set, and give its version."""
        self._last_version += 1
        self._versions[timer] = self._last_version
        return self._last_version

    def cancel(self, timer: Timer) -> bool:
        """Forget a timer; False when it was not set."""
        return self._versions.pop(timer, None) is not None

    def take(self, fired: TimerFired) -> bool:
        """Tell whether what fired is the timer that was set last, which is then gone."""
        if self._versions.get(fired.timer) != fired.version:
            return False
        del self._versions[fired.timer]
        return True


class StepContext:
    """What a decision may use, and where it leaves its effects."""

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
        """Answer a request."""
        self.effects.append(Respond(token, answer))

    def append(
        self,
        records: tuple[TopicRecord, ...],
        then: Then,
        *,
        transaction: Transaction | None = None,
        atomic: bool = True,
    ) -> None:
        """Have records appended, and hear of the outcome."""
        assert records
        self.effects.append(Append(self._leader_epoch, records, then, transaction, atomic))

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        """Be told after this time, and forget an earlier timer of the name."""
        version = self._timers.set(timer)
        self.effects.append(SetTimer(timer, version, self.now_ms + delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        """Do not be told."""
        if self._timers.cancel(timer):
            self.effects.append(CancelTimer(timer))
