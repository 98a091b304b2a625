"""The plan of a read: where a batch ends, and the tasks into which it is divided.

Invariant: the ranges of a partition follow each other from its start to its end, without a gap or
an overlap. The partitions share the limit of a batch in proportion to their unread offsets, as in
Spark's Kafka connector. Each partition with unread offsets gets at least one, so that none starves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor

from ottla.ids import TopicPartition
from ottla.pipeline.offsets import Offsets
from ottla.pipeline.options import BadOption


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of a partition from `start` up to `end`, which is not included."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; there may be fewer records."""
        return self.end - self.start


def ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the ranges between two offsets, without the empty ones."""
    found = [OffsetRange(one, start[one], end[one]) for one in sorted(end) if one in start]
    return [one for one in found if one.size > 0]


def check_order(start: Offsets, end: Offsets) -> None:
    """Raise BadOption if a batch would start after its end; such a batch is not empty but wrong."""
    for one in sorted(end):
        if start.get(one, 0) > end[one]:
            raise BadOption(
                f"{one}: the batch starts at offset {start[one]}, after its end {end[one]}: "
                "change startingOffsets or endingOffsets"
            )


def limited(start: Offsets, end: Offsets, records_max: int) -> dict[TopicPartition, int]:
    """Return an earlier end, so that a batch has about `records_max` offsets."""
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
    whole: Sequence[OffsetRange], *, tasks_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Cut ranges into at least `tasks_min` tasks of at most `records_max` offsets each."""
    parts = [*whole]
    if records_max is not None:
        parts = [piece for one in parts for piece in _cut(one, ceil(one.size / records_max))]
    if tasks_min is None or tasks_min <= len(parts):
        return parts
    # A range too small to be cut has one task. It does not count for the shares of the others.
    total = sum(one.size for one in parts)
    small = {one for one in parts if _shares(one, total, tasks_min) == 1}
    left_size = total - sum(one.size for one in small)
    left_tasks = max(tasks_min - len(small), 1)
    return [
        piece
        for one in parts
        for piece in ([one] if one in small else _cut(one, _shares(one, left_size, left_tasks)))
    ]


def _shares(one: OffsetRange, total: int, tasks: int) -> int:
    return max(floor(one.size / total * tasks + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    """Cut a range into parts of about the same size, none of them empty."""
    parts = min(parts, whole.size)
    start = whole.start
    for number in range(parts):
        size = (whole.end - start) // (parts - number)
        yield OffsetRange(whole.partition, start, start + size)
        start += size
