"""Results of group requests, for any API version.

Invariant: a result has everything that any version of the response carries; with an error the rest
is what Kafka sends.
"""

from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, TopicPartition, Uuid

NO_OFFSET: Final = -1


class JoinedMember(NamedTuple):
    """A member of the new generation, as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(Struct, frozen=True):
    """A member's place in the next generation; the leader gets all members."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncResult(Struct, frozen=True):
    """A member's assignment."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatResult(Struct, frozen=True):
    """Whether the member and its generation are valid."""

    error: ErrorCode = ErrorCode.NONE


class LeaverResult(NamedTuple):
    """The result of one leaving member."""

    member_id: str
    instance_id: str | None
    error: ErrorCode = ErrorCode.NONE


class LeaveResult(Struct, frozen=True):
    """The results of leaving members; early versions have one and use its error for the whole."""

    error: ErrorCode = ErrorCode.NONE
    leavers: tuple[LeaverResult, ...] = ()


class PartitionErrors(Struct, frozen=True):
    """A result per partition, for OffsetCommit and OffsetDelete."""

    error: ErrorCode = ErrorCode.NONE  # of the whole; OffsetCommit repeats it per partition
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


class GroupErrors(Struct, frozen=True):
    """A result per group in request order, for DeleteGroups."""

    groups: tuple[tuple[str, ErrorCode], ...]


Response: TypeAlias = (
    JoinResult | SyncResult | HeartbeatResult | LeaveResult | PartitionErrors | GroupErrors
)


# Results of queries, which are available at once.


class FetchedOffset(NamedTuple):
    """A committed offset; -1 if there is none."""

    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: Uuid = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE


class FetchResult(Struct, frozen=True):
    """The committed offsets of a group."""

    error: ErrorCode
    offsets: dict[TopicPartition, FetchedOffset]


class DescribedMember(NamedTuple):
    """A member and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(Struct, frozen=True):
    """A group's state; a missing one is Dead with GROUP_ID_NOT_FOUND.

    DescribeGroups has that error from version 6 on; before, only the state says it.
    """

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupList(Struct, frozen=True):
    """The groups of a coordinator."""

    error: ErrorCode
    groups: tuple[ListedGroup, ...]
