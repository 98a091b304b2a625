"""Configs in the syntax of `kafka-configs`: `a=1,b=[x,y]`, or a properties file.

Invariant: a comma between brackets belongs to the value, and the brackets are removed. A file that
cannot be read completely sets nothing.
"""

import re
from typing import Final

from ottla.cli.kafka.flags import Given
from ottla.cli.kafka.wrong_use import Illegal

_OUTSIDE: Final = r"(?=[^\]]*(?:\[|$))"
"""Matches outside brackets: the next bracket, if any, is an opening one."""

QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
ADDRESS_QUOTAS: Final = ("connection_creation_rate",)
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def to_set(given: Given) -> dict[str, str]:
    """Return the configs to set."""
    found: dict[str, str] = {}
    if (path := given.one("add-config-file")) is not None:
        from ottla.cli.kafka.client_flags import file_properties

        found |= file_properties(path)
    if (text := given.one("add-config")) is not None:
        pairs = [re.split(rf"\s*=\s*{_OUTSIDE}", one) for one in _split(text)]
        if any(len(pair) != 2 for pair in pairs):
            raise Illegal(
                "requirement failed: Invalid entity config: all configs to be added must be in "
                'the format "key=val" or  "key=[val1,val2]" to group values which contain commas.'
            )
        found |= {name.strip(): re.sub(r"[\[\]]", "", value).strip() for name, value in pairs}
    for name in found:
        if not re.fullmatch(r"[a-zA-Z0-9._-]*", name):
            raise Illegal(f"Invalid character found for config key: {name}")
    return found


def _split(text: str) -> list[str]:
    """Split at commas like Java's String.split, which drops empty strings at the end."""
    parts = re.split(f",{_OUTSIDE}", text)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def to_unset(given: Given) -> list[str]:
    """Return the names of the configs to delete."""
    return [name.strip() for one in given.all("delete-config") for name in one.split(",")]


def number(name: str, text: str) -> float:
    """Parse the value of a quota."""
    try:
        return float(text)
    except ValueError:
        raise Illegal(f"Cannot parse quota configuration value for {name}: {text}") from None


def credential(mechanism: str, text: str) -> tuple[int, str]:
    """Parse the iterations and the password of a SCRAM credential."""
    found = re.fullmatch(r"(?:iterations=(-?[0-9]*),)?password=(.*)", text)
    if found is None:
        raise Illegal(f"Invalid credential property {mechanism.replace('-', '_')}={text}")
    given = found.group(1)
    iterations = 4096 if given in (None, "-1") else int(given or 0)
    if iterations < 4096:
        raise Illegal(
            f"Iterations {iterations} is less than the minimum 4096 required for {mechanism}"
        )
    return iterations, found.group(2)
