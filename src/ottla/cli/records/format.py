r"""Formats records by a template such as `%t %p %o %k %v\n`.

Invariant: the bytes of one stretch of records are joined once. An invalid template raises BadFormat
before anything is read.

    %t topic   %p partition   %o offset   %T timestamp in ms   %d the same as a date in UTC
    %k key     %v value (or %s)   %h headers as a=1,b=2
    %K size of the key   %V size of the value (or %S)   -1 for null
    %e leader epoch      %% a percent sign    \n \t \r \0 \\ \x1f   characters
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Final, TypeAlias

from ottla.cli.records.cells import Cells
from ottla.cli.records.forms import ToBytes
from ottla.errors import OttlaError

DEFAULT: Final = "%v\\n"

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECE: Final = re.compile(
    r"%(?P<field>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+)|(?P<bad>.)",
    re.DOTALL,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Column: TypeAlias = "bytes | list[bytes]"
"""One value for all records, or one per record."""


class BadFormat(OttlaError):
    """An invalid format."""


@dataclass(frozen=True, slots=True)
class Looks:
    """How parts are converted to bytes (None: as they are), and the text for null."""

    key: ToBytes | None = None
    value: ToBytes | None = None
    null: bytes = b"null"
    header_value: ToBytes | None = None
    header_is: bytes = b"="
    header_and: bytes = b","
    no_headers: bytes = b""


Part: TypeAlias = "bytes | Callable[[Cells, Looks], Column]"


def parse(text: str) -> Sequence[Part]:
    """Parse a format; raises BadFormat."""
    parts: list[Part] = []
    for found in _PIECE.finditer(text):
        kind = found.lastgroup
        assert kind is not None
        said = found[kind]
        if kind == "text":
            parts.append(said.encode("utf-8", "surrogateescape"))
        elif kind == "hex":
            parts.append(bytes.fromhex(said))
        elif kind == "field" and said == "%":
            parts.append(b"%")
        elif kind == "field" and said in FIELDS:
            parts.append(FIELDS[said])
        elif kind == "escape" and said in _ESCAPES:
            parts.append(_ESCAPES[said])
        else:
            known = " ".join(f"%{one}" for one in FIELDS)
            raise BadFormat(f"{found[0]!r} is not valid in a format, use {known} %% \\n \\t \\x1f")
    return parts


def rendered(parts: Sequence[Part], looks: Looks, cells: Cells) -> bytes:
    """Format records."""
    columns: list[Column] = []
    for part in parts:
        column = part if isinstance(part, bytes) else part(cells, looks)
        if isinstance(column, bytes) and columns and isinstance(columns[-1], bytes):
            columns[-1] += column
        else:
            columns.append(column)
    match columns:
        case []:
            return b""
        case [bytes(same)]:
            return same * cells.count
        case [list(only), bytes(end)]:
            only.append(b"")
            return end.join(only)
        case _:
            each: list[Iterable[bytes]] = [
                repeat(one, cells.count) if isinstance(one, bytes) else one for one in columns
            ]
            return b"".join(chain.from_iterable(zip(*each, strict=True)))


def numbers(found: list[int]) -> list[bytes]:
    """Format numbers."""
    # Formatting a whole list is faster than its numbers one by one.
    return repr(found)[1:-1].encode().split(b", ")


def printed(data: list[bytes | None], make: ToBytes | None, null: bytes) -> list[bytes]:
    """Convert bytes for printing."""
    if make is None:
        return [null if one is None else one for one in data]
    return [null if one is None else make(one) for one in data]


def header_texts(cells: Cells, looks: Looks) -> list[bytes]:
    """Format the headers of each record."""
    make = looks.header_value or bytes
    return [
        looks.header_and.join(
            name + looks.header_is + (looks.null if value is None else make(value))
            for name, value in pairs
        )
        or looks.no_headers
        for pairs in cells.headers()
    ]


def _topic(cells: Cells, looks: Looks) -> Column:
    return cells.partition.topic.encode()


def _partition(cells: Cells, looks: Looks) -> Column:
    return b"%d" % cells.partition.partition


def _offset(cells: Cells, looks: Looks) -> Column:
    return numbers(cells.offsets())


def _timestamp(cells: Cells, looks: Looks) -> Column:
    return numbers(cells.timestamps())


def _date(cells: Cells, looks: Looks) -> Column:
    return [date_of(ms).encode() for ms in cells.timestamps()]


def date_of(ms: int) -> str:
    """Format a timestamp in UTC; a number outside the calendar."""
    try:
        found = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _epoch(cells: Cells, looks: Looks) -> Column:
    return numbers(cells.epochs())


def _key(cells: Cells, looks: Looks) -> Column:
    return printed(cells.keys(), looks.key, looks.null)


def _value(cells: Cells, looks: Looks) -> Column:
    return printed(cells.values(), looks.value, looks.null)


def _key_size(cells: Cells, looks: Looks) -> Column:
    return _sizes(cells.keys())


def _value_size(cells: Cells, looks: Looks) -> Column:
    return _sizes(cells.values())


def _sizes(data: list[bytes | None]) -> list[bytes]:
    return numbers([-1 if one is None else len(one) for one in data])


FIELDS: Final[Mapping[str, Callable[[Cells, Looks], Column]]] = {
    "t": _topic,
    "p": _partition,
    "o": _offset,
    "k": _key,
    "v": _value,
    "s": _value,
    "h": header_texts,
    "T": _timestamp,
    "d": _date,
    "e": _epoch,
    "K": _key_size,
    "V": _value_size,
    "S": _value_size,
}
