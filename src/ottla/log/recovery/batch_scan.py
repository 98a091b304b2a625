"""Whether the batches of a records file are what was once written (rules C3 and C4).

Invariant: everything that was passed has the right size, magic and CRC, and offsets that rise from
the segment's base offset and end below the next segment's; what of it has not is named as damaged.
Below `flushed_until` everything was right once, so damage there is passed over and never ends the
check (rule C4); above it the first wrong batch does (rule C3). Records are not decoded: the CRC
covers them.
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
from ottla.records.batch import CRC_END, LENGTH_END, BatchHeader, unpack_header
from ottla.records.errors import CorruptRecords
from ottla.records.kernel import HEADER_SIZE, right_batches


class ScanObserver(Protocol):
    """Who is told what the check meets, in its order."""

    def batches(self, position: int, headers: Sequence[BatchHeader]) -> None:
        """Batches that are right, one behind the other from a position on."""
        ...

    def damage(self, damage: Damage) -> None:
        """What was passed over."""
        ...


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """What is known of a segment before it is checked."""

    flushed_until: int  # everything below was right once
    # Compaction leaves gaps between batches. Elsewhere, one above the recovery point is damage to
    # a base offset, which no CRC covers; so they are allowed up to here, None being everywhere.
    gaps_until: int | None
    end_offset: int  # no record is at or above it: there begins the next segment
    reaches: bool  # the segment has records up to `flushed_until`, whatever its file says


@dataclass(slots=True)
class ScanResult:
    """What a check has come to."""

    next_offset: Offset
    size: int = 0  # of what was passed
    damaged: list[Damage] = field(default_factory=list[Damage])
    problem: str | None = None  # why the file must be cut here (rule C3)


class BatchScan:
    """The check of one segment, a chunk at a time, so that whoever runs it may pause."""

    __slots__ = ("_bounds", "_file", "_hints", "_limit", "_size", "_witness", "done", "sound")

    def __init__(
        self, segment: Segment, bounds: ScanBounds, hints: OffsetIndex, witness: ScanObserver
    ) -> None:
        """`hints` is what is left of the offset index; any of its entries may be wrong."""
        self.sound = ScanResult(segment.base_offset)
        self.done = False
        self._file = segment.file
        self._size = segment.size
        self._bounds = bounds
        self._hints = hints
        self._witness = witness
        self._limit = min(segment.offset_max + 1, bounds.end_offset)

    def step(self) -> None:
        """Check the batches of one chunk; waits for the device."""
        sound = self.sound
        if sound.size < self._size:
            try:
                self._pass_batches()
            except CorruptRecords as error:
                self._pass_damage(str(error))
        self.done = sound.problem is not None
        if not self.done and sound.size >= self._size:
            self._end()
            self.done = True

    def _pass_batches(self) -> None:
        """Go past the right batches of one chunk; CorruptRecords at one that is wrong."""
        sound, start, size = self.sound, self.sound.size, self._size
        chunk = self._file.read(start, min(CHUNK_BYTES, size - start))
        at, behind = 0, start + len(chunk) < size
        if not chunk:
            raise CorruptRecords("the file has become shorter")
        while True:
            headers, end = right_batches(
                chunk, at, sound.next_offset, self._limit, BatchHeader, crc32c
            )
            if headers:
                self._witness.batches(start + at, headers)
                sound.size, sound.next_offset = start + end, headers[-1].next_offset
                at = end
            if at >= len(chunk) or (at and behind and _is_cut(chunk, at)):
                return  # the next chunk begins with what is left
            at = self._pass_one(chunk, at)

    def _pass_one(self, chunk: bytes, at: int) -> int:
        """Go past a batch behind a gap, or one that is larger than a chunk; where it ends."""
        sound, position = self.sound, self.sound.size
        header = unpack_header(chunk, at)
        end = position + header.size
        if end > self._size:
            raise CorruptRecords("a batch is cut off")
        self._check_order(header, sound.next_offset, end)
        if header.next_offset > self._limit:
            raise CorruptRecords(f"offset {header.last_offset} does not fit the segment")
        if at + header.size <= len(chunk):
            crc: int | None = crc32c(memoryview(chunk)[at + CRC_END : at + header.size])
        else:
            crc = crc_of(self._file, position + CRC_END, end)
        if crc != header.crc:
            raise CorruptRecords("the CRC is wrong")
        self._witness.batches(position, [header])
        sound.size, sound.next_offset = end, header.next_offset
        return at + header.size

    def _check_order(self, header: BatchHeader, expected: int, end: int) -> None:
        """Refuse a batch that does not begin where the one before it ends, unless it may."""
        base_offset, delta = header.base_offset, header.last_offset_delta
        gaps_until = self._bounds.gaps_until
        if (
            delta < 0
            or base_offset < expected
            or (gaps_until is not None and base_offset > max(expected, gaps_until))
            or base_offset < self._bounds.flushed_until < header.next_offset  # a flush ends a batch
            or self._is_overtaking(header, expected, end)
        ):
            raise CorruptRecords(
                f"a batch from {base_offset} with {delta} more, expected was {expected}"
            )

    def _is_overtaking(self, header: BatchHeader, expected: int, end: int) -> bool:
        """Whether the batch behind a gap is right and shows that there is none.

        No CRC covers a base offset. Of two batches that contradict each other, the one that goes
        on where the log was is right.
        """
        if header.base_offset == expected:
            return False
        following = self._file.read(end, 8)
        if int.from_bytes(following, "big") >= header.next_offset:
            return False  # as it should be, and without reading more of it
        behind = valid_batch_at(self._file, end, self._size)
        return behind is not None and expected <= behind.base_offset < header.next_offset

    def _pass_damage(self, problem: str) -> None:
        """Rule C4 below the recovery point, rule C3 above it."""
        sound, flushed = self.sound, self._bounds.flushed_until
        if sound.next_offset >= flushed:
            sound.problem = problem
            return
        position, behind = self._next_right(sound.next_offset)
        if behind is not None and behind.base_offset > flushed:
            # Between the damage and this batch one is missing that may never have been written.
            sound.problem, behind = problem, None
        end = self._flushed_end if behind is None else behind.base_offset
        self._note(Damage(sound.next_offset, Offset(end), sound.size, position - sound.size))

    def _next_right(self, expected: int) -> tuple[int, BatchHeader | None]:
        """Where the file goes on, and with which batch; its end, and none."""
        file, start, stop = self._file, self.sound.size, self._size
        offsets = Offsets(expected, self._limit)
        # Where a header agrees with what lies before and behind the batch, all between is one.
        try:
            header = unpack_header(file.read(start, HEADER_SIZE))
            end = start + header.size
            behind = valid_batch_at(file, end, stop)
            if (
                behind is not None
                and header.base_offset == expected
                and header.next_offset == behind.base_offset
                and offsets.have(behind)
            ):
                return end, behind
        except CorruptRecords:
            pass
        foothold = find_resync_point(file, start + 1, stop, offsets, self._hints.behind(start))
        while foothold is not None:
            position, header = foothold
            if not self._is_overtaking(header, expected, position + header.size):
                return position, header
            foothold = find_resync_point(file, position + 1, stop, offsets, ())
        return stop, None

    @property
    def _flushed_end(self) -> int:
        """The offset up to which this segment's records were on the device."""
        return max(min(self._limit, self._bounds.flushed_until), self.sound.next_offset)

    def _end(self) -> None:
        """Whether the file had more: up to the recovery point, or what its index tells of."""
        sound = self.sound
        if (self._bounds.reaches or self._has_index_of_more()) and (
            sound.next_offset < self._flushed_end
        ):
            self._note(Damage(sound.next_offset, Offset(self._flushed_end), sound.size, 0))

    def _has_index_of_more(self) -> bool:
        try:
            self._hints.check(every_entry=True)
        except CorruptIndex:
            return False
        known = self._hints.last.offset
        return bool(self._hints.entries) and self.sound.next_offset <= known < self._limit

    def _note(self, damage: Damage) -> None:
        sound = self.sound
        sound.damaged.append(damage)
        sound.size, sound.next_offset = damage.end, damage.end_offset
        self._witness.damage(damage)


def _is_cut(chunk: bytes, at: int) -> bool:
    """Whether a batch goes on behind a chunk, as far as it can be told."""
    if len(chunk) - at < HEADER_SIZE:
        return True
    return LENGTH_END + int.from_bytes(chunk[at + 8 : at + LENGTH_END], "big") > len(chunk) - at
