"""Builds and reads control batches, which brokers write into the log.

A control batch has one record. Its key has the type. As in Kafka, a version above 0 is read as
version 0, because later versions only append fields.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from ottla.ids import NO_LEADER_EPOCH
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.errors import CorruptRecords

_KEY: Final = Struct(">hh")  # version, type
_END_TXN_MARKER: Final = Struct(">hi")  # version, coordinator epoch
_VERSION: Final = 0
_MARKER_SIZE_MAX: Final = 128


class ControlType(IntEnum):
    """The type of a control record. KRaft uses those from 2 on; Ottla knows only their numbers."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record of a log; `type` is a number if it is unknown."""

    offset: int
    timestamp: int
    version: int
    type: ControlType | int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """The end of a transaction in one partition."""

    commit: bool
    coordinator_epoch: int


def marker_batch(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build the batch that ends a transaction."""
    builder = BatchBuilder(_MARKER_SIZE_MAX)
    control_type = ControlType.COMMIT if marker.commit else ControlType.ABORT
    builder.append(
        timestamp,
        _KEY.pack(_VERSION, control_type),
        _END_TXN_MARKER.pack(_VERSION, marker.coordinator_epoch),
    )
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_control(batch: Batch) -> ControlRecord | None:
    """Return the control record of a batch; None if compaction has removed it."""
    assert batch.header.is_control
    # A control batch has one small record: a larger one is rejected before it is decompressed.
    records = batch.records(decompressed_bytes_max=_MARKER_SIZE_MAX).read_all()
    if not records:
        return None
    if len(records) > 1:
        raise CorruptRecords(f"a control batch has {len(records)} records instead of one")
    record = records[0]
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptRecords("the control record has no type")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptRecords(f"the control record has version {version}")
    control_type = ControlType(number) if number in _KNOWN else number
    return ControlRecord(record.offset, record.timestamp, version, control_type, record.value)


def read_end_txn_marker(record: ControlRecord) -> EndTxnMarker | None:
    """Return the transaction marker of a control record; None if it has another type."""
    if record.type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_MARKER.size:
        raise CorruptRecords("the transaction marker is truncated")
    version, coordinator_epoch = _END_TXN_MARKER.unpack_from(record.value)
    if version < 0:
        raise CorruptRecords(f"the transaction marker has version {version}")
    return EndTxnMarker(record.type == ControlType.COMMIT, coordinator_epoch)


_KNOWN: Final = frozenset(ControlType)
