"""The interfaces between a consumer and its group membership.

Invariant: the consumer owns partitions, the membership decides which. A partition is revoked or
lost before another member may own it, and is assigned once until then. All calls to the owner come
from one task, one after the other.
"""

from typing import Final, NamedTuple, Protocol

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

NO_GENERATION: Final = -1


class Rebalance(NamedTuple):
    """The reason of a rebalance."""

    reason: str

    def __str__(self) -> str:
        return self.reason


class GroupMember(NamedTuple):
    """The identity of a member at its coordinator."""

    group_id: str
    generation: int = NO_GENERATION
    """The generation, or the member epoch under KIP-848; NO_GENERATION when not a member."""

    member_id: str = ""
    instance_id: str | None = None
    is_modern: bool = False
    """Whether the group uses the KIP-848 protocol."""

    @property
    def is_member(self) -> bool:
        """Whether it is a member, as far as known."""
        return self.generation != NO_GENERATION


class GroupOwner(Protocol):
    """What a consumer offers to its membership."""

    def topics(self) -> frozenset[str]:
        """The current subscription; the consumer resolves its own patterns."""
        ...

    def pattern(self) -> str | None:
        """A pattern that the broker resolves (RE2), only under group.protocol=consumer."""
        ...

    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that were assigned and neither revoked nor lost."""
        ...

    async def revoke(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Revoke partitions; until it returns they are owned and can be committed."""
        ...

    async def lose(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Drop partitions that another member may own already; nothing may be committed."""
        ...

    async def assign(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Assign additional partitions; none means that nothing changes."""
        ...


class Membership(Protocol):
    """What a consumer uses of its membership."""

    @property
    def identity(self) -> GroupMember:
        """The current identity, for commits and transactions."""
        ...

    @property
    def is_member(self) -> bool:
        """Whether it has joined and is not rejoining."""
        ...

    @property
    def waiting_for(self) -> str | None:
        """What it waits for before it is stable, for errors and metrics."""
        ...

    async def run(self) -> None:
        """Join, keep the session alive and rejoin; returns after `leave`, raises final errors."""
        ...

    def rejoin(self, why: str) -> None:
        """Rejoin: the subscription changed."""
        ...

    def metadata_changed(self) -> None:
        """Check whether a metadata change affects the group."""
        ...

    def polled(self) -> None:
        """Note that the application polls, or still waits in a poll.

        Call it on every poll and, while one waits, more often than max.poll.interval.ms.
        """
        ...

    async def leave(self, timeout_s: float) -> None:
        """End `run` and leave the group; a static member stays, as it is expected to return.

        The consumer revokes its partitions before. Errors are ignored: the session expires anyway.
        """
        ...

    def held(self, partition: TopicPartition) -> int | None:
        """Return the assignment since which a partition is owned; None if it is not."""
        ...

    def fenced(self, member: GroupMember, error: ErrorCode) -> None:
        """Note that a request of this identity was fenced."""
        ...
