"""Generates message values from the schemas, with a preference for edge cases.

Hypothesis passes a Random whose choices it can shrink. The fuzz tests pass a seeded Random, which
is many times as fast.
"""

import struct
from collections.abc import Callable, Iterator
from itertools import chain
from random import Random
from types import ModuleType
from typing import Any, Final

from hypothesis import strategies as st

from ottla.ids import ZERO_UUID, Uuid
from ottla.log import producer_snapshot
from ottla.protocol import consumer_protocol, offsets_topic, transactions_topic
from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.message import Message
from ottla.protocol.schema import Field, Kind, Struct


def _messages_in(module: ModuleType) -> Iterator[type[Message]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Message) and value is not Message:
            yield value


API_MESSAGES: Final = tuple(
    chain.from_iterable((api.request, api.response) for api in API_OF_KEY.values())
)
CONSUMER_PROTOCOL: Final = tuple(_messages_in(consumer_protocol))
STORED: Final = tuple(
    chain.from_iterable(map(_messages_in, (offsets_topic, transactions_topic, producer_snapshot)))
)
MESSAGES: Final = API_MESSAGES + CONSUMER_PROTOCOL + STORED


def name_of(cls: type[Message]) -> str:
    """The id of a test parameter for a message."""
    return cls.__name__


# The sizes at which an encoding or a path through the codecs changes. 16 elements are the last that
# a precomputed layout holds; 126 and 127 are on both sides of the second byte of a varint.
LENGTHS: Final = (0, 1, 2, 3, 15, 16, 17, 18, 40, 126, 127, 128, 200)
LENGTHS_INSIDE: Final = (0, 1, 2, 16, 17)
LENGTHS_DEEP: Final = (0, 1, 2)

_INTEGERS: Final = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
}
_EDGES: Final = (0, 1, -1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1)
_FLOATS: Final = (0.0, -0.0, 1.0, -1.5, 1e308, 5e-324, float("inf"), float("-inf"))
_TEXTS: Final = (
    "",
    "a",
    "\0",
    "a\0b",
    "orders",
    "été",
    "\u20ac",
    "\U0001f600",
    "\U0010ffff\uffff\ud7ff\ue000",
    "x" * 126,
    "x" * 127,
    "x" * 128,
    "\u00e9" * 63 + "y",
)
_LONG_TEXTS: Final = ("z" * 16_383, "z" * 32_767, "\u20ac" * 10_922 + "z")


def integer(random: Random, kind: Kind) -> int:
    """A number of the type: an edge case, a small one, or any."""
    low, high = _INTEGERS[kind]
    match random.randrange(4):
        case 0:
            return random.choice((low, low + 1, high - 1, high))
        case 1:
            edge = random.choice(_EDGES)
            return edge if low <= edge <= high else high
        case 2:
            return random.randrange(100)
        case _:
            return random.randrange(low, high + 1)


def text(random: Random) -> str:
    """Any valid UTF-8 text of at most 32,767 bytes, rarely a long one."""
    match random.randrange(8):
        case 0 | 1 | 2 | 3:
            return random.choice(_TEXTS)
        case 4 if random.randrange(24) == 0:
            return random.choice(_LONG_TEXTS)
        case _:
            points = (random.randrange(0x110000 - 0x800) for _ in range(random.randrange(9)))
            return "".join(chr(p if p < 0xD800 else p + 0x800) for p in points)


