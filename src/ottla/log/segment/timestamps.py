"""Finding offsets by the time of their records.

Invariant: of the records that a log holds from its start on, the first one answers that is as late
as asked for; only the batch that has it is decoded, in a thread unless it is small, and a long way
to it is gone in a thread too. An entry of a time index is believed where the batch that it names
agrees, and no batch on the way there is later.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, cast

from ottla.errors import OttlaError
from ottla.ids import LeaderEpoch, Offset
from ottla.log.reading import Read, read_waiting
from ottla.log.segment.batch_headers import BrokenSegment, LocatedHeader
from ottla.log.segment.index import TimestampOffset
from ottla.log.segment.segment import Segment
from ottla.log.segment.segments import Segments
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP, Batch
from ottla.records.compression import Compression

AT_ONCE_BYTES: Final = 4096  # so small a batch has a few hundred records at most
AT_ONCE_BATCHES: Final = 100  # so many are passed in a millisecond
STRETCH_BATCHES: Final = 20_000  # are passed in a thread, then others have their turn


class FoundOffset(NamedTuple):
    """An offset with its record's timestamp and the epoch of the leader that wrote it."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


class _Question(NamedTuple):
    """Which batch of which segment, from which time on (None: the latest) and which offset on."""

    segment: Segment
    head: LocatedHeader
    timestamp: int | None
    log_start: int


class _Way(NamedTuple):
    """From where on in a segment to go to the next batch of a time, or (None) along all of them."""

    segment: Segment
    position: int
    timestamp: int | None
    log_start: int = 0


class _Stretch(NamedTuple):
    """What lies on a part of a way, which ends behind a batch that is as late as asked for."""

    late: LocatedHeader | None
    largest: int
    end: int


