"""Values that events, effects and the state of groups share.

They stand here so that none of those modules has to import another one for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NewType

from ottla.ids import ZERO_UUID, ProducerEpoch, ProducerId, TopicPartition, Uuid

RequestToken = NewType("RequestToken", int)
"""Identifies a request that waits for its response; its creator knows the connection."""


class TimerKind(Enum):
    """What a timer is for."""

    SESSION = "session"  # a member, or an id handed out, has not been heard of
    JOIN = "join"  # the time to join the next generation is over
    SYNC = "sync"  # the time to ask for the assignment is over
    EXPIRY = "expiry"  # look for offsets that have expired


class Timer(NamedTuple):
    """The name of a timer; there is one of a name at a time."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Protocol(NamedTuple):
    """A way to assign that a member knows, with what it tells the leader about itself."""

    name: str
    metadata: bytes


class OffsetToCommit(NamedTuple):
    """How far a group has come in a partition, as the client says it."""

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: Uuid = ZERO_UUID


class Transaction(NamedTuple):
    """The transaction in which offsets are committed."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """The members of a generation may have their assignments (rule F3)."""

    group_id: str
    generation: int
    assignments: Mapping[str, bytes]
