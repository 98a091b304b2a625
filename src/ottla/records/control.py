"""Control batches: what the broker writes between the records of clients.

Invariant: a control batch holds exactly one record; its key tells what it is, its value is read
only when that is known. Versions above ours are read as ours, as Kafka does: fields are appended.
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
    """What a control record tells. The types from 2 on are of KRaft, known by number only."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record as it is in the log; `type` is a bare number when nobody knows it."""

    offset: int
    timestamp: int
    version: int
    type: ControlType | int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """The end of a producer's transaction in one partition."""

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
    """The batch that ends a transaction."""
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
    """The control record of a batch; None when compaction has removed it."""
    assert batch.header.is_control
    # A control batch is one small record: one that claims more is refused before it is read.
    records = batch.records(decompressed_bytes_max=_MARKER_SIZE_MAX).read_all()
    if not records:
        return None
    if len(records) > 1:
        raise CorruptRecords(f"a control batch of {len(records)} records")
    record = records[0]
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptRecords("a control record without a type")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptRecords(f"a control record of version {version}")
    control_type = ControlType(number) if number in _KNOWN else number
    return ControlRecord(record.offset, record.timestamp, version, control_type, record.value)


def read_end_txn_marker(record: ControlRecord) -> EndTxnMarker | None:
    """What a control record says of a transaction; None when it is of another kind."""
    if record.type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_MARKER.size:
        raise CorruptRecords("a transaction marker is cut off")
    version, coordinator_epoch = _END_TXN_MARKER.unpack_from(record.value)
    if version < 0:
        raise CorruptRecords(f"a transaction marker of version {version}")
    return EndTxnMarker(record.type == ControlType.COMMIT, coordinator_epoch)


_KNOWN: Final = frozenset(ControlType)
