"""What is in the files, one value for each thing that can be listed.

Invariant: the fields of an entry are what the file says, in the units of the file; their names are
the keys of `ottla log dump -o json` and stay. Offsets and positions are whole, not relative ones.
"""

from dataclasses import dataclass
from typing import ClassVar

from ottla.inspection.contents import Content
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlRecord


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, before what is in it."""

    KIND: ClassVar = "file"
    path: str
    content: Content
    size: int
    state: str  # live, deleted, cleaned or swap


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """A record batch. `header` is flattened where it is printed."""

    KIND: ClassVar = "batch"
    position: int
    header: BatchHeader
    crc_ok: bool | None  # None: too much was asked to be left out, so it was not computed


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """A record; the marker is set where it is one of a control batch."""

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
    """Where the batch begins that ends with an offset."""

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
    """What a snapshot knows of a producer."""

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
    """A leader epoch and where it began."""

    KIND: ClassVar = "leader-epoch"
    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class DamageEntry:
    """What a broker found damaged in a segment, and does not serve."""

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
    """The few things that a small file says, by name."""

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
