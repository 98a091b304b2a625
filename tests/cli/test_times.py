"""Times in results."""

from cases import each_case
from ottla.cli.times import time_text


@each_case(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_793_577_600_007, "2026-11-02T00:00:00.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (None, None),
        (2**63 - 1, None),  # records may have it, but it is outside the calendar
    ],
)
def test_time_is_formatted_in_utc(time_ms: int | None, text: str | None) -> None:
    assert time_text(time_ms) == text
