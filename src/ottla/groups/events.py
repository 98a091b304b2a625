"""Events for the groups of a coordinator: requests, timers, append results.

Invariant: an event contains everything its decision needs besides the state and the time,
randomness included (`new_member_id`). It has no API versions: what a version means is a named
field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import ErrorCode
from ottla.groups.effects import Append
from ottla.groups.types import OffsetToCommit, Protocol, RequestToken, Timer, Transaction
from ottla.ids import Offset, ProducerId, TopicPartition

UNKNOWN_MEMBER: Final = ""
"""The member id of a client without one."""

NO_GENERATION: Final = -1
"""The generation of a commit without membership."""

DEFAULT_RETENTION_MS: Final = -1


@dataclass(frozen=True, slots=True)
class Join:
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


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup: request the assignment; the leader sends all assignments."""

    token: RequestToken
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
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


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup: members leave or are removed."""

    token: RequestToken
    group_id: str
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True)
class Commit:
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


@dataclass(frozen=True, slots=True)
class DeleteGroups:
    """DeleteGroups: delete groups without members, with their offsets."""

    token: RequestToken
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """OffsetDelete: delete offsets of a group."""

    token: RequestToken
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RequestDropped:
    """The client that waits for the response to JoinGroup or SyncGroup has disconnected."""

    token: RequestToken
    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionsDeleted:
    """Partitions were deleted; their committed offsets follow."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A transaction marker was committed in the partition: its offsets count or are dropped."""

    producer_id: ProducerId
    committed: bool


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer fired. A timer that was reset or cancelled has another version."""

    timer: Timer
    version: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The records are in the log from this offset on, and committed (acks=-1)."""

    append: Append
    base_offset: Offset


@dataclass(frozen=True, slots=True)
class AppendFailed:
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
