"""Rows that a declared test expects, against rows that were found."""

from typing import Any

from cases import Cases
from ottla.pipeline.row_comparison import compare_rows, is_same

VALUES: list[tuple[Any, Any, bool]] = [
    (20, 20.0, True),
    (0.3, 0.1 + 0.2, True),
    (20, 20.001, False),
    (2**60, 2**60 + 1, False),
    (1, True, False),
    (True, True, True),
    (None, None, True),
    (None, 0, False),
    (20, "20", False),
    ("a", "a", True),
    ("2026-01-01T00:00:10", "2026-01-01T00:00:10.000Z", True),
    ("2026-01-01 01:00:10+01:00", "2026-01-01T00:00:10.000Z", True),
    ("2026-01-01T00:00:11", "2026-01-01T00:00:10.000Z", False),
    ("2026-01-01", "2026-01-01", True),
    ({"a": 1}, {"a": 1, "b": 2}, True),
    ({"a": 1, "c": None}, {"a": 1, "b": 2}, False),
    ([1, {"a": 1}], [1, {"a": 1, "b": 2}], True),
    ([1], [1, 2], False),
    ({"a": 1}, [1], False),
]


def test_values_are_compared_as_people_mean_them() -> None:
    cases = Cases()
    for expected, found, same in VALUES:
        with cases.case(expected, found):
            assert is_same(expected, found) is same
    cases.check()


def test_rows_are_compared_in_any_order() -> None:
    found = [{"a": 1, "b": 2}, {"a": 2, "b": 3}]
    assert compare_rows([{"a": 2}, {"a": 1}], found) is None


def test_row_with_few_columns_leaves_others_their_row() -> None:
    """{"a": 1} fits both rows, and the other expected row only the first."""
    found = [{"a": 1, "b": 1}, {"a": 1, "b": 2}]
    assert compare_rows([{"a": 1}, {"a": 1, "b": 1}], found) is None
    assert compare_rows([{"a": 1}, {"a": 1}, {"a": 1}], found) is not None


def lines(expected: list[Any], found: list[Any]) -> list[str]:
    difference = compare_rows(expected, found)
    assert difference is not None
    return [*difference.lines()]


def test_difference_shows_the_nearest_row_with_the_named_columns() -> None:
    expected = [{"device": "a", "mean": 20}, {"device": "b", "mean": 1}]
    found = [
        {"device": "b", "mean": 2, "n": 1},
        {"device": "a", "mean": 21.5, "n": 3},
        {"device": "c", "mean": 0, "n": 3},
    ]
    assert lines(expected, found) == [
        "expected 2 rows, found 3",
        '  - {"device": "a", "mean": 20}',
        '  + {"device": "a", "mean": 21.5}',
        '  - {"device": "b", "mean": 1}',
        '  + {"device": "b", "mean": 2}',
        '  + {"device": "c", "mean": 0}',
    ]


def test_rows_where_none_are_expected_are_shown_whole() -> None:
    assert lines([], [{"a": 1, "b": "ü"}]) == ["expected 0 rows, found 1", '  + {"a": 1, "b": "ü"}']


def test_equal_rows_count_as_often_as_they_are_there() -> None:
    row = {"a": 1}
    assert lines([row], [row, row]) == ["expected 1 row, found 2", '  + {"a": 1}']


def test_long_difference_is_cut() -> None:
    found = lines([], [{"a": number} for number in range(25)])
    assert len(found) == 12
    assert found[-1] == "  and 15 more"
