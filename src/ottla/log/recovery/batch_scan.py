"""Scans the batches of a segment and checks them (rules C3 and C4).

Invariant: every batch that was passed has a valid size, magic and CRC. Its offsets follow those
before it and stay below the next segment; everything else is reported as damage. Below
`flushed_until` everything was valid once, so damage there is skipped (rule C4). Above it, the first
invalid batch ends the scan (rule C3). Records are not decoded: the CRC covers them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fastcrc.crc32 import iscsi as crc32c

from ottla.ids import Offset
from ottla.log.damage import Damage
from ottla.log.errors import CorruptIndex
from ottla.log.recovery.resync import (
    CHUNK_BYTES,
    Offsets,
    crc_of,
    find_resync_point,
    valid_batch_at,
)
from ottla.log.segment.index import OffsetIndex
from ottla.log.segment.segment import Segment
from ottla.records.batch import (
    CRC_END,
    HEADER_SIZE,
    LENGTH_END,
    BatchHeader,
    scan_headers,
    unpack_header,
)
from ottla.records.errors import CorruptRecords


class ScanObserver(Protocol):
    """Receives the results of a scan, in file order."""

    def batches(self, position: int, headers: Sequence[BatchHeader]) -> None:
        """Receive valid batches that follow each other from a position on."""
        ...

    def damage(self, damage: Damage) -> None:
        """Receive a damaged range."""
        ...


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """What is known about a segment before the scan."""

    flushed_until: int  # everything below was valid once
    # Compaction leaves gaps between batches. Otherwise a gap above the recovery point is a damaged
    # base offset, which no CRC covers. Gaps are allowed below this offset; None: everywhere.
    gaps_until: int | None
    end_offset: int  # the base offset of the next segment
    reaches: bool  # the segment must have records up to `flushed_until`


@dataclass(slots=True)
class ScanResult:
    """The result of a scan so far."""

    next_offset: Offset
    size: int = 0  # of the passed bytes
    damaged: list[Damage] = field(default_factory=list[Damage])
    problem: str | None = None  # why the file must be truncated here (rule C3)


class BatchScan:
    """The scan of one segment, a chunk at a time, so that the caller can pause."""

    __slots__ = ("_bounds", "_file", "_hints", "_limit", "_observer", "_size", "done", "result")

    def __init__(
        self,
        segment: Segment,
        bounds: ScanBounds,
        hints: OffsetIndex,
        observer: ScanObserver,
        *,
        after: ScanResult | None = None,
    ) -> None:
        """`hints` is the readable part of the offset index; any of its entries may be wrong.

        With `after`, the scan continues where another one has ended.
        """
        self.result = ScanResult(segment.base_offset)
        if after is not None:
            self.result = ScanResult(after.next_offset, after.size)
        self.done = False
        self._file = segment.file
        self._size = segment.size
        self._bounds = bounds
        self._hints = hints
        self._observer = observer
        self._limit = min(segment.offset_max + 1, bounds.end_offset)

    def step(self) -> None:
        """Check the batches of one chunk; waits for the device."""
        result = self.result
        if result.size < self._size:
            try:
                self._scan_batches()
            except CorruptRecords as error:
                self._skip_damage(str(error))
        self.done = result.problem is not None
        if not self.done and result.size >= self._size:
            self._end()
            self.done = True

    def _scan_batches(self) -> None:
        """Pass the valid batches of one chunk; CorruptRecords at an invalid one."""
        result, start, size = self.result, self.result.size, self._size
        chunk = self._file.read(start, min(CHUNK_BYTES, size - start))
        at, has_more = 0, start + len(chunk) < size
        if not chunk:
            raise CorruptRecords("the file was truncated")
        while True:
            headers, end = scan_headers(chunk, at, expected=result.next_offset, limit=self._limit)
            if headers:
                self._observer.batches(start + at, headers)
                result.size, result.next_offset = start + end, headers[-1].next_offset
                at = end
            if at >= len(chunk) or (at and has_more and _is_cut(chunk, at)):
                return  # the next chunk starts with the rest
            at = self._scan_one(chunk, at)

    def _scan_one(self, chunk: bytes, at: int) -> int:
        """Pass a batch after a gap, or one that is larger than a chunk; return its end."""
        result, position = self.result, self.result.size
        header = unpack_header(chunk, at)
        end = position + header.size
        if end > self._size:
            raise CorruptRecords("incomplete batch")
        self._check_order(header, result.next_offset, end)
        if header.next_offset > self._limit:
            raise CorruptRecords(f"offset {header.last_offset} is outside of the segment")
        if at + header.size <= len(chunk):
            crc: int | None = crc32c(memoryview(chunk)[at + CRC_END : at + header.size])
        else:
            crc = crc_of(self._file, position + CRC_END, end)
        if crc != header.crc:
            raise CorruptRecords("wrong CRC")
        self._observer.batches(position, [header])
        result.size, result.next_offset = end, header.next_offset
        return at + header.size

    def _check_order(self, header: BatchHeader, expected: int, end: int) -> None:
        """Reject a batch that does not start at the expected offset, unless a gap is allowed."""
        base_offset, delta = header.base_offset, header.last_offset_delta
        gaps_until = self._bounds.gaps_until
        if (
            delta < 0
            or base_offset < expected
            or (gaps_until is not None and base_offset > max(expected, gaps_until))
            or base_offset
            < self._bounds.flushed_until
            < header.next_offset  # a flush ends with a batch
            or self._contradicts_next(header, expected, end)
        ):
            raise CorruptRecords(
                f"base offset {base_offset} with last offset delta {delta}, expected {expected}"
            )

    def _contradicts_next(self, header: BatchHeader, expected: int, end: int) -> bool:
        """Whether the next batch is valid and shows that there is no gap.

        No CRC covers a base offset. Of two contradicting batches, the one that continues the log is
        right.
        """
        if header.base_offset == expected:
            return False
        next_base = self._file.read(end, 8)
        if int.from_bytes(next_base, "big") >= header.next_offset:
            return False  # in order; no need to read more of it
        following = valid_batch_at(self._file, end, self._size)
        return following is not None and expected <= following.base_offset < header.next_offset

    def _skip_damage(self, problem: str) -> None:
        """Apply rule C4 below the recovery point, rule C3 above it."""
        result, flushed = self.result, self._bounds.flushed_until
        if result.next_offset >= flushed:
            result.problem = problem
            return
        position, following = self._next_valid(result.next_offset)
        if following is not None and following.base_offset > flushed:
            # A batch between the damage and this one is missing: it may never have been written.
            result.problem, following = problem, None
        end = self._flushed_end if following is None else following.base_offset
        self._note(Damage(result.next_offset, Offset(end), result.size, position - result.size))

    def _next_valid(self, expected: int) -> tuple[int, BatchHeader | None]:
        """The position and header of the next valid batch; the end of the file and None."""
        file, start, stop = self._file, self.result.size, self._size
        offsets = Offsets(expected, self._limit)
        # If the header agrees with the offsets before and after it, the damage is one batch.
        try:
            header = unpack_header(file.read(start, HEADER_SIZE))
            end = start + header.size
            following = valid_batch_at(file, end, stop)
            if (
                following is not None
                and header.base_offset == expected
                and header.next_offset == following.base_offset
                and offsets.have(following)
            ):
                return end, following
        except CorruptRecords:
            pass
        resync_point = find_resync_point(file, start + 1, stop, offsets, self._hints.after(start))
        while resync_point is not None:
            position, header = resync_point
            if not self._contradicts_next(header, expected, position + header.size):
                return position, header
            resync_point = find_resync_point(file, position + 1, stop, offsets, ())
        return stop, None

    @property
    def _flushed_end(self) -> int:
        """The offset up to which the records of this segment were on the device."""
        return max(min(self._limit, self._bounds.flushed_until), self.result.next_offset)

    def _end(self) -> None:
        """Report records that are missing at the end, by recovery point or offset index."""
        result = self.result
        if (self._bounds.reaches or self._index_has_more()) and (
            result.next_offset < self._flushed_end
        ):
            self._note(Damage(result.next_offset, Offset(self._flushed_end), result.size, 0))

    def _index_has_more(self) -> bool:
        try:
            self._hints.check(every_entry=True)
        except CorruptIndex:
            return False
        known = self._hints.last.offset
        return bool(self._hints.entries) and self.result.next_offset <= known < self._limit

    def _note(self, damage: Damage) -> None:
        result = self.result
        result.damaged.append(damage)
        result.size, result.next_offset = damage.end, damage.end_offset
        self._observer.damage(damage)


def _is_cut(chunk: bytes, at: int) -> bool:
    """Whether a batch extends beyond a chunk, as far as its header tells."""
    if len(chunk) - at < HEADER_SIZE:
        return True
    return LENGTH_END + int.from_bytes(chunk[at + 8 : at + LENGTH_END], "big") > len(chunk) - at
