"""The group settings of a consumer.

Invariant: the config does not change while a consumer runs.
"""

from dataclasses import dataclass
from typing import Final

from ottla.client.group.interfaces import GroupMember
from ottla.transport.backoff import Backoff

JOIN_GRACE_S: Final = 5.0
"""The coordinator waits for others until the rebalance timeout; its response comes a bit later."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The group settings."""

    group_id: str
    instance_id: str | None
    is_modern: bool
    rack: str | None
    session_timeout_s: float
    heartbeat_interval_s: float
    poll_interval_s: float
    """A member that takes longer to revoke partitions is removed."""

    request_timeout_s: float
    backoff: Backoff
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """Of a classic group, by their short names."""

    remote_assignor: str | None = None
    """The server-side assignor of a consumer group (KIP-848)."""

    @property
    def join_timeout_s(self) -> float:
        """How long a JoinGroup response may take: it waits for the slowest member."""
        return max(self.request_timeout_s, self.poll_interval_s + JOIN_GRACE_S)

    @property
    def nobody(self) -> GroupMember:
        """The identity before the first join."""
        return GroupMember(self.group_id, instance_id=self.instance_id, is_modern=self.is_modern)
