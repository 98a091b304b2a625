"""Checks arguments of the public API.

Invariant: a returned value fits into a request. Anything else raises TypeError or ValueError with
the correct form in the call that received it, before anything changes. An invalid topic name raises
RequestError, as from a broker: in a request it would fail all topics. Which valid names a cluster
accepts is decided by the cluster.
"""

from collections.abc import Iterable, Mapping
from numbers import Real
from operator import index
from typing import Any, Final, TypeVar, cast

from ottla.errors import ErrorCode, RequestError
from ottla.ids import topic_name_problem

T = TypeVar("T")
M = TypeVar("M", bound=Mapping[Any, Any])

OFFSET_MAX: Final = (1 << 63) - 1
TIME_MAX: Final = OFFSET_MAX
"""In milliseconds since 1970."""

PARTITION_MAX: Final = (1 << 31) - 1

NOTE_BYTES_MAX: Final = (1 << 15) - 1
"""The limit of the protocol; brokers accept less, see offset.metadata.max.bytes."""


def checked_name(topic: object) -> str:
    """Return the name; raises TypeError for a non-str and RequestError for an invalid name."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic name must be a str, not {topic!r}")
    if problem := topic_name_problem(topic):
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"invalid topic name {topic!a}: {problem}"
        )
    return topic


def pair_of(given: object) -> tuple[str, int]:
    """Check a topic and partition number."""
    pair = cast("tuple[object, ...]", given)
    if not isinstance(given, tuple) or len(pair) != 2:
        raise TypeError(
            'a partition must be a pair of topic and number such as ("orders", 0), not '
            f"{_shown(pair)}; pass one pair per partition"
        )
    topic, number = pair
    return checked_name(topic), _whole(number, "a partition number", PARTITION_MAX)


def offset_of(given: object) -> int:
    """Check an offset."""
    return _whole(given, "an offset", OFFSET_MAX)


def time_of(given: object) -> int:
    """Check a time in milliseconds since 1970."""
    return _whole(given, "a time in milliseconds since 1970", TIME_MAX)


def timestamp_of(given: object) -> int:
    """Check the timestamp of a record."""
    return _whole(given, "timestamp_ms", TIME_MAX)


def seconds_of(given: float, what: str = "timeout_s") -> float:
    """Check a number of seconds; `what` is used in the error."""
    if not _is_real(given):
        raise TypeError(f"{what} must be a number of seconds, not {_shown(given)}")
    return given


def note_of(given: object) -> str:
    """Check the metadata text of a committed offset."""
    if not isinstance(given, str):
        raise TypeError(f"the metadata of an offset must be a str, not {_shown(given)}")
    size = len(given.encode())
    if size > NOTE_BYTES_MAX:
        raise ValueError(
            f"the metadata of an offset has {size} bytes, but the maximum is {NOTE_BYTES_MAX}"
        )
    return given


def name_of(given: object, what: str) -> str:
    """Check a name; `what` is used in the error."""
    if not isinstance(given, str):
        raise TypeError(f"the name of {what} must be a str, not {_shown(given)}")
    return given


def settings_of(given: M) -> M:
    """Check settings: text values or None."""
    mapping_of(given, str, 'a mapping of settings such as {"retention.ms": "1000"}')
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            shown = f'"{value}"' if isinstance(value, int | float) else "a str"
            raise TypeError(f"setting {name}: the value must be {shown}, not {_shown(value)}")
    return given


def many_of(given: Iterable[T], kind: type | tuple[type, ...], form: str) -> list[T]:
    """Check the elements of an iterable; `form` describes the correct form with an example."""
    if _is_one(given):
        raise TypeError(f"expected {form}, not {_shown(given)}")
    ones = [*given]
    for one in ones:
        if not isinstance(one, kind):
            raise TypeError(f"expected {form}, but it contains {_shown(one)}")
    return ones


def mapping_of(given: M, kind: type | tuple[type, ...], form: str) -> M:
    """Check a mapping and its keys; `form` describes the correct form."""
    if not _is_mapping(given):
        raise TypeError(f"expected {form}, not {_shown(given)}")
    many_of([*given], kind, form)
    return given


def _is_one(given: object) -> bool:
    """Whether it is not an iterable of several things; a dict counts as its keys."""
    return isinstance(given, str | bytes) or not isinstance(given, Iterable)


def _is_mapping(given: object) -> bool:
    return isinstance(given, Mapping)


def _is_real(given: object) -> bool:
    return isinstance(given, Real)


def whole_of(given: object, what: str) -> int:
    """Check an integer; `what` is used in the error."""
    try:
        return index(given)  # pyright: ignore[reportArgumentType] - that is the question
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {_shown(given)}") from None


def _whole(given: object, what: str, most: int) -> int:
    number = whole_of(given, what)
    if not 0 <= number <= most:
        raise ValueError(f"{what} must be from 0 to {most}, not {number}")
    return number


def _shown(given: object) -> str:
    return f"{given!r:.80} ({type(given).__name__})" if given is not None else "None"
