"""Errors of Kafka's tools in combinations of flags.

Invariant: messages are Kafka's, so users can search for them.
"""

from collections.abc import Iterable

from ottla.cli.kafka.flags import BadFlags, Given
from ottla.errors import OttlaError


class WrongUse(BadFlags):
    """Flags do not fit together, or one is missing: the tool prints the message and the usage."""


class Illegal(OttlaError):
    """A value is invalid: the tool prints only the message."""


def require(given: Given, *names: str) -> None:
    """Raise WrongUse if one of these flags is missing."""
    for name in names:
        if name not in given:
            raise WrongUse(f'Missing required argument "[{name}]"')


def forbid(given: Given, name: str, others: Iterable[str]) -> None:
    """Raise WrongUse if a flag is given together with one of the others."""
    for other in others if name in given else ():
        if other in given:
            raise WrongUse(f'Option "[{name}]" can\'t be used with option "[{other}]"')


def whole_number(given: Given, name: str) -> int | None:
    """Return the value of an integer flag."""
    text = given.one(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or not -(1 << 31) <= number < 1 << 31 or text != text.strip():
        raise OttlaError(f"Cannot parse argument '{text}' of option {name}")
    return number
