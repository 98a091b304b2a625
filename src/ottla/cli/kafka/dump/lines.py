"""Output lines of Kafka's dump tool.

Invariant: lines equal Kafka's in every character, so programs can parse the output of both.
"""

from typing import Final

from ottla.inspection.entries import AbortedEntry, ProducerStateEntry
from ottla.records.batch import BatchHeader, TimestampType
from ottla.records.control import ControlRecord, ControlType, read_end_txn_marker
from ottla.records.errors import CorruptRecords

INDENT: Final = "|"
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_TIMESTAMP_TYPES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def batch_line(header: BatchHeader, position: int, *, is_valid: bool) -> str:
    """Return the line of a batch."""
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.record_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {_boolean(header.is_transactional)} "
        f"isControl: {_boolean(header.is_control)} "
        f"deleteHorizonMs: {_optional(header.delete_horizon_ms)} position: {position} "
        f"{_TIMESTAMP_TYPES[header.timestamp_type]}: {header.max_timestamp} size: {header.size} "
        f"magic: {header.magic} compresscodec: {header.compression.label} crc: {header.crc} "
        f"isvalid: {_boolean(is_valid)}"
    )


def record_head(
    header: BatchHeader,
    offset: int,
    timestamp: int,
    sizes: tuple[int, int],
    header_keys: list[str],
) -> str:
    """Return the metadata part of a record's line; sizes are of key and value, -1 for null."""
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = (sequence + offset - header.base_offset) & _SEQUENCE_MASK
    return (
        f"{INDENT} offset: {offset} {_TIMESTAMP_TYPES[header.timestamp_type]}: {timestamp} "
        f"keySize: {sizes[0]} valueSize: {sizes[1]} sequence: {sequence} "
        f"headerKeys: [{','.join(header_keys)}]"
    )


def control_words(control: ControlRecord | None) -> str:
    """Return the part of a control record's line that follows its metadata."""
    if control is None:
        return ""
    try:
        marker = read_end_txn_marker(control)
    except CorruptRecords:
        return ""
    if marker is not None:
        kind = "COMMIT" if marker.commit else "ABORT"
        return f" endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
    name = control.type.name if isinstance(control.type, ControlType) else "UNKNOWN"
    return f" controlType: {name}({int(control.type)})"


def contents(key: str | None, value: str | None, *, is_alone: bool) -> str:
    """Return key and value of a record's line; `is_alone` if there is no metadata before them."""
    words = [f"key: {key}"] if key is not None else []
    words += [f"payload: {value}"] if value is not None else []
    if not words:
        return ""
    return (f"{INDENT} " if is_alone else " ") + " ".join(words)


def aborted_line(entry: AbortedEntry) -> str:
    """Return the line of an aborted transaction."""
    return (
        f"version: {entry.version} producerId: {entry.producer_id} "
        f"firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
        f"lastStableOffset: {entry.last_stable_offset}"
    )


def producer_line(entry: ProducerStateEntry) -> str:
    """Return the line of a producer in a snapshot; without batches it has no batch fields."""
    open_since = entry.transaction_first_offset if entry.transaction_first_offset >= 0 else None
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(open_since)} lastTimestamp: {entry.timestamp}"
    )
    if entry.last_offset < 0:
        return line
    first = (entry.last_sequence - entry.offset_delta) & _SEQUENCE_MASK
    return (
        f"{line} firstSequence: {first} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
        f"timestamp: {entry.timestamp}"
    )


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _optional(number: int | None) -> str:
    return "OptionalLong.empty" if number is None else f"OptionalLong[{number}]"