def octets(random: Random) -> bytes:
    """Any bytes: empty, short, or long enough for a longer length field."""
    length = random.choice((0, 1, 3, 17, 126, 127, 128, 300))
    piece = random.randbytes(min(length, 17))
    return (piece * (length // 17 + 1))[:length]


def uuid(random: Random) -> Uuid:
    """Sixteen bytes, sometimes all zero."""
    return ZERO_UUID if random.randrange(4) == 0 else Uuid(random.randbytes(16))


_PLAIN: Final[dict[Kind, Callable[[Random], object]]] = {
    Kind.BOOL: lambda random: random.randrange(2) == 1,
    Kind.FLOAT64: lambda random: random.choice(_FLOATS),
    Kind.UUID: uuid,
    Kind.STRING: text,
    Kind.BYTES: octets,
    Kind.RECORDS: octets,
}


def _plain(random: Random, kind: Kind) -> object:
    if kind in _INTEGERS:
        return integer(random, kind)
    return _PLAIN[kind](random)


def _array(random: Random, field: Field, version: int, depth: int) -> tuple[object, ...]:
    assert field.element is not None
    lengths = LENGTHS if depth == 0 else LENGTHS_INSIDE if depth == 1 else LENGTHS_DEEP
    length = random.choice(lengths)
    # A few elements, repeated, so that long arrays need few random choices. A long array contains
    # only short ones.
    inside = depth + (1 if length < 4 else 2)
    made = tuple(
        _plain(random, field.element)
        if field.struct is None
        else structure(random, field.struct, version, inside)
        for _ in range(min(length, 3 if depth < 2 else 1))
    )
    return (made * (length // len(made) + 1))[:length] if made else ()


def _value(random: Random, field: Field, version: int, depth: int) -> object:
    if version in field.nullable and random.randrange(4) == 0:
        return None
    if field.kind is Kind.ARRAY:
        return _array(random, field, version, depth)
    if field.kind is not Kind.STRUCT:
        return _plain(random, field.kind)
    assert field.struct is not None
    made = structure(random, field.struct, version, depth + 1)
    # On the wire, a tagged structure with only defaults equals a missing one.
    unsaid = version in field.tagged and field.default is None and made == field.struct()
    return None if unsaid else made


def structure(random: Random, cls: type[Struct], version: int, depth: int = 0) -> Struct:
    """A structure with all fields of the version, and defaults for the others."""
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        if version in field.tagged and random.randrange(2) == 0:
            continue  # the default: the field is not sent
        values[field.name] = _value(random, field, version, depth)
    return cls(**values)


def message(random: Random, cls: type[Message], version: int) -> Message:
    """A message that the version can carry."""
    made = structure(random, cls, version)
    assert isinstance(made, cls)
    return made


def messages(cls: type[Message]) -> st.SearchStrategy[tuple[int, Message]]:
    """A version of a message, and a value that the version can carry."""

    def made(random: Random, version: int) -> tuple[int, Message]:
        return version, message(random, cls, version)

    return st.builds(made, st.randoms(use_true_random=False), st.sampled_from([*cls.VERSIONS]))


def example(cls: type[Message], version: int, seed: int = 0) -> Message:
    """A message that is the same in every run, with every array and every tagged field."""
    random = Random(f"{cls.__name__} {version} {seed}")
    made = _full(random, cls, version)
    assert isinstance(made, cls)
    return made


def _full(random: Random, cls: type[Struct], version: int) -> Struct:
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        if field.kind is Kind.ARRAY:
            assert field.element is not None
            values[field.name] = tuple(
                _full(random, field.struct, version)
                if field.struct is not None
                else _short(random, field.element)
                for _ in range(2)
            )
        elif field.kind is Kind.STRUCT:
            assert field.struct is not None
            values[field.name] = _full(random, field.struct, version)
        else:
            values[field.name] = _short(random, field.kind)
    return cls(**values)


def _short(random: Random, kind: Kind) -> object:
    if kind is Kind.STRING:
        return "".join(random.choices("abcé", k=random.randrange(1, 5)))
    if kind in (Kind.BYTES, Kind.RECORDS):
        return random.randbytes(random.randrange(1, 6))
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        return random.randrange(max(low, -1000), min(high, 1000))
    return True if kind is Kind.BOOL else _plain(random, kind)


def varint(value: int) -> bytes:
    """An unsigned varint, implemented again so that tests do not rely on the code under test."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + struct.pack(">B", value)
