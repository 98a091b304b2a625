"""What consumers of classic groups tell each other inside JoinGroup and SyncGroup.

Invariant: the data stand behind their version, and a member reads the data of a newer member as
the newest version it knows, leaving what follows: groups are upgraded member by member.
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
    """A subscription or an assignment behind its version."""
    return _VERSION.pack(version) + data.encode(version)


def decode_embedded(cls: type[M], data: Buffer, version_max: int | None = None) -> M:
    """A subscription or an assignment, of a newer member too.

    Whoever needs only the first fields asks for an early version: some clients write a later one
    without all of its fields.
    """
    if len(data) < _VERSION.size:
        raise ProtocolViolation(f"{cls.__name__}: no version in {len(data)} bytes")
    (version,) = _VERSION.unpack_from(data)
    if version < cls.VERSIONS.low:
        raise ProtocolViolation(f"{cls.__name__} has no version {version}")
    known = cls.VERSIONS.high if version_max is None else version_max
    message, _ = cls.decode_prefix(data, min(version, known), _VERSION.size)
    return message
