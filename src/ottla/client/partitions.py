"""Partitions as a user names them, and as requests and answers hold them: by topic.

Invariant: a partition is a pair of a topic's name and a number, so that ("orders", 0) names one;
what comes back can be taken for such a pair, and prints as orders-0.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias, TypeVar

from ottla.client.arguments import many_of, mapping_of, pair_of
from ottla.ids import TopicPartition

Partition: TypeAlias = tuple[str, int]
"""A topic and a number; TopicPartition is one."""

P = TypeVar("P", bound=Partition)
T = TypeVar("T")
V = TypeVar("V")


class Row(Protocol):
    """What an answer says of a partition."""

    @property
    def partition_index(self) -> int:
        """Which of its topic."""
        ...


R = TypeVar("R", bound=Row)


def partition(topic: str, number: int) -> TopicPartition:
    """One that prints well."""
    return TopicPartition(topic, number)


def partition_of(pair: Partition) -> TopicPartition:
    """A topic and a number as what they are; TypeError or ValueError if they are none."""
    return partition(*pair_of(pair))


def each_once(given: Iterable[Partition]) -> list[Partition]:
    """The same, each once; TypeError or ValueError if they are none."""
    ones = many_of(given, tuple, 'a list of partitions, as [("orders", 0)]')
    return [*dict.fromkeys(partition_of(one) for one in ones)]


def by_partition(given: Mapping[P, V]) -> dict[Partition, V]:
    """The same values; TypeError or ValueError if they are not of partitions."""
    whole = mapping_of(given, tuple, 'a mapping of partitions, as {("orders", 0): …}')
    return {partition_of(one): value for one, value in whole.items()}


def by_topic(given: Iterable[Partition]) -> dict[str, list[int]]:
    """The numbers of each topic."""
    return rows_by_topic(given, lambda one: one[1])


def rows_by_topic(given: Iterable[P], row: Callable[[P], T]) -> dict[str, list[T]]:
    """What a request says of partitions, those of a topic together."""
    topics: dict[str, list[T]] = {}
    for one in given:
        topics.setdefault(one[0], []).append(row(one))
    return topics


def rows(topics: Iterable[tuple[str, Iterable[R]]]) -> Iterator[tuple[TopicPartition, R]]:
    """What an answer says of each partition, out of what it says of topics."""
    for topic, ones in topics:
        for one in ones:
            yield partition(topic, one.partition_index), one


def in_order(topics: Iterable[tuple[str, Iterable[int]]]) -> tuple[Partition, ...]:
    """The partitions of topics, in order."""
    return tuple(sorted(partition(name, index) for name, ones in topics for index in ones))


def names(given: str | Iterable[str]) -> list[str]:
    """Names, or the one that was given alone; each once."""
    ones = [given] if isinstance(given, str) else given
    return [*dict.fromkeys(many_of(ones, str, 'a name, or a list of names, as ["one", "two"]'))]
