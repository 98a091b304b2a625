"""Identities: what a number, a name or sixteen bytes stand for.

Invariant: an identity is an immutable value whose equality and hash are those of what it
holds; an offset counts records and a position counts bytes, and the type checker keeps
them apart at no cost at run time.
"""

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import Final, NamedTuple, NewType, Self

BrokerId = NewType("BrokerId", int)
PartitionIndex = NewType("PartitionIndex", int)

Offset = NewType("Offset", int)
"""Counts records in a partition, from 0."""

Position = NewType("Position", int)
"""Counts bytes in a file, from 0."""

LeaderEpoch = NewType("LeaderEpoch", int)
ControllerEpoch = NewType("ControllerEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)
"""Counts the records of one producer in one partition; after 2**31 - 1 follows 0."""

NO_BROKER: Final = BrokerId(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = Sequence(-1)


class TopicPartition(NamedTuple):
    """A partition by the name of its topic; written `topic-0`, as its folder is named.

    A tuple rather than a dataclass: it is the key of many look-ups, and hashes 3 times as fast. Its
    number is any int, because applications make them, too.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Uuid(bytes):
    """Sixteen bytes that name a topic, a directory or a cluster.

    Its text is Kafka's: url-safe base64 without the padding, 22 characters.
    """

    __slots__ = ()

    def __new__(cls, raw: bytes | bytearray | memoryview) -> Self:
        """Take exactly sixteen bytes."""
        self = bytes.__new__(cls, raw)
        if len(self) != 16:
            raise ValueError(f"a UUID is 16 bytes, not {len(self)}")
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read Kafka's form; ValueError for anything that `str()` would not write."""
        standard = text.replace("-", "+").replace("_", "/") + "=="
        try:
            uuid = cls(a2b_base64(standard, strict_mode=True))
        except (Base64Error, ValueError):
            raise ValueError(f"not a UUID in Kafka's form: {text!r}") from None
        # The last character carries 2 bits and 4 zeros; other spellings of the same
        # sixteen bytes are refused, so that an identity has one text.
        if str(uuid) != text:
            raise ValueError(f"not a UUID in Kafka's form: {text!r}")
        return uuid

    def __str__(self) -> str:
        standard = b2a_base64(self, newline=False).decode("ascii")
        return standard[:22].replace("+", "-").replace("/", "_")

    def __repr__(self) -> str:
        return f"Uuid.parse({str(self)!r})"


ZERO_UUID: Final = Uuid(bytes(16))
"""Stands for "no id"; never assigned to anything."""


TOPIC_NAME_LENGTH_MAX: Final = 249  # with `-` and a partition number it still fits a file name
_UNUSUAL_IN_TOPIC_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")


def topic_name_problem(name: str) -> str | None:
    """Say why a name cannot be a topic's, or None when it can.

    A name that passes is safe as a folder's and a node's name.
    """
    if not name:
        return "A topic name cannot be empty."
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"A topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, "
            f"this one has {len(name)}."
        )
    if name in {".", ".."}:
        return f"A topic cannot be named {name!r}, which stands for a folder."
    if found := _UNUSUAL_IN_TOPIC_NAME.search(name):
        return (
            "A topic name is made of the letters A to Z and a to z, digits, '.', '_' and '-'; "
            f"this one has {found.group()!a} at index {found.start()}."
        )
    return None


def topic_names_collide(one: str, other: str) -> bool:
    """Tell whether two different names differ only in `.` and `_`.

    Metric names turn both into `_`, so that such topics could not be told apart there.
    """
    return one != other and one.replace(".", "_") == other.replace(".", "_")
