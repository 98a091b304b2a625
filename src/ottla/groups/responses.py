"""What the coordinator of groups answers, whatever the version of the API.

Invariant: an answer is a value with everything that any version of its response carries; an error
leaves the rest at what Kafka sends with one.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, TopicPartition, Uuid

NO_OFFSET: Final = -1


class JoinedMember(NamedTuple):
    """A member of the new generation, as its leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """Who one is in the next generation; the leader learns of all members."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    """A member's share."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """Whether all is well with the member and its generation."""

    error: ErrorCode = ErrorCode.NONE


class LeaverResult(NamedTuple):
    """What became of one who leaves."""

    member_id: str
    instance_id: str | None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """What became of each; the first versions have one leaver and take its error for the whole."""

    error: ErrorCode = ErrorCode.NONE
    leavers: tuple[LeaverResult, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionErrors:
    """An outcome per partition as the request names them, for OffsetCommit and OffsetDelete."""

    error: ErrorCode = ErrorCode.NONE  # of the whole; OffsetCommit has it in every partition
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupErrors:
    """An outcome per group in the order of the request; answers DeleteGroups."""

    groups: tuple[tuple[str, ErrorCode], ...]


Response: TypeAlias = (
    JoinResult | SyncResult | HeartbeatResult | LeaveResult | PartitionErrors | GroupErrors
)


# Answers to questions, which change nothing and are given at once.


class FetchedOffset(NamedTuple):
    """What is committed for a partition; without it, offset -1."""

    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: Uuid = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The committed offsets of a group."""

    error: ErrorCode
    offsets: dict[TopicPartition, FetchedOffset]


class DescribedMember(NamedTuple):
    """A member and its share."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group's state; one that is not here is Dead with GROUP_ID_NOT_FOUND.

    DescribeGroups has that error from version 6 on; before, the state alone says it.
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


@dataclass(frozen=True, slots=True)
class GroupList:
    """The groups of a coordinator."""

    error: ErrorCode
    groups: tuple[ListedGroup, ...]
