"""What a decision about groups wants done: answers, appends, timers.

Invariant: effects are values and are carried out in their order. Appends reach the log in the
order of the effects, and their outcomes come back as events in the order of the log, each exactly
once, even when the coordinator was unloaded in between.

An append that takes long is not one that failed: when a client's patience ends first, whoever
holds its connection answers it, and drops the answer that still comes.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.groups.group import ClassicGroup
from ottla.groups.member import Member
from ottla.groups.offsets import CommittedOffset
from ottla.groups.responses import GroupErrors, PartitionErrors, Response
from ottla.groups.types import AssignmentStored, RequestToken, Timer, Transaction
from ottla.ids import LeaderEpoch, TopicPartition


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request of this token; every token is answered once."""

    token: RequestToken
    answer: Response


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Tell when this time has come, with the version; an earlier timer of the name is void."""

    timer: Timer
    version: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """The timer is void."""

    timer: Timer


class TopicRecord(NamedTuple):
    """A record of __consumer_offsets; without a value it deletes what the key had."""

    key: bytes
    value: bytes | None


# What goes on when an append has its outcome.


@dataclass(frozen=True, slots=True)
class StaticMemberStored:
    """A static member has come back under another id while its group went on (rule F5)."""

    group_id: str
    token: RequestToken
    member_id: str
    before: Member  # as it was, should the append fail
    leader_before: str
    skips_assignment: bool


@dataclass(frozen=True, slots=True)
class EmptyGenerationStored:
    """A group has lost its last member; if the log does not know, sessions end after a load."""

    group_id: str


@dataclass(frozen=True, slots=True)
class OffsetsStored:
    """Offsets are committed, or wait for the end of their transaction."""

    group_id: str
    token: RequestToken
    offsets: tuple[tuple[TopicPartition, CommittedOffset], ...]
    transaction: Transaction | None
    answer: PartitionErrors


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """Offsets are deleted, and groups, on somebody's request or because their time has come."""

    offsets: tuple[tuple[str, TopicPartition], ...]
    groups: tuple[ClassicGroup, ...] = ()
    token: RequestToken | None = None
    answer: PartitionErrors | GroupErrors | None = None


Then: TypeAlias = (
    AssignmentStored | StaticMemberStored | EmptyGenerationStored | OffsetsStored | OffsetsDeleted
)


@dataclass(frozen=True, slots=True)
class Append:
    """Append to the coordinator's partition as its leader in this epoch, and hand it back.

    Records with a transaction go into a transactional batch. What need not be atomic may be
    written as several batches; it can be longer than one may be.
    """

    leader_epoch: LeaderEpoch
    records: tuple[TopicRecord, ...]
    then: Then
    transaction: Transaction | None = None
    atomic: bool = True


Effect: TypeAlias = Respond | Append | SetTimer | CancelTimer
