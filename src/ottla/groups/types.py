"""Values shared by events, effects and the state of groups.

They are here so that those modules need not import each other.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple, NewType

from msgspec import Struct

from ottla.ids import ZERO_UUID, ProducerEpoch, ProducerId, TopicPartition, Uuid

RequestToken = NewType("RequestToken", int)
"""Identifies a request that waits for its response; its creator knows the connection."""


class TimerKind(Enum):
    """The purpose of a timer."""

    SESSION = "session"  # session timeout of a member or of an assigned member id
    JOIN = "join"  # end of the join phase
    SYNC = "sync"  # end of the sync phase
    EXPIRY = "expiry"  # periodic check for expired offsets


class Timer(NamedTuple):
    """The name of a timer; a coordinator has at most one per name."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Protocol(NamedTuple):
    """An assignment protocol that a member supports, with its metadata."""

    name: str
    metadata: bytes


def protocols_bytes(protocols: Iterable[Protocol]) -> int:
    """The size of names and metadata."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)


class OffsetToCommit(NamedTuple):
    """An offset that a client commits for a partition."""

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: Uuid = ZERO_UUID


class Transaction(NamedTuple):
    """The transaction in which offsets are committed."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class AssignmentStored(Struct, frozen=True):
    """The assignments of a generation are in the log (rule F3)."""

    group_id: str
    generation: int
    assignments: Mapping[str, bytes]
