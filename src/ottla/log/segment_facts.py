"""What a log tells of itself to those who decide what is deleted and cleaned, and who clean it.

Invariant: nothing is changed but what segments remember of their first batch, which is as it is
in the file. Facts are copies: they stay as they were while the log goes on.
"""

from collections.abc import Iterable

from ottla.ids import Offset
from ottla.log.appending import AppendableLog
from ottla.log.cleanable import Cleanable, CleanableSegment, SourceSegment
from ottla.log.cleaning import ActiveProducer, CleaningJob, CleaningLimits
from ottla.log.disk import Disk
from ottla.log.reading import Read
from ottla.log.retention import SegmentFacts
from ottla.log.segment import Segment
from ottla.log.segments import Segments


def know_first_timestamps(segments: Segments, from_offset: int, read: Read) -> None:
    """Let the segments from an offset on know how old their first batch is."""
    for segment in segments.from_offset(from_offset):
        if segment.first_timestamp is None:
            segment.first_timestamp = segment.read_first_timestamp(read)


def segment_facts(disk: Disk, segments: Segments, end: Offset) -> list[SegmentFacts]:
    """What the decision on a deletion needs of each segment."""
    return [
        SegmentFacts(end_offset, segment.size, latest_ms(disk, segment))
        for segment, end_offset in _with_ends(segments, end)
    ]


def segment_dirt(disk: Disk, segments: Segments, end: Offset) -> list[CleanableSegment]:
    """What the decision on a cleaning needs of each segment."""
    return [
        CleanableSegment(
            segment.base_offset,
            end_offset,
            segment.size,
            latest_ms(disk, segment),
            segment.first_timestamp,
            bool(segment.damaged),
        )
        for segment, end_offset in _with_ends(segments, end)
    ]


def latest_ms(disk: Disk, segment: Segment) -> int:
    """The largest timestamp, or when the file was changed if there is none."""
    timestamp = segment.latest.timestamp
    return timestamp if timestamp >= 0 else disk.modified_ms(segment.file.path)


def cleaning_job(
    log: AppendableLog, dirt: Cleanable, limits: CleaningLimits, now_ms: int, secret: bytes
) -> CleaningJob:
    """The job that cleans a log as it is now."""
    first = log.segments.first.base_offset
    rules = log.rules
    return CleaningJob(
        log.folder,
        tuple(
            SourceSegment(
                segment.base_offset,
                end_offset,
                segment.size,
                segment.offsets.size,
                segment.times.size,
            )
            for segment, end_offset in _with_ends(log.segments, log.next_offset)
            if segment.base_offset < dirt.end_offset
        ),
        dirt.first_dirty_offset,
        dirt.end_offset,
        now_ms,
        rules.delete_retention_ms,
        rules.segment_bytes,
        rules.index_bytes_max,
        rules.index_interval_bytes,
        secret,
        tuple(
            ActiveProducer(producer.producer_id, producer.epoch, producer.last_offset)
            for producer in log.producers
        ),
        tuple(log.segments.aborted(first, dirt.end_offset)),
        limits,
    )


def _with_ends(segments: Segments, end: Offset) -> Iterable[tuple[Segment, Offset]]:
    bases = [segment.base_offset for segment in segments]
    return zip(segments, [*bases[1:], end], strict=True)
