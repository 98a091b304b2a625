"""The members of one classic group and its assigned member ids.

Invariant: an instance id maps to a member; the leader is a member; the counts of joined members, of
protocol supporters and of metadata match the members, and so do the tokens of pending requests. An
id belongs to a member or is pending, never both.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from ottla.errors import ErrorCode
from ottla.groups.member import Member
from ottla.groups.types import Protocol, RequestToken


class Roster:
    """The members of a group."""

    __slots__ = (
        "_joined",
        "_members",
        "_static",
        "_supporters",
        "_waiting",
        "leader",
        "metadata_bytes",
        "pending",
    )

    def __init__(self, members: Iterable[Member] = (), leader: str | None = None) -> None:
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        self._joined = 0  # members with a pending JoinGroup
        self.metadata_bytes = 0  # of all members and protocols
        self._waiting: dict[RequestToken, Member] = {}  # by their pending requests
        # Assigned ids that have not joined, oldest first; a dict, because sets have no order.
        self.pending: dict[str, None] = {}
        self.leader = leader
        for member in members:
            self.add(member)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        """Return a member by id."""
        return self._members.get(member_id)

    def waiting(self, token: RequestToken) -> Member | None:
        """Return the member that waits for the response to a request."""
        return self._waiting.get(token)

    def static_id(self, instance_id: str | None) -> str | None:
        """Return the member id of a static member."""
        return None if instance_id is None else self._static.get(instance_id)

    @property
    def joined(self) -> int:
        """The number of joined members."""
        return self._joined

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined."""
        return self._joined == len(self._members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def problem(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return why a request of this member is refused, or NONE (rules F2 and F5)."""
        if instance_id is not None:
            known = self._static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    # Changes.

    def add(self, member: Member) -> None:
        """Add a member; the first one leads."""
        assert member.member_id not in self._members
        assert member.instance_id not in self._static
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._supporters.update(member.protocol_names())
        self.metadata_bytes += member.metadata_bytes
        self._joined += member.join_token is not None
        for token in (member.join_token, member.sync_token):
            self._exchange_token(member, None, token)
        self.leader = self.leader or member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member:
        """Remove a member; if it led, elect another."""
        member = self._members.pop(member_id)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._forget_support(member)
        self._joined -= member.join_token is not None
        for token in (member.join_token, member.sync_token):
            self._exchange_token(member, token, None)
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def exchange(self, member_id: str, new: Member) -> None:
        """Replace a static member, also as leader."""
        led = self.leader == member_id
        self.remove(member_id)
        self.add(new)
        if led:
            self.leader = new.member_id

    def update(
        self,
        member: Member,
        protocols: tuple[Protocol, ...],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Update a member that joins again."""
        self._forget_support(member)
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._supporters.update(member.protocol_names())
        self.metadata_bytes += member.metadata_bytes

    def _forget_support(self, member: Member) -> None:
        self.metadata_bytes -= member.metadata_bytes
        for name in member.protocol_names():
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def set_join_token(self, member: Member, token: RequestToken | None) -> RequestToken | None:
        """Set the pending JoinGroup and return the previous one."""
        before, member.join_token = member.join_token, token
        self._joined += (token is not None) - (before is not None)
        self._exchange_token(member, before, token)
        return before

    def set_sync_token(self, member: Member, token: RequestToken | None) -> RequestToken | None:
        """Set the pending SyncGroup and return the previous one."""
        before, member.sync_token = member.sync_token, token
        self._exchange_token(member, before, token)
        return before

    def _exchange_token(
        self, member: Member, before: RequestToken | None, after: RequestToken | None
    ) -> None:
        if before is not None:
            del self._waiting[before]
        if after is not None:
            self._waiting[after] = member

    def elect_joined(self) -> bool:
        """Make sure that the leader has joined; False if nobody has."""
        if self.leader is not None and self[self.leader].join_token is not None:
            return True
        joined = next((member for member in self if member.join_token is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    # Protocols.

    def knows_any(self, names: Iterable[str]) -> bool:
        """Whether all members support one of these protocols."""
        return any(self._supporters[name] == len(self) for name in names)

    def choose_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support."""
        candidates = frozenset(
            name for name, supporters in self._supporters.items() if supporters == len(self)
        )
        votes = Counter(member.vote(candidates) for member in self)
        return max(votes, key=lambda name: votes[name])
