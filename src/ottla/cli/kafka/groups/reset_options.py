"""Values of `kafka-consumer-groups --reset-offsets`: times, durations, CSV files.

Invariant: values that Java's tool accepts have the same meaning. Values that it rejects are
rejected with the same message.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from ottla.client.arguments import OFFSET_MAX, PARTITION_MAX
from ottla.client.partitions import Partition, partition
from ottla.errors import OttlaError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_TIME: Final = re.compile(
    r"(\d{1,4})-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})\.(\d{1,3})"
    r"(?:(Z)|([+-])(\d{2}):?(\d{2})?)",
    re.ASCII,
)
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?"
    r"(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
# Java's CSV writer always quotes strings that are longer than this.
_UNQUOTED_MAX: Final = 24
_UNQUOTED_MIN: Final = "-"  # the character after the comma


class BadReset(OttlaError):
    """A value cannot be parsed; the message is that of Java's tool."""


def datetime_ms(given: str) -> int:
    """Parse YYYY-MM-DDTHH:mm:SS.sss to milliseconds since 1970; UTC without a zone."""
    _, t, clock = given.partition("T")
    if not t or not clock:
        raise BadReset(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' "
            "according to ISO8601 format"
        )
    if not set("+-Z") & set(clock.partition("T")[0]):
        given += "Z"
    found = _DATE_TIME.match(given)  # like Java, ignores the text after it
    try:
        if found is None:
            raise ValueError
        year, month, day, hour, minute, second, milliseconds = map(int, found.groups()[:7])
        moment = datetime(year, month, day, hour, minute, second, tzinfo=_zone(found))
    except ValueError:
        raise BadReset(f'java.text.ParseException: Unparseable date: "{given}"') from None
    return (moment - _EPOCH) // timedelta(milliseconds=1) + milliseconds


def _zone(found: re.Match[str]) -> timezone:
    z, sign, hours, minutes = found.groups()[7:]
    if z:
        return UTC
    if int(hours) > 23 or int(minutes or 0) > 59:
        raise ValueError
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
    return timezone(-offset if sign == "-" else offset)


def duration_ms(given: str) -> int:
    """Parse PnDTnHnMnS to milliseconds."""
    found = _DURATION.fullmatch(given)
    if found is None or (found[3] or "").upper() == "T" or not any(found.group(2, 4, 5, 6)):
        raise BadReset("Text cannot be parsed to a Duration")
    days, hours, minutes, seconds = (int(one or 0) for one in found.group(2, 4, 5, 6))
    fraction_ns = int((found[7] or "").ljust(9, "0"))
    if (found[6] or "").startswith("-"):
        fraction_ns = -fraction_ns
    whole_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    total_ns = whole_s * 1_000_000_000 + fraction_ns
    return (-total_ns if found[1] == "-" else total_ns) // 1_000_000


Rows = Mapping[str, Mapping[Partition, int]]
"""Offsets by group and partition."""


def read_rows(text: str, groups: Iterable[str]) -> dict[str, dict[Partition, int]]:
    """Parse rows of group,topic,partition,offset; with one group, its column may be missing."""
    names = [*groups]
    lines = [row for row in csv.reader(text.splitlines()) if row]
    is_short = len(names) == 1 and bool(lines) and len(lines[0]) == 3 and _fits(lines[0])
    plan: dict[str, dict[Partition, int]] = {}
    for row in lines:
        try:
            if not is_short and len(row) == 3 and row[0] not in names:
                _number(row[2], PARTITION_MAX)
                continue  # Java takes it for a row of another group without an offset
            group, topic, number, offset = (*names, *row) if is_short else row
            where = partition(topic, _number(number, PARTITION_MAX))
            plan.setdefault(group, {})[where] = _offset(offset)
        except ValueError:
            raise BadReset(f"the plan has an invalid line: {','.join(row)}") from None
    return plan


def _fits(row: Sequence[str]) -> bool:
    """Whether the row is topic,partition,offset with numbers of Java's sizes."""
    try:
        _number(row[1].removeprefix("-"), PARTITION_MAX)
        _offset(row[2])
    except ValueError:
        return False
    return True


def _number(text: str, most: int) -> int:
    number = int(text)
    if not 0 <= number <= most:
        raise ValueError(f"{text} is not from 0 to {most}")
    return number


def _offset(text: str) -> int:
    number = int(text)
    if abs(number) > OFFSET_MAX:
        raise ValueError(f"{text} has more than 64 bits")
    return number


def written_rows(plan: Rows, *, with_group: bool) -> list[str]:
    """Format a plan as CSV rows."""
    return [
        ",".join((*([_quoted(group)] if with_group else []), _quoted(topic), str(number), str(at)))
        for group, offsets in plan.items()
        for (topic, number), at in offsets.items()
    ]


def _quoted(text: str) -> str:
    if len(text) <= _UNQUOTED_MAX and all(one >= _UNQUOTED_MIN for one in text):
        return text
    return '"{}"'.format(text.replace('"', '""'))
