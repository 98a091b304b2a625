"""How a consumer is a member of a group.

Invariant: the rules do not change while a consumer runs.
"""

from dataclasses import dataclass
from typing import Final

from ottla.client.group.interfaces import GroupMember
from ottla.client.lifecycle.backoff import Backoff

JOIN_GRACE_S: Final = 5.0
"""The coordinator gives up on others after the rebalance timeout; its answer comes a bit later."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What the settings say about the group."""

    group_id: str
    instance_id: str | None
    is_modern: bool
    rack: str | None
    session_timeout_s: float
    heartbeat_interval_s: float
    poll_interval_s: float
    """A member that takes longer to give up partitions is given up, too."""

    request_timeout_s: float
    backoff: Backoff
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """Of a classic group, by their short names."""

    remote_assignor: str | None = None
    """The broker's, of a group of KIP-848."""

    @property
    def join_timeout_s(self) -> float:
        """How long the answer to JoinGroup may take: it waits for the slowest member."""
        return max(self.request_timeout_s, self.poll_interval_s + JOIN_GRACE_S)

    @property
    def nobody(self) -> GroupMember:
        """Who has not joined yet."""
        return GroupMember(self.group_id, instance_id=self.instance_id, is_modern=self.is_modern)
