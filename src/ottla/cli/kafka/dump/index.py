"""Index files of a segment, printed and compared with its records like Kafka's tool does.

Invariant: an index ends at the zeros that Kafka preallocates after the entries. Mismatches are
printed at the end. Only with Check.SANITY, an index that a broker would reject is an error.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from ottla.cli.kafka.hash_order import in_hash_order
from ottla.errors import OttlaError
from ottla.log.disk import File
from ottla.log.segment.index import OffsetIndex, TimeIndex
from ottla.records.batch import HEADER, BatchHeader, read_header
from ottla.records.errors import CorruptRecords


class Check(Enum):
    """What to do with an index."""

    SHOW = "show and compare"
    COMPARE = "compare"
    SANITY = "check whether a broker would accept it"


@dataclass(slots=True)
class IndexDump:
    """Mismatches between indexes and records, by the path of the index."""

    offsets: dict[str, dict[int, int]] = field(default_factory=dict[str, dict[int, int]])
    """Offset of an entry, and the last offset of the batch at its position."""

    times: dict[str, list[tuple[int, int]]] = field(
        default_factory=dict[str, list[tuple[int, int]]]
    )
    """Timestamp of an entry, and that of its batch."""

    falling: dict[str, list[tuple[int, int]]] = field(
        default_factory=dict[str, list[tuple[int, int]]]
    )
    """Timestamp of an entry, and that of the entry before, which is not lower."""

    missing: dict[str, list[tuple[int, int]]] = field(
        default_factory=dict[str, list[tuple[int, int]]]
    )
    """Offset of an entry that no batch ends with, and the last offset of the batch with it, or -1.
    """

    def offset_lines(
        self, shown: str, index: File, records: File, base_offset: int, check: Check
    ) -> Iterator[str]:
        """Return the lines of an `.index` file."""
        entries = _offsets(index, base_offset)
        if not entries:
            yield f"{shown} is empty."
            return
        if check is Check.SANITY:
            _same_size(index, OffsetIndex.ENTRY.size)
            if entries[-1][0] <= base_offset:
                raise OttlaError(
                    f"Corrupt index found, index file ({index.path}) has non-zero size but the "
                    f"last offset is {entries[-1][0]} which is no greater than the base offset "
                    f"{base_offset}"
                )
            yield f"{shown} passed sanity check."
            return
        for number, (offset, position) in enumerate(entries):
            if offset == base_offset and number:
                return
            last = _header(records, position).last_offset
            if last != offset:
                self.offsets.setdefault(index.path, {})[offset] = last
            if check is Check.SHOW:
                yield f"offset: {offset} position: {position}"

    def time_lines(
        self, shown: str, index: File, offsets: File, records: File, base_offset: int, check: Check
    ) -> Iterator[str]:
        """Return the lines of a `.timeindex` file; needs the offset index of the same segment."""
        entries = [
            (timestamp, base_offset + relative)
            for timestamp, relative in TimeIndex.ENTRY.iter_unpack(
                _whole(index, TimeIndex.ENTRY.size)
            )
        ]
        if check is Check.SANITY:
            _same_size(index, TimeIndex.ENTRY.size)
            if entries and entries[-1][0] < entries[0][0]:
                raise OttlaError(
                    f"Corrupt time index found, time index file ({index.path}) has non-zero size "
                    f"but the last timestamp is {entries[-1][0]} which is less than the first "
                    f"timestamp {entries[0][0]}"
                )
            yield f"{shown} passed sanity check."
            return
        places = _offsets(offsets, base_offset)
        before = -1
        for number, (timestamp, offset) in enumerate(entries):
            if offset == base_offset and number:
                return
            self._compare_time(index.path, timestamp, offset, before, records, places)
            if check is Check.SHOW:
                yield f"timestamp: {timestamp} offset: {offset}"
            before = timestamp

    def _compare_time(
        self,
        path: str,
        timestamp: int,
        offset: int,
        before: int,
        records: File,
        places: list[tuple[int, int]],
    ) -> None:
        position = max((place for at, place in places if at <= offset), default=0)
        header = _batch_with(records, position, offset)
        if header is None or header.last_offset != offset:
            last = -1 if header is None else header.last_offset
            self.missing.setdefault(path, []).append((offset, last))
            return
        if header.max_timestamp != timestamp:
            self.times.setdefault(path, []).append((timestamp, header.max_timestamp))
        if before >= timestamp:
            self.falling.setdefault(path, []).append((timestamp, before))

    def complaints(self) -> Iterator[str]:
        """Return the mismatches; files are in the order of Kafka's tool."""
        for path in in_hash_order(self.offsets, is_computed=True):
            yield f"Mismatches in :{path}"
            for offset, last in sorted(self.offsets[path].items(), reverse=True):
                yield f"  Index offset: {offset}, log offset: {last}"
        for path in in_hash_order(self.times, is_computed=True):
            yield f"Found timestamp mismatch in :{path}"
            for ours, theirs in self.times[path]:
                yield f"  Index timestamp: {ours}, log timestamp: {theirs}"
        for path in in_hash_order(self.falling, is_computed=True):
            yield f"Found out of order timestamp in :{path}"
            for ours, theirs in self.falling[path]:
                yield f"  Index timestamp: {ours}, Previously indexed timestamp: {theirs}"
        for path in in_hash_order(self.missing, is_computed=True):
            yield f"The following indexed offsets are not found in :{path}"
            for ours, theirs in self.missing[path]:
                yield f"Indexed offset: {ours}, found log offset: {theirs}"


def _offsets(index: File, base_offset: int) -> list[tuple[int, int]]:
    entry = OffsetIndex.ENTRY
    return [
        (base_offset + relative, position)
        for relative, position in entry.iter_unpack(_whole(index, entry.size))
    ]


def _whole(index: File, size: int) -> bytes:
    """Read the bytes of whole entries; an index has at most 10 MB."""
    return index.read(0, index.size() // size * size)


def _same_size(index: File, size: int) -> None:
    if index.size() % size:
        raise OttlaError(
            f"Index file {index.path} is corrupt, found {index.size()} bytes which is neither "
            f"positive nor a multiple of {size}."
        )


def _header(records: File, position: int) -> BatchHeader:
    try:
        return read_header(records.read(position, HEADER.size))
    except CorruptRecords as error:
        raise OttlaError(f"{records.path}: no batch at {position}: {error}") from None


def _batch_with(records: File, position: int, offset: int) -> BatchHeader | None:
    """Return the first batch from this position that ends at or after an offset."""
    size = records.size()
    while position + HEADER.size <= size:
        try:
            header = read_header(records.read(position, HEADER.size))
        except CorruptRecords:
            return None
        if header.last_offset >= offset:
            return header
        position += header.size
    return None
