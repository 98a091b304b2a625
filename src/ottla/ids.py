"""Types of identifiers: broker ids, offsets, epochs, producer ids, topic ids.

The type checker keeps them apart without a cost at run time: an Offset counts records, a Position
counts bytes.
"""

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import Final, NamedTuple, NewType, Self

BrokerId = NewType("BrokerId", int)
PartitionIndex = NewType("PartitionIndex", int)

Offset = NewType("Offset", int)
"""Offset of a record in a partition, from 0."""

Position = NewType("Position", int)
"""Position of a byte in a file, from 0."""

LeaderEpoch = NewType("LeaderEpoch", int)
ControllerEpoch = NewType("ControllerEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)
"""Sequence number of a producer's record in a partition; it wraps to 0 after 2**31 - 1."""

NO_BROKER: Final = BrokerId(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = Sequence(-1)


class TopicPartition(NamedTuple):
    """A topic name and a partition number; str() is `topic-0`, as the log directory is named.

    It is a tuple, because it is a frequent dictionary key: it hashes 3 times as fast as a
    dataclass. The partition is a plain int, because applications create these objects, too.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Uuid(bytes):
    """A UUID of a topic, a directory or a cluster.

    str() is Kafka's text: URL-safe base64 without padding, 22 characters.
    """

    __slots__ = ()

    def __new__(cls, raw: bytes | bytearray | memoryview) -> Self:
        """Create a UUID of exactly 16 bytes."""
        self = bytes.__new__(cls, raw)
        if len(self) != 16:
            raise ValueError(f"a UUID has 16 bytes, not {len(self)}")
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse Kafka's text. Raises ValueError for any text that `str()` does not produce."""
        standard = text.replace("-", "+").replace("_", "/") + "=="
        try:
            uuid = cls(a2b_base64(standard, strict_mode=True))
        except (Base64Error, ValueError):
            raise ValueError(f"invalid UUID {text!r}: expected 22 base64url characters") from None
        # The last character has 4 unused bits. They must be 0, so that a UUID has one text.
        if str(uuid) != text:
            raise ValueError(f"invalid UUID {text!r}: expected 22 base64url characters")
        return uuid

    def __str__(self) -> str:
        standard = b2a_base64(self, newline=False).decode("ascii")
        return standard[:22].replace("+", "-").replace("/", "_")

    def __repr__(self) -> str:
        return f"Uuid.parse({str(self)!r})"


ZERO_UUID: Final = Uuid(bytes(16))
"""The UUID that means "no id"."""


TOPIC_NAME_LENGTH_MAX: Final = 249  # Kafka's limit
_UNUSUAL_IN_TOPIC_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")


def topic_name_problem(name: str) -> str | None:
    """Return why a topic name is invalid; None if it is valid.

    A valid name is also safe as the name of a directory and a znode.
    """
    if not name:
        return "A topic name cannot be empty."
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"A topic name can have at most {TOPIC_NAME_LENGTH_MAX} characters, "
            f"this one has {len(name)}."
        )
    if name in {".", ".."}:
        return f"A topic name cannot be {name!r}."
    if found := _UNUSUAL_IN_TOPIC_NAME.search(name):
        return (
            "A topic name can contain letters A to Z and a to z, digits, '.', '_' and '-' only; "
            f"this one has {found.group()!a} at index {found.start()}."
        )
    return None


def topic_names_collide(one: str, other: str) -> bool:
    """Whether two different names differ only in `.` and `_`.

    Kafka's metric names replace `.` with `_`, so that the metrics of such topics collide.
    """
    return one != other and one.replace(".", "_") == other.replace(".", "_")
