"""Partitions as they are said on a command line: a topic, or a topic with some of its partitions.

Invariant: a partition comes once, in the order of topics and numbers; none is named that is not
there.

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
    """What was said names no partitions; `number` is what should have been one, if that is why."""

    def __init__(self, text: str, number: str | None = None) -> None:
        why = "use a topic, or a topic with partitions, as orders:0,1"
        if number is not None:
            why = f"{number!r} is not a partition number"
        super().__init__(f"{text!r} does not name partitions: {why}")
        self.text = text
        self.number = number


class NoSuchPartitions(OttlaError):
    """Partitions that a topic has not."""

    def __init__(self, missing: Sequence[Partition]) -> None:
        names = [str(partition(*one)) for one in missing]
        verb = "does not exist" if len(names) == 1 else "do not exist"
        super().__init__(f"there {verb}: {', '.join(names)}")
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Choice:
    """A topic with some of its partitions; None stands for all."""

    topic: str
    numbers: tuple[int, ...] | None = None


def parse_choice(text: str) -> Choice:
    """What a text names; BadPartitions if it names nothing."""
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
    """The partitions that are meant, where topics have those that are known."""
    found: set[Partition] = set()
    missing: set[Partition] = set()
    for choice in choices:
        there = {*known[choice.topic]}
        for number in sorted(there) if choice.numbers is None else choice.numbers:
            (found if number in there else missing).add(partition(choice.topic, number))
    if missing:
        raise NoSuchPartitions(sorted(missing))
    return sorted(found)
