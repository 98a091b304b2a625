"""The consumer protocol: subscription and assignment of classic groups in JoinGroup and SyncGroup.

The data follow their version. Data of a newer version are decoded as the newest known version and
the rest is ignored, so that members can be upgraded one by one.
"""

from collections.abc import Sequence
from struct import Struct as Layout
from typing import Final, TypeVar

from ottla.errors import ProtocolViolation
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import (
    INT32S,
    STRINGS,
    Struct,
    array,
    int32,
    nullable_octets,
    nullable_string,
    string,
)

M = TypeVar("M", bound=Message)


class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: Sequence[str] = array(STRINGS, "0+")
    user_data: bytes | None = nullable_octets("0+", default=None)
    owned_partitions: Sequence[TopicPartition] = array(
        TopicPartition, "1+", default=(), ignorable=True
    )
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = nullable_string("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: Sequence[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = nullable_octets("0+", default=None)


_VERSION: Final = Layout(">h")


def encode_embedded(data: Message, version: int) -> bytes:
    """Encode a subscription or an assignment with its version."""
    return _VERSION.pack(version) + data.encode(version)


def decode_embedded(cls: type[M], data: Buffer, version_max: int | None = None) -> M:
    """Decode a subscription or an assignment, also of a newer version.

    Some clients write a version without all of its fields; pass a lower `version_max` if only the
    first fields are needed.
    """
    if len(data) < _VERSION.size:
        raise ProtocolViolation(f"{cls.__name__}: {len(data)} bytes are too few for a version")
    (version,) = _VERSION.unpack_from(data)
    if version < cls.VERSIONS.low:
        raise ProtocolViolation(f"{cls.__name__} does not have version {version}")
    known = cls.VERSIONS.high if version_max is None else version_max
    message, _ = cls.decode_prefix(data, min(version, known), _VERSION.size)
    return message
