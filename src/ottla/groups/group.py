"""One classic group: its state and checks.

Invariant: the generation never decreases. A group in Empty has no members; in other states but
PreparingRebalance it has some. What a group writes to the log is enough to restore it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.errors import ErrorCode, ProtocolViolation
from ottla.groups.config import METADATA_BYTES_MAX
from ottla.groups.member import Member
from ottla.groups.responses import JoinedMember, JoinResult
from ottla.groups.roster import Roster
from ottla.groups.states import State, check_move
from ottla.groups.types import AssignmentStored, Protocol, Timer, TimerKind, protocols_bytes
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, decode_embedded
from ottla.protocol.offsets_topic import GroupMetadataValue, MemberMetadata

CONSUMER: Final = "consumer"
"""The protocol type of consumers; others, such as connectors', are opaque."""


@dataclass(slots=True)
class InitialDelay:
    """The initial rebalance delay of an empty group, extended while members join."""

    delay_ms: int
    remaining_ms: int
    member_added: bool = False


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """A group whose members assign partitions among themselves."""

    group_id: str
    state: State = State.EMPTY
    state_since_ms: int | None = None  # None: written by an old release
    generation: int = 0
    protocol_type: str | None = None  # None: a simple group with offsets only
    protocol_name: str | None = None
    subscribed: frozenset[str] | None = None  # None: unknown
    roster: Roster = field(default_factory=Roster)
    unsynced: set[str] = field(default_factory=set[str])  # members without a SyncGroup request
    initial_delay: InitialDelay | None = None  # while a rebalance that started in Empty is prepared
    in_flight: AssignmentStored | None = None  # sent by the leader and not in the log yet
    stored: bool = False  # a record of it was sent to the log

    def move_to(self, state: State, now_ms: int) -> None:
        """Change the state, if the table allows it."""
        check_move(self.group_id, self.state, state)
        self.state = state
        self.state_since_ms = now_ms
        self.in_flight = None
        if state is not State.PREPARING_REBALANCE:
            self.initial_delay = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is State.EMPTY

    @property
    def is_trace(self) -> bool:
        """Whether nothing but offsets is worth keeping."""
        return self.is_empty and not self.stored and not self.roster.pending

    # Timers.

    def session_timer(self, member_id: str) -> Timer:
        """The session timer of a member."""
        return Timer(TimerKind.SESSION, self.group_id, member_id)

    @property
    def join_timer(self) -> Timer:
        """The timer of the join phase."""
        return Timer(TimerKind.JOIN, self.group_id)

    @property
    def sync_timer(self) -> Timer:
        """The timer of the sync phase."""
        return Timer(TimerKind.SYNC, self.group_id)

    # Checks.

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a client with these protocols can be a member."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and self.roster.knows_any(
            protocol.name for protocol in protocols
        )

    def has_room_for(self, member_id: str, members_max: int) -> bool:
        """Whether a member may join within the limit.

        During a rebalance the joined members count, because the limit may have been lowered: the
        last to join are removed. Otherwise all members count and may stay.
        """
        if self.is_empty:
            return True
        member = self.roster.get(member_id)
        if self.state is State.PREPARING_REBALANCE:
            joined = member is not None and member.join_token is not None
            return joined or self.roster.joined < members_max
        return member is not None or len(self.roster) < members_max

    def has_memory_for(self, member_id: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether the metadata of all members stays within the limit if a member joins."""
        member = self.roster.get(member_id)
        before = 0 if member is None else member.metadata_bytes
        after = self.roster.metadata_bytes - before + protocols_bytes(protocols)
        return after <= METADATA_BYTES_MAX

    def commit_problem(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
    ) -> ErrorCode:
        """Return why offsets cannot be committed, or NONE (rules F2 and E9)."""
        if generation < 0 and self.is_empty:
            return ErrorCode.NONE  # a consumer with manual assignment, or an administrator
        if generation >= 0 or member_id or instance_id is not None:
            if problem := self.roster.problem(member_id, instance_id):
                return problem
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is State.COMPLETING_REBALANCE and not transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    @property
    def offset_delete_problem(self) -> ErrorCode:
        """Return why offsets cannot be deleted, or NONE; the subscription of consumers is known."""
        if self.is_empty or self.protocol_type == CONSUMER:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic, or may do so."""
        if self.subscribed is not None:
            return topic in self.subscribed
        return self.protocol_type == CONSUMER

    @property
    def offsets_may_expire(self) -> bool:
        """Whether offsets of topics without subscribers can expire (KIP-211)."""
        if self.protocol_type is None or self.is_empty:
            return True
        return self.subscribed is not None and self.state is State.STABLE

    def idle_since_ms(self, committed_ms: int) -> int:
        """Return since when the retention of an offset counts (KIP-211)."""
        if self.protocol_type is not None and self.is_empty and self.state_since_ms is not None:
            return self.state_since_ms
        return committed_ms

    # Generations.

    def choose_protocol(self) -> None:
        """Choose the members' protocol and their subscriptions."""
        self.protocol_name = self.roster.choose_protocol() if len(self.roster) else None
        self.learn_subscriptions()

    def learn_subscriptions(self) -> None:
        """Read the members' subscriptions, if they are consumers."""
        self.subscribed = None
        if self.protocol_type != CONSUMER:
            return
        topics: set[str] = set()
        for member in self.roster:
            assert self.protocol_name is not None
            metadata = member.metadata(self.protocol_name)
            try:
                read = decode_embedded(ConsumerProtocolSubscription, metadata, version_max=0)
            except ProtocolViolation:
                return  # opaque metadata
            topics.update(read.topics)
        self.subscribed = frozenset(topics)

    def join_answer(self, member_id: str) -> JoinResult:
        """Return what a member learns of its generation."""
        leads = self.roster.leader == member_id
        return JoinResult(
            member_id=member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader or "",
            members=self._joined_members() if leads else (),
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        name = self.protocol_name
        assert name is not None
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(name))
            for member in self.roster
        )


def value_of(
    group: ClassicGroup, assignments: Mapping[str, bytes] | None = None
) -> GroupMetadataValue:
    """Return the log record of a group with its present or coming assignments."""
    name = group.protocol_name
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=name,
        leader=group.roster.leader,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        members=tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(name) if name is not None else b"",
                assignment=(
                    member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, b"")
                ),
            )
            for member in group.roster
        ),
    )


def group_of(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group of a log record."""
    name = value.protocol
    if value.members and name is None:
        name = ""  # no release writes it, but the members exist
    members = {
        kept.member_id: Member(
            member_id=kept.member_id,
            instance_id=kept.group_instance_id,
            client_id=kept.client_id,
            client_host=kept.client_host,
            session_timeout_ms=kept.session_timeout,
            rebalance_timeout_ms=(
                kept.session_timeout if kept.rebalance_timeout < 0 else kept.rebalance_timeout
            ),
            protocols=(Protocol(name or "", kept.subscription),),
            assignment=kept.assignment,
        )
        for kept in value.members
    }
    since = value.current_state_timestamp
    group = ClassicGroup(
        group_id,
        state=State.STABLE if members else State.EMPTY,
        state_since_ms=None if since < 0 else since,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=name,
        roster=Roster(members.values(), value.leader if value.leader in members else None),
        stored=True,
    )
    group.learn_subscriptions()
    return group
