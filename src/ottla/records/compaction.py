"""What compaction leaves of one batch.

Invariant: offsets never change: a record that stays keeps its own, and a batch its first and last
with the sequences that go with them. A batch of which everything stays is the same bytes, unless
it gets its delete horizon: when its tombstones, or its marker, may go. That is set once, when
compaction first sees them, takes the place of the base timestamp, and bit 6 of the attributes
tells of it (KIP-534).
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
    seal,
)
from ottla.records.compression import Compression, compress

_CARRIED = COMPRESSION_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL


class Emptied(Enum):
    """What becomes of a batch that has lost its records."""

    GOES = "nothing needs it"
    STAYS = "its header tells of a producer's last sequence, or where the log ended"


@dataclass(frozen=True, slots=True)
class Pass:
    """One compaction: what was found out before, and when it takes place."""

    keys: OffsetMap
    map_end: int  # from this offset on, records are not yet compacted
    now_ms: int
    delete_retention_ms: int
    decompressed_bytes_max: int

    @property
    def new_horizon_ms(self) -> int:
        """Until when what is first seen now stays."""
        return self.now_ms + self.delete_retention_ms

    def is_over(self, header: BatchHeader) -> bool:
        """Whether what was to stay for a while has stayed long enough."""
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is not None and horizon_ms <= self.now_ms


@dataclass(frozen=True, slots=True)
class Compacted:
    """The bytes that take a batch's place, none when it goes, and how it came to that."""

    data: Buffer
    max_timestamp: int
    records: int  # that stay
    records_read: int
    keyless: int = 0  # records that went because they had no key


def compact_records(batch: Batch, this: Pass, emptied: Emptied) -> Compacted:
    """Keep the last record of each key, and tombstones for their time."""
    header = batch.header
    section = batch.section(this.decompressed_bytes_max)
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


def discard_records(batch: Batch, emptied: Emptied) -> Compacted:
    """Keep none: their transaction was aborted."""
    header = batch.header
    return _without_records(header, emptied, 0, header.record_count)


def compact_marker(batch: Batch, this: Pass, emptied: Emptied, *, deletable: bool) -> Compacted:
    """Keep a control batch; one whose transaction is gone stays until its delete horizon."""
    header = batch.header
    count = header.record_count
    if not count or (deletable and this.is_over(header)):
        return discard_records(batch, emptied)
    if not deletable or header.delete_horizon_ms is not None:
        return Compacted(batch.data, header.max_timestamp, count, count)
    base = this.new_horizon_ms
    section = batch.section(this.decompressed_bytes_max)
    marks = bytearray(b"\x01" * count)
    appended = header.append_timestamp
    buffer = copy_retained(section, marks, header.base_timestamp, appended, base)
    data = _sealed(header, buffer, count, base, header.max_timestamp, True)
    return Compacted(data, header.max_timestamp, count, count)


def _without_records(header: BatchHeader, emptied: Emptied, keyless: int, count: int) -> Compacted:
    data = empty_batch(header) if emptied is Emptied.STAYS else b""
    return Compacted(data, header.max_timestamp, 0, count, keyless)


def _sealed(
    header: BatchHeader,
    buffer: bytearray,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    has_horizon: bool,
) -> bytearray:
    """The records as a batch again, compressed as they were."""
    if header.compression is not Compression.NONE:
        with memoryview(buffer) as whole, whole[HEADER_SIZE:] as section:
            packed = compress(header.compression, section)
        buffer[HEADER_SIZE:] = packed
    attributes = header.attributes & _CARRIED
    seal(
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
