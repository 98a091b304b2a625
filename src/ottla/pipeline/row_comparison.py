"""Compares the rows that a test expects with the rows that a query has returned.

Invariant: rows are compared in any order, and each row that was found meets at most one that was
expected. A column that the expected row does not name is not compared.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isclose
from typing import Any, Final, NamedTuple, TypeAlias, cast

Row: TypeAlias = Mapping[str, Any]

ROWS_SHOWN_MAX: Final = 10
_RELATIVE: Final = 1e-9


class RowDifference(NamedTuple):
    """Expected rows that were not found, and found rows that were not expected."""

    expected_count: int
    found_count: int
    missing: Sequence[Row]
    unexpected: Sequence[Row]

    def lines(self) -> Iterator[str]:
        """Return the difference for people: - is missing, + is unexpected."""
        named = {name for row in self.missing for name in row}
        pairs, others = _paired(self.missing, self.unexpected)
        yield f"expected {_rows(self.expected_count)}, found {self.found_count}"
        shown = 0
        for missing, unexpected in pairs:
            yield f"  - {row_text(missing)}"
            if unexpected is not None:
                yield f"  + {row_text(_only(unexpected, named))}"
            shown += 1
            if shown == ROWS_SHOWN_MAX:
                break
        for row in others[: ROWS_SHOWN_MAX - shown]:
            yield f"  + {row_text(_only(row, named))}"
        hidden = len(pairs) + len(others) - shown - len(others[: ROWS_SHOWN_MAX - shown])
        if hidden > 0:
            yield f"  and {hidden} more"


def compare_rows(expected: Sequence[Row], found: Sequence[Row]) -> RowDifference | None:
    """Return how rows differ; None if they are as expected."""
    candidates = [[at for at, row in enumerate(found) if is_same(one, row)] for one in expected]
    partner: dict[int, int] = {}  # of found rows, the expected row

    def place(number: int, tried: set[int]) -> bool:
        """Find a row for an expected one, and move others to another row if that is needed."""
        for at in candidates[number]:
            if at in tried:
                continue
            tried.add(at)
            if at not in partner or place(partner[at], tried):
                partner[at] = number
                return True
        return False

    missing = [one for number, one in enumerate(expected) if not place(number, set())]
    unexpected = [row for at, row in enumerate(found) if at not in partner]
    if not missing and not unexpected:
        return None
    return RowDifference(len(expected), len(found), missing, unexpected)


def is_same(expected: object, found: object) -> bool:
    """Whether a value is the expected one.

    Numbers may differ by a rounding error. Texts are also the same if both are the same time. A
    struct or map has at least the fields that are expected.
    """
    if isinstance(expected, bool) or isinstance(found, bool) or expected is None or found is None:
        return expected is found
    if isinstance(expected, int) and isinstance(found, int):
        return expected == found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return isclose(expected, found, rel_tol=_RELATIVE, abs_tol=_RELATIVE)
    if isinstance(expected, str) and isinstance(found, str):
        return expected == found or _is_same_time(expected, found)
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        fields, values = cast("Row", expected), cast("Row", found)
        return all(name in values and is_same(fields[name], values[name]) for name in fields)
    if isinstance(expected, list) and isinstance(found, list):
        wanted, given = cast("list[object]", expected), cast("list[object]", found)
        return len(wanted) == len(given) and all(map(is_same, wanted, given))
    return False


def row_text(row: Row) -> str:
    """Return a row on one line, as JSON with the names of its columns."""
    return json.dumps(row, ensure_ascii=False, default=str)


def _is_same_time(expected: str, found: str) -> bool:
    times = [_time(text) for text in (expected, found)]
    return times[0] is not None and times[0] == times[1]


def _time(text: str) -> datetime | None:
    """Return the time that a text is; without a time zone it is in UTC, as in the session."""
    if len(text) < len("2026-01-01T00:00"):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _paired(
    missing: Sequence[Row], unexpected: Sequence[Row]
) -> tuple[list[tuple[Row, Row | None]], list[Row]]:
    """Return each missing row with the most similar unexpected one, and the other rows."""
    left = [*unexpected]
    pairs: list[tuple[Row, Row | None]] = []
    for row in missing:
        near = max(left, key=lambda one: _same_fields(row, one), default=None)
        if near is not None:
            left = [one for one in left if one is not near]
        pairs.append((row, near))
    return pairs, left


def _same_fields(expected: Row, found: Row) -> int:
    return sum(name in found and is_same(value, found[name]) for name, value in expected.items())


def _only(row: Row, names: set[str]) -> Row:
    """Return the columns that are compared; all of them if none is named."""
    kept = {name: value for name, value in row.items() if name in names}
    return kept or row


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
