"""What happens to the groups of a coordinator: requests, timers, outcomes of appends.

Invariant: an event is a value that says everything its decision needs beside the state and the
time, chance included (`new_member_id`), and nothing of versions of APIs: what a version means
stands in the event by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import ErrorCode
from ottla.groups.effects import Append
from ottla.groups.types import OffsetToCommit, Protocol, RequestToken, Timer, Transaction
from ottla.ids import Offset, ProducerId, TopicPartition

UNKNOWN_MEMBER: Final = ""
"""The member id of whoever has none yet."""

NO_GENERATION: Final = -1
"""The generation of whoever commits without being a member."""

DEFAULT_RETENTION_MS: Final = -1


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup: somebody wants to be in the next generation."""

    token: RequestToken
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int  # below 0, as version 0 has none: the session timeout
    protocol_type: str
    protocols: tuple[Protocol, ...]
    new_member_id: str  # random, for whoever comes with none
    member_id_required: bool = True  # from version 4 on (KIP-394)
    skips_assignment: bool = True  # from version 9 on a static leader may be told to (KIP-814)


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup: a member asks for its assignment; the leader brings all of them."""

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
    """Heartbeat: a member says that it is alive."""

    token: RequestToken
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class Leaver(NamedTuple):
    """A member that leaves; an administrator gives the instance id alone."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup: members go, or are sent away."""

    token: RequestToken
    group_id: str
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """OffsetCommit, and with a transaction TxnOffsetCommit."""

    token: RequestToken
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = DEFAULT_RETENTION_MS  # versions 2 to 4 may say how long
    transaction: Transaction | None = None
    knows_group_id_not_found: bool = True  # from version 9 of OffsetCommit on


@dataclass(frozen=True, slots=True)
class DeleteGroups:
    """DeleteGroups: groups without members and all their offsets are to go."""

    token: RequestToken
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """OffsetDelete: offsets of a group are to go."""

    token: RequestToken
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsDeleted:
    """Partitions are gone from the cluster, and with them what was committed for them."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A marker in the partition's log is committed: a transaction's offsets count, or are void."""

    producer_id: ProducerId
    committed: bool


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer is due. One that was set anew or cancelled since has another version."""

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
"""What a client asks of one group."""

Request: TypeAlias = GroupRequest | DeleteGroups
Event: TypeAlias = (
    Request | PartitionsDeleted | TransactionEnded | TimerFired | Appended | AppendFailed
)
