"""Arguments: what an application gives, looked at before anything is done with it.

Invariant: what comes back can be written into a request. What cannot is refused in the call that
gave it, by a TypeError or a ValueError that names the right form, and nothing has changed then.
"""

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, Final, TypeVar, cast

from ottla.client.topic_name import checked_name

T = TypeVar("T")
M = TypeVar("M", bound=Mapping[Any, Any])

OFFSET_MAX: Final = (1 << 63) - 1
TIME_MAX: Final = OFFSET_MAX
"""In milliseconds since 1970."""

PARTITION_MAX: Final = (1 << 31) - 1

NOTE_BYTES_MAX: Final = (1 << 15) - 1
"""What a request can carry; brokers take less, see offset.metadata.max.bytes."""


def pair_of(given: object) -> tuple[str, int]:
    """A topic and the number of a partition."""
    pair = cast("tuple[object, ...]", given)
    if not isinstance(given, tuple) or len(pair) != 2:
        raise TypeError(
            'a partition is a pair of a topic and a number, as ("orders", 0), and not '
            f"{_shown(pair)}; several are given one by one"
        )
    topic, number = pair
    return checked_name(topic), _whole(number, "the number of a partition", PARTITION_MAX)


def offset_of(given: object) -> int:
    """An offset in a partition."""
    return _whole(given, "an offset", OFFSET_MAX)


def time_of(given: object) -> int:
    """A time, in milliseconds since 1970."""
    return _whole(given, "a time, in milliseconds since 1970,", TIME_MAX)


def note_of(given: object) -> str:
    """A note that is kept with an offset."""
    if not isinstance(given, str):
        raise TypeError(f"the metadata of an offset are a str, and not {_shown(given)}")
    size = len(given.encode())
    if size > NOTE_BYTES_MAX:
        raise ValueError(
            f"the metadata of an offset have at most {NOTE_BYTES_MAX} bytes, and these have {size}"
        )
    return given


def name_of(given: object, what: str) -> str:
    """A name; `what` it is of."""
    if not isinstance(given, str):
        raise TypeError(f"the name of {what} is a str, and not {_shown(given)}")
    return given


def settings_of(given: M) -> M:
    """Settings and their values, which are text, or None."""
    mapping_of(given, str, 'a mapping of settings, as {"retention.ms": "1000"}')
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            shown = f'"{value}"' if isinstance(value, int | float) else "a str"
            raise TypeError(
                f"the value of a setting is text: {name} is {shown}, and not {_shown(value)}"
            )
    return given


def many_of(given: Iterable[T], kind: type | tuple[type, ...], form: str) -> list[T]:
    """What an iterable gives, each of a kind; `form` is what is right, with an example."""
    if _is_one(given):
        raise TypeError(f"this takes {form}, and not {_shown(given)}")
    ones = [*given]
    for one in ones:
        if not isinstance(one, kind):
            raise TypeError(f"this takes {form}, and what was given has {_shown(one)} in it")
    return ones


def mapping_of(given: M, kind: type | tuple[type, ...], form: str) -> M:
    """The same, if it is a mapping of what is of a kind; `form` is what is right."""
    if not _is_mapping(given):
        raise TypeError(f"this takes {form}, and not {_shown(given)}")
    many_of([*given], kind, form)
    return given


def _is_one(given: object) -> bool:
    """Whether it is no iterable, or one that nobody takes for many things; a dict is its keys."""
    return isinstance(given, str | bytes) or not isinstance(given, Iterable)


def _is_mapping(given: object) -> bool:
    return isinstance(given, Mapping)


def _whole(given: object, what: str, most: int) -> int:
    try:
        number = index(given)  # pyright: ignore[reportArgumentType] - that is the question
    except TypeError:
        raise TypeError(f"{what} is a whole number, and not {_shown(given)}") from None
    if not 0 <= number <= most:
        raise ValueError(f"{what} is from 0 to {most}, and not {number}")
    return number


def _shown(given: object) -> str:
    return f"{given!r:.80} ({type(given).__name__})" if given is not None else "None"
