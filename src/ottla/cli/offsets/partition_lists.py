"""Parses partitions on the command line: a topic, or a topic with partitions.

Invariant: each partition occurs once, in order, and exists.

    orders      all partitions of orders
    orders:0,2  two of them
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.partitions import Partition, partition
from ottla.errors import OttlaError

NUMBER_MAX: Final = 2**31 - 1


class BadPartitions(OttlaError):
    """The text does not name partitions; `number` is the invalid part, if any."""

    def __init__(self, text: str, number: str | None = None) -> None:
        why = "use a topic, or a topic with partitions, as orders:0,1"
        if number is not None:
            why = f"{number!r} is not a partition number"
        super().__init__(f"{text!r} does not name partitions: {why}")
        self.text = text
        self.number = number


class NoSuchPartitions(OttlaError):
    """Partitions that do not exist."""

    def __init__(self, missing: Sequence[Partition]) -> None:
        names = [str(partition(*one)) for one in missing]
        subject, verb = ("partition", "does") if len(names) == 1 else ("partitions", "do")
        super().__init__(f"{subject} {', '.join(names)} {verb} not exist")
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Choice:
    """A topic with some of its partitions; None for all."""

    topic: str
    numbers: tuple[int, ...] | None = None


def parse_choice(text: str) -> Choice:
    """Parse a text; raises BadPartitions."""
    topic, colon, rest = text.partition(":")
    if not topic or (colon and not rest) or ":" in rest:
        raise BadPartitions(text)
    if not colon:
        return Choice(topic)
    return Choice(topic, tuple(_number(text, one) for one in rest.split(",")))


def _number(text: str, number: str) -> int:
    if not (number.isascii() and number.isdecimal()) or int(number) > NUMBER_MAX:
        raise BadPartitions(text, number)
    return int(number)


def chosen(choices: Iterable[Choice], known: Mapping[str, Iterable[int]]) -> list[Partition]:
    """Return the selected partitions of known topics."""
    found: set[Partition] = set()
    missing: set[Partition] = set()
    for choice in choices:
        there = {*known[choice.topic]}
        for number in sorted(there) if choice.numbers is None else choice.numbers:
            (found if number in there else missing).add(partition(choice.topic, number))
    if missing:
        raise NoSuchPartitions(sorted(missing))
    return sorted(found)
