"""Plans moves of replicas and leaders, so that no broker carries much more than the mean.

The goals, in this order: no replica on a broker that leaves; no broker with more than 1.2 times the
mean bytes; no broker that is the preferred leader of more than 1.2 times the mean partitions. Bytes
are moved only where a goal needs it. Leaders change by reordering replicas where that is enough.

Invariant: a plan keeps the replication factor of every partition (unless the caller asks for
another one) and the number of its racks, or raises the latter. The sum of the bytes above the goal
never grows, except to take over the replicas of a broker that leaves. A balance plan is complete:
with its replicas, the next plan has no moves.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Final

from ottla.errors import OttlaError
from ottla.ids import BrokerId

GOAL: Final = 1.2
"""The highest load of a broker, relative to the mean."""

Key = tuple[str, int]
"""A topic and a partition number."""


class CannotPlan(OttlaError):
    """There are not enough brokers for the replicas."""


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """A broker that can have replicas; one that leaves loses those that it has."""

    id: BrokerId
    rack: str | None = None
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """A partition: its replicas, preferred leader first, and the bytes of one of them."""

    topic: str
    index: int
    replicas: tuple[BrokerId, ...]
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """The replicas of a partition before and after."""

    topic: str
    index: int
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    size_bytes: int

    @property
    def key(self) -> Key:
        """The partition."""
        return self.topic, self.index

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """The brokers that copy the partition."""
        return tuple(one for one in self.after if one not in self.before)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        """The brokers that delete it."""
        return tuple(one for one in self.before if one not in self.after)

    @property
    def moved_bytes(self) -> int:
        """The bytes that are copied between brokers."""
        return self.size_bytes * len(self.adding)


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """What a broker holds."""

    size_bytes: int
    replicas: int
    leaders: int  # partitions whose preferred leader it is


@dataclass(frozen=True, slots=True)
class BalancePlan:
    """Moves, and the loads before and after them."""

    moves: tuple[ReplicaMove, ...]
    before: Mapping[BrokerId, BrokerLoad]
    after: Mapping[BrokerId, BrokerLoad]

    @property
    def moved_bytes(self) -> int:
        """The bytes that the plan copies between brokers."""
        return sum(one.moved_bytes for one in self.moves)


def plan_balance(
    brokers: Sequence[BrokerPlace], partitions: Iterable[PartitionSize], goal: float = GOAL
) -> BalancePlan:
    """Plan for all goals. Raises CannotPlan if the brokers that stay are too few."""
    state = _State(brokers, partitions)
    state.leave()
    state.spread_bytes(goal)
    # A replica that moves with its leader can make room on a broker, so that bytes can move again.
    # This ends: the bytes above the goal decrease each time, and leaders never add any.
    while state.spread_leaders(goal) and state.spread_bytes(goal):
        pass
    return state.plan()


def plan_drain(brokers: Sequence[BrokerPlace], partitions: Iterable[PartitionSize]) -> BalancePlan:
    """Plan only for the brokers that leave. Raises CannotPlan if the others are too few."""
    state = _State(brokers, partitions)
    state.leave()
    return state.plan()


def plan_factor(
    brokers: Sequence[BrokerPlace],
    partitions: Iterable[PartitionSize],
    chosen: Iterable[Key],
    factor: int,
) -> BalancePlan:
    """Plan another replication factor for the chosen partitions; the others count as load."""
    state = _State(brokers, partitions)
    state.set_factor(chosen, factor)
    return state.plan()


class _State:
    """The replicas while a plan is made."""

    def __init__(self, brokers: Sequence[BrokerPlace], partitions: Iterable[PartitionSize]) -> None:
        self._given = {(one.topic, one.index): one for one in partitions}
        self._replicas = {key: [*one.replicas] for key, one in self._given.items()}
        self._rack = {one.id: one.rack for one in brokers}
        self._leaving = {one.id for one in brokers if one.is_leaving}
        self._staying = sorted(one.id for one in brokers if not one.is_leaving)
        self._bytes: dict[BrokerId, int] = {one.id: 0 for one in brokers}
        self._keys: dict[BrokerId, set[Key]] = {one.id: set() for one in brokers}
        self._led: dict[BrokerId, set[Key]] = {one.id: set() for one in brokers}
        for key in self._replicas:
            self._count(key)
        self._before = self._loads()

    def plan(self) -> BalancePlan:
        moves = [
            ReplicaMove(*key, one.replicas, tuple(self._replicas[key]), one.size_bytes)
            for key, one in sorted(self._given.items())
            if one.replicas != tuple(self._replicas[key])
        ]
        return BalancePlan(tuple(moves), self._before, self._loads())

    # The goals.

    def leave(self) -> None:
        """Move every replica away from the brokers that leave, the largest first."""
        keys = {key for broker in self._leaving for key in self._keys[broker]}
        for key in sorted(keys, key=self._large_first):
            for old in [one for one in self._replicas[key] if one in self._leaving]:
                self._replace(key, old, self._best_addition(key, old))

    def set_factor(self, keys: Iterable[Key], factor: int) -> None:
        """Add or remove replicas of partitions."""
        for key in sorted(keys, key=self._large_first):
            replicas = self._replicas[key]
            while len(replicas) < factor:
                self._set(key, [*replicas, self._best_addition(key)])
                replicas = self._replicas[key]
            while len(replicas) > factor:
                spare = max(
                    replicas[1:],
                    key=lambda one: (
                        one in self._leaving,
                        self._racks(key, without=one),
                        self._bytes.get(one, 0),
                        one,
                    ),
                )
                self._set(key, [one for one in replicas if one != spare])
                replicas = self._replicas[key]

    def spread_bytes(self, goal: float) -> bool:
        """Move replicas until no broker exceeds the goal, or no move helps.

        Returns whether any moved.
        """
        count, is_changed = len(self._staying), False
        limit = goal * sum(self._bytes[one] for one in self._staying) / count if count else 0
        while any(
            self._relieve(source, limit)
            for source in sorted(self._staying, key=lambda one: (-self._bytes[one], one))
            if self._bytes[source] > limit
        ):
            is_changed = True
        return is_changed

    def spread_leaders(self, goal: float) -> bool:
        """Change preferred leaders until no broker exceeds the goal, or no change helps.

        Returns whether any changed.
        """
        if not self._staying:
            return False
        count, is_changed = len(self._staying), False
        mean = sum(len(self._led[one]) for one in self._staying) / count
        most = max(ceil(mean), floor(goal * mean))
        limit = goal * sum(self._bytes[one] for one in self._staying) / count
        while any(
            self._hand_over(source, most, limit)
            for source in sorted(self._staying, key=lambda one: (-len(self._led[one]), one))
            if len(self._led[source]) > most
        ):
            is_changed = True
        return is_changed

    # Single moves.

    def _relieve(self, source: BrokerId, limit: float) -> bool:
        """Move the replica that brings a broker closest to the limit with the fewest bytes."""
        excess = self._bytes[source] - limit
        keys = sorted(self._keys[source], key=lambda key: (self._size(key), key))
        # The largest that is not too large; if none can go, the smallest that is.
        middle = bisect_right(keys, excess, key=self._size)
        targets = sorted(self._staying, key=lambda one: (self._bytes[one], one))
        for key in (*reversed(keys[:middle]), *keys[middle:]):
            size = self._size(key)
            for target in targets if size else ():
                # Bytes above the limit that disappear, and those that appear.
                relief = min(size, excess) - max(0, self._bytes[target] + size - limit)
                if relief <= 0:
                    break  # the other targets have more bytes
                if self._fits(key, source, target):
                    self._replace(key, source, target)
                    return True
        return False

    def _hand_over(self, source: BrokerId, most: int, limit: float) -> bool:
        """Let another broker be the preferred leader of a partition."""
        if path := self._path(source, most):
            for key, target in path:
                replicas = self._replicas[key]
                self._set(key, [target, *(one for one in replicas if one != target)])
            return True
        targets = sorted(
            (one for one in self._staying if len(self._led[one]) < most),
            key=lambda one: (len(self._led[one]), self._bytes[one], one),
        )
        for key in sorted(self._led[source], key=lambda key: (self._size(key), key)):
            for target in targets:
                fits = self._bytes[target] + self._size(key) <= limit
                if fits and self._fits(key, source, target):
                    self._replace(key, source, target)
                    return True
        return False

    def _path(self, source: BrokerId, most: int) -> list[tuple[Key, BrokerId]]:
        """Return the reorderings that take one leader from a broker to one that leads fewer.

        Each step makes a follower the leader of a partition that the broker before it leads.
        """
        came: dict[BrokerId, tuple[Key, BrokerId]] = {}
        reached = [source]
        while reached:
            further: list[BrokerId] = []
            for broker in reached:
                for key in sorted(self._led[broker]):
                    for follower in self._replicas[key][1:]:
                        is_known = follower == source or follower in came
                        if not is_known and follower in self._bytes and not self._leaves(follower):
                            came[follower] = (key, broker)
                            further.append(follower)
            free = [one for one in further if len(self._led[one]) < most]
            if free:
                target = min(free, key=lambda one: (len(self._led[one]), one))
                path: list[tuple[Key, BrokerId]] = []
                while target != source:
                    key, before = came[target]
                    path.append((key, target))
                    target = before
                return path
            reached = further
        return []

    def _best_addition(self, key: Key, instead_of: BrokerId | None = None) -> BrokerId:
        """Return the best broker for another replica: a new rack first, then the fewest bytes."""
        there = self._replicas[key]
        free = [one for one in self._staying if one not in there]
        if not free:
            topic, index = key
            raise CannotPlan(
                f"{topic}-{index} has {len(there)} replicas, and no other broker can take one: add "
                "a broker, or reduce the replication factor first"
            )
        is_leader = bool(there) and there[0] == instead_of
        return min(
            free,
            key=lambda one: (
                -self._racks(key, without=instead_of, plus=one),
                self._bytes[one],
                len(self._led[one]) if is_leader else 0,
                len(self._keys[one]),
                one,
            ),
        )

    def _fits(self, key: Key, old: BrokerId, new: BrokerId) -> bool:
        """Whether a replica may move: to a broker without one, in as many racks as before."""
        if new in self._replicas[key]:
            return False
        return self._racks(key, without=old, plus=new) >= self._racks(key)

    # Counting.

    def _racks(
        self, key: Key, without: BrokerId | None = None, plus: BrokerId | None = None
    ) -> int:
        brokers = [one for one in self._replicas[key] if one != without]
        if plus is not None:
            brokers.append(plus)
        return len({self._rack.get(one) for one in brokers})

    def _leaves(self, broker: BrokerId) -> bool:
        return broker in self._leaving

    def _size(self, key: Key) -> int:
        return self._given[key].size_bytes

    def _large_first(self, key: Key) -> tuple[int, Key]:
        return -self._size(key), key

    def _replace(self, key: Key, old: BrokerId, new: BrokerId) -> None:
        self._set(key, [new if one == old else one for one in self._replicas[key]])

    def _set(self, key: Key, replicas: list[BrokerId]) -> None:
        self._count(key, -1)
        self._replicas[key] = replicas
        self._count(key)

    def _count(self, key: Key, sign: int = 1) -> None:
        """Add a partition to the loads, or remove it; unregistered brokers have no load."""
        for place, broker in enumerate(self._replicas[key]):
            if broker not in self._bytes:
                continue
            self._bytes[broker] += sign * self._size(key)
            for keys in (self._keys, self._led)[: 1 if place else 2]:
                if sign > 0:
                    keys[broker].add(key)
                else:
                    keys[broker].discard(key)

    def _loads(self) -> dict[BrokerId, BrokerLoad]:
        return {
            one: BrokerLoad(self._bytes[one], len(self._keys[one]), len(self._led[one]))
            for one in sorted(self._bytes)
        }
