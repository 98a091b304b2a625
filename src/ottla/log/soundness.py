"""Whether the batches of a records file are what was once written (rule C3).

Invariant: everything before the end that is returned has the right size, magic and CRC, the
batches that are named as damaged excepted, and offsets that rise from the segment's base offset
and fit its indexes. Records are not decoded: the CRC covers them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from fastcrc.crc32 import iscsi as crc32c

from ottla.ids import Offset
from ottla.log.segment import Extent, Segment
from ottla.records.batch import CRC_END, LENGTH_END, NO_TIMESTAMP, BatchHeader, unpack_header
from ottla.records.errors import CorruptRecords
from ottla.records.kernel import HEADER_SIZE

Note = Callable[[int, BatchHeader, int], None]
"""Takes the position of a batch, its header, and its largest timestamp as far as it is known."""

# As much as is read at once. Less costs calls, more costs memory.
CHUNK_BYTES = 1024 * 1024


@dataclass(slots=True)
class Sound:
    """How far a file is right."""

    size: int  # of the batches that are right
    next_offset: Offset
    damaged: list[Extent] = field(default_factory=list[Extent])  # of these, what was right once
    problem: str | None = None  # with the batch behind them; None: there is none


def sound_until(
    segment: Segment,
    *,
    flushed_until: int,
    gaps_until: int | None,
    note: Note,
    progress: Callable[[int], None],
) -> Sound:
    """Check a records file from its beginning, and note each batch.

    A batch below `flushed_until` was right once: where only its CRC is wrong the file goes on
    behind it, and so does the check (rule C4). Offsets may be missing between batches that begin
    up to `gaps_until`, None being no bound.
    """
    sound = Sound(0, segment.base_offset)
    size, last_offset_max = segment.size, segment.offset_max
    chunk, chunk_at = memoryview(b""), 0
    try:
        while sound.size < size:
            position = sound.size
            at = position - chunk_at
            if len(chunk) - at < HEADER_SIZE:
                chunk, chunk_at, at = _chunk(segment, position, CHUNK_BYTES), position, 0
                progress(position)
            header = unpack_header(chunk, at)
            end = at + LENGTH_END + header.length
            if chunk_at + end > size:
                raise CorruptRecords("a batch is cut off")
            if end > len(chunk):
                wanted = max(CHUNK_BYTES, end - at)
                chunk, chunk_at, at, end = _chunk(segment, position, wanted), position, 0, end - at
                progress(position)
            last_offset = _checked_last_offset(header, sound.next_offset, gaps_until)
            if last_offset > last_offset_max:
                raise CorruptRecords(f"offset {last_offset} does not fit the segment")
            timestamp = header.max_timestamp
            if crc32c(chunk[at + CRC_END : end]) != header.crc:
                if last_offset >= flushed_until:
                    raise CorruptRecords("the CRC is wrong")
                sound.damaged.append(Extent(position, end - at))
                timestamp = NO_TIMESTAMP
            note(position, header, timestamp)
            sound.size = chunk_at + end
            sound.next_offset = Offset(last_offset + 1)
    except CorruptRecords as error:
        sound.problem = str(error)
    progress(size)
    return sound


def _chunk(segment: Segment, position: int, size: int) -> memoryview:
    return memoryview(segment.file.read(position, size))


def _checked_last_offset(header: BatchHeader, expected: int, gaps_until: int | None) -> int:
    base_offset, delta = header.base_offset, header.last_offset_delta
    gap = base_offset > expected and gaps_until is not None and base_offset > gaps_until
    if delta < 0 or base_offset < expected or gap:
        raise CorruptRecords(
            f"a batch from {base_offset} with {delta} more, expected was {expected}"
        )
    return base_offset + delta
