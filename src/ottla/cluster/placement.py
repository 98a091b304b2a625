"""Placement of the replicas of new partitions over racks, machines and brokers.

Invariant: the replicas of a partition are on different brokers. They share neither a rack
(`broker.rack`) nor a machine (`ottla.broker.host`) while there is one without a replica. Each
broker is the preferred leader of as many partitions of a topic as any other, or of one more.

The order of brokers is Kafka's: leaders round-robin over a list in which racks alternate, followers
at a distance that grows with each round, so that the partitions of a failed leader do not all move
to the same broker. Without racks, machines take their place.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heapreplace
from typing import Final

from ottla.cluster.image import Broker
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId

Assignment = tuple[tuple[BrokerId, ...], ...]
"""Replicas by partition, preferred leader first."""

_NO_RACK: Final = ""  # brokers without a rack form a rack of their own, as in Kafka


def place_replicas(
    brokers: Sequence[Broker],
    partitions: range,
    factor: int,
    start: int,
    leaders: Iterable[BrokerId] = (),
) -> Assignment:
    """Place new partitions; `leaders` are the preferred leaders of the topic's other partitions.

    The random number `start` determines the first leader and the first distance.
    """
    count = len(brokers)
    if factor > count:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor "
            f"of {factor} cannot be reached because only {count} broker(s) are registered.",
        )
    placement = _Placement(brokers)
    distance = start // count
    rows: list[tuple[BrokerId, ...]] = []
    for partition, first in zip(
        partitions, placement.leader_positions(start, leaders), strict=False
    ):
        if partition > 0 and partition % count == 0:
            distance += 1
        rows.append(placement.replicas(first, distance, factor))
    return tuple(rows)


class _Placement:
    """The brokers in the order of the placement, and where they are."""

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self._brokers = _alternating(brokers)
        self._racks = [_rack(one) for one in self._brokers]
        self._machines = [_machine(one) for one in self._brokers]
        self._rack_count = len(set(self._racks))
        # The distance grows by the length of one round over the racks, so that it changes the
        # broker and not the rack.
        self._round = self._rack_count if self._rack_count > 1 else len(set(self._machines))

    def leader_positions(self, start: int, leaders: Iterable[BrokerId]) -> Iterator[int]:
        """Yield the positions of the next leaders, those with the fewest partitions first."""
        count, counts = len(self._brokers), Counter(leaders)
        turns = [(counts[self._brokers[(start + turn) % count].id], turn) for turn in range(count)]
        heapify(turns)
        while True:
            led, turn = turns[0]
            heapreplace(turns, (led + 1, turn))
            yield (start + turn) % count

    def replicas(self, first: int, distance: int, factor: int) -> tuple[BrokerId, ...]:
        """Return the replicas of a partition whose leader is at a position."""
        count = len(self._brokers)
        taken = [first]
        turn = 0  # Kafka goes on behind the last follower
        while len(taken) < factor:
            racks = {self._racks[one] for one in taken}
            machines = {self._machines[one] for one in taken}
            best, best_rank, best_turn = -1, (True, True), turn
            for next_turn in range(turn, turn + count - 1):
                shift = 1 + (distance * self._round + next_turn) % (count - 1)
                position = (first + shift) % count
                rank = (
                    len(racks) < self._rack_count and self._racks[position] in racks,
                    self._machines[position] in machines,
                )
                if position not in taken and (best < 0 or rank < best_rank):
                    best, best_rank, best_turn = position, rank, next_turn
                    if not any(rank):
                        break
            taken.append(best)
            turn = best_turn + 1
        return tuple(self._brokers[one].id for one in taken)


def _rack(broker: Broker) -> str:
    return _NO_RACK if broker.rack is None else broker.rack


def _machine(broker: Broker) -> Hashable:
    return broker.id if broker.host is None else broker.host


def _alternating(brokers: Iterable[Broker]) -> list[Broker]:
    """Order brokers so that racks alternate, and inside each rack its machines."""
    racks: dict[str, dict[Hashable, list[Broker]]] = {}
    for one in sorted(brokers, key=lambda one: (_rack(one), one.id)):
        racks.setdefault(_rack(one), {}).setdefault(_machine(one), []).append(one)
    return _round_robin([_round_robin([*machines.values()]) for machines in racks.values()])


def _round_robin(groups: Sequence[Sequence[Broker]]) -> list[Broker]:
    longest = max(map(len, groups), default=0)
    return [group[turn] for turn in range(longest) for group in groups if turn < len(group)]
