"""The entries that a listing prints: one value per batch, record, index entry and so on.

Invariant: the fields of an entry have the values and units of the file; their names are the keys of
`ottla log dump -o json` and do not change. Offsets and positions are absolute.
"""

from dataclasses import dataclass
from typing import ClassVar

from ottla.inspection.contents import Content
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlRecord


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, before its content."""

    KIND: ClassVar = "file"
    path: str
    content: Content
    size: int
    state: str  # live, deleted, cleaned or swap


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """A record batch; the output flattens `header`."""

    KIND: ClassVar = "batch"
    position: int
    header: BatchHeader
    crc_ok: bool | None  # None: not computed


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """A record; `control` is set in a control batch."""

    KIND: ClassVar = "record"
    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    control: ControlRecord | None = None


@dataclass(frozen=True, slots=True)
class OffsetIndexEntry:
    """The last offset of a batch and its position."""

    KIND: ClassVar = "offset-index-entry"
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexEntry:
    """The largest timestamp up to an offset."""

    KIND: ClassVar = "time-index-entry"
    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class AbortedEntry:
    """An aborted transaction."""

    KIND: ClassVar = "aborted-transaction"
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class ProducerStateEntry:
    """The state of a producer in a snapshot."""

    KIND: ClassVar = "producer"
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """A leader epoch and its start offset."""

    KIND: ClassVar = "leader-epoch"
    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class DamageEntry:
    """A damaged range that a broker found and does not serve."""

    KIND: ClassVar = "known-damage"
    base_offset: int
    position: int
    size: int
    first_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The offset of a partition in a checkpoint."""

    KIND: ClassVar = "checkpoint"
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class FactsEntry:
    """The named values of a small file."""

    KIND: ClassVar = "facts"
    facts: tuple[tuple[str, str | int | None], ...]


Entry = (
    FileEntry
    | BatchEntry
    | RecordEntry
    | OffsetIndexEntry
    | TimeIndexEntry
    | AbortedEntry
    | ProducerStateEntry
    | EpochEntry
    | DamageEntry
    | CheckpointEntry
    | FactsEntry
)
