"""One segment: a records file, its offset and time index, and its transaction index.

Invariant: offsets lie in [base offset, base offset of the next segment) and increase. The first
`size` bytes of the file are whole batches, and no index entry points past them. The indexes of the
active segment are in memory; their files are written after the segment was closed. Missing or wrong
index files are rebuilt from the records file.

Methods that may have to wait for the device take a `read` function of `reading.py`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from ottla.ids import Offset, Position
from ottla.log.cached_reads import Read, read_blocking
from ottla.log.damage import Damage, check_undamaged, damage_at, undamaged_end
from ottla.log.disk import Disk, File, read_whole, replace
from ottla.log.names import Kind, offset_file
from ottla.log.producer_state_manager import CompletedTransaction
from ottla.log.segment.batch_headers import (
    WALK_BYTES,
    BrokenSegment,
    LocatedHeader,
    batch_over,
    located_headers,
    verified_start,
)
from ottla.log.segment.index import OffsetIndex, TimeIndex, TimestampOffset
from ottla.log.segment.txn_index import AbortedTransaction, TransactionIndex
from ottla.protocol.primitives import Buffer
from ottla.records.batch import BatchHeader

RELATIVE_MAX: Final = 2**31 - 1  # an index entry has the offset relative to the base offset

# A reader that goes on where its last fetch ended finds its position in memory.
FETCH_ENDS_MAX: Final = 16

# Readers at the tail find the latest batches in memory; a fetch returns a few of them.
RECENT_BATCHES_MAX: Final = 64

_LAST_OFFSET: Final = itemgetter(0)
_POSITION: Final = itemgetter(1)


class Extent(NamedTuple):
    """A range of whole batches in a records file."""

    position: int
    size: int
    next_offset: int | None = None  # above its offsets, at most the base offset of the next batch


class Indexes(NamedTuple):
    """The offset index and the time index of a segment."""

    offset_index: OffsetIndex
    time_index: TimeIndex


class Segment:
    """A part of a log; the last segment of a log is active, the others do not change."""

    __slots__ = (
        "_bytes_since_entry",
        "_fetch_ends",
        "_latest_offset",
        "_latest_timestamp",
        "_recent",
        "_recent_after",
        "base_offset",
        "created_ms",
        "damaged",
        "directory",
        "file",
        "first_timestamp",
        "indexed_size",
        "jitter_ms",
        "latest_verified",
        "offset_index",
        "offset_max",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        directory: str,
        base_offset: Offset,
        file: File,
        *,
        size: int,
        created_ms: int,
        jitter_ms: int = 0,
        offset_index: OffsetIndex | None = None,
        time_index: TimeIndex | None = None,
        txn_index: TransactionIndex | None = None,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size = size
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms  # the segment rolls this much earlier than segment.ms
        self.offset_index = offset_index or OffsetIndex(base_offset)
        self.time_index = time_index or TimeIndex(base_offset)
        self.txn_index = txn_index or TransactionIndex(base_offset)
        self.first_timestamp: int | None = None  # of the first batch; None: not known
        self.offset_max = base_offset + RELATIVE_MAX  # the largest offset that the indexes can hold
        self._latest_timestamp, self._latest_offset = self.time_index.last
        self.damaged: tuple[Damage, ...] = ()  # kept and not served (rule C4)
        # The size of the records that the index files cover; None: there are no index files.
        self.indexed_size: int | None = None
        # Last offset and position of the latest batches, and the last offset before them, for
        # readers at the tail.
        self._recent: list[tuple[int, int]] = []
        self._recent_after = base_offset - 1
        self._bytes_since_entry = 0
        # Positions and base offsets of the batches behind the last fetches.
        self._fetch_ends: dict[int, int] = {}
        self.latest_verified = False  # the time index agrees with the batches

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: Offset, now_ms: int, jitter_ms: int = 0
    ) -> "Segment":
        """Create an empty segment; its name is durable after the directory is synced."""
        file = disk.open(f"{directory}/{offset_file(base_offset, Kind.RECORDS)}", create=True)
        return cls(directory, base_offset, file, size=0, created_ms=now_ms, jitter_ms=jitter_ms)

    def path(self, kind: Kind) -> str:
        """The path of one of the segment's files."""
        return f"{self.directory}/{offset_file(self.base_offset, kind)}"

    # Writing.

    def append(
        self, buffers: Sequence[Buffer], batches: Iterable[LocatedHeader], index_interval_bytes: int
    ) -> None:
        """Write batches at the end of the file and index them; a failed write changes nothing.

        The batches count after all of them are indexed. If indexing fails, they are not part of the
        segment.
        """
        end = self.file.write(buffers, self.size)
        for batch in batches:
            self.index_batch(
                batch.position,
                batch.last_offset,
                batch.size,
                batch.max_timestamp,
                index_interval_bytes,
            )
        self.size = end

    def append_one(
        self,
        buffers: Sequence[Buffer],
        last_offset: Offset,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Do the same for a single batch, without an object for its header."""
        position = self.size
        end = self.file.write(buffers, position)
        self.index_batch(position, last_offset, end - position, max_timestamp, index_interval_bytes)
        self.size = end

    def index_batch(
        self,
        position: int,
        last_offset: Offset,
        size: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Index a batch that follows the batches indexed before."""
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if max_timestamp > self._latest_timestamp:
            self._latest_timestamp = max_timestamp
            self._latest_offset = last_offset
        if self._bytes_since_entry > index_interval_bytes:
            self.offset_index.append(last_offset, Position(position))
            self.index_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        recent = self._recent
        recent.append((last_offset, position))
        if len(recent) > RECENT_BATCHES_MAX:
            self._recent_after = recent[RECENT_BATCHES_MAX // 2 - 1][0]
            del recent[: RECENT_BATCHES_MAX // 2]

    def index_damage(self, damage: Damage) -> None:
        """Let readers at the tail find a damaged range; no index entry points to it."""
        self._recent.append((damage.end_offset - 1, damage.position))

    def replace_damage(
        self, damage: Damage, headers: Iterable[BatchHeader], left: Damage | None
    ) -> None:
        """Serve the batches that have replaced the first bytes of a damaged range."""
        after = () if left is None else (left,)
        at = self.damaged.index(damage)
        self.damaged = (*self.damaged[:at], *after, *self.damaged[at + 1 :])
        entry = (damage.end_offset - 1, damage.position)
        if entry in self._recent:
            at, entries, position = self._recent.index(entry), list[tuple[int, int]](), entry[1]
            for header in headers:
                entries.append((header.last_offset, position))
                position += header.size
            self._recent[at : at + 1] = entries
            if left is not None:
                self._recent.insert(at + len(entries), (left.end_offset - 1, left.position))

    def index_aborted(self, completed: CompletedTransaction) -> None:
        """Add an aborted transaction to the transaction index; its marker is in this segment."""
        self.txn_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                completed.last_stable_offset,
            )
        )

    def index_time(self) -> None:
        """Add the largest timestamp so far to the time index."""
        if self._latest_timestamp > self.time_index.last.timestamp:
            self.time_index.append(self._latest_timestamp, self._latest_offset)

    @property
    def latest(self) -> TimestampOffset:
        """The largest timestamp, including batches without an index entry."""
        return TimestampOffset(self._latest_timestamp, self._latest_offset)

    def latest_ms(self, disk: Disk) -> int:
        """The largest timestamp, or the file's modification time if there is none."""
        timestamp = self._latest_timestamp
        return timestamp if timestamp >= 0 else disk.modified_ms(self.file.path)

    @property
    def records_end(self) -> int:
        """The offset after the last batch; only the active segment knows its last batches."""
        return self._recent[-1][0] + 1 if self._recent else self.base_offset

    def load_latest_timestamp(self) -> None:
        """Take the largest timestamp from the time index, which is complete."""
        self._latest_timestamp, self._latest_offset = self.time_index.last

    @property
    def indexes_due(self) -> bool:
        """Whether the index files are missing or do not cover all records."""
        return self.indexed_size != self.size

    def write_indexes(self, disk: Disk) -> None:
        """Write the index files; the caller syncs the directory."""
        self.index_time()
        replace(disk, self.path(Kind.OFFSET_INDEX), self.offset_index.to_bytes())
        replace(disk, self.path(Kind.TIME_INDEX), self.time_index.to_bytes())
        if self.txn_index.entries or disk.exists(self.path(Kind.TXN_INDEX)):
            replace(disk, self.path(Kind.TXN_INDEX), self.txn_index.to_bytes())

    def open_indexes(self, disk: Disk) -> Indexes:
        """Open the index files, which then need no memory; waits for the device."""
        return Indexes(
            OffsetIndex.in_file(self.base_offset, disk.open(self.path(Kind.OFFSET_INDEX))),
            TimeIndex.in_file(self.base_offset, disk.open(self.path(Kind.TIME_INDEX))),
        )

    def read_indexes(self, disk: Disk) -> Indexes:
        """Read the index files of a segment that becomes active; waits for the device."""
        base = self.base_offset
        return Indexes(
            OffsetIndex(base, read_whole(disk, self.path(Kind.OFFSET_INDEX))),
            TimeIndex(base, read_whole(disk, self.path(Kind.TIME_INDEX))),
        )

    def use_indexes(self, indexes: Indexes) -> None:
        """Replace the indexes by others with the same content."""
        self.offset_index, self.time_index = indexes
        self._recent.clear()
        self.latest_verified = False

    def reindexed(self, index_interval_bytes: int) -> "Segment":
        """A copy of the segment with indexes rebuilt from its batches; waits for the device."""
        twin = Segment(self.directory, self.base_offset, self.file, size=self.size, created_ms=0)
        twin.damaged = self.damaged
        twin.index_tail(twin.located_headers(0, twin.size, read_blocking), index_interval_bytes)
        return twin

    def adopt_indexes(self, twin: "Segment", index_interval_bytes: int, read: Read) -> None:
        """Take the indexes of a rebuilt copy, and index what was appended meanwhile."""
        for batch in self.located_headers(twin.size, self.size, read):
            twin.index_batch(
                batch.position,
                batch.last_offset,
                batch.size,
                batch.max_timestamp,
                index_interval_bytes,
            )
        twin.index_time()
        self.offset_index, self.time_index = twin.offset_index, twin.time_index
        self.load_latest_timestamp()
        self.indexed_size = None

    def loaded_indexes(self, read: Read) -> Indexes:
        """The indexes in memory."""
        return Indexes(self.offset_index.loaded(read), self.time_index.loaded(read))

    def truncate_indexes(self, position: int, offset: int) -> None:
        """Let the segment end at a position and an offset; the caller truncates the file."""
        self.size = position
        self.indexed_size = None
        self._fetch_ends.clear()
        self.damaged = tuple(one for one in self.damaged if one.first_offset < offset)
        if not position:
            self.first_timestamp = None
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.reopen()
            index.truncate_to(offset)

    def clear_indexes(self) -> None:
        """Reset the indexes, so that every batch of the file can be indexed again."""
        base_offset = self.base_offset
        self.offset_index, self.time_index = OffsetIndex(base_offset), TimeIndex(base_offset)
        self.txn_index = TransactionIndex(base_offset)
        self.indexed_size = None
        self.first_timestamp = None
        self.index_tail((), 0)

    def index_tail(self, tail: Iterable[LocatedHeader], index_interval_bytes: int) -> None:
        """Index the batches from the last index entry on, after an open or a truncation."""
        self._latest_timestamp, self._latest_offset = self.time_index.last
        self._recent.clear()
        self._recent_after = self.base_offset - 1
        self._bytes_since_entry = 0
        for batch in tail:
            if not self._recent:
                self._recent_after = batch.base_offset - 1
            if damage := damage_at(self.damaged, batch.position):
                self.index_damage(damage)
            else:
                self.index_batch(
                    batch.position,
                    batch.last_offset,
                    batch.size,
                    batch.max_timestamp,
                    index_interval_bytes,
                )

    def reactivate(self, index_interval_bytes: int, read: Read) -> LocatedHeader | None:
        """Make a segment that was opened from its files the active one; return its last batch."""
        indexes = (self.offset_index, self.time_index, self.txn_index)
        if not self.size and not self.damaged and not any(index.entries for index in indexes):
            self.clear_indexes()
            return None
        for index in indexes:
            index.reopen()
        self.first_timestamp = self.read_first_timestamp(read)
        last = self.offset_index.last
        tail = list(self.headers_for(last.offset, self.size, read))
        if last.position and last.offset > tail[-1].last_offset:
            raise BrokenSegment(
                self.base_offset,
                f"{self.file.path}: the offset index has entries beyond the last batch",
            )
        self.index_tail(tail, index_interval_bytes)
        return tail[-1] if tail else None

    # Lookups.

    def read_first_timestamp(self, read: Read) -> int | None:
        """The largest timestamp of the first batch; segment.ms is counted from it."""
        first = next(self.located_headers(0, self.size, read), None)
        return None if first is None else first.max_timestamp

    def located_headers(self, position: int, end: int, read: Read) -> Iterator[LocatedHeader]:
        """The batch headers between two positions, with few reads.

        A damaged range is returned as one batch without timestamp and epoch. Raises BrokenSegment
        where there is no batch, and NotCached if `read` does not find the bytes in the page cache.
        """
        return located_headers(
            self.file,
            position,
            end,
            read,
            base_offset=self.base_offset,
            offset_max=self.offset_max,
            damaged=self.damaged,
        )

    def locate(self, offset: int, read: Read, next_base: int | None = None) -> int | None:
        """The position of the first batch that ends at or above an offset; None if there is none.

        `next_base` is the base offset of the next segment; a batch that reaches it is damaged.
        Readers at the tail, and those that go on where their last fetch ended, need no read.
        """
        known = self._fetch_ends.get(offset)
        if known is not None and not self.damaged:
            return known
        recent = self._recent
        if recent and offset > self._recent_after:
            at = bisect_left(recent, offset, key=_LAST_OFFSET)
            return recent[at][1] if at < len(recent) else None
        found = self.headers_for(offset, self.size, read)
        for batch in found:
            if batch.last_offset >= offset:
                if batch.base_offset > offset:
                    # A gap, or a damaged base offset, which no CRC covers: then the next batch does
                    # not follow this one, and the walk raises BrokenSegment (rule C4).
                    next(found, None)
                    if next_base is not None and batch.last_offset >= next_base:
                        raise BrokenSegment(
                            self.base_offset,
                            f"{self.file.path}: the batch at position {batch.position} overlaps "
                            f"the next segment",
                        )
                return batch.position
        return None

    def headers_for(self, offset: int, end: int, read: Read) -> Iterator[LocatedHeader]:
        """The batch headers up to a position, from the index entry for an offset on."""
        entry = self.offset_index.lookup(offset, read)
        found = self.located_headers(entry.position, end, read)
        if not entry.position:
            return found
        return verified_start(found, entry.offset, self.base_offset, self.file.path)

    def extent(
        self,
        offset: int,
        upper: int | None,
        bytes_max: int,
        read: Read,
        next_base: int | None = None,
    ) -> Extent | None:
        """The batches that answer a fetch; None if this segment has none.

        They start with the batch that holds the offset and end below `upper`, which is None if it
        lies beyond the segment. They fit into the limit, except that the first batch is always
        returned.
        """
        start = self.locate(offset, read, next_base)
        if start is None:
            return None
        behind = None if upper is None else self.locate(upper, read)
        end = self.size if behind is None else behind
        if self.damaged and (upper is None or offset < upper):
            check_undamaged(self.damaged, start)
        if end <= start:
            return None
        if self.damaged:
            end = undamaged_end(self.damaged, start, end)
        if end - start > bytes_max:
            return self._first_batches(start, start + bytes_max, end, read)
        return Extent(start, end - start)

    def begins_at(self, offset: int, position: int) -> bool:
        """Whether a batch at a position is known to begin with an offset."""
        return self._fetch_ends.get(offset) == position and not self.damaged

    def offset_bound(self, extent: Extent, upper: int, read: Read) -> int:
        """An upper bound for the offsets in an extent without `next_offset`.

        It is at most the base offset of the next batch.
        """
        end = extent.position + extent.size
        # For readers at the tail an approximate bound is enough.
        if end > self.offset_index.last.position:
            return upper
        behind = next(self.located_headers(end, self.size, read), None)
        return upper if behind is None else min(upper, behind.base_offset)

    def _first_batches(self, start: int, wanted: int, end: int, read: Read) -> Extent:
        """The batches from `start` up to the position `wanted`, but at least one."""
        recent = self._recent
        if recent and recent[0][1] <= start:
            at = bisect_right(recent, wanted, key=_POSITION)
            if recent[at - 1][1] <= start:
                at += 1
            if at > len(recent):
                return Extent(start, end - start)
            return Extent(start, recent[at - 1][1] - start, recent[at - 2][0] + 1)
        entry = self.offset_index.last_at_or_before(wanted, read)
        if entry.position > start and not self.damaged:
            chunk = read(self.file, entry.position, WALK_BYTES)
            batch = batch_over(chunk, entry.position, entry.offset, wanted, end, self.offset_max)
            if batch is not None and batch.base_offset >= self.base_offset:
                self._note_fetch_end(batch)
                return Extent(start, batch.position - start, batch.base_offset)
        behind = self.located_headers(max(start, entry.position), end, read)
        if entry.position > start:
            behind = verified_start(behind, entry.offset, self.base_offset, self.file.path)
        for batch in behind:
            if batch.position > start and batch.position + batch.size > wanted:
                self._note_fetch_end(batch)
                return Extent(start, batch.position - start, batch.base_offset)
        return Extent(start, end - start)

    def _note_fetch_end(self, behind: LocatedHeader) -> None:
        """Remember where the next fetch starts, unless compaction left a gap before it."""
        ends = self._fetch_ends
        ends[behind.base_offset] = behind.position
        if len(ends) > FETCH_ENDS_MAX:
            del ends[next(iter(ends))]
