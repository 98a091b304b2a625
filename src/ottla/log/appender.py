"""Appends to one log: batches of a leader, transaction markers, batches that a follower fetched.

Invariant: a call writes once. A call that fails leaves offsets, epochs and producer state unchanged
(rule C6): state changes after the bytes are in the file. If changing the state fails, which only a
bug can cause, the log rejects every later append. Otherwise another batch would get the offsets of
a batch that is already in the file.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ottla.errors import ErrorCode, OttlaError, RequestError, StorageFailure
from ottla.ids import Offset, Position, ProducerEpoch, ProducerId
from ottla.log.batch_header_patch import patched_batch
from ottla.log.log_state import LogState
from ottla.log.segment.batch_headers import LocatedHeader
from ottla.log.segment.roll import is_full, roll_due
from ottla.log.segment.segment import RELATIVE_MAX, Segment
from ottla.protocol.primitives import Buffer
from ottla.records.batch import (
    CONTROL,
    LENGTH_END,
    NO_TIMESTAMP,
    Batch,
    BatchHeader,
    TimestampType,
    batches,
    scan_headers,
)
from ottla.records.control import EndTxnMarker, marker_batch, read_control, read_end_txn_marker
from ottla.records.errors import CorruptRecords
from ottla.records.validation import ValidBatch

_OFFSET_MAX: Final = 2**63 - 1


class UnexpectedOffset(OttlaError):
    """Fetched batches do not start at the log end offset (rule A16).

    The leader's log start offset may lie inside a batch. A follower with an empty log then restarts
    its log at `first_offset`, the base offset of that batch (rule A17).
    """

    def __init__(self, expected: int, first_offset: int, last_offset: int) -> None:
        super().__init__(expected, first_offset, last_offset)
        self.expected = expected
        self.first_offset = first_offset
        self.last_offset = last_offset

    def __str__(self) -> str:
        return (
            f"fetched offsets {self.first_offset} to {self.last_offset}, expected {self.expected}"
        )


class Appended(NamedTuple):
    """The offsets of an appended batch."""

    base_offset: Offset
    last_offset: Offset
    append_time: int  # -1 unless message.timestamp.type is LogAppendTime
    duplicate: bool = False


class Appender:
    """Appends batches to the active segment and rolls it."""

    __slots__ = ("_random", "_state")

    def __init__(self, state: LogState, random: Callable[[], float]) -> None:
        self._state = state
        self._random = random

    def append(
        self,
        valid: ValidBatch,
        data: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool = True,
    ) -> Appended:
        """Append a batch as the leader, or return the offsets of its duplicate (rules D1 and D2).

        A coordinator's own batches have no sequences: it passes `from_client=False`.
        """
        state = self._state
        if state.failure is not None or state.truncating:
            state.check_usable()
        assert leader_epoch == state.leader_epoch, "begin_epoch comes first"
        header = valid.header
        producer_id = header.producer_id
        if producer_id >= 0:
            if not from_client:
                state.producers.check_from_coordinator(header)
            elif duplicate := state.producers.check(header, from_client=True):
                return Appended(*duplicate, duplicate=True)
        config = state.config
        if len(data) > config.segment_bytes:
            raise RequestError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {len(data)} bytes, segment.bytes is {config.segment_bytes}",
            )
        base_offset = state.log_end_offset
        last_offset = Offset(base_offset + header.last_offset_delta)
        timestamp = valid.max_timestamp
        segment = state.segments.active
        if roll_due(segment, config, len(data), last_offset, timestamp, now_ms):
            segment = self._roll_or_wait(len(data), last_offset, now_ms)
        written = patched_batch(valid, data, base_offset, leader_epoch)
        try:
            segment.append_one(written, last_offset, timestamp, config.index_interval_bytes)
            state.log_end_offset = Offset(last_offset + 1)
            if producer_id >= 0:
                state.producers.append(header, base_offset, timestamp)
        except BaseException as error:
            self._fail_unless_undone(error)
            raise
        append_time = valid.timestamp_type is TimestampType.LOG_APPEND_TIME
        return Appended(base_offset, last_offset, timestamp if append_time else NO_TIMESTAMP)

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
        """Append a transaction marker that the transaction coordinator sent (rule E4)."""
        state = self._state
        state.check_usable()
        assert leader_epoch == state.leader_epoch, "begin_epoch comes first"
        state.producers.check_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_version=transaction_version,
        )
        offset = state.log_end_offset
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
            segment.append_one([data], offset, now_ms, state.config.index_interval_bytes)
            state.log_end_offset = Offset(offset + 1)
            completed = state.producers.end_transaction(
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                offset=offset,
                timestamp=now_ms,
            )
            if completed is not None and completed.aborted:
                segment.index_aborted(completed)
        except BaseException as error:
            self._fail_unless_undone(error)
            raise
        return Appended(offset, offset, NO_TIMESTAMP)

    def append_replicated(self, data: Buffer, *, fetched_offset: int, now_ms: int) -> None:
        """Append batches that a follower fetched from the leader, unchanged (rule A16)."""
        state = self._state
        state.check_usable()
        if fetched_offset != state.log_end_offset:
            raise UnexpectedOffset(state.log_end_offset, fetched_offset, fetched_offset)
        headers = replicated_headers(data, state.log_end_offset)
        if not headers:
            return
        if len(headers) > 1 and headers[-1].last_offset - headers[0].base_offset > RELATIVE_MAX:
            position, view = 0, memoryview(data)
            for header in headers:
                self._write_replicated([header], view[position : position + header.size], now_ms)
                position += header.size
        else:
            self._write_replicated(headers, data, now_ms)

    def _write_replicated(self, headers: Sequence[BatchHeader], data: Buffer, now_ms: int) -> None:
        state = self._state
        first, last = headers[0], headers[-1]
        last_offset = last.last_offset
        timestamp = last.max_timestamp
        if len(headers) > 1:
            timestamp = max(header.max_timestamp for header in headers)
        segment = self._segment_for(len(data), first.base_offset, last_offset, timestamp, now_ms)
        interval_bytes = state.config.index_interval_bytes
        try:
            if len(headers) == 1:
                segment.append_one([data], last_offset, timestamp, interval_bytes)
            else:
                segment.append([data], _located(headers, segment.size), interval_bytes)
            state.log_end_offset = Offset(last_offset + 1)
            position = 0
            for header in headers:
                if header.leader_epoch >= 0:
                    changed = state.epochs.assign(header.leader_epoch, header.base_offset)
                    state.epochs_dirty |= changed
                if header.producer_id >= 0:
                    batch = Batch(memoryview(data)[position : position + header.size], header)
                    completed = state.producers.replay(batch)
                    if completed is not None and completed.aborted:
                        segment.index_aborted(completed)
                position += header.length + LENGTH_END
        except BaseException as error:
            self._fail_unless_undone(error)
            raise

    def _segment_for(
        self, size: int, first_offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> Segment:
        """Return the active segment, after a roll if one is due.

        The new segment starts at the log end offset. It starts at `first_offset` if compaction left
        a gap on the leader that is too large for the relative offsets of a segment.
        """
        state = self._state
        segment = state.segments.active
        if not roll_due(segment, state.config, size, last_offset, timestamp, now_ms):
            return segment
        gap = last_offset - state.log_end_offset > RELATIVE_MAX
        return self._roll_or_wait(size, last_offset, now_ms, Offset(first_offset) if gap else None)

    def _roll_or_wait(
        self, size: int, last_offset: int, now_ms: int, base_offset: Offset | None = None
    ) -> Segment:
        """Roll, or return the active segment if that would take too many file descriptors.

        A closed segment keeps its file open until the next flush. If the log is short of
        descriptors, the segments of a partition roll one per flush, unless the active one is full.
        """
        state = self._state
        active = state.segments.active
        if (
            state.index_files_due
            and state.disk.is_short_of_descriptors
            and not is_full(active, state.config, size, last_offset)
        ):
            return active
        return self.roll(now_ms, base_offset)

    def roll(self, now_ms: int, base_offset: Offset | None = None) -> Segment:
        """Close the active segment and create the next one, by default at the log end offset.

        The next flush writes the index files and the producer snapshot; nothing is synced here. The
        file of the closed segment stays open until then.
        """
        state = self._state
        state.check_usable()
        closed = state.segments.active
        base = state.log_end_offset if base_offset is None else base_offset
        if base == closed.base_offset:
            return closed
        config = state.config
        jitter_ms = int(self._random() * min(config.segment_jitter_ms, config.segment_ms))
        segment = Segment.create(state.disk, state.directory, base, now_ms, jitter_ms)
        if not closed.size:
            state.segments.replace_active(segment)
            state.disk.remove(closed.file.path)
        else:
            closed.index_time()
            state.segments.add(segment)
            state.index_files_due.append(closed)
            state.snapshots.take(base, state.producers)
        return segment

    def _fail_unless_undone(self, error: BaseException) -> None:
        """Fail the log after an append failed, unless the write itself failed and was undone."""
        if not isinstance(error, StorageFailure):
            directory = self._state.directory
            self._state.fail(StorageFailure(f"{directory}: an append failed midway: {error!r}"))


def replicated_headers(data: Buffer, expected: Offset) -> list[BatchHeader]:
    """Return the headers of fetched batches, after all checks of rule A16.

    Compiled code reads batches that follow each other. Only a gap that compaction left is read
    here, or a batch that is invalid.
    """
    view, position = memoryview(data), 0
    headers: list[BatchHeader] = []
    while True:
        found, position = scan_headers(view, position, expected=expected, limit=_OFFSET_MAX)
        headers += found
        if position == len(view):
            break
        if headers:
            expected = headers[-1].next_offset
        batch = next(batches(view[position:]))
        header = batch.header
        if header.base_offset < expected:
            raise UnexpectedOffset(expected, header.base_offset, header.last_offset)
        if not batch.crc_ok:
            raise CorruptRecords(f"batch at offset {header.base_offset}: wrong CRC")
        headers.append(header)
        position += header.size
        expected = header.next_offset
    position = 0
    for header in headers:
        if header.attributes & CONTROL:
            batch = Batch(view[position : position + header.size], header)
            if (record := read_control(batch)) is not None:
                read_end_txn_marker(record)  # so that it cannot fail after the write
        position += header.length + LENGTH_END
    return headers


def _located(headers: Iterable[BatchHeader], position: int) -> Iterable[LocatedHeader]:
    for header in headers:
        yield LocatedHeader(
            Position(position),
            header.base_offset,
            header.last_offset,
            header.size,
            header.leader_epoch,
            header.max_timestamp,
        )
        position += header.size
