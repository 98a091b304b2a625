"""The log of one partition: what may be appended, read, flushed, cut and deleted.

Invariant: log start <= next offset, recovery point <= next offset. All state changes on the event
loop; what waits for the device is done in a thread, one thing at a time, and nothing is appended
while the log is being cut. After a failed sync nobody knows what is on the device, so the log
takes nothing more (rule C5); what it has stays readable.

The owner keeps recovery point and log start in its checkpoints. `truncate_to` and
`truncate_fully_and_start_at` may lower the recovery point: it is stored before the next append.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice

from ottla.errors import DiskFull, ErrorCode, RequestError
from ottla.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from ottla.log.batch_headers import BrokenSegment
from ottla.log.damage import format_damage
from ottla.log.deletion import (
    Doomed,
    mark_deleted,
    mark_segments_deleted,
    remove_all,
    remove_segments,
)
from ottla.log.disk import File, staged, write_atomically
from ottla.log.epochs import EpochEnd, EpochHistory
from ottla.log.names import LEADER_EPOCHS, Kind, offset_file
from ottla.log.producers import Producers
from ottla.log.reading import NotCached, Read, RecordSlice, read_now
from ottla.log.retention import outlived
from ottla.log.scrubbing import ScrubbedLog
from ottla.log.segment import Segment
from ottla.log.segment_facts import segment_facts
from ottla.log.segments import Segments
from ottla.log.shield import uninterrupted
from ottla.log.timestamps import (
    FoundOffset,
    TimeSearch,
    Unfinished,
    check_latest,
    first_from_time,
    latest_time,
)
from ottla.log.truncation import TruncationPoint, truncation_point
from ottla.log.txn_index import AbortedTransaction
from ottla.records.errors import CorruptRecords


class PartitionLog(ScrubbedLog):
    """A log that has been opened by `recovery.open_log`."""

    __slots__ = ()

    # Reading.

    def read_cached(self, offset: int, upper_offset: int, bytes_max: int) -> RecordSlice:
        """The batches from an offset on, up to a bound and a limit, or NotCached.

        Whole batches, the first one even when it is larger than the limit; none when there is
        nothing yet. OFFSET_OUT_OF_RANGE below the log's start and above its end, CORRUPT_MESSAGE
        for a batch that is known to be damaged (rule C4).
        """
        try:
            return self._slice(offset, upper_offset, bytes_max, read_now)
        except BrokenSegment as broken:
            # What is wrong with it is found out by those who may wait.
            file = self.segments.from_offset(broken.base_offset)[0].file
            raise NotCached(file, 0, 0) from broken
        except CorruptRecords as error:
            raise self._corrupt(error) from error

    async def read(self, offset: int, upper_offset: int, bytes_max: int) -> RecordSlice:
        """The same, waiting for the device where something is not in memory."""
        return await self._settled(lambda read: self._slice(offset, upper_offset, bytes_max, read))

    def _slice(self, offset: int, upper_offset: int, bytes_max: int, read: Read) -> RecordSlice:
        end = self.next_offset
        if not self.log_start_offset <= offset <= end:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset}, the log has {self.log_start_offset} to {end}",
            )
        found = self.segments.extent(offset, min(upper_offset, end), bytes_max, read)
        if found is None:
            return RecordSlice(self.disk, None, 0, 0, offset)
        segment, (position, size), upper = found
        return RecordSlice(self.disk, segment.file, position, size, upper)

    async def find_time(self, timestamp: int) -> FoundOffset | None:
        """The first record of a time or later."""
        return await self._searched(
            lambda read, search: first_from_time(
                self.segments, timestamp, self.log_start_offset, read, search
            )
        )

    async def find_latest_time(self) -> FoundOffset | None:
        """The first record with the largest timestamp."""
        return await self._searched(
            lambda read, search: latest_time(self.segments, self.log_start_offset, read, search)
        )

    async def _searched(
        self, look_up: Callable[[Read, TimeSearch], FoundOffset | None]
    ) -> FoundOffset | None:
        """The outcome of a look-up by time, repeated until all that takes long is done."""
        search, cuts = TimeSearch(self.rules.decompressed_bytes_max), self._cuts

        def look(read: Read) -> FoundOffset | None:
            nonlocal search, cuts
            if cuts != self._cuts:
                search, cuts = TimeSearch(self.rules.decompressed_bytes_max), self._cuts
            return look_up(read, search)

        while True:
            try:
                return await self._settled(look)
            except Unfinished as unfinished:
                await self.disk.working(unfinished.work)

    def aborted_transactions(
        self, fetch_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records between two offsets."""
        return self.segments.aborted(fetch_offset, upper_offset)

    # Epochs.

    @uninterrupted
    async def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """Lead from the log's end on; stored when this returns (rule A1).

        On a full disk it leads for those who read, and takes records when a flush has stored it.
        """
        async with self._work:
            self._check_usable()
            self._epoch, self._epoch_unstored = NO_LEADER_EPOCH, epoch
            self._epochs_due |= self.epochs.assign(epoch, self.next_offset)
            with suppress(DiskFull):
                if self._epochs_due:
                    text = self.epochs.format()
                    await self._repeatable(lambda: self._write_epochs(text))
                self._note_stored_epochs()

    def end_offset(self, epoch: int) -> EpochEnd | None:
        """Where an epoch ends in this log (rule A2)."""
        return self.epochs.end_offset(epoch, self.next_offset)

    def _write_epochs(self, text: str) -> None:
        """Store the leader epochs; waits for the device."""
        write_atomically(self.disk, f"{self.folder}/{LEADER_EPOCHS}", text.encode())

    # Cutting.

    @uninterrupted
    async def truncate_to(self, offset: int) -> None:
        """Let the log end at an offset or, where that lies within a batch, before that batch.

        Where compaction took the batches before it, the log ends behind the last that is left.
        Rule A2. On the device when this returns; a crash on the way leaves the beginning of the
        old log. On a full disk nothing is cut: what is left of the epochs has to be stored.
        """
        async with self._work:
            self._check_usable()
            self._changing = True
            try:
                if offset < self.segments.first.base_offset:
                    await self._start_anew(Offset(offset))
                elif offset < self.next_offset:
                    await self._cut(offset)
                else:
                    await self._forget_epochs(offset)
            finally:
                self._changing = False

    async def _forget_epochs(self, offset: int) -> None:
        """An epoch that began at the log's end and has no records may be wrong too."""
        epochs = self.epochs.until(offset)
        if epochs.latest != self.epochs.latest:
            await self._repeatable(lambda: self._write_epochs(epochs.format()))
            self.epochs = epochs
            self._note_stored_epochs()

    def _staged(self, epochs: EpochHistory, damage: str) -> Callable[[], None]:
        """Make room for what a cut leaves to be told; what is returned puts it on the device.

        They are told after the cut: before it, they would be wrong about what is there.
        """
        path = f"{self.folder}/{LEADER_EPOCHS}"
        temporary = staged(self.disk, path, epochs.format().encode())
        tell_damage = self.damage_file.staged(damage)

        def tell() -> None:
            self.disk.rename(temporary, path)
            tell_damage()
            self.disk.sync_folder(self.folder)

        return tell

    async def _cut(self, offset: int) -> None:
        segment = self.segments.from_offset(offset)[0]
        cut, producers = await self._before_cut(segment, offset)
        epochs = self.epochs.until(cut.end_offset)
        damage = format_damage(self.segments, cut.end_offset)
        tell = await self._repeatable(lambda: self._staged(epochs, damage))
        self._cuts += 1
        dropped = self.segments.remove_after(segment)
        segment.use_indexes(cut.indexes)
        segment.cut_indexes(cut.position, cut.end_offset)
        segment.first_timestamp = cut.first_timestamp
        segment.note_tail(cut.tail, self.rules.index_interval_bytes)
        self.closed = [one for one in self.closed if one not in (*dropped, segment)]
        self.next_offset = cut.end_offset
        self.recovery_point = min(self.recovery_point, cut.end_offset)
        self.log_start_offset = min(self.log_start_offset, cut.end_offset)
        self.epochs, self.producers = epochs, producers
        doomed = self.snapshots.forget(above=cut.end_offset)

        def on_the_device() -> None:
            remove_segments(self.disk, self.folder, dropped)
            kinds = (Kind.OFFSET_INDEX, Kind.TIME_INDEX, Kind.ABORTED_INDEX)
            remove_all(self.disk, [*doomed, *map(segment.path, kinds)])
            self.disk.sync_folder(self.folder)
            segment.file.truncate(cut.position)
            segment.file.sync()
            tell()

        await self._in_thread(on_the_device)
        self._note_stored_epochs()

    async def _before_cut(self, segment: Segment, offset: int) -> tuple[TruncationPoint, Producers]:
        """All that a cut has to read, so that one that has begun comes to its end."""
        while True:
            known = self.damaged
            cut = await self._settled(
                lambda read: truncation_point(segment, offset, read), has_turn=True
            )
            producers = await self._replayed(cut.end_offset)
            if self.damaged == known:
                return cut, producers
            # What was found on the way may move the place.

    @uninterrupted
    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything and go on at an offset, on the device when this returns (rule A17).

        On a full disk nothing is dropped.
        """
        async with self._work:
            self._check_usable()
            self._changing = True
            try:
                await self._start_anew(offset)
            finally:
                self._changing = False

    async def _start_anew(self, offset: Offset) -> None:
        epochs = EpochHistory()
        path = f"{self.folder}/{offset_file(offset, Kind.RECORDS)}"
        created_ms = self.segments.active.created_ms

        def prepare() -> tuple[Callable[[], None], str, File]:
            tell = self._staged(epochs, "")
            temporary = staged(self.disk, path, b"")
            return tell, temporary, self.disk.open(temporary)

        tell, temporary, file = await self._repeatable(prepare)
        self._cuts += 1
        dropped = list(self.segments)
        doomed = self.snapshots.forget(above=-1)

        def on_the_device() -> None:
            remove_segments(self.disk, self.folder, dropped)
            remove_all(self.disk, doomed)
            self.disk.sync_folder(self.folder)
            tell()
            self.disk.rename(temporary, path)
            self.disk.sync_folder(self.folder)

        await self._in_thread(on_the_device)
        file.renamed(path)
        self.segments = Segments(
            [Segment(self.folder, offset, file, size=0, created_ms=created_ms)]
        )
        self.closed.clear()
        self.epochs = epochs
        self._note_stored_epochs()
        self.producers = Producers()
        self.log_start_offset = self.next_offset = self.recovery_point = offset

    # Deleting.

    def advance_log_start(self, offset: Offset) -> None:
        """Hide what lies below an offset (DeleteRecords, rule A17); `retain` deletes it."""
        self._check_usable()
        assert offset <= self.next_offset
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs_due |= self.epochs.truncate_from_start(offset)

    @uninterrupted
    async def retain(self, *, high_watermark: int, now_ms: int) -> int:
        """Delete the segments that have outlived their time; how many."""
        async with self._work:
            self._check_usable()
            count = await self._settled(
                lambda read: self._outlived(high_watermark, now_ms, read), has_turn=True
            )
            if not count:
                return 0
            if count == len(self.segments):
                self.roll(now_ms)
            count = await self._told_of(count)
            removed = self.segments.remove_first(count)
            self.closed = [one for one in self.closed if one not in removed]
            start = self.segments.first.base_offset
            self.recovery_point = max(self.recovery_point, start)
            self.advance_log_start(start)
            snapshots = self.snapshots.forget(below=start)
            due_ms = now_ms + self.rules.file_delete_delay_ms
            damage = format_damage(self.segments)

            def on_the_device() -> tuple[str, ...]:
                segments = mark_segments_deleted(self.disk, self.folder, removed)
                return (*segments, *mark_deleted(self.disk, snapshots))

            self.doomed.append(Doomed(due_ms, await self._in_thread(on_the_device)))
            await self._tell_damage(damage)
            return count

    async def _told_of(self, count: int) -> int:
        """Of how many of the first segments a snapshot on the device tells which producers wrote.

        What is due is written for it: a crash would forget those who wrote nowhere else. Without
        room for that, those go of which an earlier one tells; DiskFull when there is none.
        Appends may come meanwhile, and none of them goes to a segment that is to go.
        """
        if not self.snapshots.are_due or not self.producers.count:
            return count
        try:
            await self._flush_all()
        except DiskFull:
            bases = [segment.base_offset for segment in islice(self.segments, count + 1)]
            told = (number for number in range(count, 0, -1) if bases[number] in self.snapshots)
            fewer = next(told, 0)
            if not fewer:
                raise
            return fewer
        return count

    def _outlived(self, high_watermark: int, now_ms: int, read: Read) -> int:
        """How many segments may go; a wrong time index does not let one go too early."""
        count = outlived(
            segment_facts(self.disk, self.segments, self.next_offset),
            self.rules,
            log_start=self.log_start_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        for segment in islice(self.segments, count):
            check_latest(segment, read)
        return count

    @uninterrupted
    async def purge(self, now_ms: int) -> None:
        """Remove the deleted files whose delay is over.

        The folder keeps its name meanwhile: whoever gives it up waits for the turn. Every file has
        a turn of its own, so that a flush does not wait until many large ones are gone.
        """
        due = [doomed for doomed in self.doomed if doomed.due_ms <= now_ms]
        self.doomed = [doomed for doomed in self.doomed if doomed.due_ms > now_ms]
        for path in (path for doomed in due for path in doomed.paths):
            async with self._work:
                self._check_usable()
                await self.disk.blocking(partial(remove_all, self.disk, (path,)))
