"""Compacts one batch: removes the records that a later record of the same key replaces.

Invariant: the offsets of the remaining records, and the first and last offset and sequence of the
batch, never change. A batch that keeps all its records keeps its bytes, unless it gets a delete
horizon: the time from which its tombstones or its marker may be deleted (KIP-534). Compaction sets
the horizon once, when it first sees them. It replaces the base timestamp, and bit 6 of the
attributes marks it.
"""

from dataclasses import dataclass
from enum import Enum

from ottla.protocol.primitives import Buffer
from ottla.records._kernel import HEADER_SIZE, OffsetMap, copy_retained, mark_retained
from ottla.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    BatchHeader,
    empty_batch,
    write_header,
)
from ottla.records.compression import Compression, compress

_CARRIED = COMPRESSION_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL


class EmptyBatch(Enum):
    """What to do with a batch that has lost all its records."""

    DELETE = "nothing needs it"
    KEEP = "its header has the last sequence of a producer, or the last offset of the log"


@dataclass(frozen=True, slots=True)
class CompactionPass:
    """The parameters of one compaction of a log."""

    keys: OffsetMap
    map_end: int  # records from this offset on are not in the offset map, and are kept
    now_ms: int
    delete_retention_ms: int
    decompressed_bytes_max: int

    @property
    def new_horizon_ms(self) -> int:
        """Return the delete horizon of tombstones and markers that are first seen now."""
        return self.now_ms + self.delete_retention_ms

    def is_over(self, header: BatchHeader) -> bool:
        """Return whether the delete horizon of a batch has passed."""
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is not None and horizon_ms <= self.now_ms


@dataclass(frozen=True, slots=True)
class Compacted:
    """The bytes that replace a batch, empty if it is deleted, and the counts of its records."""

    data: Buffer
    max_timestamp: int
    records: int  # remaining
    records_read: int
    keyless: int = 0  # records that were removed because they have no key


def compact_records(batch: Batch, this: CompactionPass, emptied: EmptyBatch) -> Compacted:
    """Keep the last record of each key, and tombstones until their delete horizon."""
    header = batch.header
    section = batch.record_bytes(this.decompressed_bytes_max)
    appended = header.append_timestamp
    marks, kept, tombstones, keyless, first, latest = mark_retained(
        this.keys,
        section,
        header.record_count,
        header.last_offset_delta,
        header.base_offset,
        header.base_timestamp,
        appended,
        this.map_end,
        not this.is_over(header),
    )
    count = header.record_count
    if not kept:
        return _without_records(header, emptied, keyless, count)
    horizon_ms = header.delete_horizon_ms
    sets_horizon = bool(tombstones) and horizon_ms is None
    if kept == count and not sets_horizon:
        return Compacted(batch.data, header.max_timestamp, kept, count, keyless)
    if sets_horizon:
        horizon_ms = this.new_horizon_ms
    base = first if horizon_ms is None else horizon_ms
    buffer = copy_retained(section, marks, header.base_timestamp, appended, base)
    largest = latest if appended is None else appended
    data = _sealed(header, buffer, kept, base, largest, horizon_ms is not None)
    return Compacted(data, largest, kept, count, keyless)


def discard_records(batch: Batch, emptied: EmptyBatch) -> Compacted:
    """Remove all records of a batch, because their transaction was aborted."""
    header = batch.header
    return _without_records(header, emptied, 0, header.record_count)


def compact_marker(
    batch: Batch, this: CompactionPass, emptied: EmptyBatch, *, deletable: bool
) -> Compacted:
    """Keep a control batch; one that is deletable is kept until its delete horizon."""
    header = batch.header
    count = header.record_count
    if not count or (deletable and this.is_over(header)):
        return discard_records(batch, emptied)
    if not deletable or header.delete_horizon_ms is not None:
        return Compacted(batch.data, header.max_timestamp, count, count)
    base = this.new_horizon_ms
    section = batch.record_bytes(this.decompressed_bytes_max)
    marks = bytearray(b"\x01" * count)
    appended = header.append_timestamp
    buffer = copy_retained(section, marks, header.base_timestamp, appended, base)
    data = _sealed(header, buffer, count, base, header.max_timestamp, True)
    return Compacted(data, header.max_timestamp, count, count)


def _without_records(
    header: BatchHeader, emptied: EmptyBatch, keyless: int, count: int
) -> Compacted:
    data = empty_batch(header) if emptied is EmptyBatch.KEEP else b""
    return Compacted(data, header.max_timestamp, 0, count, keyless)


def _sealed(
    header: BatchHeader,
    buffer: bytearray,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    has_horizon: bool,
) -> bytearray:
    """Return the records as a batch with the codec of the old one."""
    if header.compression is not Compression.NONE:
        with memoryview(buffer) as whole, whole[HEADER_SIZE:] as section:
            packed = compress(header.compression, section)
        buffer[HEADER_SIZE:] = packed
    attributes = header.attributes & _CARRIED
    write_header(
        buffer,
        record_count=count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes | DELETE_HORIZON if has_horizon else attributes,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return buffer
