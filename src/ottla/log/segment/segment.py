"""One segment: a records file, its two indexes, and the index of what was aborted in it.

Invariant: offsets lie in [base_offset, next segment's base_offset) and rise; the first `size` bytes
of the file are whole batches, and no index entry points past them. The file is the truth: indexes
are in memory while the segment is active, are written after it was closed, and are rebuilt from
the file when they are missing or wrong.

What may have to wait for the device takes a `read` function of `reading.py`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from ottla.ids import Offset, Position
from ottla.log.damage import Damage, check_sound, damage_at, sound_end
from ottla.log.disk import Disk, File, replace
from ottla.log.names import Kind, offset_file
from ottla.log.producers import CompletedTransaction
from ottla.log.reading import Read, read_waiting
from ottla.log.segment.batch_headers import BrokenSegment, LocatedHeader, located_headers, vouched
from ottla.log.segment.index import OffsetIndex, TimeIndex, TimestampOffset
from ottla.log.segment.txn_index import AbortedTransaction, TransactionIndex
from ottla.protocol.primitives import Buffer

RELATIVE_MAX: Final = 2**31 - 1  # what an index holds of an offset, counted from the base offset

# Whoever reads at the tail finds its batches without a read, a few of which come per fetch.
RECENT_BATCHES_MAX: Final = 64

_LAST_OFFSET: Final = itemgetter(0)
_POSITION: Final = itemgetter(1)


class Extent(NamedTuple):
    """A run of whole batches in a records file."""

    position: int
    size: int


class Indexes(NamedTuple):
    """Where offsets and times are in a records file."""

    offsets: OffsetIndex
    times: TimeIndex


class Segment:
    """A part of a log; the last one of a log is active, the others do not change."""

    __slots__ = (
        "_bytes_since_entry",
        "_latest_offset",
        "_latest_timestamp",
        "_recent",
        "_recent_after",
        "aborted",
        "base_offset",
        "created_ms",
        "damaged",
        "directory",
        "file",
        "first_timestamp",
        "jitter_ms",
        "latest_is_sure",
        "offset_max",
        "offsets",
        "size",
        "times",
        "written_size",
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
        offsets: OffsetIndex | None = None,
        times: TimeIndex | None = None,
        aborted: TransactionIndex | None = None,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size = size
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms  # by how much it rolls earlier than segment.ms says
        self.offsets = offsets or OffsetIndex(base_offset)
        self.times = times or TimeIndex(base_offset)
        self.aborted = aborted or TransactionIndex(base_offset)
        self.first_timestamp: int | None = None  # of the first batch; None when not known
        self.offset_max = base_offset + RELATIVE_MAX  # what the indexes hold
        self._latest_timestamp, self._latest_offset = self.times.last
        self.damaged: tuple[Damage, ...] = ()  # what is kept and not served (rule C4)
        # How much of the records the index files cover; None while there are none.
        self.written_size: int | None = None
        # Last offset and position of the latest batches, and the last offset before these: what
        # readers at the tail ask for.
        self._recent: list[tuple[int, int]] = []
        self._recent_after = base_offset - 1
        self._bytes_since_entry = 0
        self.latest_is_sure = False  # whether the time index was found to be right about it

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: Offset, now_ms: int, jitter_ms: int = 0
    ) -> "Segment":
        """Begin an empty segment; its name is on the device when the folder has been synced."""
        file = disk.open(f"{directory}/{offset_file(base_offset, Kind.RECORDS)}", create=True)
        return cls(directory, base_offset, file, size=0, created_ms=now_ms, jitter_ms=jitter_ms)

    def path(self, kind: Kind) -> str:
        """Where one of the segment's files is."""
        return f"{self.directory}/{offset_file(self.base_offset, kind)}"

    # Writing.

    def append(
        self, buffers: Sequence[Buffer], batches: Iterable[LocatedHeader], index_interval_bytes: int
    ) -> None:
        """Write batches behind the others, and index them; a failed write changes nothing.

        They count once all of them are indexed: what fails before that is no part of the segment.
        """
        end = self.file.write(buffers, self.size)
        for batch in batches:
            self.note(
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
        """The same for a single batch, without an object for it."""
        position = self.size
        end = self.file.write(buffers, position)
        self.note(position, last_offset, end - position, max_timestamp, index_interval_bytes)
        self.size = end

    def note(
        self,
        position: int,
        last_offset: Offset,
        size: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Index a batch that is in the file behind those noted before."""
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if max_timestamp > self._latest_timestamp:
            self._latest_timestamp = max_timestamp
            self._latest_offset = last_offset
        if self._bytes_since_entry > index_interval_bytes:
            self.offsets.append(last_offset, Position(position))
            self.note_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        recent = self._recent
        recent.append((last_offset, position))
        if len(recent) > RECENT_BATCHES_MAX:
            self._recent_after = recent[RECENT_BATCHES_MAX // 2 - 1][0]
            del recent[: RECENT_BATCHES_MAX // 2]

    def note_damage(self, damage: Damage) -> None:
        """Let readers at the tail meet what is damaged; no index entry points there."""
        self._recent.append((damage.end_offset - 1, damage.position))

    def index_aborted(self, completed: CompletedTransaction) -> None:
        """Add an aborted transaction to the transaction index; its marker is in this segment."""
        self.aborted.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                completed.last_stable_offset,
            )
        )

    def note_time(self) -> None:
        """Let the time index say how late the records are by now."""
        if self._latest_timestamp > self.times.last.timestamp:
            self.times.append(self._latest_timestamp, self._latest_offset)

    @property
    def latest(self) -> TimestampOffset:
        """The largest timestamp, also of batches that have no index entry yet."""
        return TimestampOffset(self._latest_timestamp, self._latest_offset)

    def latest_ms(self, disk: Disk) -> int:
        """The largest timestamp, or the file's modification time if there is none."""
        timestamp = self._latest_timestamp
        return timestamp if timestamp >= 0 else disk.modified_ms(self.file.path)

    @property
    def records_end(self) -> int:
        """Behind the last batch; of the active segment, which knows its latest ones."""
        return self._recent[-1][0] + 1 if self._recent else self.base_offset

    def trust_times(self) -> None:
        """Take the largest timestamp from the time index, which is complete."""
        self._latest_timestamp, self._latest_offset = self.times.last

    @property
    def indexes_due(self) -> bool:
        """Whether the index files are missing or behind the records."""
        return self.written_size != self.size

    def write_indexes(self, disk: Disk) -> None:
        """Write the indexes to their files; the folder has to be synced after it."""
        self.note_time()
        replace(disk, self.path(Kind.OFFSET_INDEX), self.offsets.to_bytes())
        replace(disk, self.path(Kind.TIME_INDEX), self.times.to_bytes())
        if self.aborted.entries or disk.exists(self.path(Kind.ABORTED_INDEX)):
            replace(disk, self.path(Kind.ABORTED_INDEX), self.aborted.to_bytes())

    def open_indexes(self, disk: Disk) -> Indexes:
        """The indexes in their files, where they need no memory; waits for the device."""
        return Indexes(
            OffsetIndex.in_file(self.base_offset, disk.open(self.path(Kind.OFFSET_INDEX))),
            TimeIndex.in_file(self.base_offset, disk.open(self.path(Kind.TIME_INDEX))),
        )

    def use_indexes(self, indexes: Indexes) -> None:
        """Find batches by other indexes than before, which say the same."""
        self.offsets, self.times = indexes
        self._recent.clear()
        self.latest_is_sure = False

    def indexed_anew(self, index_interval_bytes: int) -> "Segment":
        """The same with indexes made of the batches alone; waits for the device."""
        twin = Segment(self.directory, self.base_offset, self.file, size=self.size, created_ms=0)
        twin.damaged = self.damaged
        twin.note_tail(twin.located_headers(0, twin.size, read_waiting), index_interval_bytes)
        return twin

    def take_indexes(self, twin: "Segment", index_interval_bytes: int, read: Read) -> None:
        """Find batches by what was indexed anew, and by what was appended meanwhile."""
        for batch in self.located_headers(twin.size, self.size, read):
            twin.note(
                batch.position,
                batch.last_offset,
                batch.size,
                batch.max_timestamp,
                index_interval_bytes,
            )
        twin.note_time()
        self.offsets, self.times = twin.offsets, twin.times
        self.trust_times()
        self.written_size = None

    def loaded_indexes(self, read: Read) -> Indexes:
        """The indexes in memory."""
        return Indexes(self.offsets.loaded(read), self.times.loaded(read))

    def cut_indexes(self, position: int, offset: int) -> None:
        """Let the segment end at a position, and at an offset; the file is cut by the caller."""
        self.size = position
        self.written_size = None
        self.damaged = tuple(one for one in self.damaged if one.first_offset < offset)
        if not position:
            self.first_timestamp = None
        for index in (self.offsets, self.times, self.aborted):
            index.reopen()
            index.truncate_to(offset)

    def clear_indexes(self) -> None:
        """Begin the indexes anew, to note every batch of the file again."""
        base_offset = self.base_offset
        self.offsets, self.times = OffsetIndex(base_offset), TimeIndex(base_offset)
        self.aborted = TransactionIndex(base_offset)
        self.written_size = None
        self.first_timestamp = None
        self.note_tail((), 0)

    def note_tail(self, tail: Iterable[LocatedHeader], index_interval_bytes: int) -> None:
        """Note the batches from the last index entry on, after the file was opened or cut."""
        self._latest_timestamp, self._latest_offset = self.times.last
        self._recent.clear()
        self._recent_after = self.base_offset - 1
        self._bytes_since_entry = 0
        for batch in tail:
            if not self._recent:
                self._recent_after = batch.base_offset - 1
            if damage := damage_at(self.damaged, batch.position):
                self.note_damage(damage)
            else:
                self.note(
                    batch.position,
                    batch.last_offset,
                    batch.size,
                    batch.max_timestamp,
                    index_interval_bytes,
                )

    def grow(self, index_interval_bytes: int, read: Read) -> LocatedHeader | None:
        """Become the active segment again; returns its last batch."""
        for index in (self.offsets, self.times, self.aborted):
            index.reopen()
        self.first_timestamp = self.read_first_timestamp(read)
        last = self.offsets.last
        tail = list(self.heads_for(last.offset, self.size, read))
        if last.position and last.offset > tail[-1].last_offset:
            raise BrokenSegment(self.base_offset, f"{self.file.path}: its index knows of more")
        self.note_tail(tail, index_interval_bytes)
        return tail[-1] if tail else None

    # Finding.

    def read_first_timestamp(self, read: Read) -> int | None:
        """The largest timestamp of the first batch, from which the time to roll is counted."""
        first = next(self.located_headers(0, self.size, read), None)
        return None if first is None else first.max_timestamp

    def located_headers(self, position: int, end: int, read: Read) -> Iterator[LocatedHeader]:
        """The batches from the position of one to the end of another, by few reads.

        What is damaged comes as one batch without time and epoch. BrokenSegment where there is
        no batch, NotCached when `read` finds nothing in memory.
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

    def locate(self, offset: int, read: Read) -> int | None:
        """Where the first batch is that ends at or above an offset; None when it is behind all.

        Readers at the tail are answered without a read.
        """
        recent = self._recent
        if recent and offset > self._recent_after:
            at = bisect_left(recent, offset, key=_LAST_OFFSET)
            return recent[at][1] if at < len(recent) else None
        for batch in self.heads_for(offset, self.size, read):
            if batch.last_offset >= offset:
                return batch.position
        return None

    def heads_for(self, offset: int, end: int, read: Read) -> Iterator[LocatedHeader]:
        """The batches up to a position among which an offset has to be looked for."""
        entry = self.offsets.lookup(offset, read)
        found = self.located_headers(entry.position, end, read)
        if not entry.position:
            return found
        return vouched(found, entry.offset, self.base_offset, self.file.path)

    def extent(self, offset: int, upper: int | None, bytes_max: int, read: Read) -> Extent | None:
        """The batches that answer a fetch; None when none of this segment does.

        From the batch that holds the offset to the last that ends below `upper`, which is None
        when it is behind the segment, and within the limit; the first batch is there even when it
        alone is larger.
        """
        start = self.locate(offset, read)
        if start is None:
            return None
        behind = None if upper is None else self.locate(upper, read)
        end = self.size if behind is None else behind
        if self.damaged and (upper is None or offset < upper):
            check_sound(self.damaged, start)
        if end <= start:
            return None
        end = sound_end(self.damaged, start, end)
        if end - start > bytes_max:
            end = self._batch_end(start, start + bytes_max, end, read)
        return Extent(start, end - start)

    def offset_bound(self, extent: Extent, upper: int, read: Read) -> int:
        """An offset above all in an extent whose offsets are below `upper`: of the next batch."""
        end = extent.position + extent.size
        # Readers at the tail end here: the bound needs no more than to be near.
        if end > self.offsets.last.position:
            return upper
        behind = next(self.located_headers(end, self.size, read), None)
        return upper if behind is None else min(upper, behind.base_offset)

    def _batch_end(self, start: int, wanted: int, end: int, read: Read) -> int:
        """The end of the last batch up to a position, or of the first one when none fits."""
        recent = self._recent
        if recent and recent[0][1] <= start:
            at = bisect_right(recent, wanted, key=_POSITION)
            if recent[at - 1][1] > start:
                return recent[at - 1][1]
            return recent[at][1] if at < len(recent) else end
        entry = self.offsets.last_until(wanted, read)
        behind = self.located_headers(max(start, entry.position), end, read)
        if entry.position > start:
            behind = vouched(behind, entry.offset, self.base_offset, self.file.path)
        for batch in behind:
            if batch.position + batch.size > wanted:
                return batch.position if batch.position > start else start + batch.size
        return end
