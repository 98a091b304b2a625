"""The assignors by name, as a consumer uses them, with their state.

Invariant: an assignor belongs to one consumer and is used by one task. Its result depends on the
input and on the newest generation it has seen; its user data depends on its last assignment.
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
    """What a consumer revokes before it rejoins: everything (eager), or later only what moves."""

    EAGER = 0
    COOPERATIVE = 1


class Assignor:
    """The interface of all assignors."""

    name: ClassVar[str]
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """As the leader, assign all partitions; members are in JoinGroup response order."""
        raise NotImplementedError

    def user_data(self) -> bytes | None:
        """Return the user data of this member's subscription."""
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """As a member, remember the assignment."""


class RangeAssignor(Assignor):
    """Assigns ranges of each topic."""

    name = "range"

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """Split each topic into ranges."""
        return assign_ranges(topics, members)


class RoundRobinAssignor(Assignor):
    """Assigns all partitions in turn."""

    name = "roundrobin"

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """Assign all partitions round-robin."""
        return deal_round(topics, members)


class StickyAssignor(Assignor):
    """Assigns evenly, and keeps partitions with their owners where possible."""

    name = "sticky"

    def __init__(self) -> None:
        self._generation_max = NO_GENERATION
        self._last: Claim | None = None

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """Assign, based on the previous assignments in the members' user data."""
        outcome = assign_sticky(topics, members, self._generation_max)
        self._generation_max = outcome.generation_max
        return outcome.assignment

    def user_data(self) -> bytes | None:
        """Return the last assignment; None before the first."""
        return None if self._last is None else sticky_bytes(self._last)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Remember the assignment for the next rebalance."""
        self._last = Claim(tuple(partitions), generation)


class CooperativeStickyAssignor(Assignor):
    """Sticky assignment while members continue to read the partitions that they keep."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation_max = NO_GENERATION
        self._generation = NO_GENERATION

    def assign(
        self, topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
    ) -> Assignment:
        """Assign, based on owned partitions; leave out partitions that must be revoked first."""
        outcome = assign_cooperatively(topics, members, self._generation_max)
        self._generation_max = outcome.generation_max
        return outcome.assignment

    def user_data(self) -> bytes | None:
        """Return the generation of the last assignment."""
        return cooperative_bytes(self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Remember the generation; the subscription carries the partitions."""
        self._generation = generation


ASSIGNORS: Final[Mapping[str, type[Assignor]]] = MappingProxyType(
    {
        each.name: each
        for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
    }
)
"""Assignors by their names in `partition.assignment.strategy` and JoinGroup."""


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the strongest protocol that all assignors of a consumer support; all support eager."""
    shared = frozenset(RebalanceProtocol).intersection(*(each.protocols for each in assignors))
    return max(shared)
