"""The topic records of __cluster_metadata, the metadata log of KRaft.

Invariant: a record begins with three varints: frame version, type and version. A type that is not
in TYPES decodes to None. An unknown frame version or version and malformed bytes raise
ProtocolViolation.
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
_ARRAY_AT: Final = 20  # position of the array in a PartitionRecord


class TopicRecord(Message, versions="0", flexible="0+"):
    """A topic was created."""

    name: str = string("0+")
    topic_id: Uuid = uuid("0+")


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    """A topic and all its partitions were deleted."""

    topic_id: Uuid = uuid("0+")


class PartitionRecord(Message, versions="0", flexible="0+"):
    """The first fields of a partition record, which all versions share."""

    partition_id: int = int32("0+")
    topic_id: Uuid = uuid("0+")
    replicas: Sequence[int] = array(INT32S, "0+")


class PartitionChangeRecord(Message, versions="0-2", flexible="0+"):
    """The replicas of a partition changed; other changes are ignored."""

    partition_id: int = int32("0+")
    topic_id: Uuid = uuid("0+")
    replicas: Sequence[int] | None = nullable_array(INT32S, "0+", default=None, tag=2)


class ConfigRecord(Message, versions="0", flexible="0+"):
    """A setting was changed, or removed (null)."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = nullable_string("0+")


class ProducerIdsRecord(Message, versions="0", flexible="0+"):
    """Producer ids below `next_producer_id` are allocated."""

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
    """Decode the value of a record; None for another type."""
    try:
        frame, at = read_uvarint(data, 0)
        number, at = read_uvarint(data, at)
        version, at = read_uvarint(data, at)
    except IndexError:
        raise ProtocolViolation("truncated metadata record") from None
    if frame != _FRAME_VERSION:
        raise ProtocolViolation(
            f"metadata record has frame version {frame}, expected {_FRAME_VERSION}"
        )
    cls = TYPES.get(number)
    if cls is None:
        return None
    if cls is PartitionRecord:
        return _partition(bytes(data), at)
    if version not in cls.VERSIONS:
        raise ProtocolViolation(f"{cls.__name__} has versions {cls.VERSIONS}, not {version}")
    return cls.decode(data, version, position=at)


def _partition(data: bytes, at: int) -> PartitionRecord:
    """Decode the first fields of a partition record, without tagged fields."""
    try:
        count, end = read_uvarint(data, at + _ARRAY_AT)
    except IndexError:
        raise ProtocolViolation("PartitionRecord: truncated") from None
    end += 4 * max(count - 1, 0)
    return PartitionRecord.decode(data[at:end] + b"\0", 0)
