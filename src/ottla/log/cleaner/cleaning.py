"""One cleaning of one log: the keys of its dirty part, then its segments without what is outdated.

Invariant: no file of the log is changed. The new segments are `.cleaned` files, on the device with
their indexes when they are told of; whoever cleans a log a second time begins with removing them.
Every batch that counts has been checked by its CRC, so nothing damaged is copied as good (rule
C4). Groups are told of in the order of their offsets and can be swapped one by one: a tombstone is
never gone before what it deletes, for that lies before it (rules C7 and C8).

Runs for long and waits for the device, so in a process of its own; job and news are plain values.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Self, TypeAlias

import msgspec

from ottla.ids import Offset
from ottla.log.cleaner.cleanable import SourceSegment, grouped
from ottla.log.cleaner.cleaned_segment import CleanedSegment, Throttle, remove_cleaned
from ottla.log.cleaner.cleaned_transactions import CleanedTransactions
from ottla.log.disk import Disk, File
from ottla.log.log_config import readable_bytes_max
from ottla.log.names import Kind, offset_file
from ottla.log.segment.txn_index import AbortedTransaction
from ottla.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_SIZE,
    Batch,
    BatchHeader,
    read_header,
)
from ottla.records.compaction import (
    Compacted,
    Emptied,
    Pass,
    compact_marker,
    compact_records,
    discard_records,
)
from ottla.records.errors import CorruptRecords
from ottla.records.kernel import KeyMap
from ottla.settings import broker
from ottla.settings.config import Config

_ENTRY_BYTES: Final = 24  # of the map of keys
_SLOTS_MIN: Final = 8
_RATE_UNLIMITED: Final = 1e300  # the default of Kafka is the largest number there is


class ActiveProducer(NamedTuple):
    """A producer whose state the log has to keep."""

    producer_id: int
    epoch: int
    last_offset: int | None  # of its last record in this epoch; None when there is but a marker


class CleaningLimits(msgspec.Struct, frozen=True):
    """What a cleaning may use; the settings `log.cleaner.*`, each divided by the cleaners."""

    map_bytes: int = 134_217_728
    load_factor: float = 0.9
    io_bytes: int = 524_288
    bytes_per_second: float | None = None  # None: as fast as it goes
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX

    @classmethod
    def of(cls, config: Config) -> Self:
        """What each cleaner of a broker gets."""
        assert config.table is broker.BROKER
        cleaners = max(config[broker.LOG_CLEANER_THREADS], 1)
        rate = config[broker.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND]
        return cls(
            config[broker.LOG_CLEANER_DEDUPE_BUFFER_SIZE] // cleaners,
            config[broker.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR],
            # One half for what is read, one for what is written.
            max(config[broker.LOG_CLEANER_IO_BUFFER_SIZE] // cleaners // 2, 1),
            rate / cleaners if rate < _RATE_UNLIMITED else None,
            readable_bytes_max(config),
        )


class CleaningJob(msgspec.Struct, frozen=True):
    """All that a cleaning needs to know."""

    directory: str
    segments: tuple[SourceSegment, ...]  # from the log's first on
    first_dirty_offset: int
    end_offset: int  # where a segment begins that may not be cleaned
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    secret: bytes  # 16 bytes that no producer knows, for the hashes of keys
    producers: tuple[ActiveProducer, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    limits: CleaningLimits = CleaningLimits()


class NewSegment(NamedTuple):
    """A segment that has been written as `.cleaned` files."""

    base_offset: int
    size: int


class CleanedGroup(msgspec.Struct, frozen=True, tag="group"):
    """Segments that can be replaced, and by which."""

    sources: tuple[int, ...]  # base offsets
    outputs: tuple[NewSegment, ...]


class CleaningDone(msgspec.Struct, frozen=True, tag="done"):
    """Everything is cleaned below an offset, and what that took."""

    first_dirty_offset: int
    keys: int
    map_full: bool  # there is more to clean: the map of keys had no room for it
    map_bytes_read: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    records_without_key: int
    map_ms: int
    took_ms: int


CleaningNews: TypeAlias = CleanedGroup | CleaningDone


def clean(
    disk: Disk,
    job: CleaningJob,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[CleaningNews]:
    """Clean group by group; CorruptRecords when a batch is damaged. Clock and sleep in seconds."""
    return _Cleaning(disk, job, clock, sleep).run()


class _Cleaning:
    """The state of one cleaning."""

    def __init__(
        self,
        disk: Disk,
        job: CleaningJob,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.disk = disk
        self.job = job
        self.clock = clock
        self.throttle = Throttle(job.limits.bytes_per_second, clock, sleep)
        self.producers = {one.producer_id: one for one in job.producers}
        self.keys = KeyMap(_map_bytes(job), job.limits.load_factor, job.secret)
        self.map_bytes_read = self.bytes_read = self.bytes_written = 0
        self.records_read = self.records_kept = self.keyless = 0

    def run(self) -> Iterator[CleaningNews]:
        job, began = self.job, self.clock()
        remove_cleaned(self.disk, job.directory)
        mapped_until = self.map_keys()
        mapped = self.clock()
        this = Pass(
            self.keys,
            mapped_until,
            job.now_ms,
            job.delete_retention_ms,
            job.limits.decompressed_bytes_max,
        )
        decided = CleanedTransactions(job.aborted)
        for group in grouped(
            [one for one in job.segments if one.base_offset < mapped_until],
            segment_bytes=job.segment_bytes,
            index_bytes_max=job.index_bytes_max,
        ):
            yield self.clean_group(group, this, decided)
        yield CleaningDone(
            mapped_until,
            self.keys.count,
            mapped_until < job.end_offset,
            self.map_bytes_read,
            self.bytes_read,
            self.bytes_written,
            self.records_read,
            self.records_kept,
            self.keyless,
            round((mapped - began) * 1000),
            round((self.clock() - began) * 1000),
        )

    # The keys.

    def map_keys(self) -> int:
        """Note the last offset of each key in the dirty part; up to where it came."""
        job = self.job
        decided = CleanedTransactions(job.aborted)
        until = job.first_dirty_offset
        for segment in job.segments:
            if segment.end_offset <= job.first_dirty_offset:
                continue
            for batch in self.batches(segment, from_offset=job.first_dirty_offset):
                header = batch.header
                self.map_bytes_read += header.size
                if not header.is_control and not decided.is_aborted(header):
                    reached = self.keys.add(
                        batch.section(job.limits.decompressed_bytes_max),
                        header.record_count,
                        header.last_offset_delta,
                        header.base_offset,
                        job.first_dirty_offset,
                    )
                    if reached <= header.last_offset:
                        return reached
                until = header.next_offset
            until = segment.end_offset  # behind a gap that an earlier cleaning left
        return until

    # The segments.

    def clean_group(
        self, group: list[SourceSegment], this: Pass, decided: CleanedTransactions
    ) -> CleanedGroup:
        """Write what stays of neighbouring segments, as one segment unless it does not fit."""
        job = self.job
        size_max = max(job.segment_bytes, sum(one.size for one in group))
        modified_ms = self.disk.modified_ms(self.path(group[-1]))
        output = self.begin(group[0].base_offset, size_max)
        done: list[NewSegment] = []
        for source in group:
            for batch in self.batches(source):
                header = batch.header
                deletable, aborted = False, None
                if header.is_control:
                    deletable, aborted = decided.marker(batch)
                    compacted = compact_marker(
                        batch, this, self.emptied(header), deletable=deletable
                    )
                elif decided.is_aborted(header):
                    compacted = discard_records(batch, self.emptied(header))
                else:
                    compacted = compact_records(batch, this, self.emptied(header))
                self.count(header, compacted)
                if not compacted.data:
                    continue
                if not output.has_room(compacted.data, header.last_offset):
                    done.append(_finished(output, modified_ms))
                    output = self.begin(header.base_offset, size_max)
                output.add(compacted.data, header.last_offset, compacted.max_timestamp)
                if aborted is not None:
                    output.segment.aborted.append(aborted)
        done.append(_finished(output, modified_ms))
        self.disk.sync_directory(job.directory)
        return CleanedGroup(tuple(one.base_offset for one in group), tuple(done))

    def begin(self, base_offset: int, size_max: int) -> CleanedSegment:
        job = self.job
        return CleanedSegment(
            self.disk,
            job.directory,
            Offset(base_offset),
            size_max=size_max,
            index_bytes_max=job.index_bytes_max,
            index_interval_bytes=job.index_interval_bytes,
            io_bytes=job.limits.io_bytes,
            throttle=self.throttle,
        )

    def emptied(self, header: BatchHeader) -> Emptied:
        """Whether the batch is kept without records.

        It is when it has a producer's last sequence or, of one that wrote but a marker in its
        epoch, that epoch; and when it is the last of this cleaning, so that the segment does not
        seem to end earlier.
        """
        if header.next_offset == self.job.end_offset:
            return Emptied.STAYS
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return Emptied.GOES
        if producer.last_offset is not None:
            last = header.last_offset == producer.last_offset
        else:
            last = header.is_control and header.producer_epoch == producer.epoch
        return Emptied.STAYS if last else Emptied.GOES

    def count(self, header: BatchHeader, compacted: Compacted) -> None:
        self.bytes_read += header.size
        self.bytes_written += len(compacted.data)
        self.records_read += compacted.records_read
        self.records_kept += compacted.records
        self.keyless += compacted.keyless

    # Reading.

    def path(self, source: SourceSegment) -> str:
        return f"{self.job.directory}/{offset_file(source.base_offset, Kind.RECORDS)}"

    def batches(self, source: SourceSegment, from_offset: int = 0) -> Iterator[Batch]:
        """The batches of a segment that end at or behind an offset, each found to be sound."""
        path = self.path(source)
        file = self.disk.open(path)
        try:
            for batch in self._read(file, source.size):
                if batch.header.last_offset >= from_offset:
                    if not batch.crc_ok:
                        raise CorruptRecords(f"the batch of {batch.header.base_offset} is damaged")
                    yield batch
        except CorruptRecords as error:
            raise CorruptRecords(f"{path}: {error}") from error
        finally:
            file.close()

    def _read(self, file: File, size: int) -> Iterator[Batch]:
        io_bytes = self.job.limits.io_bytes
        chunk, chunk_at, position = memoryview(b""), 0, 0
        while position < size:
            at = position - chunk_at
            needed = HEADER_SIZE
            if len(chunk) - at >= HEADER_SIZE:
                header = read_header(chunk, at)
                needed = header.size
                if len(chunk) - at >= needed:
                    yield Batch(chunk[at : at + needed], header)
                    position += needed
                    continue
            wanted = min(max(io_bytes, needed), size - position)
            chunk, chunk_at = memoryview(file.read(position, wanted)), position
            self.throttle.passed(len(chunk))
            if len(chunk) < needed:
                raise CorruptRecords(f"a batch is cut off at {position}")


def _finished(output: CleanedSegment, modified_ms: int) -> NewSegment:
    output.finish(modified_ms)
    return NewSegment(output.segment.base_offset, output.segment.size)


def _map_bytes(job: CleaningJob) -> int:
    """As much as the limit allows, or as all offsets of the dirty part need."""
    offsets = max(job.end_offset - job.first_dirty_offset, 0)
    slots = max(int(offsets / job.limits.load_factor) + 2, _SLOTS_MIN)
    return min(job.limits.map_bytes, slots * _ENTRY_BYTES)
