"""A member of a classic group.

Invariant: a member that waits for an answer has the token of the request, and of two requests the
later; one that is new has not had its first JoinGroup answer.
"""

from dataclasses import dataclass

from ottla.groups.types import Protocol, RequestToken


@dataclass(slots=True)
class Member:
    """Who it is, what it can, what it has, and whether it waits."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join_token: RequestToken | None = None
    sync_token: RequestToken | None = None
    is_new: bool = False

    @property
    def waits(self) -> bool:
        """True when it waits for an answer, which is as good as a heartbeat once it is known."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def protocol_names(self) -> frozenset[str]:
        """The ways to assign that it knows."""
        return frozenset(protocol.name for protocol in self.protocols)

    def metadata(self, protocol_name: str) -> bytes:
        """What it tells the leader when this protocol is chosen."""
        return next(known.metadata for known in self.protocols if known.name == protocol_name)

    def vote(self, candidates: frozenset[str]) -> str:
        """The protocol it likes best of those that everybody knows."""
        return next(known.name for known in self.protocols if known.name in candidates)
