"""Offsets of many partitions, as Spark's options and checkpoints write them.

Invariant: what is written is read back the same. The JSON is that of Spark's Kafka connector,
{"topic": {"0": 5}}, with topics and partitions in order; -2 stands for the first record that there
is and -1 for the end.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from ottla.ids import PartitionIndex, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1

Offsets: TypeAlias = Mapping[TopicPartition, int]
Written: TypeAlias = dict[str, dict[str, int]]
"""Offsets as JSON has them."""


class BadOffsets(ValueError):
    """Text that says no offsets; the message tells the right form."""


def written(offsets: Offsets) -> Written:
    """Offsets in the form of JSON."""
    told: Written = {}
    for one in sorted(offsets):
        told.setdefault(one.topic, {})[str(one.partition)] = offsets[one]
    return told


def read(told: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Offsets that `written` gave."""
    return {
        TopicPartition(topic, PartitionIndex(int(index))): offset
        for topic, offsets in told.items()
        for index, offset in offsets.items()
    }


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Offsets, or times, of partitions; BadOffsets when the text says none."""
    form = 'a JSON object as {"topic": {"0": 23, "1": -2}} is expected'
    try:
        told: object = json.loads(text)
        if not isinstance(told, dict):
            raise ValueError
        found: dict[TopicPartition, int] = {}
        for topic, offsets in cast("dict[str, object]", told).items():
            if not isinstance(offsets, dict):
                raise ValueError
            for index, offset in cast("dict[str, object]", offsets).items():
                if type(offset) is not int:
                    raise ValueError
                found[TopicPartition(topic, _index(index))] = offset
    except ValueError as error:
        raise BadOffsets(f"{form}, and not {text!r}") from error
    return found


def parse_partitions(text: str) -> list[TopicPartition]:
    """Partitions, as the option `assign` has them; BadOffsets when the text says none."""
    form = 'a JSON object as {"topic": [0, 1]} is expected'
    try:
        told: object = json.loads(text)
        if not isinstance(told, dict):
            raise ValueError
        found: list[TopicPartition] = []
        for topic, indexes in cast("dict[str, object]", told).items():
            if not isinstance(indexes, list):
                raise ValueError
            found += [
                TopicPartition(topic, _index(str(index))) for index in cast("list[object]", indexes)
            ]
    except ValueError as error:
        raise BadOffsets(f"{form}, and not {text!r}") from error
    if not found:
        raise BadOffsets(f"{form} with one partition at least, and not {text!r}")
    return found


def _index(text: str) -> PartitionIndex:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return PartitionIndex(int(text))


# Where to begin or to end.


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same place in all partitions: EARLIEST or LATEST."""

    place: int


@dataclass(frozen=True, slots=True)
class Specific:
    """An offset for each partition, EARLIEST and LATEST among them."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of each partition that is not older; `if_none` when there is none."""

    time_ms: int
    if_none: int | None


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for each partition."""

    times_ms: Offsets
    if_none: int | None


Limit: TypeAlias = Everywhere | Specific | AtTime | AtTimes
"""Where reading begins, or ends, in words that are not resolved yet."""


@dataclass(frozen=True, slots=True)
class Places:
    """The offsets to which a limit was resolved, and the partitions of which they are the end."""

    offsets: dict[TopicPartition, int]
    at_end: frozenset[TopicPartition] = frozenset()


def names(partitions: Iterable[TopicPartition]) -> str:
    """Partitions, for a message."""
    told = sorted(partitions)
    shown = ", ".join(map(str, told[:10]))
    return shown if len(told) <= 10 else f"{shown} and {len(told) - 10} more"
