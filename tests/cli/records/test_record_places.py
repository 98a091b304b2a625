"""Start and end of reading."""

from cases import each_case
from cli.records.harness import WHERE, taken_of
from ottla.cli.offsets.positions import parse_position
from ottla.cli.records.places import Limits, places


@each_case(
    ("said", "place"),
    [
        ("start", 10), ("end", 30), ("15", 15), ("3", 10), ("99", 30), ("-5", 25), ("-500", 10),
        ("+5", 15), ("+500", 30), ("@1000", 17), ("@now", 17),
    ],
)  # fmt: skip
def test_position_is_limited_to_the_partition(said: str, place: int) -> None:
    position = parse_position(said, 5000)
    assert places(position, {WHERE: 10}, {WHERE: 30}, {WHERE: 17}) == {WHERE: place}


def test_time_after_the_last_record_is_the_end() -> None:
    assert places(parse_position("@1000", 0), {WHERE: 10}, {WHERE: 30}, {}) == {WHERE: 30}


def test_reading_stops_after_the_requested_count() -> None:
    taken = taken_of([(0, None, b"x", ())] * 5)
    limits = Limits(left=7)
    assert limits.rows(taken) == 5
    assert not limits.is_reached
    assert limits.rows(taken) == 2
    assert limits.is_reached


def test_reading_stops_at_the_end() -> None:
    taken = taken_of([(0, None, b"x", ())] * 5)
    limits = Limits(ends={WHERE: 3})
    assert limits.rows(taken) == 3
    assert limits.is_reached
    assert Limits(ends={}).is_reached
    further = Limits(ends={WHERE: 9})
    assert further.rows(taken) == 5
    assert not further.is_reached


def test_finished_partition_is_not_read() -> None:
    assert Limits(ends={}).rows(taken_of([(0, None, b"x", ())])) == 0


def test_reading_continues_without_limits() -> None:
    limits = Limits()
    assert limits.rows(taken_of([(0, None, b"x", ())] * 5)) == 5
    assert not limits.is_reached
