"""Log entries as lines and as objects.

Invariant: every object has a `kind` with a fixed set of keys; `key` and `value` are present if
requested. A line has no characters that a terminal acts on.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from ottla.cli.escapes import escaped
from ottla.cli.output import Json
from ottla.cli.records.form_names import Form
from ottla.cli.records.payloads import decoded, shown
from ottla.inspection.entries import (
    AbortedEntry,
    BatchEntry,
    CheckpointEntry,
    DamageEntry,
    Entry,
    EpochEntry,
    FactsEntry,
    FileEntry,
    OffsetIndexEntry,
    ProducerStateEntry,
    RecordEntry,
    TimeIndexEntry,
)
from ottla.inspection.findings import Finding
from ottla.inspection.segment_check import Tally
from ottla.protocol.coordinator_records import CoordinatorRecordTypes
from ottla.records.batch import NO_TIMESTAMP, BatchHeader, TimestampType
from ottla.records.control import ControlRecord, ControlType, EndTxnMarker, read_end_txn_marker
from ottla.records.errors import CorruptRecords

_TIMESTAMP_TYPES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Payloads:
    """Whether and how keys and values are printed."""

    keys: Form | None = None
    values: Form | None = None
    types: CoordinatorRecordTypes | None = None  # of an internal topic

    def of(self, record: RecordEntry) -> dict[str, Json]:
        """Return what is printed of a record, by name."""
        both = None
        if self.types is not None and record.control is None:
            both = decoded(self.types, record.key, record.value)
        if both is not None:
            return {"key": both[0], "value": both[1]}
        fallback = Form.BASE64 if self.types is not None else None
        found: dict[str, Json] = {}
        if keys := self.keys or fallback:
            found["key"] = shown(record.key, keys)
        if values := self.values or fallback:
            found["value"] = shown(record.value, values)
        return found


# Objects.


def entry_object(entry: Entry, path: str, payloads: Payloads) -> dict[str, Json]:
    """Return an entry as an object, with its kind and file."""
    place: dict[str, Json] = {"kind": entry.KIND, "path": path}
    match entry:
        case BatchEntry():
            return place | _batch_object(entry)
        case RecordEntry():
            return place | _record_object(entry, payloads)
        case FactsEntry():
            return place | {"facts": dict(entry.facts)}
        case _:
            return place | asdict(entry)


def finding_object(finding: Finding) -> dict[str, Json]:
    """Return a finding as an object."""
    return {"kind": "finding", **asdict(finding)}


def summary_object(tally: Tally, levels: dict[str, int]) -> dict[str, Json]:
    """Return the summary of a verification as an object."""
    return {"kind": "summary", **asdict(tally), **levels}


def _batch_object(entry: BatchEntry) -> dict[str, Json]:
    header = entry.header
    return {
        "position": entry.position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "magic": header.magic,
        "crc": header.crc,
        "crc_ok": entry.crc_ok,
        "compression": _compression(header),
        "timestamp_type": _TIMESTAMP_TYPES[header.timestamp_type],
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "delete_horizon_ms": header.delete_horizon_ms,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }


def _compression(header: BatchHeader) -> str:
    try:
        return header.compression.label
    except CorruptRecords as error:
        return str(error)


def _record_object(entry: RecordEntry, payloads: Payloads) -> dict[str, Json]:
    return {
        "offset": entry.offset,
        "timestamp": entry.timestamp,
        "sequence": entry.sequence,
        "key_size": -1 if entry.key is None else len(entry.key),
        "value_size": -1 if entry.value is None else len(entry.value),
        "headers": [
            {"key": key, "value": shown(value, payloads.values or Form.TEXT)}
            for key, value in entry.headers
        ],
        "control": None if entry.control is None else _control_object(entry.control),
        **payloads.of(entry),
    }


def _control_object(control: ControlRecord) -> dict[str, Json]:
    kind = control.type
    found: dict[str, Json] = {"type": kind.name if isinstance(kind, ControlType) else kind}
    if (marker := _marker(control)) is not None:
        found["coordinator_epoch"] = marker.coordinator_epoch
    return found


def _marker(control: ControlRecord) -> EndTxnMarker | None:
    try:
        return read_end_txn_marker(control)
    except CorruptRecords:
        return None


# Lines.


def entry_line(entry: Entry, payloads: Payloads) -> str:
    """Return an entry as a line; subordinate entries are indented."""
    match entry:
        case FileEntry():
            state = "" if entry.state == "live" else f", {entry.state}"
            words = entry.content.replace("-", " ")
            return f"{escaped(entry.path)}: {words}, {entry.size:,} bytes{state}"
        case BatchEntry():
            return "  " + _batch_line(entry)
        case RecordEntry():
            return "    " + _record_line(entry, payloads)
        case OffsetIndexEntry():
            return f"  offset {entry.offset} at position {entry.position}"
        case TimeIndexEntry():
            return (
                f"  {_time(entry.timestamp)} is the largest timestamp up to offset {entry.offset}"
            )
        case AbortedEntry():
            return (
                f"  producer {entry.producer_id} aborted {entry.first_offset} to "
                f"{entry.last_offset}, last stable offset {entry.last_stable_offset}"
            )
        case ProducerStateEntry():
            return "  " + _producer_line(entry)
        case EpochEntry():
            return f"  epoch {entry.epoch} from offset {entry.start_offset}"
        case DamageEntry():
            return (
                f"  offsets {entry.first_offset} to {entry.end_offset - 1}, {entry.size} bytes at "
                f"{entry.position} of segment {entry.base_offset}"
            )
        case CheckpointEntry():
            return f"  {entry.topic}-{entry.partition}: {entry.offset}"
        case FactsEntry():
            return "\n".join(f"  {escaped(name)}: {escaped(str(v))}" for name, v in entry.facts)


def _batch_line(entry: BatchEntry) -> str:
    header = entry.header
    words = [
        f"batch {header.base_offset} to {header.last_offset}",
        f"{header.record_count} records",
        f"at {entry.position}",
        f"{header.size} bytes",
        _compression(header),
        f"epoch {header.leader_epoch}",
        f"{_TIMESTAMP_TYPES[header.timestamp_type]} {_time(header.max_timestamp)}",
        f"crc {header.crc:08x}" + ("" if entry.crc_ok else " WRONG"),
    ]
    if header.has_producer:
        words.append(f"producer {header.producer_id} epoch {header.producer_epoch}")
        words.append(f"sequences {header.base_sequence} to {header.last_sequence}")
    words += ["transactional"] * header.is_transactional + ["control"] * header.is_control
    if header.delete_horizon_ms is not None:
        words.append(f"delete horizon {_time(header.delete_horizon_ms)}")
    return ", ".join(words)


def _record_line(entry: RecordEntry, payloads: Payloads) -> str:
    key_size = "no key" if entry.key is None else f"key of {len(entry.key)} bytes"
    value_size = "no value" if entry.value is None else f"value of {len(entry.value)} bytes"
    words = [str(entry.offset), _time(entry.timestamp)]
    if entry.sequence >= 0:
        words.append(f"sequence {entry.sequence}")
    if entry.control is not None:
        words += [f"{name} {value}" for name, value in _control_object(entry.control).items()]
        return ", ".join(words)
    found = payloads.of(entry)
    words.append(f"key {_printed(found['key'])}" if "key" in found else key_size)
    words.append(f"value {_printed(found['value'])}" if "value" in found else value_size)
    for key, value in entry.headers:
        words.append(f"{escaped(key)}={_printed(shown(value, payloads.values or Form.TEXT))}")
    return ", ".join(words)


def _producer_line(entry: ProducerStateEntry) -> str:
    words = [
        f"producer {entry.producer_id} epoch {entry.producer_epoch}",
        f"last sequence {entry.last_sequence}",
        f"last offset {entry.last_offset}",
        _time(entry.timestamp),
        f"coordinator epoch {entry.coordinator_epoch}",
    ]
    if entry.transaction_first_offset >= 0:
        words.append(f"transaction open since {entry.transaction_first_offset}")
    return ", ".join(words)


def finding_line(finding: Finding) -> str:
    """Return a finding as a line: severity, place, text."""
    where = escaped(finding.path)
    if finding.position is not None:
        where += f", position {finding.position}"
    if finding.line is not None:
        where += f", line {finding.line}"
    return f"{finding.level}: {where}: {escaped(finding.problem)}"


def summary_line(tally: Tally, levels: dict[str, int]) -> str:
    """Return the summary of a verification as a line."""
    damage, incomplete = levels["damage"], levels["incomplete"]
    outcome = f"{damage} damaged places" if damage else "no damage"
    if incomplete:
        outcome += f", {incomplete} incomplete"
    return (
        f"{tally.files:,} files, {tally.batches:,} batches, {tally.records:,} records, "
        f"{tally.bytes:,} bytes: {outcome}"
    )


def _printed(payload: Json) -> str:
    if payload is None:
        return "null"
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return escaped(text)


def _time(timestamp_ms: int) -> str:
    if timestamp_ms == NO_TIMESTAMP:
        return "no time"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
