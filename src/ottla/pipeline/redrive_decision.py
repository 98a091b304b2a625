"""Decides what happens to a dead letter when it is redriven: it is sent back, parked or left.

A dead letter of a source is the original record, so it can be sent back to its topic. The dead
letter of a step is a row, which no source reads. A record that has been a dead letter too often is
parked: it goes to another topic, and is not redriven again.

Invariant: `HandledOffsets` has exactly the offsets that need no further redrive. It is committed
with the consumer group, so a record that a selection leaves out can be redriven later, and one that
was sent back is not sent again.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

PREFIX: Final = "ottla."
"""The headers with the reason of a dead letter begin with this."""

ATTEMPTS: Final = "ottla.attempts"
ERROR_HEADER: Final = "ottla.error"
TOPIC: Final = "ottla.topic"
PARTITION: Final = "ottla.partition"
STEP: Final = "ottla.step"
PIPELINE: Final = "ottla.pipeline"

ATTEMPTS_MAX: Final = 5
METADATA_BYTES_MAX: Final = 4096
"""Kafka's default of offset.metadata.max.bytes."""

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class Fate(StrEnum):
    """What happens to a dead letter."""

    REDRIVEN = "redriven"
    PARKED = "parked"
    NOT_SELECTED = "not selected"
    NOT_POSSIBLE = "not possible"
    """It is the row of a step."""
    OF_ANOTHER = "of another pipeline"


class Selection(NamedTuple):
    """The dead letters to redrive."""

    pipeline: str
    source: str | None = None
    error: str | None = None
    """A part of the error."""
    attempts_max: int = ATTEMPTS_MAX


class Decision(NamedTuple):
    """What happens to a dead letter, and where it goes."""

    fate: Fate
    topic: str = ""
    partition: int | None = None
    headers: Headers = ()

    @property
    def is_final(self) -> bool:
        """Whether the record needs no further redrive."""
        return self.fate is not Fate.NOT_SELECTED


def decide(headers: Headers, selection: Selection) -> Decision:
    """Decide about a dead letter, from its headers."""
    values = {name: (value or b"").decode(errors="replace") for name, value in headers}
    if values.get(PIPELINE) != selection.pipeline:
        return Decision(Fate.OF_ANOTHER)
    if TOPIC not in values:
        return Decision(Fate.NOT_POSSIBLE)
    if selection.source is not None and values.get(STEP) != selection.source:
        return Decision(Fate.NOT_SELECTED)
    if selection.error is not None and selection.error not in values.get(ERROR_HEADER, ""):
        return Decision(Fate.NOT_SELECTED)
    if (number(values.get(ATTEMPTS)) or 0) > selection.attempts_max:
        return Decision(Fate.PARKED, headers=headers)
    # The count goes back with the record: if the record fails again, it is counted on.
    kept = [one for one in headers if not one[0].startswith(PREFIX) or one[0] == ATTEMPTS]
    return Decision(Fate.REDRIVEN, values[TOPIC], number(values.get(PARTITION)), kept)


def number(text: str | None) -> int | None:
    """Return the number in a header; None if it has none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


class HandledOffsets(NamedTuple):
    """The offsets of a partition that need no further redrive: all below `next`, and ranges."""

    next: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last offset of each range, in order and apart from each other and from `next`."""

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        return offset < self.next or any(first <= offset <= last for first, last in self.ranges)

    def with_offsets(self, offsets: Iterable[int]) -> "HandledOffsets":
        """Add offsets."""
        found = [*self.ranges, *((offset, offset) for offset in offsets if offset not in self)]
        merged: list[tuple[int, int]] = []
        for first, last in sorted(found):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        start = self.next
        while merged and merged[0][0] <= start:
            start = max(start, merged.pop(0)[1] + 1)
        return HandledOffsets(start, tuple(merged))

    def up_to(self, first: int) -> "HandledOffsets":
        """Add all offsets before the first record of the partition: they do not exist any more."""
        if first <= self.next:
            return self
        kept = tuple(one for one in self.ranges if one[1] >= first)
        return HandledOffsets(first, kept).with_offsets(())

    def metadata(self) -> str:
        """Return the ranges as a text to commit with `next`."""
        return ",".join(
            str(first) if first == last else f"{first}-{last}" for first, last in self.ranges
        )

    @property
    def fits(self) -> bool:
        """Whether a broker stores the ranges with the offset."""
        return len(self.metadata()) <= METADATA_BYTES_MAX


def handled_offsets(offset: int, metadata: str) -> HandledOffsets:
    """Return the offsets that were committed; other texts than those of `metadata` have none."""
    offsets: list[tuple[int, int]] = []
    for part in filter(None, metadata.split(",")):
        first, _, last = part.partition("-")
        bounds = number(first), number(last or first)
        if bounds[0] is None or bounds[1] is None:
            return HandledOffsets(offset)
        offsets.append((bounds[0], bounds[1]))
    return HandledOffsets(offset, tuple(sorted(offsets))).with_offsets(())
