"""Partitions as a user names them, and as requests hold them: by topic.

Invariant: a partition is a pair of a topic's name and a number, so that ("orders", 0) names one;
what comes back can be taken for such a pair, and prints as orders-0.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

from ottla.ids import PartitionIndex, TopicPartition

Partition: TypeAlias = tuple[str, int]
"""A topic and a number; TopicPartition is one."""

P = TypeVar("P", bound=Partition)
V = TypeVar("V")


def partition(topic: str, number: int) -> Partition:
    """One that prints well."""
    return TopicPartition(topic, PartitionIndex(number))


def each_once(given: Iterable[Partition]) -> list[Partition]:
    """The same, each once."""
    return [partition(*one) for one in dict.fromkeys(given)]


def by_partition(given: Mapping[P, V]) -> dict[Partition, V]:
    """The same values."""
    return {partition(*one): value for one, value in given.items()}


def by_topic(given: Iterable[Partition]) -> dict[str, list[int]]:
    """The numbers of each topic."""
    topics: dict[str, list[int]] = {}
    for topic, number in given:
        topics.setdefault(topic, []).append(number)
    return topics


def in_order(topics: Iterable[tuple[str, Iterable[int]]]) -> tuple[Partition, ...]:
    """The partitions of topics, in order."""
    return tuple(sorted(partition(name, index) for name, ones in topics for index in ones))


def names(given: str | Iterable[str]) -> list[str]:
    """Names, or the one that was given alone; each once."""
    return [given] if isinstance(given, str) else [*dict.fromkeys(given)]
