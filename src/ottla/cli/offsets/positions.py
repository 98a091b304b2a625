"""Parses positions in a partition on a command line.

Invariant: text that is not a position raises BadPosition. A time is never before 1970, because
negative timestamps have other meanings in ListOffsets.

    start, end        the first record, and the end after the last one
    42                the record with this offset
    -10, +10          this many records before or after a point that depends on the command
    @2026-11-01T00:00 the first record at or after a time; UTC unless a zone such as +01:00 follows
    @2026-11-01       the same, at midnight
    @1793491200000    the same, in milliseconds since 1970
    @-1h, @-1h30m     the same, relative to now; units are w, d, h, m, s and ms
    @now              the first record from now on
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from ottla.errors import OttlaError

OFFSET_MAX: Final = 2**63 - 1

FORMS: Final = "use start, end, an offset, -10, +10, @2026-11-01T00:00 or @-1h"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_UNITS_MS: Final = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
_NUMBER: Final = re.compile(r"([+-]?)([0-9]{1,19})")
_PART: Final = re.compile(r"([0-9]{1,15})(ms|[wdhms])")
_SPAN: Final = re.compile(rf"-((?:{_PART.pattern})+)")


class BadPosition(OttlaError):
    """The text is not a position; the message lists valid ones."""


class PositionKind(StrEnum):
    """What a position is relative to."""

    START = "start"
    END = "end"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a partition."""

    kind: PositionKind
    value: int = 0
    """The offset, the number of records, or milliseconds since 1970; 0 for START and END."""


START: Final = Position(PositionKind.START)
END: Final = Position(PositionKind.END)


def parse_position(text: str, now_ms: int) -> Position:
    """Parse a position; raises BadPosition."""
    if text == PositionKind.START:
        return START
    if text == PositionKind.END:
        return END
    if text.startswith("@"):
        return Position(PositionKind.TIME, parse_time(text[1:], now_ms))
    if (found := _NUMBER.fullmatch(text)) is None:
        raise BadPosition(f"{text!r} is not a position: {FORMS}")
    sign, digits = found.groups()
    if (number := int(digits)) > OFFSET_MAX:
        raise BadPosition(f"{text!r} is not a position: the maximum offset is {OFFSET_MAX}")
    if sign:
        return Position(PositionKind.SHIFT, -number if sign == "-" else number)
    return Position(PositionKind.OFFSET, number)


def parse_time(text: str, now_ms: int) -> int:
    """Parse a time after the @ to milliseconds since 1970."""
    if text == "now":
        return now_ms
    if text.isascii() and text.isdecimal():
        found_ms = int(text) if len(text) <= 19 else OFFSET_MAX + 1
    elif (span := _SPAN.fullmatch(text)) is not None:
        parts = _PART.findall(span[1])
        found_ms = now_ms - sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
    else:
        found_ms = _calendar_ms(text)
    if not 0 <= found_ms <= OFFSET_MAX:
        raise BadPosition(f"'@{text}' is not a valid time: before 1970 or after {OFFSET_MAX} ms")
    return found_ms


def _calendar_ms(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadPosition(
            f"'@{text}' is not a time: use @2026-11-01T00:00, with a zone if it is not UTC, or "
            "@-1h30m"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - _EPOCH) // _MILLISECOND
