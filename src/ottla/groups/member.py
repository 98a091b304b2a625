"""A member of a classic group.

Invariant: a member with a pending request has its token, the later one of two. A new member has not
had its first JoinGroup response.
"""

from msgspec import Struct

from ottla.groups.types import Protocol, RequestToken, protocols_bytes


class Member(Struct):
    """Identity, protocols, assignment and pending requests of a member."""

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
        """Whether a request is pending, which keeps the session alive once the member is known."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def protocol_names(self) -> frozenset[str]:
        """The assignment protocols it supports."""
        return frozenset(protocol.name for protocol in self.protocols)

    @property
    def metadata_bytes(self) -> int:
        """The size of its metadata for all protocols."""
        return protocols_bytes(self.protocols)

    def metadata(self, protocol_name: str) -> bytes:
        """Return its metadata for a protocol."""
        return next(known.metadata for known in self.protocols if known.name == protocol_name)

    def vote(self, candidates: frozenset[str]) -> str:
        """Return its preferred protocol among the candidates."""
        return next(known.name for known in self.protocols if known.name in candidates)
