"""What happens to a dead letter, and which offsets are done."""

from hypothesis import given
from hypothesis import strategies as st

from cases import Cases
from ottla.pipeline.redrive_decision import (
    Decision,
    Fate,
    HandledOffsets,
    Headers,
    Selection,
    decide,
    handled_offsets,
)


def headers(**values: str) -> list[tuple[str, bytes | None]]:
    every = {"pipeline": "p", "step": "s", "error": "not JSON", "topic": "t", "partition": "2"}
    every = {**every, "attempts": "1", **values}
    return [(f"ottla.{name}", value.encode()) for name, value in every.items() if value]


ALL = Selection("p")
CASES: list[tuple[Headers, Selection, Fate]] = [
    (headers(), ALL, Fate.REDRIVEN),
    (headers(pipeline="other"), ALL, Fate.OF_ANOTHER),
    ([], ALL, Fate.OF_ANOTHER),
    (headers(topic=""), ALL, Fate.NOT_POSSIBLE),
    (headers(), Selection("p", source="s"), Fate.REDRIVEN),
    (headers(), Selection("p", source="x"), Fate.NOT_SELECTED),
    (headers(), Selection("p", error="JSON"), Fate.REDRIVEN),
    (headers(), Selection("p", error="CSV"), Fate.NOT_SELECTED),
    (headers(attempts="5"), ALL, Fate.REDRIVEN),
    (headers(attempts="6"), ALL, Fate.PARKED),
    (headers(attempts="6"), Selection("p", source="x"), Fate.NOT_SELECTED),
    (headers(attempts="x"), ALL, Fate.REDRIVEN),
]


def test_headers_decide_about_a_dead_letter() -> None:
    cases = Cases()
    for given_headers, selection, fate in CASES:
        with cases.case(given_headers, selection):
            assert decide(given_headers, selection).fate is fate
    cases.check()


def test_record_goes_back_with_its_headers_and_its_attempts() -> None:
    found = decide([("trace", b"1"), ("none", None), *headers()], ALL)
    kept = [("trace", b"1"), ("none", None), ("ottla.attempts", b"1")]
    assert found == Decision(Fate.REDRIVEN, "t", 2, kept)


def test_parked_record_keeps_its_reason() -> None:
    every = headers(attempts="9")
    assert decide(every, ALL).headers == every


def test_offsets_become_ranges() -> None:
    found = HandledOffsets(3).with_offsets([9, 5, 6, 2, 12])
    assert (found.next, found.metadata()) == (3, "5-6,9,12")
    found = found.with_offsets([3, 4])
    assert (found.next, found.metadata()) == (7, "9,12")
    assert found.up_to(10) == HandledOffsets(10, ((12, 12),))
    assert found.up_to(12) == HandledOffsets(13)


def test_unknown_metadata_is_ignored() -> None:
    for text in ("", "x", "1-x", "-"):
        assert handled_offsets(7, text) == HandledOffsets(7)


def test_many_gaps_do_not_fit() -> None:
    assert HandledOffsets().with_offsets(range(1, 1000, 2)).fits
    assert not HandledOffsets().with_offsets(range(1, 10_000, 2)).fits


@given(st.lists(st.sets(st.integers(0, 40), max_size=10), max_size=5), st.integers(0, 20))
def test_committed_offsets_are_those_that_were_added(rounds: list[set[int]], start: int) -> None:
    found = HandledOffsets(start)
    for offsets in rounds:
        found = found.with_offsets(offsets)
        assert handled_offsets(found.next, found.metadata()) == found
    every = set(range(start)).union(*rounds)
    assert {offset for offset in range(50) if offset in found} == every
    assert found.next not in found
