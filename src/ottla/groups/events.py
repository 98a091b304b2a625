"""Events for the groups of a coordinator: requests, timers, append results.

Invariant: an event contains everything its decision needs besides the state and the time,
randomness included (`new_member_id`). It has no API versions: what a version means is a named
field.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from ottla.errors import ErrorCode
from ottla.groups.effects import Append
from ottla.groups.types import OffsetToCommit, Protocol, RequestToken, Timer, Transaction
from ottla.ids import Offset, ProducerId, TopicPartition

UNKNOWN_MEMBER: Final = ""
"""The member id of a client without one."""

NO_GENERATION: Final = -1
"""The generation of a commit without membership."""

DEFAULT_RETENTION_MS: Final = -1


class Join(Struct, frozen=True):
    """JoinGroup: join the next generation."""

    token: RequestToken
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int  # below 0 in version 0: the session timeout
    protocol_type: str
    protocols: tuple[Protocol, ...]
    new_member_id: str  # random, for a client without one
    member_id_required: bool = True  # from version 4 on (KIP-394)
    skips_assignment: bool = True  # from version 9 on for a static leader (KIP-814)


class Sync(Struct, frozen=True):
    """SyncGroup: request the assignment; the leader sends all assignments."""

    token: RequestToken
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class Heartbeat(Struct, frozen=True):
    """Heartbeat: keep the session alive."""

    token: RequestToken
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class Leaver(NamedTuple):
    """A leaving member; an administrator gives only the instance id."""

    member_id: str
    instance_id: str | None = None


class Leave(Struct, frozen=True):
    """LeaveGroup: members leave or are removed."""

    token: RequestToken
    group_id: str
    leavers: tuple[Leaver, ...]


class Commit(Struct, frozen=True):
    """OffsetCommit, or TxnOffsetCommit with a transaction."""

    token: RequestToken
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = DEFAULT_RETENTION_MS  # in versions 2 to 4
    transaction: Transaction | None = None
    knows_group_id_not_found: bool = True  # from version 9 of OffsetCommit on


class DeleteGroups(Struct, frozen=True):
    """DeleteGroups: delete groups without members, with their offsets."""

    token: RequestToken
    group_ids: tuple[str, ...]


class DeleteOffsets(Struct, frozen=True):
    """OffsetDelete: delete offsets of a group."""

    token: RequestToken
    group_id: str
    partitions: tuple[TopicPartition, ...]


class RequestDropped(Struct, frozen=True):
    """The client that waits for the response to JoinGroup or SyncGroup has disconnected."""

    token: RequestToken
    group_id: str


class PartitionsDeleted(Struct, frozen=True):
    """Partitions were deleted; their committed offsets follow."""

    partitions: frozenset[TopicPartition]


class TransactionEnded(Struct, frozen=True):
    """A transaction marker was committed in the partition: its offsets count or are dropped."""

    producer_id: ProducerId
    committed: bool


class TimerFired(Struct, frozen=True):
    """A timer fired. A timer that was reset or cancelled has another version."""

    timer: Timer
    version: int


class Appended(Struct, frozen=True):
    """The records are in the log from this offset on, and committed (acks=-1)."""

    append: Append
    base_offset: Offset


class AppendFailed(Struct, frozen=True):
    """The records are not in the log and will not be."""

    append: Append
    error: ErrorCode


GroupRequest: TypeAlias = Join | Sync | Heartbeat | Leave | Commit | DeleteOffsets
"""A client's request to one group."""

Request: TypeAlias = GroupRequest | DeleteGroups
Event: TypeAlias = (
    Request
    | RequestDropped
    | PartitionsDeleted
    | TransactionEnded
    | TimerFired
    | Appended
    | AppendFailed
)
