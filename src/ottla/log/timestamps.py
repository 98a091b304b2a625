"""Finding offsets by the time of their records.

Invariant: of the records that a log holds from its start on, the first one answers that is as late
as asked for; only the batch that has it is decoded.
"""

from typing import NamedTuple

from ottla.ids import LeaderEpoch, Offset
from ottla.log.heads import BrokenSegment, Head
from ottla.log.reading import Read
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.records.batch import NO_TIMESTAMP, Batch


class FoundOffset(NamedTuple):
    """An offset with its record's timestamp and the epoch of the leader that wrote it."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


def first_from_time(
    segments: Segments, timestamp: int, log_start: int, read: Read
) -> FoundOffset | None:
    """The first record of a time or later; None when all are earlier."""
    for segment in segments.from_offset(log_start):
        for head in segment.from_time(timestamp, read):
            if head.last_offset >= log_start:
                found = _in_batch(segment, head, timestamp, log_start, read)
                if found is not None:
                    return found
    return None


def latest_time(segments: Segments, log_start: int, read: Read) -> FoundOffset | None:
    """The first record with the largest timestamp; None in a log without timestamps."""
    candidates = segments.from_offset(log_start)
    largest = max(segment.latest.timestamp for segment in candidates)
    if largest == NO_TIMESTAMP:
        return None
    found = first_from_time(segments, largest, log_start, read)
    if found is not None:
        return found
    # What was latest is below the log's start by now: look at every batch that is left.
    tops = [
        head.max_timestamp
        for segment in candidates
        for head in segment.heads(0, segment.size, read)
        if head.base_offset >= log_start and head.max_timestamp != NO_TIMESTAMP
    ]
    return first_from_time(segments, max(tops), log_start, read) if tops else None


def _in_batch(
    segment: Segment, head: Head, timestamp: int, log_start: int, read: Read
) -> FoundOffset | None:
    batch = Batch(read(segment.file, head.position, head.size))
    if not batch.crc_ok:
        raise BrokenSegment(segment.base_offset, f"{segment.file.path}: a CRC is wrong")
    for record in batch.records(from_offset=log_start):
        if record.timestamp >= timestamp:
            return FoundOffset(Offset(record.offset), record.timestamp, head.leader_epoch)
    return None
