"""Flags that several of Kafka's tools share: numbers, properties, files of them, old names.

Invariant: what Java's tools print of a wrong one is printed here.
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
"""A person waits: for a program it is a minute."""


async def reached(client: "Client", settings: Mapping[str, str]) -> dict[str, str]:
    """The settings for a client; OttlaError when nobody listens where brokers are said to be."""
    from ottla.cli.probe import probe

    found = known(client, settings)
    if why := await probe(found):
        raise OttlaError(why)
    return found


def known(client: "Client", settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that a client has a use for: files of them are shared by many programs.

    As Kafka's clients do it, one that nobody knows is warned of, and left out.
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
    """The number that a flag has, which in Java has so many bits."""
    if (text := given.one(name)) is None:
        return default
    try:
        return sized(text, bits)
    except ValueError:
        raise cannot_parse(text, name) from None


def sized(text: str, bits: int) -> int:
    """The number that a text says; ValueError if that is none of so many bits."""
    number = int(text)
    if number.bit_length() >= bits and number != -(1 << (bits - 1)):
        raise ValueError(f"{text} has more than {bits} bits")
    return number


def cannot_parse(text: str, name: str) -> BadFlags:
    """What is said of a value that is none."""
    return BadFlags(f"Cannot parse argument '{text}' of option {name}")


def required(given: Given, *names: str) -> None:
    """BadFlags for a flag that is missing."""
    for name in names:
        if name not in given:
            raise BadFlags(f'Missing required argument "[{name}]"')


def renamed(given: Given, old: str, new: str, told: str) -> str:
    """Of a flag with two names the one that is said; of the old one it is told, if it is said."""
    if old not in given:
        return new
    print(told.format(old=old, new=new))
    return old


def properties_of(texts: Iterable[str]) -> dict[str, str]:
    """Properties out of key=value; without an = the value is empty."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise OttlaError(f"Missing value for key {key}}}")  # Java's words
        found[key] = value
    return found


def file_properties(path: str | None) -> dict[str, str]:
    """The properties of a file; none without one."""
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
