"""Times in results.

Invariant: a time is UTC, as 2026-11-01T00:00:00.000Z.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(time_ms: int | None) -> str | None:
    """Format a time; None for none and for one outside the calendar."""
    if time_ms is None:
        return None
    try:
        found = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None
    return found.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
