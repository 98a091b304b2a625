"""The records of __cluster_metadata that tell of topics: where a Kafka with KRaft keeps them.

Invariant: as in Kafka, a record says in three numbers of variable length how it is framed, of
which type it is and in which version. A type that is not in TYPES reads as None; a version or a
frame that is not known, and bytes that do not fit, raise ProtocolViolation.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.errors import ProtocolViolation
from ottla.ids import Uuid
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer, read_uvarint
from ottla.protocol.schema import (
    INT32S,
    array,
    int8,
    int32,
    int64,
    nullable_array,
    nullable_string,
    string,
    uuid,
)

METADATA_TOPIC: Final = "__cluster_metadata"
_FRAME_VERSION: Final = 1
_ARRAY_AT: Final = 20  # in a PartitionRecord, behind a number and an id


class TopicRecord(Message, versions="0", flexible="0+"):
    """There is a topic."""

    name: str = string("0+")
    topic_id: Uuid = uuid("0+")


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    """There is one no longer, with all its partitions."""

    topic_id: Uuid = uuid("0+")


class PartitionRecord(Message, versions="0", flexible="0+"):
    """Only its beginning, which all versions share: `decode` looks no further."""

    partition_id: int = int32("0+")
    topic_id: Uuid = uuid("0+")
    replicas: Sequence[int] = array(INT32S, "0+")


class PartitionChangeRecord(Message, versions="0-2", flexible="0+"):
    """A partition has other replicas now; what else changed is not looked at."""

    partition_id: int = int32("0+")
    topic_id: Uuid = uuid("0+")
    replicas: Sequence[int] | None = nullable_array(INT32S, "0+", default=None, tag=2)


class ConfigRecord(Message, versions="0", flexible="0+"):
    """A setting has a value, or (null) no longer."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = nullable_string("0+")


class ProducerIdsRecord(Message, versions="0", flexible="0+"):
    """Producer ids below this are given."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    next_producer_id: int = int64("0+")


TYPES: Final[Mapping[int, type[Message]]] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    15: ProducerIdsRecord,
}


def decode(data: Buffer) -> Message | None:
    """The record of a value; None when it is of another type."""
    try:
        frame, at = read_uvarint(data, 0)
        number, at = read_uvarint(data, at)
        version, at = read_uvarint(data, at)
    except IndexError:
        raise ProtocolViolation("a metadata record is cut off") from None
    if frame != _FRAME_VERSION:
        raise ProtocolViolation(f"a metadata record in frame {frame}, known is {_FRAME_VERSION}")
    cls = TYPES.get(number)
    if cls is None:
        return None
    if cls is PartitionRecord:
        return _partition(bytes(data), at)
    if version not in cls.VERSIONS:
        raise ProtocolViolation(f"{cls.__name__} has versions {cls.VERSIONS}, not {version}")
    return cls.decode(data, version, position=at)


def _partition(data: bytes, at: int) -> PartitionRecord:
    """What a partition's record begins with, as a record of its own: no tags behind it."""
    try:
        count, end = read_uvarint(data, at + _ARRAY_AT)
    except IndexError:
        raise ProtocolViolation("PartitionRecord: truncated") from None
    end += 4 * max(count - 1, 0)
    return PartitionRecord.decode(data[at:end] + b"\0", 0)
