"""Plan of a seek: new offsets, skipped and repeated records."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.cli.group.seek_plan import Aim, Bounds, Limit, Move, NothingCommitted, planned
from ottla.cli.offsets.positions import END, START, Position, PositionKind

WHERE = ("orders", 0)
BOUNDS = Bounds(10, 20)


def move(aim: Aim, before: int | None, found: int | None = None) -> Move:
    (one,) = planned({WHERE: aim}, {WHERE: before}, {WHERE: BOUNDS}, {WHERE: found})
    return one


def offset(value: int) -> Position:
    return Position(PositionKind.OFFSET, value)


def shift(value: int) -> Position:
    return Position(PositionKind.SHIFT, value)


TIME = Position(PositionKind.TIME, 1)


@each_case(
    ("aim", "before", "found", "after", "limit"),
    [
        (START, 15, None, 10, None),
        (END, 15, None, 20, None),
        (offset(12), 15, None, 12, None),
        (offset(20), 15, None, 20, None),
        (offset(21), 15, None, 20, Limit.END),
        (offset(9), 15, None, 10, Limit.START),
        (offset(-1), None, None, 10, Limit.START),
        (shift(3), 15, None, 18, None),
        (shift(-3), 15, None, 12, None),
        (shift(99), 15, None, 20, Limit.END),
        (shift(-99), 15, None, 10, Limit.START),
        (shift(1), 3, None, 10, Limit.START),  # its offset was deleted
        (TIME, 15, 13, 13, None),
        (TIME, 15, None, 20, Limit.NO_LATER),
        (None, 15, None, 15, None),
        (None, 3, None, 3, None),  # stays, although the offset was deleted
        (None, None, None, 20, None),
    ],
)
def test_move_reaches_its_target_within_limits(
    aim: Aim, before: int | None, found: int | None, after: int, limit: Limit | None
) -> None:
    one = move(aim, before, found)
    assert (one.before, one.after, one.limit) == (before, after, limit)
    assert (one.wanted is not None) == (limit in (Limit.START, Limit.END))


@each_case(
    ("before", "after", "skipped", "again"),
    [
        (15, 18, 3, 0),
        (15, 12, 0, 3),
        (15, 15, 0, 0),
        (None, 20, 0, 0),
        (3, 12, 2, 0),  # deleted records are not skipped
        (3, 10, 0, 0),
        (25, 20, 0, 0),  # there are no records after the end
        (25, 18, 0, 2),
    ],
)
def test_skipped_and_repeated_records_are_counted(
    before: int | None, after: int, skipped: int, again: int
) -> None:
    one = Move(WHERE, before, after, BOUNDS)
    assert (one.skipped, one.again) == (skipped, again)


def test_shift_requires_a_committed_offset() -> None:
    with pytest.raises(NothingCommitted, match="no committed offset for orders-0"):
        move(shift(-1), None)


def test_moves_are_sorted_by_partition() -> None:
    places = [("b", 0), ("a", 10), ("a", 2)]
    bounds = dict.fromkeys(places, BOUNDS)
    found = planned(dict.fromkeys(places, START), {}, bounds, {})
    assert [one.partition for one in found] == [("a", 2), ("a", 10), ("b", 0)]


@given(
    st.sampled_from([offset, shift]),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**62),
    st.integers(0, 1000),
    st.integers(0, 1000),
)
def test_moves_stay_within_the_partition(
    kind: Callable[[int], Position], value: int, before: int, start: int, size: int
) -> None:
    bounds = Bounds(start, start + size)
    (one,) = planned({WHERE: kind(value)}, {WHERE: before}, {WHERE: bounds}, {})
    assert bounds.start <= one.after <= bounds.end
    assert one.skipped == 0 or one.again == 0
    assert one.skipped <= size
    assert one.again <= size
