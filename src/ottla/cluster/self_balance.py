"""Decides when the controller balances the cluster by itself (ottla.balance.enable).

The controller observes the cluster at an interval. It waits until brokers and replicas have been
stable for a while, then measures the loads and plans. A plan that is needed in two successive
observations is executed, a few partitions at a time, leaders first.

Invariant: nothing moves while a replica is not in sync, or while a reassignment of somebody else is
in progress. A plan is dropped when a broker comes or goes, because the loads it was made for are
gone. State is in memory only: a new controller lets the reassignments in progress complete, and
plans again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from ottla.cluster.balance import BalancePlan, Key, ReplicaMove
from ottla.cluster.image import ClusterImage, PartitionState
from ottla.cluster.reassignment import is_reassigning
from ottla.ids import NO_BROKER, BrokerEpoch, BrokerId

GAIN_MIN: Final = 50
"""What a plan must gain, in thousandths of a broker's mean load: less is worth no copy."""

FREE_AT_ONCE: Final = 100  # moves that copy nothing


class BalanceConfig(Struct, frozen=True):
    """When, and how much at a time."""

    stable_s: float  # how long nothing may have changed
    together: int  # partitions that are copied at the same time


class Observation(Struct, frozen=True):
    """What matters of a cluster's image."""

    brokers: Mapping[BrokerId, BrokerEpoch]
    is_whole: bool  # every partition has a leader, and its replicas are in sync
    reassigning: frozenset[Key]


class Step(Struct, frozen=True):
    """What the controller does now."""

    elect: tuple[Key, ...] = ()  # partitions that get their preferred leaders
    begin: tuple[ReplicaMove, ...] = ()  # reassignments to begin
    measures: bool = False  # measure the loads, and make a plan
    completed: bool = False  # the last move of the plan is complete
    dropped: int = 0  # moves that are not executed, because the brokers have changed


def observe(image: ClusterImage) -> Observation:
    """Return what matters; replicas that a reassignment adds need not be in sync."""
    reassigning: set[Key] = set()
    is_whole = True
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if is_reassigning(state):
                reassigning.add((topic.name, index))
            is_whole = is_whole and _is_whole(state)
    brokers = {one.id: one.epoch for one in image.brokers.values()}
    return Observation(brokers, is_whole, frozenset(reassigning))


def _is_whole(state: PartitionState) -> bool:
    if state.version < 0:
        return True  # it has never had a leader, so it has no records either
    return state.leader != NO_BROKER and all(
        one in state.in_sync or one in state.adding for one in state.replicas
    )


class SelfBalance:
    """The balance of one controller: observations and plans in, steps out."""

    def __init__(self, now_s: float) -> None:
        """The balance of a controller that begins now."""
        self._brokers: Mapping[BrokerId, BrokerEpoch] | None = None
        self._stable_since_s = now_s
        self._is_needed = False  # the last observation needed a plan, too
        self._pending: list[ReplicaMove] = []
        self._running: dict[Key, ReplicaMove] = {}

    @property
    def pending(self) -> int:
        """The moves of the plan that are not complete."""
        return len(self._pending) + len(self._running)

    def step(self, now_s: float, seen: Observation, config: BalanceConfig) -> Step:
        """Return what to do after an observation."""
        if seen.brokers != self._brokers:
            self._brokers = seen.brokers
            return self._unstable(now_s, drop=True)
        if not seen.is_whole or not seen.reassigning <= self._running.keys():
            return self._unstable(now_s)
        done = [one for key, one in self._running.items() if key not in seen.reassigning]
        for one in done:
            del self._running[one.key]
        elect = tuple(one.key for one in done if one.after[0] != one.before[0])
        if self._pending:
            return Step(elect, self._next(config.together - len(self._running)))
        if self._running:
            return Step(elect)
        if done:
            self._stable_since_s = now_s
            return Step(elect, completed=True)
        return Step(measures=now_s - self._stable_since_s >= config.stable_s)

    def planned(self, plan: BalancePlan) -> bool:
        """Take a plan for the present loads; returns whether it will be executed.

        The loads must need a plan twice, so that a peak moves nothing.
        """
        before, after = plan.goals_missed
        is_worth_it = bool(plan.moves) and (not plan.moved_bytes or before - after >= GAIN_MIN)
        was_needed, self._is_needed = self._is_needed, is_worth_it
        if not is_worth_it or not was_needed:
            return False
        self._is_needed = False
        self._pending = sorted(plan.moves, key=lambda one: (one.moved_bytes > 0, one.key))
        return True

    def refused(self, keys: Iterable[Key]) -> None:
        """Forget moves that could not begin."""
        for key in keys:
            self._running.pop(key, None)

    def stop(self) -> int:
        """Begin no more moves; returns how many are dropped."""
        dropped, self._pending = len(self._pending), []
        self._brokers = None
        return dropped

    def _unstable(self, now_s: float, *, drop: bool = False) -> Step:
        self._stable_since_s = now_s
        self._is_needed = False
        dropped = 0
        if drop:
            dropped, self._pending = len(self._pending), []
        return Step(dropped=dropped)

    def _next(self, room: int) -> tuple[ReplicaMove, ...]:
        free = [one for one in self._pending[:FREE_AT_ONCE] if not one.moved_bytes]
        begin = free or self._pending[: max(0, room)]
        self._pending = self._pending[len(begin) :]
        self._running |= {one.key: one for one in begin}
        return tuple(begin)


def still_valid(image: ClusterImage, moves: Collection[ReplicaMove]) -> list[ReplicaMove]:
    """Return the moves whose partitions have the replicas that the plan knew."""
    return [
        one
        for one in moves
        if (state := image.state(one.topic, one.index)) is not None
        and state.replicas == one.before
        and not is_reassigning(state)
    ]
