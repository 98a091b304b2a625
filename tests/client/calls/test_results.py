"""Results: looking at a failed element raises, and no error is hidden."""

from collections.abc import Callable, Sequence

import pytest

from ottla.client.admin import Listing, Results
from ottla.client.calls.results import check, or_none, refused, settled
from ottla.errors import ErrorCode, RequestError

WRONG = RequestError(ErrorCode.INVALID_CONFIG, "b: it is wrong")
BOTH = Results[str, int]({"a": 1, "b": WRONG})


def test_reading_a_failed_element_raises() -> None:
    assert BOTH["a"] == 1
    with pytest.raises(RequestError, match="it is wrong"):
        assert BOTH["b"]
    with pytest.raises(KeyError):
        assert BOTH["c"]
    with pytest.raises(RequestError, match="it is wrong"):
        list(BOTH.items())
    with pytest.raises(RequestError, match="it is wrong"):
        BOTH.or_raise()
    with pytest.raises(RequestError, match="it is wrong"):
        assert BOTH.get("b", 7)


def test_failed_and_succeeded_elements_are_separate() -> None:
    assert [*BOTH] == ["a", "b"]
    assert len(BOTH) == 2
    assert "b" in BOTH
    assert "c" not in BOTH
    assert BOTH.succeeded == {"a": 1}
    assert BOTH.failed == {"b": WRONG}
    assert Results[str, int]({"a": 1}).or_raise() == {"a": 1}
    assert "it is wrong" in repr(BOTH)


def test_incomplete_listing_raises() -> None:
    assert [*Listing(("a",), {})] == ["a"]
    part = Listing(("a",), {2: WRONG})
    assert part.found == ("a",)
    looks: list[Callable[[], object]] = [
        lambda: list(part),
        lambda: len(part),
        lambda: bool(part),
        lambda: part[0],
        lambda: part[:1],
        lambda: "a" in part,
        lambda: [*reversed(part)],
    ]
    for look in looks:
        with pytest.raises(RequestError, match="it is wrong"):
            look()


def test_listing_is_a_sequence() -> None:
    listing = Listing(("a", "b", "a"), {})
    assert isinstance(listing, Sequence)
    assert len(listing) == 3
    assert (listing[0], listing[-2], listing[1:]) == ("a", "b", ("b", "a"))
    assert [*reversed(listing)] == ["a", "b", "a"]
    assert "b" in listing
    assert (listing.count("a"), listing.index("b")) == (2, 1)
    assert listing
    assert not Listing[str]((), {})
    assert listing == Listing(("a", "b", "a"), {})
    with pytest.raises(IndexError):
        assert listing[3]


def test_error_codes_become_exceptions() -> None:
    assert refused(0, "t") is None
    result = refused(ErrorCode.INVALID_CONFIG, "t", "no number")
    assert result is not None
    assert str(result) == "INVALID_CONFIG (40): t: no number"
    later = refused(9999, "t")
    assert later is not None
    assert later.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "unknown error code 9999 of a later Kafka version" in str(later)
    check(0, "t")
    with pytest.raises(RequestError, match="t: "):
        check(ErrorCode.INVALID_CONFIG, "t")
    assert or_none(-1) is None
    assert or_none(0) == 0


def test_not_coordinator_fails_the_whole_response() -> None:
    moved = RequestError(ErrorCode.NOT_COORDINATOR)
    assert settled({"a": None, "b": WRONG}) == {"a": None, "b": WRONG}
    with pytest.raises(RequestError) as raised:
        settled({"a": WRONG, "b": moved})
    assert raised.value is moved
