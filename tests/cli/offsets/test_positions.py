"""Positions on a command line."""

import pytest

from cases import each_case
from ottla.cli.offsets.positions import (
    END,
    START,
    BadPosition,
    Position,
    PositionKind,
    parse_position,
    parse_time,
)

NOW_MS = 1_793_577_600_000  # 2026-11-02T00:00Z
HOUR_MS = 3_600_000


@each_case(
    ("text", "position"),
    [
        ("start", START),
        ("end", END),
        ("0", Position(PositionKind.OFFSET, 0)),
        ("9223372036854775807", Position(PositionKind.OFFSET, 2**63 - 1)),
        ("-10", Position(PositionKind.SHIFT, -10)),
        ("+10", Position(PositionKind.SHIFT, 10)),
        ("-0", Position(PositionKind.SHIFT, 0)),
        ("@2026-11-01T00:00", Position(PositionKind.TIME, NOW_MS - 24 * HOUR_MS)),
        ("@-1h", Position(PositionKind.TIME, NOW_MS - HOUR_MS)),
    ],
)
def test_position_is_parsed(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


@each_case(
    ("text", "time_ms"),
    [
        ("2026-11-02", NOW_MS),
        ("2026-11-02T00:00", NOW_MS),
        ("2026-11-02 01:00:00", NOW_MS + HOUR_MS),
        ("2026-11-02T00:00:00.25Z", NOW_MS + 250),
        ("2026-11-02T00:00+01:00", NOW_MS - HOUR_MS),
        ("1793577600000", NOW_MS),
        ("0", 0),
        ("1970-01-01", 0),
        ("now", NOW_MS),
        ("-1h30m", NOW_MS - HOUR_MS - HOUR_MS // 2),
        ("-2w1d", NOW_MS - 15 * 24 * HOUR_MS),
        ("-10s", NOW_MS - 10_000),
        ("-1s5ms", NOW_MS - 1_005),
    ],
)
def test_time_is_parsed(text: str, time_ms: int) -> None:
    assert parse_time(text, NOW_MS) == time_ms


@each_case(
    "text",
    [
        "",
        "begin",
        "START",
        "1.5",
        "1_000",
        "--1",
        "+",
        "\u0661",  # a digit, but not an ASCII one
        "9223372036854775808",
        "-9223372036854775808",
        "@",
        "@yesterday",
        "@-",
        "@-1",
        "@-1y",
        "@-h",
        "@+1h",
        "@-1h ",
        "@1969-12-31T23:59:59.999Z",  # -1 means the end in ListOffsets
        "@-9999w",
        "@2026-13-01",
        "@2026-11-01T25:00",
        "@99999999999999999999",
        " 1",
    ],
)
def test_invalid_position_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadPosition) as refused:
        parse_position(text, NOW_MS)
    assert repr(text) in str(refused.value)
    assert "\n" not in str(refused.value)
