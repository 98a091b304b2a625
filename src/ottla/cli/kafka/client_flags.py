"""Flags that several of Kafka's tools share: numbers, properties, properties files, old names.

Invariant: a wrong value prints the message of Java's tools.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.cli.escapes import printable
from ottla.cli.kafka.flags import BadFlags, Given
from ottla.errors import OttlaError
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.properties import read_properties

if TYPE_CHECKING:
    from ottla.cli.client_settings import Client

PATIENCE: Final[Mapping[str, str]] = {"default.api.timeout.ms": "20000"}
"""Timeout for interactive use, instead of the client's default of one minute."""

MEET_S: Final = 20.0
"""Timeout of the first response of a broker to a producer."""


async def reached(client: "Client", settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a client; raises OttlaError if no broker can be reached."""
    from ottla.cli.probe import probe

    found = known(client, settings)
    if why := await probe(found):
        raise OttlaError(why)
    return found


def known(client: "Client", settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a client supports, because programs share properties files.

    Like Kafka's clients, it warns of unknown settings and ignores them.
    """
    from ottla.cli.client_settings import known_to

    found, strange = known_to(client, settings)
    if strange:
        names = printable(", ".join(strange))
        print(f"warning: unknown client settings: {names}", file=sys.stderr)
    return found


INT_BITS, LONG_BITS = 32, 64


def integer(
    given: Given, name: str, default: int | None = None, *, bits: int = LONG_BITS
) -> int | None:
    """Return the value of a flag that is a Java integer of this many bits."""
    if (text := given.one(name)) is None:
        return default
    try:
        return sized(text, bits)
    except ValueError:
        raise cannot_parse(text, name) from None


def sized(text: str, bits: int) -> int:
    """Parse an integer; raises ValueError if it does not fit in this many bits."""
    number = int(text)
    if number.bit_length() >= bits and number != -(1 << (bits - 1)):
        raise ValueError(f"{text} has more than {bits} bits")
    return number


def cannot_parse(text: str, name: str) -> BadFlags:
    """Return the error for a value that cannot be parsed."""
    return BadFlags(f"Cannot parse argument '{text}' of option {name}")


def required(given: Given, *names: str) -> None:
    """Raise BadFlags if a required flag is missing."""
    for name in names:
        if name not in given:
            raise BadFlags(f'Missing required argument "[{name}]"')


def renamed(given: Given, old: str, new: str, told: str) -> str:
    """Return the new name of a flag, or the old one with a warning if that is given."""
    if old not in given:
        return new
    print(told.format(old=old, new=new))
    return old


def properties_of(texts: Iterable[str]) -> dict[str, str]:
    """Parse key=value properties; raises OttlaError for one without `=`."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise OttlaError(f"Missing value for key {key}}}")  # Java's message
        found[key] = value
    return found


def file_properties(path: str | None) -> dict[str, str]:
    """Read a properties file; empty without a path."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = read_properties(file.read(), path)
    except OSError as error:
        raise OttlaError(f"{path}: {error.strerror}") from None
    if found.problems:
        raise InvalidSettings(found.problems)
    return {one.name: str(one.value) for one in found.entries}
