"""The parts of records as lists, from columns.

Invariant: a list has one entry per record, in log order. The bytes of a part are copied once and
then cut.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

from ottla.ids import TopicPartition
from ottla.protocol.primitives import Buffer
from ottla.records import Column, Columns, TimestampType

STRETCH_BYTES: Final = 4 << 20
"""Bytes of keys and values that are converted at once."""

STRETCH_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Taken:
    """Records of one partition that arrived together."""

    partition: TopicPartition
    columns: Columns
    next_offset: int
    """The offset after them and after what is not a record."""

    epochs: Sequence[tuple[int, int]] = ()
    """Leader epochs by base offset; -1 if unknown."""

    @property
    def rows(self) -> int:
        """The number of records."""
        return self.columns.rows

    @property
    def size(self) -> int:
        """The bytes of keys and values."""
        return _size(self.columns.keys) + _size(self.columns.values)

    def before(self, offset: int) -> int:
        """Return how many of them are before an offset."""
        return bisect_left(_numbers(self.columns.offsets), offset, hi=self.rows)

    def offset_of(self, row: int) -> int:
        """Return the offset of a row."""
        return _numbers(self.columns.offsets)[row]

    def stretches(self, rows: int) -> Iterator["Cells"]:
        """Yield the first rows in stretches that fit into memory."""
        start = 0
        while start < rows:
            stop = min(
                rows,
                start + STRETCH_ROWS,
                _stop(self.columns.keys, start),
                _stop(self.columns.values, start),
            )
            yield Cells(self, start, stop)
            start = stop


def _stop(column: Column | None, start: int) -> int:
    """Return the row at which a stretch is long enough."""
    if column is None:
        return start + STRETCH_ROWS
    edges, first = _edges(column), column.start + start
    end = column.start + column.length + 1
    stop = bisect_right(edges, edges[first] + STRETCH_BYTES, first + 1, end) - 1 - column.start
    return max(stop, start + 1)


class Cells:
    """Rows of what was taken, part by part."""

    __slots__ = ("_taken", "count", "start", "stop")

    def __init__(self, taken: Taken, start: int, stop: int) -> None:
        self._taken = taken
        self.start: Final = start
        self.stop: Final = stop
        self.count: Final = stop - start

    @property
    def partition(self) -> TopicPartition:
        """The partition of all rows."""
        return self._taken.partition

    def offsets(self) -> list[int]:
        """The offsets."""
        return _numbers(self._taken.columns.offsets)[self.start : self.stop].tolist()

    def timestamps(self) -> list[int]:
        """Milliseconds since 1970; -1 without a timestamp."""
        return _numbers(self._taken.columns.timestamps)[self.start : self.stop].tolist()

    def timestamp_types(self) -> list[TimestampType]:
        """The timestamp types."""
        found: list[TimestampType] = []
        for kind, rows in self._taken.columns.timestamp_types:
            found += [kind] * rows
        return found[self.start : self.stop]

    def epochs(self) -> list[int]:
        """The leader epochs."""
        since = [offset for offset, _ in self._taken.epochs]
        return [
            self._taken.epochs[bisect_right(since, offset) - 1][1] if since else -1
            for offset in self.offsets()
        ]

    def keys(self) -> list[bytes | None]:
        """The keys."""
        return cut(self._taken.columns.keys, self.start, self.stop)

    def values(self) -> list[bytes | None]:
        """The values."""
        return cut(self._taken.columns.values, self.start, self.stop)

    def headers(self) -> list[list[tuple[bytes, bytes | None]]]:
        """The headers, names in UTF-8."""
        headers = self._taken.columns.headers
        if headers is None or not headers.keys.length:
            return [[] for _ in range(self.count)]
        edges = memoryview(headers.offsets).cast("B").cast("q" if headers.large else "i")
        first, last = edges[headers.start + self.start], edges[headers.start + self.stop]
        pairs = zip(
            (name or b"" for name in cut(headers.keys, first, last)),
            cut(headers.values, first, last),
            strict=True,
        )
        counts = edges[headers.start + self.start : headers.start + self.stop + 1].tolist()
        return [[*islice(pairs, stop - start)] for start, stop in pairwise(counts)]


def cut(column: Column | None, start: int, stop: int) -> list[bytes | None]:
    """Return rows of a column."""
    if column is None:
        return [None] * (stop - start)
    if start == stop:
        return []
    first = column.start + start
    edges = _edges(column)[first : column.start + stop + 1]
    begin, end = edges[0], edges[-1]
    data = bytes(memoryview(column.data)[begin:end])
    at = edges.tolist()
    if begin:
        at = [edge - begin for edge in at]
    if column.validity is None:
        return [data[a:b] for a, b in pairwise(at)]
    valid = column.validity
    return [
        data[a:b] if valid[row >> 3] >> (row & 7) & 1 else None
        for row, (a, b) in enumerate(pairwise(at), first)
    ]


def _size(column: Column | None) -> int:
    if column is None:
        return 0
    edges = _edges(column)
    return edges[column.start + column.length] - edges[column.start]


def _edges(column: Column) -> "memoryview[int]":
    return memoryview(column.offsets).cast("B").cast("q" if column.large else "i")


def _numbers(buffer: Buffer | None) -> "memoryview[int]":
    assert buffer is not None
    return memoryview(buffer).cast("B").cast("q")
