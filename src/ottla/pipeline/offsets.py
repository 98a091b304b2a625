"""Offsets of many partitions, as Spark's options and checkpoints write them.

Invariant: `from_json(to_json(offsets)) == offsets`. The JSON is that of Spark's Kafka connector,
{"topic": {"0": 5}}, sorted by topic and partition. In options -2 is the earliest offset and -1 the
latest.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from ottla.ids import PartitionIndex, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1

_NAMES_MAX: Final = 10

Offsets: TypeAlias = Mapping[TopicPartition, int]
JsonOffsets: TypeAlias = dict[str, dict[str, int]]
"""Offsets as a JSON object: partitions by topic, and offsets by partition."""


class BadOffsets(ValueError):
    """A text that does not contain offsets; the message shows the expected form."""


def to_json(offsets: Offsets) -> JsonOffsets:
    """Return offsets as a JSON object."""
    found: JsonOffsets = {}
    for one in sorted(offsets):
        found.setdefault(one.topic, {})[str(one.partition)] = offsets[one]
    return found


def from_json(given: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets in a JSON object that `to_json` made."""
    return {
        TopicPartition(topic, PartitionIndex(int(index))): offset
        for topic, offsets in given.items()
        for index, offset in offsets.items()
    }


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Parse the offsets or timestamps of partitions; raise BadOffsets if the text has none."""
    form = 'expected a JSON object like {"topic": {"0": 23, "1": -2}}'
    try:
        given: object = json.loads(text)
        if not isinstance(given, dict):
            raise ValueError
        found: dict[TopicPartition, int] = {}
        for topic, offsets in cast("dict[str, object]", given).items():
            if not isinstance(offsets, dict):
                raise ValueError
            for index, offset in cast("dict[str, object]", offsets).items():
                if type(offset) is not int:
                    raise ValueError
                found[TopicPartition(topic, _index(index))] = offset
    except ValueError as error:
        raise BadOffsets(f"{form}, not {text!r}") from error
    return found


def parse_partitions(text: str) -> list[TopicPartition]:
    """Parse the partitions of the option `assign`; raise BadOffsets if the text has none."""
    form = 'expected a JSON object like {"topic": [0, 1]}'
    try:
        given: object = json.loads(text)
        if not isinstance(given, dict):
            raise ValueError
        found: list[TopicPartition] = []
        for topic, indexes in cast("dict[str, object]", given).items():
            if not isinstance(indexes, list):
                raise ValueError
            found += [
                TopicPartition(topic, _index(str(index))) for index in cast("list[object]", indexes)
            ]
    except ValueError as error:
        raise BadOffsets(f"{form}, not {text!r}") from error
    if not found:
        raise BadOffsets(f"{form} with at least one partition, not {text!r}")
    return found


def _index(text: str) -> PartitionIndex:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return PartitionIndex(int(text))


# Where to start or to end.


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same offset in all partitions: EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True, slots=True)
class Specific:
    """An offset for each partition; EARLIEST and LATEST are allowed."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in each partition.

    A partition without such a record gets the offset `if_none`, or is an error if that is None.
    """

    time_ms: int
    if_none: int | None


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time that is given for each partition."""

    times_ms: Offsets
    if_none: int | None


Limit: TypeAlias = Everywhere | Specific | AtTime | AtTimes
"""Where reading starts or ends, as an option says it, before it is resolved to offsets."""


@dataclass(frozen=True, slots=True)
class ResolvedOffsets:
    """The offsets to which a limit was resolved, and the partitions of which they are the end."""

    offsets: dict[TopicPartition, int]
    at_end: frozenset[TopicPartition] = frozenset()


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return the first partitions by name, and the number of the others."""
    found = sorted(partitions)
    shown = ", ".join(map(str, found[:_NAMES_MAX]))
    more = len(found) - _NAMES_MAX
    return shown if more <= 0 else f"{shown} and {more} more"
