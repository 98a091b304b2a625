"""Arguments: what an application gives, looked at before anything is done with it.

Invariant: what comes back can be written into a request. What cannot is refused in the call that
gave it, by a TypeError or a ValueError that names the right form, and nothing has changed then.
"""

from operator import index
from typing import Final, cast

from ottla.client.topic_name import checked_name

OFFSET_MAX: Final = (1 << 63) - 1
"""Also of times: both have 64 bits."""

PARTITION_MAX: Final = (1 << 31) - 1


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
    return _whole(given, "a time, in milliseconds since 1970,", OFFSET_MAX)


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
