"""Records file of a segment, printed like Kafka's tool does.

Invariant: it ends where Kafka's tool ends. An incomplete batch at the end is counted in bytes; an
invalid batch is an error.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ottla.cli.kafka.dump import lines
from ottla.errors import OttlaError
from ottla.inspection.walk import FoundBatch, InvalidRange, Walk
from ottla.log.disk import File
from ottla.records.batch import LENGTH_END, Batch
from ottla.records.control import ControlRecord, read_control
from ottla.records.errors import UNREADABLE

BYTES_MAX: Final = 2**31 - 1
_LENGTH_AT: Final = 8
_HEAD_BYTES: Final = 17  # up to the magic; Kafka reads the length only if there are more bytes
_LENGTH_MIN: Final = 14  # minimum of the oldest format

Contents: TypeAlias = Callable[[int, bytes | None, bytes | None], tuple[str | None, str | None]]
"""Formats key and value of the record at an offset."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    """What to print of a segment."""

    records: bool = False
    heads: bool = True
    """Whether to print the metadata of records."""

    contents: Contents | None = None
    bytes_max: int = BYTES_MAX


@dataclass(slots=True)
class SegmentDump:
    """One pass over a file, which prints its lines and collects its gaps."""

    file: File
    view: SegmentView
    gaps: dict[int, int] = field(default_factory=dict[int, int])
    """Offset before a gap and offset after it; -1 is before the first record."""

    _last: int = -1

    def lines(self) -> Iterator[str]:
        """Return the lines of the file."""
        walk = Walk(self.file)
        for found in walk.batches(lambda _: True):
            if isinstance(found, InvalidRange):
                yield from self._ending(found.position)
                return
            if found.position + found.header.size > self.view.bytes_max:
                return
            yield lines.batch_line(found.header, found.position, is_valid=found.crc_ok is True)
            if self.view.records:
                yield from self._records(found)
        assert walk.tail is not None
        if walk.tail.size:
            yield from self._ending(walk.tail.position)

    def _ending(self, position: int) -> Iterator[str]:
        """Return the line of an incomplete batch; raises OttlaError for an invalid one."""
        left = min(self.file.size(), self.view.bytes_max) - position
        length = int.from_bytes(self.file.read(position + _LENGTH_AT, 4), "big", signed=True)
        if left > _HEAD_BYTES:
            if length < _LENGTH_MIN:
                raise OttlaError(
                    f"Found record size {length} smaller than minimum record overhead "
                    f"({_LENGTH_MIN}) in file {self.file.path}."
                )
            if LENGTH_END + length <= left:
                raise OttlaError(f"{self.file.path}: no batch of a known format at {position}")
        if self.view.bytes_max == BYTES_MAX and left > 0:
            name = self.file.path.rpartition("/")[2]
            yield f"Found {left} invalid bytes at the end of {name}"

    def _records(self, found: FoundBatch) -> Iterator[str]:
        header, view = found.header, self.view
        if found.batch is None:
            raise OttlaError(f"{self.file.path}: a batch of {header.size} bytes is too large")
        control = _control(found.batch) if header.is_control else None
        try:
            for record in found.batch.records():
                if record.offset != self._last + 1:
                    self.gaps[self._last] = record.offset
                self._last = record.offset
                line = ""
                if view.heads:
                    line = lines.record_head(
                        header,
                        record.offset,
                        record.timestamp,
                        (_size(record.key), _size(record.value)),
                        [name for name, _ in record.headers],
                    ) + lines.control_words(control)
                if view.contents is not None and not header.is_control:
                    key, value = view.contents(record.offset, record.key, record.value)
                    line += lines.contents(key, value, is_alone=not view.heads)
                yield line
        except UNREADABLE as error:
            raise OttlaError(f"{self.file.path}: the batch at {found.position}: {error}") from None


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _control(batch: Batch) -> ControlRecord | None:
    """Read the record of a control batch; None if it is unknown."""
    try:
        return read_control(batch)
    except OttlaError:
        return None
