"""Searches for offsets by timestamp.

Invariant: a search returns the first record at or above the log start offset with this timestamp or
a later one. Only the batch that has the record is decoded. Decoding a large batch and walking many
headers run in a thread. An entry of the time index is used only if its batch agrees and no earlier
batch is later.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, cast

from ottla.errors import OttlaError
from ottla.ids import LeaderEpoch, Offset
from ottla.log.cached_reads import Read, read_blocking
from ottla.log.segment.batch_headers import BrokenSegment, LocatedHeader
from ottla.log.segment.index import TimestampOffset
from ottla.log.segment.segment import Segment
from ottla.log.segment.segments import Segments
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP, Batch
from ottla.records.compression import Compression

INLINE_BYTES_MAX: Final = 4096  # such a batch has a few hundred records at most
INLINE_BATCHES_MAX: Final = 100  # headers that are walked in about a millisecond
BATCHES_PER_STEP: Final = 20_000  # headers per call in a thread


class FoundOffset(NamedTuple):
    """An offset, the timestamp of its record, and the leader epoch of its batch."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


class _RecordLookup(NamedTuple):
    """A search in one batch from a timestamp (None: the latest record) and an offset on."""

    segment: Segment
    header: LocatedHeader
    timestamp: int | None
    log_start: int


class _BatchWalk(NamedTuple):
    """A walk over headers from a position to the next batch of a timestamp; None: over all."""

    segment: Segment
    position: int
    timestamp: int | None
    log_start: int = 0


class _WalkStep(NamedTuple):
    """The result of a part of a walk: the batch that was found, the largest timestamp, the end."""

    late: LocatedHeader | None
    largest: int
    end: int


