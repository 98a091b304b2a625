"""A consumer's position in one partition: handed out, buffered, to be fetched.

Invariant: position <= fetched. The records in between are in the buffered batches, in order and
without a gap. Moving a cursor drops everything fetched from the old position and increments
`moves`, so that a response for the old position is recognised when it arrives. For a record that
the application is processing, `position` is after it and `done` is before it. The application may
take records from a `HandedOut` in another thread: it writes only which record it took last, and a
`HandedOut` that is over is not read again.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from ottla.client.consumer.fetched_batches import FetchedBatches
from ottla.client.consumer.record import Record
from ottla.errors import RequestError
from ottla.ids import BrokerId, TopicPartition
from ottla.records import Batch

UNKNOWN: Final = -1

FIRST_OFFSET_BYTES: Final = 1024.0
"""Assumed bytes per offset before the first fetch."""

SLACK_BYTES: Final = 64 << 10
"""Requested in addition: brokers send whole batches or cut the last one."""

EARLIEST_MS: Final = -2
LATEST_MS: Final = -1


class HandedOut:
    """Decoded records that the application takes one by one."""

    __slots__ = ("cursor", "is_over", "left", "record")

    def __init__(self, cursor: "Cursor", left: Iterator[Record[Any, Any]]) -> None:
        self.cursor: Final = cursor
        self.left: Final = left
        self.record: Record[Any, Any] | None = None  # taken last
        self.is_over = False  # no more may be taken: the cursor has moved on


class Cursor:
    """The position of a consumer in a partition."""

    __slots__ = (
        "_position",
        "buffered_bytes",
        "chunks",
        "done_before",
        "failure",
        "fetch_end",
        "fetched",
        "fetched_epoch",
        "hand",
        "high_watermark",
        "is_held",
        "is_paused",
        "last_stable_offset",
        "left",
        "left_until",
        "log_start",
        "moves",
        "not_before_s",
        "offset_bytes",
        "partition",
        "position_epoch",
        "read_from",
        "read_from_until_s",
        "seek_ms",
        "started",
        "tries",
        "valid_under",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition: Final = partition
        self._position = UNKNOWN
        self.started = False  # its first position was looked up or given
        self.seek_ms: int | None = None  # the position to look up, as a timestamp of ListOffsets
        self.fetched = UNKNOWN  # the next offset to fetch
        self.fetch_end: int | None = None  # nothing is fetched from this offset on
        self.offset_bytes = FIRST_OFFSET_BYTES  # bytes per offset in the last fetch
        self.fetched_epoch = UNKNOWN  # leader epoch of the record before it
        self.valid_under = UNKNOWN  # the leader epoch under which the position was validated
        self.moves = 0
        self.is_paused = False
        self.is_held = False  # the assignment callback runs and may still move it
        self.position_epoch = UNKNOWN  # leader epoch of the record before the position
        self.chunks: deque[FetchedBatches] = deque()
        self.buffered_bytes = 0
        self.left: Iterator[Record[Any, Any]] | None = None  # decoded and not handed out
        self.left_until = UNKNOWN  # the offset after those
        self.hand: HandedOut | None = None  # from which the application takes the decoded records
        self.done_before: int | None = None  # records polled since are being processed
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        self.log_start = UNKNOWN
        self.read_from: BrokerId | None = None  # a preferred read replica named by the leader
        self.read_from_until_s = 0.0
        self.failure: RequestError | None = None  # raised when records are requested
        self.tries = 0
        self.not_before_s = 0.0

    def __repr__(self) -> str:
        return f"Cursor({self.partition}, {self.position}, fetched {self.fetched})"

    @property
    def in_hand(self) -> Record[Any, Any] | None:
        """The record that the application took last and has not finished."""
        return None if self.hand is None else self.hand.record

    @property
    def position(self) -> int:
        """The offset of the next record to hand out; UNKNOWN before it is resolved."""
        record = self.in_hand
        return self._position if record is None else record.offset + 1

    @property
    def done(self) -> int:
        """The offset before which the application has finished, because it asked for more."""
        record = self.in_hand
        if record is not None:
            return record.offset
        return self._position if self.done_before is None else self.done_before

    @property
    def is_located(self) -> bool:
        """Whether there is a position to fetch from."""
        return self._position >= 0 and self.seek_ms is None

    @property
    def has_records(self) -> bool:
        """Whether fetched records wait to be handed out."""
        return bool(self.chunks) or self.left is not None

    @property
    def is_fetched(self) -> bool:
        """Whether everything up to the end is fetched."""
        return self.fetch_end is not None and self.fetched >= self.fetch_end

    def bytes_wanted(self, bytes_max: int) -> int:
        """Return how many bytes to request: about what the wanted records take."""
        if self.fetch_end is None:
            return bytes_max
        wanted = (self.fetch_end - self.fetched) * self.offset_bytes
        return min(bytes_max, int(wanted) + SLACK_BYTES)

    def is_doubtful_under(self, leader_epoch: int) -> bool:
        """Whether the leader must first confirm the records before the position.

        Not if the leader has written the last of them itself.
        """
        last = self.fetched_epoch
        return last >= 0 and last != leader_epoch and self.valid_under < leader_epoch

    def move(self, offset: int, epoch: int = UNKNOWN) -> None:
        """Seek to an offset and drop what was fetched."""
        self.drop()
        self.started = True
        self.seek_ms = None
        self._position = self.fetched = offset
        self.fetched_epoch = self.position_epoch = epoch
        self.valid_under = UNKNOWN
        self.failure = None

    def move_to_time(self, timestamp_ms: int) -> None:
        """Seek to a timestamp, which has to be looked up."""
        self.move(self.position)
        self.seek_ms = timestamp_ms

    def drop(self) -> None:
        """Drop fetched records that were not handed out."""
        self.came_back()
        self.fetched = self._position
        self.moves += 1
        self.chunks.clear()
        self.buffered_bytes = 0
        self.left = None

    def pause(self) -> None:
        """Stop handing out; buffered records stay."""
        self.is_paused = True
        if self.hand is not None:
            self.hand.is_over = True

    def resume(self) -> None:
        """Hand out again."""
        self.is_paused = False

    def add(self, chunk: FetchedBatches) -> None:
        """Add what a fetch from `fetched` returned."""
        self.offset_bytes = chunk.size / max(1, chunk.next_offset - self.fetched)
        self.fetched = chunk.next_offset
        self.fetched_epoch = chunk.leader_epoch
        self.chunks.append(chunk)
        self.buffered_bytes += chunk.size

    def next_batch(self) -> Batch | None:
        """Return the next batch to hand out, or None; skips what the application must not see."""
        while self.chunks:
            chunk = self.chunks[0]
            if chunk.batches:
                return chunk.batches[0]
            self._end_chunk()
        return None

    def open_records(self, records: list[Record[Any, Any]], next_offset: int) -> None:
        """Start handing out the decoded records of the next batches, which end at an offset."""
        self.left = iter(records)
        self.left_until = next_offset

    def open_hand(self) -> HandedOut:
        """Let the application take decoded records one by one."""
        assert self.left is not None
        self.hand = HandedOut(self, self.left)
        return self.hand

    def close_records(self) -> bool:
        """Finish the decoded records; returns whether the fetched batches are used up.

        This does not mark them as done: the taker of a `HandedOut` does so by `came_back`, before.
        """
        assert self.hand is None
        self.left = None
        self._position = max(self._position, self.left_until)
        batches = self.chunks[0].batches
        while batches and batches[0].header.next_offset <= self._position:
            batches.popleft()
        if batches:
            return False
        self._end_chunk()
        return True

    def handed_out(self, next_offset: int, epoch: int) -> None:
        """Note that records before an offset were handed out; they count as being processed."""
        if self.done_before is None:
            self.done_before = self._position
        self._position = next_offset
        self.position_epoch = epoch

    def chunk_handed_out(self) -> None:
        """Note that the first fetched batches were handed out completely."""
        self.left = None
        chunk = self.chunks[0]
        self.handed_out(max(self._position, chunk.next_offset), chunk.leader_epoch)
        self._end_chunk()

    def came_back(self) -> None:
        """Mark handed out records as done: the application asks for more."""
        self.done_before = None
        hand, self.hand = self.hand, None
        if hand is None:
            return
        hand.is_over = True
        if hand.record is not None:
            self._position = hand.record.offset + 1
            self.position_epoch = hand.record.leader_epoch

    def _end_chunk(self) -> None:
        chunk = self.chunks.popleft()
        self.buffered_bytes -= chunk.size
        self._position = max(self._position, chunk.next_offset)
