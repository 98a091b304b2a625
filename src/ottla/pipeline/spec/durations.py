"""Durations as people write them: 5 seconds, 500 ms, 1 hour 30 minutes.

Invariant: a duration has a fixed length, so months and years are refused.
"""

import re
from typing import Final

from ottla.pipeline.spec.problems import did_you_mean, listed, shown

_UNITS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_SHORT: Final = {"ms": 1, "s": 1_000, "sec": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_MS: Final = {**_UNITS, **{f"{unit}s": ms for unit, ms in _UNITS.items()}, **_SHORT}
_PART: Final = re.compile(r"\s*([0-9]+)\s*([A-Za-zµ]*)\s*")
_EXAMPLE: Final = "write it as 5 seconds or 1 hour 30 minutes"


class BadDuration(ValueError):
    """A text that is not a duration."""


def duration_ms(text: str) -> int:
    """Parse a duration to milliseconds; raises BadDuration."""
    total, at = 0, 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            break
        number, unit = found[1], found[2].lower()
        if not unit:
            raise BadDuration(f"{shown(text)} has no unit: {_EXAMPLE}")
        if unit in ("month", "months", "year", "years"):
            raise BadDuration(f"{shown(text)}: a {unit.rstrip('s')} has no fixed length: use days")
        if unit not in _MS:
            hint = did_you_mean(unit, _MS) or f"; use {listed((f'{one}s' for one in _UNITS), 'or')}"
            raise BadDuration(f"{shown(text)}: unknown unit {unit}{hint}")
        total += int(number) * _MS[unit]
        at = found.end()
    if at == 0 or at < len(text):
        raise BadDuration(f"{shown(text)} is not a duration: {_EXAMPLE}")
    return total
