"""Partitions as users write them, ("orders", 0), and as requests and responses group them.

Invariant: every returned partition is a TopicPartition: a (topic, number) tuple that prints as
orders-0.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias, TypeVar

from ottla.client.arguments import many_of, mapping_of, pair_of
from ottla.ids import TopicPartition

Partition: TypeAlias = tuple[str, int]
"""A topic and a partition number, such as a TopicPartition."""

P = TypeVar("P", bound=Partition)
T = TypeVar("T")
V = TypeVar("V")


class Row(Protocol):
    """The entry of a partition in a response."""

    @property
    def partition_index(self) -> int:
        """The partition number."""
        ...


R = TypeVar("R", bound=Row)


def partition(topic: str, number: int) -> TopicPartition:
    """Make a TopicPartition."""
    return TopicPartition(topic, number)


def no_partition(topic: str, count: int, number: int) -> str:
    """Return the message for a partition that a topic does not have."""
    has = "1 partition" if count == 1 else f"{count} partitions"
    return f'topic "{topic}" has {has}: partition {number} does not exist'


def partition_of(pair: Partition) -> TopicPartition:
    """Check and convert a (topic, number) pair; raises TypeError or ValueError."""
    return partition(*pair_of(pair))


def each_once(given: Iterable[Partition]) -> list[Partition]:
    """Check and convert pairs, without duplicates; raises TypeError or ValueError."""
    ones = many_of(given, tuple, 'a list of partitions such as [("orders", 0)]')
    return [*dict.fromkeys(partition_of(one) for one in ones)]


def by_partition(given: Mapping[P, V]) -> dict[Partition, V]:
    """Check and convert the keys of a mapping; raises TypeError or ValueError."""
    whole = mapping_of(given, tuple, 'a mapping of partitions such as {("orders", 0): …}')
    return {partition_of(one): value for one, value in whole.items()}


def by_topic(given: Iterable[Partition]) -> dict[str, list[int]]:
    """Group partition numbers by topic."""
    return rows_by_topic(given, lambda one: one[1])


def rows_by_topic(given: Iterable[P], row: Callable[[P], T]) -> dict[str, list[T]]:
    """Group request entries by topic."""
    topics: dict[str, list[T]] = {}
    for one in given:
        topics.setdefault(one[0], []).append(row(one))
    return topics


def rows(topics: Iterable[tuple[str, Iterable[R]]]) -> Iterator[tuple[TopicPartition, R]]:
    """Yield each partition of a response with its entry."""
    for topic, ones in topics:
        for one in ones:
            yield partition(topic, one.partition_index), one


def in_order(topics: Iterable[tuple[str, Iterable[int]]]) -> tuple[Partition, ...]:
    """Return the partitions of topics, in order."""
    return tuple(sorted(partition(name, index) for name, ones in topics for index in ones))


def names(given: str | Iterable[str]) -> list[str]:
    """Return the names, or the single name, without duplicates."""
    ones = [given] if isinstance(given, str) else given
    return [*dict.fromkeys(many_of(ones, str, 'a name, or a list of names such as ["one", "two"]'))]