class Unfinished(Exception):
    """A search goes on when something was done that takes long; who may wait then asks again."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(work)
        self.work = work


_Answer = FoundOffset | _Stretch | None


class TimeSearch:
    """What one search has found out so far, so that it goes on where it was when it is repeated.

    It is worth nothing any more after the log was cut.
    """

    __slots__ = ("_answers", "_bytes_max", "_ends")

    def __init__(self, decompressed_bytes_max: int) -> None:
        self._bytes_max = decompressed_bytes_max
        self._answers: dict[_Question | _Way, _Answer | OttlaError] = {}
        self._ends: dict[Segment, int] = {}

    def first_record(
        self,
        segment: Segment,
        head: LocatedHeader,
        timestamp: int | None,
        log_start: int,
        read: Read,
    ) -> FoundOffset | None:
        """The first record from the log's start on that is as late, or (None) the latest.

        Unfinished when that may take long and was not done.
        """
        question = _Question(segment, head, timestamp, log_start)
        if question not in self._answers:
            batch = Batch(read(segment.file, head.position, head.size))
            work = partial(self._note, question, partial(self._decoded, question, batch))
            if head.size > AT_ONCE_BYTES or batch.header.compression is not Compression.NONE:
                raise Unfinished(work)
            work()
        return cast("FoundOffset | None", self._answer(question))

    def first_batch(self, segment: Segment, position: int, timestamp: int) -> LocatedHeader | None:
        """The first batch from a position on that is as late and has records."""
        for stretch in self._stretches(_Way(segment, position, timestamp)):
            if stretch.late is not None:
                return stretch.late
        return None

    def latest_batch(self, segment: Segment, position: int, log_start: int) -> int:
        """The largest timestamp of the batches from a position on that begin in the log."""
        way = _Way(segment, position, None, log_start)
        return max((one.largest for one in self._stretches(way)), default=NO_TIMESTAMP)

    def _stretches(self, way: _Way) -> Iterator[_Stretch]:
        """All of a way, as far as the segment went when it was first looked at."""
        segment = way.segment
        end = self._ends.setdefault(segment, segment.size)
        while way.position < end:
            if way not in self._answers:
                heads = segment.located_headers(way.position, end, read_waiting)
                raise Unfinished(partial(self._note, way, partial(_gone, way, heads)))
            stretch = cast("_Stretch", self._answer(way))
            yield stretch
            way = way._replace(position=stretch.end)

    def _note(self, question: _Question | _Way, find: Callable[[], _Answer]) -> None:
        try:
            self._answers[question] = find()
        except OttlaError as error:
            self._answers[question] = error

    def _answer(self, question: _Question | _Way) -> _Answer:
        answer = self._answers[question]
        if isinstance(answer, OttlaError):
            del self._answers[question]  # it may be mended when this is asked again
            raise answer
        return answer

    def _decoded(self, question: _Question, batch: Batch) -> FoundOffset | None:
        segment, head, timestamp, log_start = question
        if not batch.crc_ok:
            raise BrokenSegment(segment.base_offset, f"{segment.file.path}: a CRC is wrong")
        records = batch.records(from_offset=log_start, decompressed_bytes_max=self._bytes_max)
        if timestamp is None:
            found = max(records, key=lambda record: record.timestamp, default=None)
        else:
            found = next((record for record in records if record.timestamp >= timestamp), None)
        if found is None:
            return None
        return FoundOffset(Offset(found.offset), found.timestamp, head.leader_epoch)


def _gone(way: _Way, heads: Iterator[LocatedHeader]) -> _Stretch:
    """The next part of a way."""
    _, end, timestamp, log_start = way
    largest = NO_TIMESTAMP
    for head in islice(heads, STRETCH_BATCHES):
        end = head.position + head.size
        if _has_records(head):
            if timestamp is not None and head.max_timestamp >= timestamp:
                return _Stretch(head, largest, end)
            if head.base_offset >= log_start:
                largest = max(largest, head.max_timestamp)
    return _Stretch(None, largest, end)


def _has_records(head: LocatedHeader) -> bool:
    """Compaction leaves some batches without any, with the times that they had."""
    return head.size > HEADER_SIZE


def first_from_time(
    segments: Segments, timestamp: int, log_start: int, read: Read, search: TimeSearch
) -> FoundOffset | None:
    """The first record of a time or later; None when all are earlier."""
    for segment in segments.from_offset(log_start):
        found = _first_of(segment, timestamp, log_start, read, search)
        if found is not None:
            return found
    return None


def _first_of(
    segment: Segment, timestamp: int, log_start: int, read: Read, search: TimeSearch
) -> FoundOffset | None:
    for head in from_time(segment, timestamp, log_start, read, search):
        if head.last_offset >= log_start:
            found = search.first_record(segment, head, timestamp, log_start, read)
            if found is not None:
                return found
    return None


def latest_time(
    segments: Segments, log_start: int, read: Read, search: TimeSearch
) -> FoundOffset | None:
    """The first record with the largest timestamp; None in a log without timestamps."""
    candidates = segments.from_offset(log_start)
    for segment in candidates:
        check_latest(segment, read)
    largest = NO_TIMESTAMP
    for segment in sorted(candidates, key=lambda one: one.latest.timestamp, reverse=True):
        if segment.latest.timestamp <= largest:
            break
        largest = max(largest, _latest_of(segment, log_start, read, search))
    if largest == NO_TIMESTAMP:
        return None
    return first_from_time(segments, largest, log_start, read, search)


def _latest_of(segment: Segment, log_start: int, read: Read, search: TimeSearch) -> int:
    """The largest timestamp of the records that a segment has in the log.

    What was its latest may be below the log's start by now, or compaction has emptied the batch
    that had it and still says so: then every batch that is left is looked at.
    """
    found = _first_of(segment, segment.latest.timestamp, log_start, read, search)
    if found is not None:
        return found.timestamp
    first = next(
        (one for one in _heads_from(segment, log_start, read) if one.last_offset >= log_start), None
    )
    if first is None:
        return NO_TIMESTAMP
    largest = search.latest_batch(segment, first.position, log_start)
    if first.base_offset < log_start and first.max_timestamp > largest and _has_records(first):
        within = search.first_record(segment, first, None, log_start, read)
        if within is not None:
            largest = max(largest, within.timestamp)
    return largest


def from_time(
    segment: Segment, timestamp: int, log_start: int, read: Read, search: TimeSearch
) -> Iterator[LocatedHeader]:
    """The batches of a segment that have a record of a time or later, from the first one on.

    Those below the log's start are passed over, but for a few: there may be a segment full of them.
    """
    check_latest(segment, read)
    if timestamp > segment.latest.timestamp:
        return
    # No record up to the offset of an earlier entry is as late as that.
    entry = segment.times.lookup(timestamp - 1, read)
    if entry.offset < log_start:
        found = _heads_from(segment, log_start, read)  # whatever the entry says of those before
    else:
        found = _behind(segment, entry, read, log_start)
    for passed, batch in enumerate(found):
        if batch.max_timestamp >= timestamp:
            yield batch
        elif passed >= AT_ONCE_BATCHES:
            yield from _behind_long_way(segment, batch, timestamp, search)
            return


def _behind_long_way(
    segment: Segment, batch: LocatedHeader, timestamp: int, search: TimeSearch
) -> Iterator[LocatedHeader]:
    found: LocatedHeader | None = batch
    while found := search.first_batch(segment, found.position + found.size, timestamp):
        yield found


def check_latest(segment: Segment, read: Read) -> None:
    """Raise BrokenSegment unless the largest timestamp is that of the batches; looked at once.

    A time index in its file may also have lost its last entries, which the last batches tell.
    """
    if segment.latest_is_sure or segment.times.is_proven:
        return
    latest = segment.times.last
    next(_behind(segment, latest, read), None)
    for batch in segment.heads_for(segment.offsets.last.offset, segment.size, read):
        if batch.max_timestamp > latest.timestamp:
            raise _wrong(segment, latest)
    segment.latest_is_sure = True


def _heads_from(segment: Segment, offset: int, read: Read) -> Iterator[LocatedHeader]:
    """The batches of a segment from an offset on, and a few before it."""
    return segment.heads_for(max(offset, segment.base_offset), segment.size, read)


def _behind(
    segment: Segment, entry: TimestampOffset, read: Read, log_start: int = 0
) -> Iterator[LocatedHeader]:
    """The batches behind an entry of the time index, if it is right about those before.

    Another batch may by chance have the same time as the right one: those from the entry before on,
    or from the log's start, are looked at too, and none of them may be later.
    """
    proven = entry.timestamp == NO_TIMESTAMP or segment.times.is_proven
    start = entry.offset
    if not proven:
        before = segment.times.lookup(entry.timestamp - 1, read)
        start = min(start, max(before.offset, log_start))
    for batch in segment.heads_for(start, segment.size, read):
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
        raise _wrong(segment, entry)


def _wrong(segment: Segment, entry: TimestampOffset) -> BrokenSegment:
    problem = f"its time index is wrong about {entry.timestamp}"
    return BrokenSegment(segment.base_offset, f"{segment.file.path}: {problem}")
