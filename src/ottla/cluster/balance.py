"""Plans moves of replicas and leaders, so that no broker carries much more than the mean.

A broker carries the bytes on its disks, the bytes that it receives (from producers, and from the
leaders that it follows), the bytes that it sends (as a leader, to consumers and to followers), and
the partitions whose preferred leader it is. The goals, in this order: no replica on a broker that
leaves; no broker with more than 1.2 times the mean of the bytes; no preferred leader of more than
1.2 times the mean partitions. Leaders change by reordering replicas where that is enough, which
copies nothing. Otherwise as few bytes as possible are copied.

A cluster with few possible assignments is searched completely, so its plan is the best one. In
larger clusters, each step is the one that brings the loads closest to the goals per copied byte; at
the end, moves that turned out to be unnecessary are undone, or exchanged for smaller ones.

Invariant: a plan keeps the replication factor of every partition (unless the caller asks for
another one) and the number of its racks and machines, or raises the latter. The bytes above the
goal never grow, except to take over the replicas of a broker that leaves. A balance plan is
complete: with its replicas and the same loads, the next plan has no moves.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from heapq import nsmallest
from itertools import combinations, islice
from math import ceil, comb, floor
from typing import Final

from msgspec import Struct

from ottla.errors import OttlaError
from ottla.ids import BrokerId

GOAL: Final = 1.2
"""The highest load of a broker, relative to the mean."""

TRAFFIC_MIN: Final = 1_000_000
"""Bytes per second up to which the traffic of a broker needs no balance."""

SEARCHED_MAX: Final = 20_000  # assignments of a cluster that is searched completely
CANDIDATES: Final = 8  # partitions of each kind that a step compares
TARGETS: Final = 8  # brokers that it compares
SCALE: Final = 1000  # of the goal, so that sums of loads stay integers

Key = tuple[str, int]
"""A topic and a partition number."""


class CannotPlan(OttlaError):
    """There are not enough brokers for the replicas."""


class BrokerPlace(Struct, frozen=True):
    """A broker; one that leaves loses its replicas, and one that is fixed keeps exactly these."""

    id: BrokerId
    rack: str | None = None
    is_leaving: bool = False
    machine: str | None = None
    is_fixed: bool = False


class PartitionLoad(Struct, frozen=True):
    """A partition: its replicas, preferred leader first, and the load of one of them."""

    topic: str
    index: int
    replicas: tuple[BrokerId, ...]
    size_bytes: int = 0
    bytes_in: int = 0  # per second, of producers
    bytes_out: int = 0  # per second, to consumers


class ReplicaMove(Struct, frozen=True):
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


class Measure(IntEnum):
    """A load of a broker that a plan balances."""

    SIZE = 0  # bytes on its disks
    IN = 1  # bytes per second that it receives
    OUT = 2  # bytes per second that it sends
    LEADERS = 3  # partitions whose preferred leader it is


class BrokerLoad(Struct, frozen=True):
    """What a broker carries."""

    size_bytes: int
    replicas: int
    leaders: int  # partitions whose preferred leader it is
    bytes_in: int = 0  # per second, of producers and of leaders that it follows
    bytes_out: int = 0  # per second, to consumers and to its followers


class AboveGoal(Struct, frozen=True):
    """A load that exceeds the goal, also after the plan, and the reason."""

    broker: BrokerId
    measure: Measure
    load: int
    limit: float
    reason: str


class BalancePlan(Struct, frozen=True):
    """Moves, and the loads before and after them."""

    moves: tuple[ReplicaMove, ...]
    before: Mapping[BrokerId, BrokerLoad]
    after: Mapping[BrokerId, BrokerLoad]
    above: tuple[AboveGoal, ...] = ()  # only of a plan for all goals
    goals_missed: tuple[int, int] = (0, 0)  # by how much, before and after, to compare plans

    @property
    def moved_bytes(self) -> int:
        """The bytes that the plan copies between brokers."""
        return sum(one.moved_bytes for one in self.moves)


def plan_balance(
    brokers: Sequence[BrokerPlace],
    partitions: Iterable[PartitionLoad],
    goal: float = GOAL,
    traffic_min: int = TRAFFIC_MIN,
) -> BalancePlan:
    """Plan for all goals. Raises CannotPlan if the brokers that stay are too few."""
    planner = BalancePlanner(brokers, partitions, goal, traffic_min)
    for _ in planner.steps():
        pass
    return planner.plan()


def plan_drain(brokers: Sequence[BrokerPlace], partitions: Iterable[PartitionLoad]) -> BalancePlan:
    """Plan only for the brokers that leave. Raises CannotPlan if the others are too few."""
    state = _State(brokers, partitions)
    state.leave()
    return state.plan()


def plan_factor(
    brokers: Sequence[BrokerPlace],
    partitions: Iterable[PartitionLoad],
    chosen: Iterable[Key],
    factor: int,
) -> BalancePlan:
    """Plan another replication factor for the chosen partitions; the others count as load."""
    state = _State(brokers, partitions)
    state.set_factor(chosen, factor)
    return state.plan()


class _State:
    """The replicas while a plan is made."""

    def __init__(self, brokers: Sequence[BrokerPlace], partitions: Iterable[PartitionLoad]) -> None:
        self._given = {(one.topic, one.index): one for one in partitions}
        self._replicas = {key: one.replicas for key, one in self._given.items()}
        self._rack = {one.id: one.rack for one in brokers}
        self._machine: dict[BrokerId, Hashable] = {
            one.id: one.id if one.machine is None else one.machine for one in brokers
        }
        self._leaving = {one.id for one in brokers if one.is_leaving}
        movable = [one.id for one in brokers if not one.is_fixed]  # the others count for racks only
        self._staying = sorted(one for one in movable if one not in self._leaving)
        self._loads: dict[BrokerId, list[int]] = {one: [0] * len(Measure) for one in movable}
        self._keys: dict[BrokerId, set[Key]] = {one: set() for one in movable}
        self._led: dict[BrokerId, set[Key]] = {one: set() for one in movable}
        for key in self._replicas:
            self._count(key)
        self._before = self._broker_loads()

    def plan(self) -> BalancePlan:
        """Return the moves so far."""
        moves = [
            ReplicaMove(*key, one.replicas, self._replicas[key], one.size_bytes)
            for key, one in sorted(self._given.items())
            if one.replicas != self._replicas[key]
        ]
        return BalancePlan(tuple(moves), self._before, self._broker_loads())

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
                self._set(key, (*replicas, self._best_addition(key)))
                replicas = self._replicas[key]
            while len(replicas) > factor:
                spare = max(
                    replicas[1:],
                    key=lambda one: (
                        one in self._leaving,
                        self._spread([two for two in replicas if two != one]),
                        self._loads[one][Measure.SIZE] if one in self._loads else 0,
                        one,
                    ),
                )
                self._set(key, tuple(one for one in replicas if one != spare))
                replicas = self._replicas[key]

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
        stay = [one for one in there if one != instead_of]

        def rank(one: BrokerId) -> tuple[int, ...]:
            racks, machines = self._spread([*stay, one])
            load = self._loads[one]
            leaders = load[Measure.LEADERS] if is_leader else 0
            traffic = load[Measure.IN] + load[Measure.OUT]
            held = len(self._keys[one])
            return (-racks, -machines, load[Measure.SIZE], leaders, traffic, held, one)

        return min(free, key=rank)

    def _spread(self, replicas: Iterable[BrokerId]) -> tuple[int, int]:
        """Return over how many racks and machines replicas are spread."""
        replicas = [*replicas]
        racks = {self._rack.get(one) for one in replicas}
        return len(racks), len({self._machine.get(one, one) for one in replicas})

    def _fits(self, key: Key, replicas: Sequence[BrokerId]) -> bool:
        """Whether replicas may replace those of a partition: in as many racks and machines."""
        now = self._spread(self._replicas[key])
        return all(a >= b for a, b in zip(self._spread(replicas), now, strict=True))

    # Counting.

    def _size(self, key: Key) -> int:
        return self._given[key].size_bytes

    def _large_first(self, key: Key) -> tuple[int, Key]:
        return -self._size(key), key

    def _replace(self, key: Key, old: BrokerId, new: BrokerId) -> None:
        self._set(key, tuple(new if one == old else one for one in self._replicas[key]))

    def _set(self, key: Key, replicas: tuple[BrokerId, ...]) -> None:
        self._count(key, -1)
        self._replicas[key] = replicas
        self._count(key)

    def _weights(self, key: Key, factor: int, *, is_leader: bool) -> tuple[int, int, int, int]:
        """Return what one replica adds to the load of its broker."""
        one = self._given[key]
        if not is_leader:
            return one.size_bytes, one.bytes_in, 0, 0
        return one.size_bytes, one.bytes_in, one.bytes_out + one.bytes_in * (factor - 1), 1

    def _count(self, key: Key, sign: int = 1) -> None:
        """Add a partition to the loads, or remove it; unregistered brokers have no load."""
        replicas = self._replicas[key]
        for place, broker in enumerate(replicas):
            load = self._loads.get(broker)
            if load is None:
                continue
            weights = self._weights(key, len(replicas), is_leader=place == 0)
            for measure, weight in enumerate(weights):
                load[measure] += sign * weight
            for keys in (self._keys, self._led)[: 1 if place else 2]:
                if sign > 0:
                    keys[broker].add(key)
                else:
                    keys[broker].discard(key)

    def _broker_loads(self) -> dict[BrokerId, BrokerLoad]:
        return {
            one: BrokerLoad(
                size_bytes=load[Measure.SIZE],
                replicas=len(self._keys[one]),
                leaders=load[Measure.LEADERS],
                bytes_in=load[Measure.IN],
                bytes_out=load[Measure.OUT],
            )
            for one, load in sorted(self._loads.items())
        }


Excess = tuple[int, int]
"""How much the bytes and the leaders of brokers exceed the goals; plans make it smaller."""


class BalancePlanner(_State):
    """Makes a plan for all goals, in steps that a caller can interrupt."""

    def __init__(
        self,
        brokers: Sequence[BrokerPlace],
        partitions: Iterable[PartitionLoad],
        goal: float = GOAL,
        traffic_min: int = TRAFFIC_MIN,
    ) -> None:
        """Raises CannotPlan if the brokers that stay are too few."""
        super().__init__(brokers, partitions)
        self.leave()
        self._kept = {**self._replicas}  # without brokers that leave
        self._is_searched = False
        count = max(1, len(self._staying))
        self._count_scaled = count * SCALE
        totals = [
            sum(self._loads[one][measure] for one in self._staying)
            for measure in (Measure.SIZE, Measure.IN, Measure.OUT)
        ]
        least = (0, traffic_min * count * SCALE, traffic_min * count * SCALE)
        self._limits = [
            max(round(goal * SCALE) * total, low) for total, low in zip(totals, least, strict=True)
        ]
        # One per cent of the mean counts the same in each measure.
        self._factors = [2**64 // max(1, total) for total in totals]
        mean = sum(self._loads[one][Measure.LEADERS] for one in self._staying) / count
        self._leaders_max = max(ceil(mean), floor(goal * mean))
        self._missed_before = self._missed()

    def steps(self) -> Iterator[None]:
        """Make the plan; the caller may pause between two steps."""
        if self._total() == (0, 0):
            return
        options = self._options()
        if options is not None:
            self._is_searched = True
            yield from self._search(options)
            return
        # An undone move can make room for another one. This ends: the excess decreases each time.
        while True:
            before = self._total()
            moves = True
            while moves:
                while self._reorder():
                    yield
                moves = False
                while self._relocate():
                    moves = True
                    yield
                while not moves and self._relocate(for_leaders=True):
                    moves = True
                    yield
            if self._total() == before:
                return
            yield from self._economize()

    def plan(self) -> BalancePlan:
        """Return the plan so far."""
        made = super().plan()
        return BalancePlan(
            made.moves,
            made.before,
            made.after,
            tuple(self._above()),
            (self._missed_before, self._missed()),
        )

    # How far the loads are from the goals.

    def _part(self, load: Sequence[int]) -> Excess:
        """Return the excess of one broker."""
        scaled, missed = self._count_scaled, 0
        for value, limit, factor in zip(load, self._limits, self._factors, strict=False):
            over = value * scaled - limit
            if over > 0:
                missed += over * factor
        leaders = load[3] - self._leaders_max
        return missed, leaders if leaders > 0 else 0

    def _total(self) -> Excess:
        parts = [self._part(self._loads[one]) for one in self._staying]
        return sum(one[0] for one in parts), sum(one[1] for one in parts)

    def _missed(self) -> int:
        """Return the excess of the bytes, in thousandths of a broker's mean load."""
        return self._total()[0] // 2**64

    def _after(self, key: Key, replicas: Sequence[BrokerId]) -> Excess:
        """Return by how much other replicas of a partition would lower the excess."""
        before = self._replicas[key]
        changed: dict[BrokerId, list[int]] = {}
        for sign, some in ((-1, before), (1, replicas)):
            for place, broker in enumerate(some):
                if broker not in self._loads:
                    continue
                if broker not in changed:
                    changed[broker] = [*self._loads[broker]]
                load = changed[broker]
                weights = self._weights(key, len(some), is_leader=place == 0)
                for measure, weight in enumerate(weights):
                    load[measure] += sign * weight
        bytes_, leaders = 0, 0
        for broker, load in changed.items():
            old, new = self._part(self._loads[broker]), self._part(load)
            bytes_ += old[0] - new[0]
            leaders += old[1] - new[1]
        return bytes_, leaders

    def _sources(self) -> list[tuple[BrokerId, list[tuple[Measure, int]]]]:
        """Return the brokers above a goal, the highest first, with their excess by measure."""
        found: list[tuple[Excess, BrokerId, list[tuple[Measure, int]]]] = []
        for broker in self._staying:
            load = self._loads[broker]
            part = self._part(load)
            if part == (0, 0):
                continue
            over = [
                (
                    Measure(measure),
                    -(-(load[measure] * self._count_scaled - limit) // self._count_scaled),
                )
                for measure, limit in enumerate(self._limits)
                if load[measure] * self._count_scaled > limit
            ]
            if part[1]:
                over.append((Measure.LEADERS, part[1]))
            found.append((part, broker, over))
        found.sort(key=lambda one: ((-one[0][0], -one[0][1]), one[1]))
        return [(broker, over) for _, broker, over in found]

    # Steps that copy nothing.

    def _reorder(self) -> bool:
        """Make another replica the preferred leader of a partition, if that is better."""
        for source, over in self._sources():
            excess = dict(over)
            if Measure.OUT not in excess and Measure.LEADERS not in excess:
                continue
            best: tuple[Excess, Key, BrokerId] | None = None
            for key in self._led_near(source, excess.get(Measure.OUT, 0)):
                for follower in self._replicas[key][1:]:
                    if follower not in self._keys or follower in self._leaving:
                        continue
                    gain = self._after(key, self._led_by(key, follower))
                    if gain > (0, 0) and (best is None or gain > best[0]):
                        best = gain, key, follower
            if best is not None:
                self._set(best[1], self._led_by(best[1], best[2]))
                return True
            if self._pass_on(source, excess.get(Measure.OUT, 0)):
                return True
        return False

    def _led_by(self, key: Key, leader: BrokerId) -> tuple[BrokerId, ...]:
        return (leader, *(one for one in self._replicas[key] if one != leader))

    def _led_near(self, broker: BrokerId, wanted: int) -> list[Key]:
        """Return partitions that a broker leads, with about so many bytes out."""
        return nsmallest(
            2 * CANDIDATES,
            self._led[broker],
            key=lambda key: (abs(self._out(key) - wanted), key),
        )

    def _out(self, key: Key) -> int:
        return self._weights(key, len(self._replicas[key]), is_leader=True)[Measure.OUT]

    def _pass_on(self, source: BrokerId, wanted: int) -> bool:
        """Let a leadership pass over several brokers, if that is better.

        Each step makes a follower the leader of a partition that the broker before it leads.
        """
        came: dict[BrokerId, tuple[Key, BrokerId]] = {}
        reached = [(source, wanted)]
        before = self._total()
        while reached:
            further: list[tuple[BrokerId, int]] = []
            for broker, near in reached:
                for key in sorted(
                    self._led[broker], key=lambda key: (abs(self._out(key) - near), key)
                ):
                    for follower in self._replicas[key][1:]:
                        is_known = follower == source or follower in came
                        if is_known or follower not in self._keys or follower in self._leaving:
                            continue
                        came[follower] = (key, broker)
                        further.append((follower, self._out(key)))
            for target, _ in further:
                path: list[tuple[Key, BrokerId]] = []
                end = target
                while end != source:
                    key, one_before = came[end]
                    path.append((key, end))
                    end = one_before
                if len({key for key, _ in path}) < len(path):
                    continue
                old = [(key, self._replicas[key]) for key, _ in path]
                for key, leader in path:
                    self._set(key, self._led_by(key, leader))
                if self._total() < before:
                    return True
                for key, replicas in old:
                    self._set(key, replicas)
            reached = further
        return False

    # Steps that copy a replica.

    def _relocate(self, *, for_leaders: bool = False) -> bool:
        """Move the replica that lowers the excess most per copied byte; returns whether one did.

        With `for_leaders`, a move may lower only the excess of leaders.
        """
        least = (0, 0) if for_leaders else (0, len(self._given))
        for source, over in self._sources():
            best: tuple[tuple[float, float, int], Key, BrokerId] | None = None
            targets = self._targets(source)
            for key, target in self._candidates(source, over, targets):
                size = self._size(key)
                after = tuple(target if one == source else one for one in self._replicas[key])
                gain = self._after(key, after)
                if gain <= least or not self._fits(key, after):
                    continue
                # Of the replicas that gain as much per byte, the largest: fewer have to move.
                cost = max(1, size)
                worth = (round(gain[0] / cost), gain[1] / cost, size if gain[0] else -size)
                if best is None or worth > best[0]:
                    best = worth, key, target
            if best is not None:
                self._replace(best[1], source, best[2])
                return True
        return False

    def _targets(self, source: BrokerId) -> list[BrokerId]:
        """Return the brokers with the most room."""

        def rank(broker: BrokerId) -> tuple[int, int, BrokerId]:
            load = self._loads[broker]
            most = max(
                value * self._count_scaled * factor
                for value, factor in zip(load, self._factors, strict=False)
            )
            return most, load[Measure.LEADERS], broker

        others = [one for one in self._staying if one != source]
        by_bytes = sorted(others, key=rank)[:TARGETS]
        by_leaders = sorted(others, key=lambda one: (self._loads[one][Measure.LEADERS], one))
        return [*dict.fromkeys([*by_bytes, *by_leaders[:TARGETS]])]

    def _candidates(
        self, source: BrokerId, over: Iterable[tuple[Measure, int]], targets: Sequence[BrokerId]
    ) -> Iterator[tuple[Key, BrokerId]]:
        """Yield partitions that could relieve a broker, and the brokers that would take them."""
        for measure, excess in over:
            if measure is Measure.LEADERS:
                small = sorted(self._led[source], key=lambda key: (self._size(key), key))
                for target in targets:
                    yield from self._free(target, small)
                continue
            keys = self._keys[source]
            weighed = sorted(
                (weight, key) for key in keys if (weight := self._weight(key, source, measure))
            )
            by_density = [
                key
                for _, key in sorted(
                    weighed,
                    key=lambda one: (-min(one[0], excess) / max(1, self._size(one[1])), one),
                )
            ]
            for target in targets:
                room = max(0, min(excess, self._room(target, measure)))
                # The largest that fit, the smallest that do not, and much traffic on few bytes.
                end = bisect_right(weighed, room, key=lambda one: one[0])
                yield from self._free(target, (weighed[at][1] for at in range(end - 1, -1, -1)))
                yield from self._free(target, (weighed[at][1] for at in range(end, len(weighed))))
                if measure is not Measure.SIZE:
                    yield from self._free(target, by_density)

    def _free(self, target: BrokerId, keys: Iterable[Key]) -> Iterator[tuple[Key, BrokerId]]:
        """Yield the first partitions of which a broker has no replica."""
        free = ((key, target) for key in keys if target not in self._replicas[key])
        return islice(free, CANDIDATES)

    def _room(self, broker: BrokerId, measure: Measure) -> int:
        """Return what a broker may take before it exceeds the goal."""
        return self._limits[measure] // self._count_scaled - self._loads[broker][measure]

    def _weight(self, key: Key, broker: BrokerId, measure: Measure) -> int:
        replicas = self._replicas[key]
        return self._weights(key, len(replicas), is_leader=replicas[0] == broker)[measure]

    # Fewer bytes for the same result.

    def _copied(self, key: Key, replicas: Sequence[BrokerId]) -> int:
        given = self._given[key].replicas
        return self._size(key) * sum(one not in given for one in replicas)

    def _economize(self) -> Iterator[None]:
        """Undo moves that are not needed, and exchange moves for those of smaller partitions."""
        moved = [
            key
            for key, replicas in self._replicas.items()
            if self._copied(key, replicas) > self._copied(key, self._kept[key])
        ]
        for key in sorted(moved, key=self._large_first):
            yield
            kept = self._kept[key]
            undone = next(
                (
                    replicas
                    for leader in kept
                    if self._after(
                        key, replicas := (leader, *(one for one in kept if one != leader))
                    )
                    >= (0, 0)
                ),
                None,
            )
            if undone is not None:
                self._set(key, undone)
            else:
                self._exchange(key)

    def _exchange(self, key: Key) -> None:
        """Undo a move, and move a smaller partition instead."""
        kept, after = self._kept[key], self._replicas[key]
        left = [one for one in kept if one not in after]
        added = [one for one in after if one not in kept]
        if len(left) != 1 or len(added) != 1 or left[0] in self._leaving:
            return
        source, target, size = left[0], added[0], self._size(key)
        before = self._total()
        self._set(key, kept)
        smaller = nsmallest(
            2 * CANDIDATES,
            (
                one
                for one in self._keys[source]
                if self._size(one) < size and target not in self._replicas[one]
            ),
            key=lambda one: (self._size(one), one),
        )
        for one in smaller:
            old = self._replicas[one]
            new = tuple(target if broker == source else broker for broker in old)
            if self._copied(one, new) >= size or not self._fits(one, new):
                continue
            self._set(one, new)
            if self._total() <= before:
                return
            self._set(one, old)
        self._set(key, after)

    # The best plan of a small cluster.

    def _options(self) -> "list[tuple[Key, list[tuple[BrokerId, ...]]]] | None":
        """Return the assignments of each partition; None if the cluster has too many."""
        found: list[tuple[Key, list[tuple[BrokerId, ...]]]] = []
        count = 1
        for key in sorted(self._given, key=self._large_first):
            kept = self._kept[key]
            # Replicas on brokers that are fixed, or not alive, stay where they are.
            stuck = [one for one in kept if one not in self._staying]
            factor = len(kept) - len(stuck)
            count *= comb(len(self._staying), factor) * max(1, factor)
            if count > SEARCHED_MAX:
                return None
            options = [
                (leader, *sorted(one for one in (*stuck, *some) if one != leader))
                for some in combinations(self._staying, factor)
                if self._fits(key, (*stuck, *some))
                for leader in (kept[:1] if kept[0] in stuck else some)
            ]
            # Those that keep the order of the followers do not count as changed.
            options = [
                kept if one[0] == kept[0] and set(one) == set(kept) else one for one in options
            ]
            options.sort(key=lambda one: (self._copied(key, one), one != kept, one))
            found.append((key, options))
        return found

    def _search(self, options: "list[tuple[Key, list[tuple[BrokerId, ...]]]]") -> Iterator[None]:
        """Find the lowest excess, and for that the fewest bytes, then the fewest changes."""
        for key, _ in options:
            self._count(key, -1)
        best: tuple[int, int, int, int] | None = None
        best_choice: list[tuple[BrokerId, ...]] = []
        choice: list[tuple[BrokerId, ...]] = []
        copied, changed = 0, 0
        # Depth first, without recursion: the options that are left at each depth.
        left = [iter(options[0][1])] if options else []
        visited = 0
        while left:
            visited += 1
            if visited % 256 == 0:
                yield
            depth = len(left) - 1
            key = options[depth][0]
            if len(choice) > depth:  # take back the option before
                old = choice.pop()
                self._replicas[key] = old
                self._count(key, -1)
                copied -= self._copied(key, old)
                changed -= old != self._kept[key]
            option = next(left[-1], None)
            if option is None:
                left.pop()
                continue
            choice.append(option)
            self._replicas[key] = option
            self._count(key)
            copied += self._copied(key, option)
            changed += option != self._kept[key]
            bytes_, leaders = self._total()
            cost = (bytes_, leaders, copied, changed)
            if best is not None and cost >= best:
                continue  # more partitions never make it better
            if depth + 1 < len(options):
                left.append(iter(options[depth + 1][1]))
            else:
                best, best_choice = cost, [*choice]
        for (key, _), replicas in zip(options, best_choice, strict=True):
            self._replicas[key] = replicas
            self._count(key)

    # What is above the goals, and why.

    def _above(self) -> Iterator[AboveGoal]:
        for broker, over in sorted(self._sources()):
            for measure, _ in over:
                limit = (
                    float(self._leaders_max)
                    if measure is Measure.LEADERS
                    else self._limits[measure] / self._count_scaled
                )
                reason = self._reason(broker, measure, limit)
                yield AboveGoal(broker, measure, self._loads[broker][measure], limit, reason)

    def _reason(self, broker: BrokerId, measure: Measure, limit: float) -> str:
        keys = self._led[broker] if measure is Measure.LEADERS else self._keys[broker]
        weighed = [(self._weight(key, broker, measure), key) for key in keys]
        weight, (topic, index) = max(weighed, key=lambda one: (one[0], one[1]))
        if weight > limit:
            return f"{topic}-{index} alone exceeds the goal: add partitions to its topic"
        if all(len(self._replicas[key]) >= len(self._staying) for _, key in weighed):
            return "every broker has a replica of each of its partitions"
        if not any(
            self._fits(key, tuple(target if one == broker else one for one in self._replicas[key]))
            for _, key in weighed
            for target in self._staying
            if target not in self._replicas[key]
        ):
            return "no other broker of the same rack has room for one of its replicas"
        if self._is_searched:
            return "no other assignment of the replicas is better"
        return "no further move brings the brokers closer to the goal"
