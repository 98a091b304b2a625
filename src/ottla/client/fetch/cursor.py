"""A consumer's place in one partition: what was handed out, what is here, what is asked for next.

Invariant: position <= fetched. What lies between them is in the chunks, in order and without a gap.
Whoever moves a cursor drops all that was fetched from the old place, and `moves` has grown, so that
an answer on its way to the old place is known when it comes. Of a record that the application has
in its hands, `position` is behind it and `done` is before it. The application may take records out
of a `HandedOut` in another thread than the cursor's: it writes only which one it took last, and a
`HandedOut` that is over is not read again.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from ottla.client.fetch.fetched_batches import FetchedBatches
from ottla.client.record import Record
from ottla.errors import RequestError
from ottla.ids import BrokerId, TopicPartition
from ottla.records import Batch

UNKNOWN: Final = -1

FIRST_OFFSET_BYTES: Final = 1024.0
"""What an offset takes for all that is known before the first fetch."""

SLACK_BYTES: Final = 64 << 10
"""So much more is asked for than is wanted: brokers send whole batches, or cut the last one."""

EARLIEST_MS: Final = -2
LATEST_MS: Final = -1


class HandedOut:
    """Decoded records that the application takes one by one."""

    __slots__ = ("cursor", "is_over", "left", "record")

    def __init__(self, cursor: "Cursor", left: Iterator[Record[Any, Any]]) -> None:
        self.cursor: Final = cursor
        self.left: Final = left
        self.record: Record[Any, Any] | None = None  # was taken last
        self.is_over = False  # no more may be taken, for the cursor went on without it


class Cursor:
    """Where a consumer is in a partition."""

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
        self.started = False  # its first place was looked for, or given
        self.seek_ms: int | None = None  # the place to look for, as a timestamp of ListOffsets
        self.fetched = UNKNOWN  # the next offset to ask a broker for
        self.fetch_end: int | None = None  # brokers are asked for nothing from here on
        self.offset_bytes = FIRST_OFFSET_BYTES  # what an offset took in the last fetch
        self.fetched_epoch = UNKNOWN  # of the record before it
        self.valid_under = UNKNOWN  # the leader's epoch under which that was seen to be so
        self.moves = 0
        self.is_paused = False
        self.is_held = False  # the application is being told of it, and may move it yet
        self.position_epoch = UNKNOWN  # of the record before the position
        self.chunks: deque[FetchedBatches] = deque()
        self.buffered_bytes = 0
        self.left: Iterator[Record[Any, Any]] | None = None  # decoded and not handed out
        self.left_until = UNKNOWN  # the offset behind those
        self.hand: HandedOut | None = None  # out of which the application takes what is left
        self.done_before: int | None = None  # what was polled since is in the application's hands
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        self.log_start = UNKNOWN
        self.read_from: BrokerId | None = None  # a replica nearby that the leader named
        self.read_from_until_s = 0.0
        self.failure: RequestError | None = None  # to be told when records are asked for
        self.tries = 0
        self.not_before_s = 0.0

    def __repr__(self) -> str:
        return f"Cursor({self.partition}, {self.position}, fetched {self.fetched})"

    @property
    def in_hand(self) -> Record[Any, Any] | None:
        """The record that the application took last, if it has not come back since."""
        return None if self.hand is None else self.hand.record

    @property
    def position(self) -> int:
        """The offset of the record that is handed out next; UNKNOWN before it was found."""
        record = self.in_hand
        return self._position if record is None else record.offset + 1

    @property
    def done(self) -> int:
        """What is before this the application has done, for it came back for more."""
        record = self.in_hand
        if record is not None:
            return record.offset
        return self._position if self.done_before is None else self.done_before

    @property
    def is_located(self) -> bool:
        """Whether there is a place to fetch from."""
        return self._position >= 0 and self.seek_ms is None

    @property
    def has_records(self) -> bool:
        """Whether something that was fetched waits to be handed out."""
        return bool(self.chunks) or self.left is not None

    @property
    def is_fetched(self) -> bool:
        """Whether all that is wanted is here, or was."""
        return self.fetch_end is not None and self.fetched >= self.fetch_end

    def bytes_wanted(self, bytes_max: int) -> int:
        """How much to ask for: no more than what is wanted takes, as far as one can tell."""
        if self.fetch_end is None:
            return bytes_max
        wanted = (self.fetch_end - self.fetched) * self.offset_bytes
        return min(bytes_max, int(wanted) + SLACK_BYTES)

    def is_doubtful_under(self, leader_epoch: int) -> bool:
        """Whether a leader has to say first that it has the records before the place.

        Not where it has written the last of them itself.
        """
        last = self.fetched_epoch
        return last >= 0 and last != leader_epoch and self.valid_under < leader_epoch

    def move(self, offset: int, epoch: int = UNKNOWN) -> None:
        """Go to an offset; what was fetched elsewhere is dropped."""
        self.drop()
        self.started = True
        self.seek_ms = None
        self._position = self.fetched = offset
        self.fetched_epoch = self.position_epoch = epoch
        self.valid_under = UNKNOWN
        self.failure = None

    def move_to_time(self, timestamp_ms: int) -> None:
        """Go to a time, which somebody has to look up."""
        self.move(self.position)
        self.seek_ms = timestamp_ms

    def drop(self) -> None:
        """Forget what was fetched and not handed out."""
        self.came_back()
        self.fetched = self._position
        self.moves += 1
        self.chunks.clear()
        self.buffered_bytes = 0
        self.left = None

    def pause(self) -> None:
        """Hand nothing out for now; what is here stays."""
        self.is_paused = True
        if self.hand is not None:
            self.hand.is_over = True

    def resume(self) -> None:
        """Hand out again."""
        self.is_paused = False

    def add(self, chunk: FetchedBatches) -> None:
        """Take what a fetch from `fetched` brought."""
        self.offset_bytes = chunk.size / max(1, chunk.next_offset - self.fetched)
        self.fetched = chunk.next_offset
        self.fetched_epoch = chunk.leader_epoch
        self.chunks.append(chunk)
        self.buffered_bytes += chunk.size

    def next_batch(self) -> Batch | None:
        """The next batch to hand out; None when no more is here. Passes over what nobody sees."""
        while self.chunks:
            chunk = self.chunks[0]
            if chunk.batches:
                return chunk.batches[0]
            self._end_chunk()
        return None

    def open_records(self, records: list[Record[Any, Any]], next_offset: int) -> None:
        """The next batch was decoded up to an offset: its records are handed out from now on."""
        self.left = iter(records)
        self.left_until = next_offset

    def open_hand(self) -> HandedOut:
        """Let the application take what was decoded, one by one."""
        assert self.left is not None
        self.hand = HandedOut(self, self.left)
        return self.hand

    def close_records(self) -> bool:
        """All that was decoded is handed out; tells whether that was the end of a chunk.

        That does not say that it is done: who took it out of a hand says so by `came_back`, before.
        """
        assert self.hand is None
        self.left = None
        self._position = max(self._position, self.left_until)
        batches = self.chunks[0].batches
        if batches[0].header.next_offset <= self._position:
            batches.popleft()
        if batches:
            return False
        self._end_chunk()
        return True

    def handed_out(self, next_offset: int, epoch: int) -> None:
        """Records before an offset were handed out, many at once; they count as in hand."""
        if self.done_before is None:
            self.done_before = self._position
        self._position = next_offset
        self.position_epoch = epoch

    def chunk_handed_out(self) -> None:
        """The first chunk was handed out whole."""
        self.left = None
        chunk = self.chunks[0]
        self.handed_out(max(self._position, chunk.next_offset), chunk.leader_epoch)
        self._end_chunk()

    def came_back(self) -> None:
        """The application asks for more: what it had is done."""
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
