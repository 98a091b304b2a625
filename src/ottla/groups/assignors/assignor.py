"""The assignors by their names, as a consumer has them: each with what it remembers.

Invariant: an assignor belongs to one consumer and is used from one task. What it decides depends on
what it is asked and on the newest generation it has seen; what it tells the leader, on its last
assignment.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import ClassVar, Final

from ottla.groups.assignors.previous_owners import Claim
from ottla.groups.assignors.ranges import assign_ranges
from ottla.groups.assignors.round_robin import deal_round
from ottla.groups.assignors.sticky import assign_cooperatively, assign_sticky
from ottla.groups.assignors.subscription import (
    NO_GENERATION,
    Assignment,
    Subscription,
    TopicLayout,
)
from ottla.groups.assignors.user_data import cooperative_bytes, sticky_bytes
from ottla.ids import TopicPartition


class RebalanceProtocol(IntEnum):
    """What a consumer gives up before it joins: everything, or later what it must."""

    EAGER = 0
    COOPERATIVE = 1


class Assignor:
    """What a consumer asks of every assignor."""

    name: ClassVar[str]
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """As the leader, assign all partitions; members are in the order of JoinGroup's answer."""
        raise NotImplementedError

    def user_data(self) -> bytes | None:
        """What goes into this member's subscription."""
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """As a member, remember what was assigned."""


class RangeAssignor(Assignor):
    """Ranges of each topic."""

    name = "range"

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """Cut each topic into ranges."""
        return assign_ranges(topics, members)


class RoundRobinAssignor(Assignor):
    """All partitions in turn."""

    name = "roundrobin"

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """Deal all partitions in rounds."""
        return deal_round(topics, members)


class StickyAssignor(Assignor):
    """Even, and as before where that is possible."""

    name = "sticky"

    def __init__(self) -> None:
        self._generation_max = NO_GENERATION
        self._last: Claim | None = None

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """Assign by what the members' user data say they had."""
        outcome = assign_sticky(topics, members, self._generation_max)
        self._generation_max = outcome.generation_max
        return outcome.assignment

    def user_data(self) -> bytes | None:
        """The last assignment; none before the first."""
        return None if self._last is None else sticky_bytes(self._last)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Remember it for the next rebalance."""
        self._last = Claim(tuple(partitions), generation)


class CooperativeStickyAssignor(Assignor):
    """The same while members go on reading what they keep."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation_max = NO_GENERATION
        self._generation = NO_GENERATION

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """Assign by what the members own, and leave out what must be given up first."""
        outcome = assign_cooperatively(topics, members, self._generation_max)
        self._generation_max = outcome.generation_max
        return outcome.assignment

    def user_data(self) -> bytes | None:
        """The generation of the last assignment."""
        return cooperative_bytes(self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Remember the generation; the subscription tells the partitions."""
        self._generation = generation


ASSIGNORS: Final[Mapping[str, type[Assignor]]] = MappingProxyType(
    {
        each.name: each
        for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
    }
)
"""By the names of `partition.assignment.strategy` and of JoinGroup."""


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The most that all assignors of a consumer support; all of ours support the eager one."""
    shared = frozenset(RebalanceProtocol).intersection(*(each.protocols for each in assignors))
    return max(shared)
