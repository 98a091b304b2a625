"""The plan of a read: how far a batch goes, and into which tasks it is divided.

Invariant: ranges do not overlap and leave nothing out: those of a partition follow each other from
its start to its end. A limit on a batch is shared by the partitions in proportion to what waits in
each, and each that has something gets one record at least, as Spark's Kafka connector does it, so
that none starves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor

from ottla.ids import TopicPartition
from ottla.pipeline.offsets import Offsets
from ottla.pipeline.options import BadOption


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one partition: from `start` on, and `end` not included."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; there may be fewer records."""
        return self.end - self.start


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """What is between two places, of the partitions that have something there."""
    found = [Range(one, start[one], end[one]) for one in sorted(end) if one in start]
    return [one for one in found if one.size > 0]


def check_order(start: Offsets, end: Offsets) -> None:
    """BadOption when a batch would begin behind its end: that is a mistake, and not nothing."""
    for one in sorted(end):
        if start.get(one, 0) > end[one]:
            raise BadOption(
                f"{one}: the batch is to begin at offset {start[one]} and to end at {end[one]}"
            )


def limited(start: Offsets, end: Offsets, records_max: int) -> dict[TopicPartition, int]:
    """An end that is not so far away: about so many offsets in all."""
    waiting = {one.partition: one.size for one in ranges(start, end)}
    total = sum(waiting.values())
    if total <= records_max:
        return {**end}
    found = {**end}
    for partition, size in waiting.items():
        share = records_max * (size / total)
        found[partition] = min(
            end[partition], start[partition] + (ceil(share) if share < 1 else floor(share))
        )
    return found


def divided(
    whole: Sequence[Range], *, tasks_min: int | None, records_max: int | None
) -> list[Range]:
    """Ranges cut so that there are enough tasks, and none has too many records."""
    parts = [*whole]
    if records_max is not None:
        parts = [piece for one in parts for piece in _cut(one, ceil(one.size / records_max))]
    if tasks_min is None or tasks_min <= len(parts):
        return parts
    # What is too small to be cut has one task, and does not count for the shares of the rest.
    total = sum(one.size for one in parts)
    small = {one for one in parts if _shares(one, total, tasks_min) == 1}
    left_size = total - sum(one.size for one in small)
    left_tasks = max(tasks_min - len(small), 1)
    return [
        piece
        for one in parts
        for piece in ([one] if one in small else _cut(one, _shares(one, left_size, left_tasks)))
    ]


def _shares(one: Range, total: int, tasks: int) -> int:
    return max(floor(one.size / total * tasks + 0.5), 1)


def _cut(whole: Range, parts: int) -> Iterable[Range]:
    """So many ranges in the place of one, of the same size if that can be, and none empty."""
    parts = min(parts, whole.size)
    start = whole.start
    for number in range(parts):
        size = (whole.end - start) // (parts - number)
        yield Range(whole.partition, start, start + size)
        start += size
