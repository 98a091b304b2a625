"""What a consumer and its membership of a group ask of each other.

Invariant: the consumer has the partitions, the membership decides which. A partition is revoked or
lost before another member may have it, and is assigned once until then. All that is asked of the
owner comes from one task, one thing after the other.
"""

from typing import Final, NamedTuple, Protocol

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

NO_GENERATION: Final = -1


class Rebalance(NamedTuple):
    """Why partitions come and go."""

    reason: str

    def __str__(self) -> str:
        return self.reason


class GroupMember(NamedTuple):
    """Who somebody is to the coordinator of a group."""

    group_id: str
    generation: int = NO_GENERATION
    """Or the member's epoch, under group.protocol=consumer; NO_GENERATION: no member at present."""

    member_id: str = ""
    instance_id: str | None = None
    is_modern: bool = False
    """Whether the group has the protocol of KIP-848."""

    @property
    def is_member(self) -> bool:
        """Whether the group counts on it, as far as is known."""
        return self.generation != NO_GENERATION


class GroupOwner(Protocol):
    """What a consumer offers to its membership."""

    def topics(self) -> frozenset[str]:
        """What is subscribed to now; the consumer resolves its own patterns."""
        ...

    def pattern(self) -> str | None:
        """A pattern that the broker resolves (RE2), under group.protocol=consumer alone."""
        ...

    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that were assigned and neither revoked nor lost."""
        ...

    async def revoke(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Give partitions up, and return when that is done; they are ours until then: commit."""
        ...

    async def lose(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Drop partitions that may be another's already: commit nothing."""
        ...

    async def assign(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Take partitions in addition to those that are owned; none tells that all stays."""
        ...


class Membership(Protocol):
    """What a consumer asks of its membership."""

    @property
    def identity(self) -> GroupMember:
        """Who the consumer is now, for commits and transactions."""
        ...

    @property
    def is_member(self) -> bool:
        """Whether it has joined, and is not joining anew."""
        ...

    @property
    def waiting_for(self) -> str | None:
        """What it waits for before it is a member at rest, for errors and metrics."""
        ...

    async def run(self) -> None:
        """Join, share, stay, and join again; returns after `leave`, raises what is final."""
        ...

    def rejoin(self, why: str) -> None:
        """The subscription changed."""
        ...

    def metadata_changed(self) -> None:
        """Something was learnt of the cluster: look whether the group must know."""
        ...

    def polled(self) -> None:
        """The application asks for records, or waits for them still.

        To be called at every poll and, while one waits, more often than max.poll.interval.ms.
        """
        ...

    async def leave(self, timeout_s: float) -> None:
        """End `run` and tell the coordinator; a static member is expected back and stays.

        What is owned is the consumer's to give up before. Failures are no matter: the session ends.
        """
        ...

    def held(self, partition: TopicPartition) -> int | None:
        """Since which assignment a partition is owned without a break; None: it is not."""
        ...

    def fenced(self, member: GroupMember, error: ErrorCode) -> None:
        """Somebody was told that he is no member any more, when he spoke as this one."""
        ...
