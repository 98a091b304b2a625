"""One cleaning of one log: maps the keys of the dirty part, then copies the records that stay.

Invariant: no file of the log is changed. New segments are `.cleaned` files; they are on the device
with their indexes before they are reported. The next cleaning of the log removes `.cleaned` files
that it finds. Every batch is checked by its CRC, so damaged batches are not copied (rule C4).
Groups are reported in offset order and can be swapped one by one: a tombstone never goes before the
records that it deletes, which lie before it (rules C7 and C8).

A cleaning takes long and waits for the device, so it runs in a child process; job and events are
plain values.
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
    CompactionPass,
    EmptyBatch,
    OffsetMap,
    compact_marker,
    compact_records,
    discard_records,
)
from ottla.records.errors import CorruptRecords
from ottla.settings import broker
from ottla.settings.config import Config

_ENTRY_BYTES: Final = 24  # of the key map
_SLOTS_MIN: Final = 8
_RATE_UNLIMITED: Final = 1e300  # Kafka's default is the largest double


class ActiveProducer(NamedTuple):
    """A producer whose state the log must keep."""

    producer_id: int
    epoch: int
    last_offset: int | None  # of its last record in the epoch; None: only a marker


class CleaningLimits(msgspec.Struct, frozen=True):
    """The resources of one cleaning: the settings `log.cleaner.*` divided by the threads."""

    map_bytes: int = 134_217_728
    load_factor: float = 0.9
    io_bytes: int = 524_288
    bytes_per_second: float | None = None  # None: unlimited
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX

    @classmethod
    def of(cls, config: Config) -> Self:
        """The limits of each cleaner of a broker."""
        assert config.table is broker.BROKER
        cleaners = max(config[broker.LOG_CLEANER_THREADS], 1)
        rate = config[broker.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND]
        return cls(
            config[broker.LOG_CLEANER_DEDUPE_BUFFER_SIZE] // cleaners,
            config[broker.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR],
            # One half is for reads, one for writes.
            max(config[broker.LOG_CLEANER_IO_BUFFER_SIZE] // cleaners // 2, 1),
            rate / cleaners if rate < _RATE_UNLIMITED else None,
            readable_bytes_max(config),
        )


class CleaningJob(msgspec.Struct, frozen=True):
    """Everything that a cleaning needs to know."""

    directory: str
    segments: tuple[SourceSegment, ...]  # from the first segment on
    first_dirty_offset: int
    end_offset: int  # the base offset of the first segment that may not be cleaned
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    secret: bytes  # 16 bytes that no producer knows, to hash keys
    producers: tuple[ActiveProducer, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    limits: CleaningLimits = CleaningLimits()


class NewSegment(NamedTuple):
    """A segment that was written as `.cleaned` files."""

    base_offset: int
    size: int


class CleanedGroup(msgspec.Struct, frozen=True, tag="group"):
    """Segments that can be replaced, and the segments that replace them."""

    sources: tuple[int, ...]  # base offsets
    outputs: tuple[NewSegment, ...]


class CleaningDone(msgspec.Struct, frozen=True, tag="done"):
    """The log is clean below an offset; the figures of the cleaning."""

    first_dirty_offset: int
    keys: int
    map_full: bool  # the key map was full, so the log is not completely clean
    map_bytes_read: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    records_without_key: int
    map_ms: int
    took_ms: int


CleaningEvent: TypeAlias = CleanedGroup | CleaningDone


def clean(
    disk: Disk,
    job: CleaningJob,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[CleaningEvent]:
    """Clean group by group; CorruptRecords if a batch is damaged. Times are in seconds."""
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
        self.keys = OffsetMap(_map_bytes(job), job.limits.load_factor, job.secret)
        self.map_bytes_read = self.bytes_read = self.bytes_written = 0
        self.records_read = self.records_kept = self.keyless = 0

    def run(self) -> Iterator[CleaningEvent]:
        job, began = self.job, self.clock()
        remove_cleaned(self.disk, job.directory)
        mapped_until = self.map_keys()
        mapped = self.clock()
        cleaner_pass = CompactionPass(
            self.keys,
            mapped_until,
            job.now_ms,
            job.delete_retention_ms,
            job.limits.decompressed_bytes_max,
        )
        transactions = CleanedTransactions(job.aborted)
        for group in grouped(
            [one for one in job.segments if one.base_offset < mapped_until],
            segment_bytes=job.segment_bytes,
            index_bytes_max=job.index_bytes_max,
        ):
            yield self.clean_group(group, cleaner_pass, transactions)
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

    # Keys.

    def map_keys(self) -> int:
        """Map each key of the dirty part to its last offset; return how far the map had space."""
        job = self.job
        transactions = CleanedTransactions(job.aborted)
        until = job.first_dirty_offset
        for segment in job.segments:
            if segment.end_offset <= job.first_dirty_offset:
                continue
            for batch in self.batches(segment, from_offset=job.first_dirty_offset):
                header = batch.header
                self.map_bytes_read += header.size
                if not header.is_control and not transactions.is_aborted(header):
                    reached = self.keys.add_batch(
                        batch.record_bytes(job.limits.decompressed_bytes_max),
                        header.record_count,
                        header.last_offset_delta,
                        header.base_offset,
                        job.first_dirty_offset,
                    )
                    if reached <= header.last_offset:
                        return reached
                until = header.next_offset
            until = segment.end_offset  # after a gap that an earlier cleaning left
        return until

    # Segments.

    def clean_group(
        self,
        group: list[SourceSegment],
        cleaner_pass: CompactionPass,
        transactions: CleanedTransactions,
    ) -> CleanedGroup:
        """Copy what stays of neighbouring segments to one segment, or more if it does not fit."""
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
                    deletable, aborted = transactions.marker(batch)
                    compacted = compact_marker(
                        batch, cleaner_pass, self.emptied(header), deletable=deletable
                    )
                elif transactions.is_aborted(header):
                    compacted = discard_records(batch, self.emptied(header))
                else:
                    compacted = compact_records(batch, cleaner_pass, self.emptied(header))
                self.count(header, compacted)
                if not compacted.data:
                    continue
                if not output.has_room(compacted.data, header.last_offset):
                    done.append(_finished(output, modified_ms))
                    output = self.begin(header.base_offset, size_max)
                output.add(compacted.data, header.last_offset, compacted.max_timestamp)
                if aborted is not None:
                    output.segment.txn_index.append(aborted)
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

    def emptied(self, header: BatchHeader) -> EmptyBatch:
        """Whether a batch is kept without records.

        It is kept if it has the last sequence of a producer, or the epoch of a producer that only
        has a marker in that epoch. The last batch of the cleaning is kept too, so that the segment
        does not end earlier.
        """
        if header.next_offset == self.job.end_offset:
            return EmptyBatch.KEEP
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return EmptyBatch.DELETE
        if producer.last_offset is not None:
            last = header.last_offset == producer.last_offset
        else:
            last = header.is_control and header.producer_epoch == producer.epoch
        return EmptyBatch.KEEP if last else EmptyBatch.DELETE

    def count(self, header: BatchHeader, compacted: Compacted) -> None:
        self.bytes_read += header.size
        self.bytes_written += len(compacted.data)
        self.records_read += compacted.records_read
        self.records_kept += compacted.records
        self.keyless += compacted.keyless

    # Reads.

    def path(self, source: SourceSegment) -> str:
        return f"{self.job.directory}/{offset_file(source.base_offset, Kind.RECORDS)}"

    def batches(self, source: SourceSegment, from_offset: int = 0) -> Iterator[Batch]:
        """The batches of a segment that end at or after an offset, each checked by its CRC."""
        path = self.path(source)
        file = self.disk.open(path)
        try:
            for batch in self._read(file, source.size):
                if batch.header.last_offset >= from_offset:
                    if not batch.crc_ok:
                        raise CorruptRecords(
                            f"the batch at offset {batch.header.base_offset} is damaged"
                        )
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
                raise CorruptRecords(f"incomplete batch at position {position}")


def _finished(output: CleanedSegment, modified_ms: int) -> NewSegment:
    output.finish(modified_ms)
    return NewSegment(output.segment.base_offset, output.segment.size)


def _map_bytes(job: CleaningJob) -> int:
    """The size of the key map: enough for every offset of the dirty part, up to the limit."""
    offsets = max(job.end_offset - job.first_dirty_offset, 0)
    slots = max(int(offsets / job.limits.load_factor) + 2, _SLOTS_MIN)
    return min(job.limits.map_bytes, slots * _ENTRY_BYTES)
