"""Wrong uses of Kafka's tools that show only when all flags are known.

Invariant: the words are Kafka's, so that whoever looks for them finds them.
"""

from collections.abc import Iterable

from ottla.cli.kafka.flags import BadFlags, Given
from ottla.errors import OttlaError


class WrongUse(BadFlags):
    """Flags that do not go together, or one that is missing: the message and the usage."""


class Illegal(OttlaError):
    """Something that was said makes no sense: the message alone."""


def require(given: Given, *names: str) -> None:
    """Let flags be there."""
    for name in names:
        if name not in given:
            raise WrongUse(f'Missing required argument "[{name}]"')


def forbid(given: Given, name: str, others: Iterable[str]) -> None:
    """Let a flag not come with others."""
    for other in others if name in given else ():
        if other in given:
            raise WrongUse(f'Option "[{name}]" can\'t be used with option "[{other}]"')


def whole_number(given: Given, name: str) -> int | None:
    """The number that a flag has."""
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
