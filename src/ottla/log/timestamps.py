"""Finding offsets by the time of their records.

Invariant: of the records that a log holds from its start on, the first one answers that is as late
as asked for; only the batch that has it is decoded, in a thread unless it is small. An entry of a
time index is believed where the batch that it names agrees, and no batch on the way there is later.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from ottla.errors import OttlaError
from ottla.ids import LeaderEpoch, Offset
from ottla.log.heads import BrokenSegment, Head
from ottla.log.index import TimestampOffset
from ottla.log.reading import Read
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP, Batch
from ottla.records.compression import Compression

AT_ONCE_BYTES: Final = 4096  # so small a batch has a few hundred records at most


class FoundOffset(NamedTuple):
    """An offset with its record's timestamp and the epoch of the leader that wrote it."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


class _Question(NamedTuple):
    """Which batch of which segment, from which time on (None: the latest) and which offset on."""

    base_offset: Offset
    head: Head
    timestamp: int | None
    log_start: int


class Undecoded(Exception):
    """A batch has to be decoded before a look-up can go on; whoever may wait has to ask again."""

    def __init__(self, decode: Callable[[], None]) -> None:
        super().__init__(decode)
        self.decode = decode


class DecodedBatches:
    """What the records of batches answer to one search, each asked once."""

    __slots__ = ("_answers", "_bytes_max")

    def __init__(self, decompressed_bytes_max: int) -> None:
        self._bytes_max = decompressed_bytes_max
        self._answers: dict[_Question, FoundOffset | OttlaError | None] = {}

    def first(
        self, segment: Segment, head: Head, timestamp: int | None, log_start: int, read: Read
    ) -> FoundOffset | None:
        """The first record from the log's start on that is as late, or (None) the latest.

        Undecoded when that may take long and was not done.
        """
        question = _Question(segment.base_offset, head, timestamp, log_start)
        if question not in self._answers:
            batch = Batch(read(segment.file, head.position, head.size))
            decode = partial(self._ask, question, batch, segment.file.path)
            if head.size > AT_ONCE_BYTES or batch.header.compression is not Compression.NONE:
                raise Undecoded(decode)
            decode()
        answer = self._answers[question]
        if isinstance(answer, OttlaError):
            raise answer
        return answer

    def _ask(self, question: _Question, batch: Batch, path: str) -> None:
        try:
            self._answers[question] = self._answer(question, batch, path)
        except OttlaError as error:
            self._answers[question] = error

    def _answer(self, question: _Question, batch: Batch, path: str) -> FoundOffset | None:
        base_offset, head, timestamp, log_start = question
        if not batch.crc_ok:
            raise BrokenSegment(base_offset, f"{path}: a CRC is wrong")
        records = batch.records(from_offset=log_start, decompressed_bytes_max=self._bytes_max)
        if timestamp is None:
            found = max(records, key=lambda record: record.timestamp, default=None)
        else:
            found = next((record for record in records if record.timestamp >= timestamp), None)
        if found is None:
            return None
        return FoundOffset(Offset(found.offset), found.timestamp, head.leader_epoch)


def first_from_time(
    segments: Segments, timestamp: int, log_start: int, read: Read, decoded: DecodedBatches
) -> FoundOffset | None:
    """The first record of a time or later; None when all are earlier."""
    for segment in segments.from_offset(log_start):
        for head in from_time(segment, timestamp, log_start, read):
            if head.last_offset >= log_start:
                found = decoded.first(segment, head, timestamp, log_start, read)
                if found is not None:
                    return found
    return None


def latest_time(
    segments: Segments, log_start: int, read: Read, decoded: DecodedBatches
) -> FoundOffset | None:
    """The first record with the largest timestamp; None in a log without timestamps."""
    candidates = segments.from_offset(log_start)
    for segment in candidates:
        check_latest(segment, read)
    largest = max(segment.latest.timestamp for segment in candidates)
    if largest == NO_TIMESTAMP:
        return None
    found = first_from_time(segments, largest, log_start, read, decoded)
    if found is not None:
        return found
    # What was latest is below the log's start by now, or compaction has emptied the batch that had
    # it and still says so: look at every batch that is left.
    largest = max(
        (
            _latest_in_batch(segment, head, log_start, read, decoded)
            for segment in candidates
            for head in _heads_from(segment, log_start, read)
            if head.last_offset >= log_start
            and head.max_timestamp != NO_TIMESTAMP
            and head.size > HEADER_SIZE
        ),
        default=NO_TIMESTAMP,
    )
    if largest == NO_TIMESTAMP:
        return None
    return first_from_time(segments, largest, log_start, read, decoded)


def from_time(segment: Segment, timestamp: int, log_start: int, read: Read) -> Iterator[Head]:
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
    for batch in found:
        if batch.max_timestamp >= timestamp:
            yield batch


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


def _heads_from(segment: Segment, offset: int, read: Read) -> Iterator[Head]:
    """The batches of a segment from an offset on, and a few before it."""
    return segment.heads_for(max(offset, segment.base_offset), segment.size, read)


def _behind(
    segment: Segment, entry: TimestampOffset, read: Read, log_start: int = 0
) -> Iterator[Head]:
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


def _latest_in_batch(
    segment: Segment, head: Head, log_start: int, read: Read, decoded: DecodedBatches
) -> int:
    """The largest timestamp from the log's start on, which may lie within the batch."""
    if head.base_offset >= log_start:
        return head.max_timestamp
    found = decoded.first(segment, head, None, log_start, read)
    return NO_TIMESTAMP if found is None else found.timestamp
