"""Effects of a decision about groups: responses, appends, timers.

Invariant: effects are values, carried out in order. Appends reach the log in the order of the
effects, and their results return as events in log order, each exactly once, also if the coordinator
was unloaded in between.

A slow append has not failed: if a client's timeout ends first, the owner of its connection responds
and drops the later response.
"""

from typing import NamedTuple, TypeAlias

from msgspec import Struct

from ottla.groups.group import ClassicGroup
from ottla.groups.member import Member
from ottla.groups.offsets import CommittedOffset
from ottla.groups.responses import GroupErrors, PartitionErrors, Response
from ottla.groups.types import AssignmentStored, RequestToken, Timer, Transaction
from ottla.ids import LeaderEpoch, TopicPartition


class Respond(Struct, frozen=True):
    """Respond to the request of this token; once per token."""

    token: RequestToken
    answer: Response


class SetTimer(Struct, frozen=True):
    """Fire the timer at this time, with the version; replaces an earlier timer of this name."""

    timer: Timer
    version: int
    at_ms: int


class CancelTimer(Struct, frozen=True):
    """Cancel the timer."""

    timer: Timer


class TopicRecord(NamedTuple):
    """A record of __consumer_offsets; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


# Continuations after an append.


class StaticMemberStored(Struct, frozen=True):
    """A static member has returned with a new member id in a stable group (rule F5)."""

    group_id: str
    token: RequestToken
    member_id: str
    before: Member  # restored if the append fails
    leader_before: str
    skips_assignment: bool


class EmptyGenerationStored(Struct, frozen=True):
    """A group has lost its last member; without the record, sessions expire after a load."""

    group_id: str


class OffsetsStored(Struct, frozen=True):
    """Offsets are committed, or wait for the end of their transaction."""

    group_id: str
    token: RequestToken
    offsets: tuple[tuple[TopicPartition, CommittedOffset], ...]
    transaction: Transaction | None
    answer: PartitionErrors


class OffsetsDeleted(Struct, frozen=True):
    """Offsets and groups are deleted, on request or expired."""

    offsets: tuple[tuple[str, TopicPartition], ...]
    groups: tuple[ClassicGroup, ...] = ()
    token: RequestToken | None = None
    answer: PartitionErrors | GroupErrors | None = None
    expired: bool = False


Then: TypeAlias = (
    AssignmentStored | StaticMemberStored | EmptyGenerationStored | OffsetsStored | OffsetsDeleted
)


class Append(Struct, frozen=True):
    """Append to the coordinator's partition as its leader in this epoch, then continue.

    Records with a transaction go into a transactional batch. If not atomic, they may be split into
    several batches.
    """

    leader_epoch: LeaderEpoch
    records: tuple[TopicRecord, ...]
    then: Then
    transaction: Transaction | None = None
    atomic: bool = True


Effect: TypeAlias = Respond | Append | SetTimer | CancelTimer