class SearchPending(Exception):
    """A search needs work that takes long; the caller runs the work and repeats the search."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(work)
        self.work = work


_Result = FoundOffset | _WalkStep | None


class TimeSearch:
    """The intermediate results of one search, which let a repeated search continue.

    They are not valid after a truncation of the log.
    """

    __slots__ = ("_bytes_max", "_ends", "_results")

    def __init__(self, decompressed_bytes_max: int) -> None:
        self._bytes_max = decompressed_bytes_max
        self._results: dict[_RecordLookup | _BatchWalk, _Result | OttlaError] = {}
        self._ends: dict[Segment, int] = {}

    def first_record(
        self,
        segment: Segment,
        header: LocatedHeader,
        timestamp: int | None,
        log_start: int,
        read: Read,
    ) -> FoundOffset | None:
        """The first record at or above the log start with this timestamp; None: the latest record.

        Raises SearchPending if the batch must be decoded in a thread first.
        """
        lookup = _RecordLookup(segment, header, timestamp, log_start)
        if lookup not in self._results:
            batch = Batch(read(segment.file, header.position, header.size))
            work = partial(self._run, lookup, partial(self._decoded, lookup, batch))
            if header.size > INLINE_BYTES_MAX or batch.header.compression is not Compression.NONE:
                raise SearchPending(work)
            work()
        return cast("FoundOffset | None", self._result(lookup))

    def first_batch(self, segment: Segment, position: int, timestamp: int) -> LocatedHeader | None:
        """The first batch with records from a position on that reaches the timestamp."""
        for step in self._walk_steps(_BatchWalk(segment, position, timestamp)):
            if step.late is not None:
                return step.late
        return None

    def latest_batch(self, segment: Segment, position: int, log_start: int) -> int:
        """The largest timestamp of the batches from a position on that start inside the log."""
        walk = _BatchWalk(segment, position, None, log_start)
        return max((one.largest for one in self._walk_steps(walk)), default=NO_TIMESTAMP)

    def _walk_steps(self, walk: _BatchWalk) -> Iterator[_WalkStep]:
        """All steps of a walk, up to the size that the segment had at the first step."""
        segment = walk.segment
        end = self._ends.setdefault(segment, segment.size)
        while walk.position < end:
            if walk not in self._results:
                headers = segment.located_headers(walk.position, end, read_blocking)
                raise SearchPending(partial(self._run, walk, partial(_walk_step, walk, headers)))
            step = cast("_WalkStep", self._result(walk))
            yield step
            walk = walk._replace(position=step.end)

    def _run(self, lookup: _RecordLookup | _BatchWalk, find: Callable[[], _Result]) -> None:
        try:
            self._results[lookup] = find()
        except OttlaError as error:
            self._results[lookup] = error

    def _result(self, lookup: _RecordLookup | _BatchWalk) -> _Result:
        result = self._results[lookup]
        if isinstance(result, OttlaError):
            del self._results[lookup]  # a repeated search may succeed after a repair
            raise result
        return result

    def _decoded(self, lookup: _RecordLookup, batch: Batch) -> FoundOffset | None:
        segment, header, timestamp, log_start = lookup
        if not batch.crc_ok:
            raise BrokenSegment(segment.base_offset, f"{segment.file.path}: wrong CRC")
        records = batch.records(from_offset=log_start, decompressed_bytes_max=self._bytes_max)
        if timestamp is None:
            found = max(records, key=lambda record: record.timestamp, default=None)
        else:
            found = next((record for record in records if record.timestamp >= timestamp), None)
        if found is None:
            return None
        return FoundOffset(Offset(found.offset), found.timestamp, header.leader_epoch)


def _walk_step(walk: _BatchWalk, headers: Iterator[LocatedHeader]) -> _WalkStep:
    """Walk up to BATCHES_PER_STEP headers."""
    _, end, timestamp, log_start = walk
    largest = NO_TIMESTAMP
    for header in islice(headers, BATCHES_PER_STEP):
        end = header.position + header.size
        if _has_records(header):
            if timestamp is not None and header.max_timestamp >= timestamp:
                return _WalkStep(header, largest, end)
            if header.base_offset >= log_start:
                largest = max(largest, header.max_timestamp)
    return _WalkStep(None, largest, end)


def _has_records(header: LocatedHeader) -> bool:
    """Whether a batch has records; compaction keeps some empty batches with their timestamps."""
    return header.size > HEADER_SIZE


def find_first_record(
    segments: Segments, timestamp: int, log_start: int, read: Read, search: TimeSearch
) -> FoundOffset | None:
    """The first record with a timestamp or a later one; None if all are earlier."""
    for segment in segments.from_offset(log_start):
        found = _first_in_segment(segment, timestamp, log_start, read, search)
        if found is not None:
            return found
    return None


def _first_in_segment(
    segment: Segment, timestamp: int, log_start: int, read: Read, search: TimeSearch
) -> FoundOffset | None:
    for header in batches_from(segment, timestamp, log_start, read, search):
        if header.last_offset >= log_start:
            found = search.first_record(segment, header, timestamp, log_start, read)
            if found is not None:
                return found
    return None


def find_latest_record(
    segments: Segments, log_start: int, read: Read, search: TimeSearch
) -> FoundOffset | None:
    """The first record with the largest timestamp; None in a log without timestamps."""
    candidates = segments.from_offset(log_start)
    for segment in candidates:
        verify_latest(segment, read)
    largest = NO_TIMESTAMP
    for segment in sorted(candidates, key=lambda one: one.latest.timestamp, reverse=True):
        if segment.latest.timestamp <= largest:
            break
        largest = max(largest, _latest_in_segment(segment, log_start, read, search))
    if largest == NO_TIMESTAMP:
        return None
    return find_first_record(segments, largest, log_start, read, search)


def _latest_in_segment(segment: Segment, log_start: int, read: Read, search: TimeSearch) -> int:
    """The largest timestamp of the records that a segment has at or above the log start.

    The batch with the largest timestamp may lie below the log start offset, or compaction may have
    emptied it. Then every remaining batch is examined.
    """
    found = _first_in_segment(segment, segment.latest.timestamp, log_start, read, search)
    if found is not None:
        return found.timestamp
    first = next(
        (one for one in _headers_from(segment, log_start, read) if one.last_offset >= log_start),
        None,
    )
    if first is None:
        return NO_TIMESTAMP
    largest = search.latest_batch(segment, first.position, log_start)
    if first.base_offset < log_start and first.max_timestamp > largest and _has_records(first):
        within = search.first_record(segment, first, None, log_start, read)
        if within is not None:
            largest = max(largest, within.timestamp)
    return largest


def batches_from(
    segment: Segment, timestamp: int, log_start: int, read: Read, search: TimeSearch
) -> Iterator[LocatedHeader]:
    """The batches of a segment that may have a record with a timestamp or a later one.

    Batches below the log start offset are skipped with the offset index, because a segment may have
    many of them.
    """
    verify_latest(segment, read)
    if timestamp > segment.latest.timestamp:
        return
    # Every record up to the offset of this entry is earlier than the timestamp.
    entry = segment.time_index.lookup(timestamp - 1, read)
    if entry.offset < log_start:
        found = _headers_from(segment, log_start, read)
    else:
        found = _headers_after(segment, entry, read, log_start)
    for passed, batch in enumerate(found):
        if batch.max_timestamp >= timestamp:
            yield batch
        elif passed >= INLINE_BATCHES_MAX:
            yield from _later_batches(segment, batch, timestamp, search)
            return


def _later_batches(
    segment: Segment, batch: LocatedHeader, timestamp: int, search: TimeSearch
) -> Iterator[LocatedHeader]:
    found: LocatedHeader | None = batch
    while found := search.first_batch(segment, found.position + found.size, timestamp):
        yield found


def verify_latest(segment: Segment, read: Read) -> None:
    """Raise BrokenSegment unless the time index has the largest timestamp of the batches.

    A time index file may have lost its last entries; the last batches show that. The result is
    kept.
    """
    if segment.latest_verified or segment.time_index.is_trusted:
        return
    latest = segment.time_index.last
    next(_headers_after(segment, latest, read), None)
    for batch in segment.headers_for(segment.offset_index.last.offset, segment.size, read):
        if batch.max_timestamp > latest.timestamp:
            raise _wrong_entry(segment, latest)
    segment.latest_verified = True


def _headers_from(segment: Segment, offset: int, read: Read) -> Iterator[LocatedHeader]:
    """The batch headers of a segment from the index entry for an offset on."""
    return segment.headers_for(max(offset, segment.base_offset), segment.size, read)


def _headers_after(
    segment: Segment, entry: TimestampOffset, read: Read, log_start: int = 0
) -> Iterator[LocatedHeader]:
    """The batches after an entry of the time index, if the batches before it agree with it.

    A wrong entry may name a batch that has the same timestamp by chance. So the batches from the
    entry before it, or from the log start, are compared too: none of them may be later.
    """
    proven = entry.timestamp == NO_TIMESTAMP or segment.time_index.is_trusted
    start = entry.offset
    if not proven:
        before = segment.time_index.lookup(entry.timestamp - 1, read)
        start = min(start, max(before.offset, log_start))
    for batch in segment.headers_for(start, segment.size, read):
        if not proven:
            if batch.max_timestamp > entry.timestamp or batch.base_offset > entry.offset:
                break
            if batch.last_offset < entry.offset:
                continue
            if batch.max_timestamp < entry.timestamp:
                break
            proven = True
        yield batch
    if not proven:
        raise _wrong_entry(segment, entry)


def _wrong_entry(segment: Segment, entry: TimestampOffset) -> BrokenSegment:
    problem = f"the time index has a wrong offset for timestamp {entry.timestamp}"
    return BrokenSegment(segment.base_offset, f"{segment.file.path}: {problem}")
