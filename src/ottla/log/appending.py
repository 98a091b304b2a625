"""How a log grows: by a leader's batches and markers, by what a follower fetched, by segments.

Invariant: a call writes once, and one that fails leaves offsets, epochs and producers as they
were (rule C6). State is changed after the bytes are in the file, so that none is ahead of them. If
that fails, which nothing but a fault of ours can bring about, the log takes nothing more: another
batch would get the offsets of the one that is in the file.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.errors import DiskFull, ErrorCode, OttlaError, RequestError, StorageFailure
from ottla.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, Position, ProducerEpoch, ProducerId
from ottla.log.batch_header_patch import patched_batch
from ottla.log.batch_headers import LocatedHeader
from ottla.log.damage import DamageFile
from ottla.log.deletion import Doomed
from ottla.log.disk import Disk
from ottla.log.epochs import EpochHistory
from ottla.log.log_config import LogConfig
from ottla.log.producers import Producers
from ottla.log.replay import note_aborted
from ottla.log.rolling import roll_due
from ottla.log.segment import RELATIVE_MAX, Segment
from ottla.log.segments import Segments
from ottla.log.snapshots import Snapshots
from ottla.protocol.primitives import Buffer
from ottla.records.batch import NO_TIMESTAMP, Batch, TimestampType, batches
from ottla.records.control import EndTxnMarker, marker_batch, read_control, read_end_txn_marker
from ottla.records.errors import CorruptRecords
from ottla.records.validation import ValidBatch


class UnexpectedOffset(OttlaError):
    """Records came for another place than the log's end (rule A16).

    A follower whose log is empty begins within a batch when the leader's log start lies there. It
    then starts anew at `first_offset`, of the batch that holds its end (rule A17).
    """

    def __init__(self, expected: int, first_offset: int, last_offset: int) -> None:
        super().__init__(expected, first_offset, last_offset)
        self.expected = expected
        self.first_offset = first_offset
        self.last_offset = last_offset

    def __str__(self) -> str:
        return f"{self.first_offset} to {self.last_offset} came, expected was {self.expected}"


class Appended(NamedTuple):
    """Where a batch is."""

    base_offset: Offset
    last_offset: Offset
    append_time: int  # -1 unless the broker's clock counts
    duplicate: bool = False


class AppendableLog:
    """What a log is made of, and how it grows."""

    __slots__ = (
        "_changing",
        "_cleaning",
        "_cleaning_task",
        "_cuts",
        "_epoch",
        "_epoch_unstored",
        "_epochs_due",
        "_examining",
        "_failure",
        "_random",
        "_work",
        "closed",
        "damage_file",
        "disk",
        "doomed",
        "epochs",
        "folder",
        "log_start_offset",
        "next_offset",
        "producers",
        "recovery_point",
        "rules",
        "segments",
        "snapshots",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        rules: LogConfig,
        *,
        segments: Segments,
        epochs: EpochHistory,
        producers: Producers,
        snapshots: Snapshots,
        damage_file: DamageFile,
        log_start_offset: Offset,
        next_offset: Offset,
        recovery_point: Offset,
        epochs_due: bool = False,
        random: Callable[[], float],
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.rules = rules
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.snapshots = snapshots
        self.damage_file = damage_file
        self.log_start_offset = log_start_offset
        self.next_offset = next_offset
        self.recovery_point = recovery_point
        self.closed: list[Segment] = []  # segments whose indexes are not yet in their files
        self.doomed: list[Doomed] = []
        self._random = random
        self._epoch = NO_LEADER_EPOCH  # in which this replica leads
        self._epoch_unstored: LeaderEpoch | None = None  # in which it will, once there is room
        self._epochs_due = epochs_due
        self._failure: OttlaError | None = None
        self._changing = False
        self._cleaning = False
        self._cleaning_task: asyncio.Task[object] | None = None
        self._cuts: int = 0  # how often the log was cut, for those who rely on what they saw before
        self._examining = asyncio.Lock()
        self._work = asyncio.Lock()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.folder}, {self.log_start_offset} to {self.next_offset})"
        )

    # Appending.

    def append(
        self,
        valid: ValidBatch,
        data: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool = True,
    ) -> Appended:
        """Append a batch as the leader, or recognise it as a repeat (rules D1 and D2).

        Coordinators append their own batches, which have no sequences, as not `from_client`.
        """
        if self._failure is not None or self._changing:
            self._check_usable()
        if leader_epoch != self._epoch:
            self._check_stored(leader_epoch)
        header = valid.header
        producer_id = header.producer_id
        if producer_id >= 0:
            if not from_client:
                self.producers.check_from_coordinator(header)
            elif duplicate := self.producers.check(header, from_client=True):
                return Appended(*duplicate, duplicate=True)
        rules = self.rules
        if len(data) > rules.segment_bytes:
            raise RequestError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {len(data)} bytes, a segment {rules.segment_bytes}",
            )
        base_offset = self.next_offset
        last_offset = Offset(base_offset + header.last_offset_delta)
        timestamp = valid.max_timestamp
        segment = self.segments.active
        if roll_due(segment, rules, len(data), last_offset, timestamp, now_ms):
            segment = self.roll(now_ms)
        written = patched_batch(valid, data, base_offset, leader_epoch)
        try:
            segment.append_one(written, last_offset, timestamp, rules.index_interval_bytes)
            self.next_offset = Offset(last_offset + 1)
            if producer_id >= 0:
                self.producers.append(header, base_offset, timestamp)
        except BaseException as error:
            self._cut_short(error)
            raise
        by_clock = valid.timestamp_type is TimestampType.LOG_APPEND_TIME
        return Appended(base_offset, last_offset, timestamp if by_clock else NO_TIMESTAMP)

    def append_marker(
        self,
        marker: EndTxnMarker,
        *,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        transaction_version: int,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended:
        """Append the end of a transaction as its coordinator asks for it (rule E4)."""
        self._check_usable()
        if leader_epoch != self._epoch:
            self._check_stored(leader_epoch)
        self.producers.check_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_version=transaction_version,
        )
        offset = self.next_offset
        data = marker_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=now_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        segment = self._segment_for(len(data), offset, offset, now_ms, now_ms)
        try:
            segment.append_one([data], offset, now_ms, self.rules.index_interval_bytes)
            self.next_offset = Offset(offset + 1)
            completed = self.producers.end_transaction(
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                offset=offset,
                timestamp=now_ms,
            )
            if completed is not None and completed.aborted:
                note_aborted(segment, completed)
        except BaseException as error:
            self._cut_short(error)
            raise
        return Appended(offset, offset, NO_TIMESTAMP)

    def append_replicated(self, data: Buffer, *, fetched_offset: int, now_ms: int) -> None:
        """Append what the leader sent, as it is, behind the log's end (rule A16)."""
        self._check_usable()
        if fetched_offset != self.next_offset:
            raise UnexpectedOffset(self.next_offset, fetched_offset, fetched_offset)
        found = list(batches(data))
        expected = self.next_offset
        for batch in found:
            header = batch.header
            if header.base_offset < expected:
                raise UnexpectedOffset(expected, header.base_offset, header.last_offset)
            if not batch.crc_ok:
                raise CorruptRecords(f"the CRC of the batch at {header.base_offset} is wrong")
            if header.is_control and (record := read_control(batch)) is not None:
                read_end_txn_marker(record)  # so that nothing fails once it is written
            expected = header.next_offset
        if not found:
            return
        spread = expected - 1 - found[0].header.base_offset
        if len(found) > 1 and spread > RELATIVE_MAX:
            for batch in found:
                self._write_replicated([batch], batch.data, now_ms)
        else:
            self._write_replicated(found, data, now_ms)

    def _write_replicated(self, found: list[Batch], data: Buffer, now_ms: int) -> None:
        last_offset = found[-1].header.last_offset
        timestamp = max(batch.header.max_timestamp for batch in found)
        first_offset = found[0].header.base_offset
        segment = self._segment_for(len(data), first_offset, last_offset, timestamp, now_ms)
        try:
            segment.append([data], _heads(found, segment.size), self.rules.index_interval_bytes)
            self.next_offset = Offset(last_offset + 1)
            for batch in found:
                header = batch.header
                if header.leader_epoch >= 0:
                    self._epochs_due |= self.epochs.assign(header.leader_epoch, header.base_offset)
                completed = self.producers.replay(batch)
                if completed is not None and completed.aborted:
                    note_aborted(segment, completed)
        except BaseException as error:
            self._cut_short(error)
            raise

    def _segment_for(
        self, size: int, first_offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> Segment:
        """The segment to append to, a new one where one is due.

        It begins at the log's end, unless compaction left so large a gap behind that end that
        the offsets would not fit.
        """
        segment = self.segments.active
        if not roll_due(segment, self.rules, size, last_offset, timestamp, now_ms):
            return segment
        gap = last_offset - self.next_offset > RELATIVE_MAX
        return self.roll(now_ms, Offset(first_offset) if gap else None)

    def roll(self, now_ms: int, base_offset: Offset | None = None) -> Segment:
        """Close the active segment and begin the next, at the log's end unless told otherwise.

        Nothing is synced here: index files and the snapshot are written by the next flush.
        """
        self._check_usable()
        closed = self.segments.active
        base = self.next_offset if base_offset is None else base_offset
        if base == closed.base_offset:
            return closed
        rules = self.rules
        jitter_ms = int(self._random() * min(rules.segment_jitter_ms, rules.segment_ms))
        segment = Segment.create(self.disk, self.folder, base, now_ms, jitter_ms)
        if not closed.size:
            self.segments.replace_active(segment)
            self.disk.remove(closed.file.path)
        else:
            closed.note_time()
            self.segments.add(segment)
            self.closed.append(closed)
            self.snapshots.take(base, self.producers)
        return segment

    def _cut_short(self, error: BaseException) -> None:
        """Take nothing more after an append that failed, unless its write did, which undid it."""
        if not isinstance(error, StorageFailure):
            self.refuse(StorageFailure(f"{self.folder}: an append was cut short: {error!r}"))

    def refuse(self, failure: OttlaError) -> None:
        """Take nothing more; what is there stays readable."""
        self._failure = self._failure or failure

    @property
    def waits_for_room(self) -> bool:
        """Whether a flush has to store what a full disk had no room for.

        While that is the leader's epoch, nothing is appended.
        """
        return self._epoch_unstored is not None or self.damage_file.is_due

    def _check_stored(self, leader_epoch: int) -> None:
        """Refuse what an epoch brings that is not on the device (rule A1)."""
        assert leader_epoch == self._epoch_unstored, "begin_epoch comes first"
        raise DiskFull(f"{self.folder}: there is no room to store that epoch {leader_epoch} began")

    def _check_usable(self) -> None:
        if isinstance(self._failure, StorageFailure):
            raise StorageFailure(f"{self.folder}: broken: {self._failure}")
        if self._failure is not None:
            raise self._failure
        assert not self._changing, "the log is being cut"


def _heads(found: Iterable[Batch], position: int) -> Iterable[LocatedHeader]:
    for batch in found:
        header = batch.header
        yield LocatedHeader(
            Position(position),
            header.base_offset,
            header.last_offset,
            header.size,
            header.leader_epoch,
            header.max_timestamp,
        )
        position += header.size
