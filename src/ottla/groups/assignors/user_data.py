"""User data of the sticky assignors: the previous assignment and its generation.

Invariant: the encoding is that of Kafka's Java client. Invalid bytes are not an error: they count
as an empty assignment. The older format without a generation can be decoded, too.
"""

from struct import Struct
from struct import error as TooShort  # noqa: N812

from ottla.groups.assignors.hash_order import HashOrder, text_hash
from ottla.groups.assignors.previous_owners import Claim
from ottla.groups.assignors.subscription import NO_GENERATION
from ottla.ids import PartitionIndex, TopicPartition

_INT16 = Struct(">h")
_INT32 = Struct(">i")


def sticky_bytes(claim: Claim) -> bytes:
    """Encode partitions by topic, then the generation."""
    by_topic: dict[str, list[int]] = {}
    order = HashOrder[str](text_hash)
    for topic, index in claim.partitions:
        order.compute(topic)
        by_topic.setdefault(topic, []).append(index)
    parts = [_INT32.pack(len(by_topic))]
    for topic in order:
        name = topic.encode()
        indexes = by_topic[topic]
        parts += [_INT16.pack(len(name)), name, _INT32.pack(len(indexes))]
        parts += map(_INT32.pack, indexes)
    return b"".join((*parts, _INT32.pack(claim.generation)))


def read_sticky(data: bytes | None) -> Claim:
    """Decode the user data of a member of the `sticky` assignor."""
    if not data:
        return Claim()
    try:
        partitions, position = _read_partitions(data)
    except (TooShort, ValueError):
        return Claim()
    if len(data) < position + _INT32.size:
        return Claim(partitions)
    return Claim(partitions, _INT32.unpack_from(data, position)[0])


def _read_partitions(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    found: list[TopicPartition] = []
    count, position = _read_count(data, 0)
    for _ in range(count):
        (size,) = _INT16.unpack_from(data, position)
        start, position = position + _INT16.size, position + _INT16.size + size
        if not start <= position <= len(data):
            raise ValueError(f"a name of {size} bytes")
        topic = data[start:position].decode(errors="replace")
        indexes, position = _read_count(data, position)
        for _ in range(indexes):
            (index,) = _INT32.unpack_from(data, position)
            found.append(TopicPartition(topic, PartitionIndex(index)))
            position += _INT32.size
    return tuple(found), position


def _read_count(data: bytes, position: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(data, position)
    position += _INT32.size
    if not 0 <= count <= len(data) - position:
        raise ValueError(f"an array of {count}")
    return count, position


def cooperative_bytes(generation: int) -> bytes:
    """Encode only the generation: the subscription has the partitions."""
    return _INT32.pack(generation)


def read_cooperative(data: bytes | None) -> int:
    """Decode the generation of a member of the `cooperative-sticky` assignor."""
    if data is None or len(data) < _INT32.size:
        return NO_GENERATION
    (generation,) = _INT32.unpack_from(data)
    return generation
