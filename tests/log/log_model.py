"""A log with the checkpoints of its owner, and a model of its expected content.

The model is a dict by offset. After a crash the log must open. It must hold a prefix of the written
records that reaches the recovery point. From these it must derive the same epochs, producers and
aborted transactions as a follower that copies it.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from log.logs import append, contents, end, opened, raw
from ottla.ids import LeaderEpoch, Offset
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.log.disk import read_whole
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import BatchHeader, batches
from ottla.testing.disk import Loss, SimulatedDisk, finish

KEYS = 5
RULES = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=20)


class WrittenRecord(NamedTuple):
    value: bytes | None  # None: a marker
    epoch: int
    batch: int  # the base offset of its batch
    key: bytes = b""
    transactional: bool = False


class Owner:
    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.written: dict[int, WrittenRecord] = {}
        self.before_cut: dict[int, WrittenRecord] | None = None  # set during a truncation
        self.cut_to = 0
        self.recovery_point = 0
        self.log_start = 0
        self.lowest_start = 0  # deleted records may come back: the log may start here again
        self.epoch = 0
        self.now_ms = 0
        self.sequences: dict[int, int] = {}
        self.open_transaction = False
        self.first_dirty_offset: int | None = None
        self.outdated: set[int] = set()  # records that a cleaning has removed or may have removed
        self.compacted_until = 0
        # After a truncation below the cleaned part, a snapshot may know producers without batches.
        self.cut_below_cleaned = False
        self.end_when_cleaned = 0
        self.log = opened(disk, RULES).log
        self.log.begin_epoch(LeaderEpoch(0))

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    def append(self, count: int, size: int, producer: int = -1) -> None:
        self.now_ms += 1
        values = [b"%d %d" % (self.end + n, self.epoch) + bytes(size) for n in range(count)]
        sequence = self.sequences.get(producer, 0)
        transactional = producer == 9
        # Records that are being written may exist after a crash, so the model has them first.
        keys = [b"%d" % ((self.end + number) % KEYS) for number in range(count)]
        for number, value in enumerate(values):
            self.outdated.discard(self.end + number)
            self.written[self.end + number] = WrittenRecord(
                value, self.epoch, self.end, keys[number], transactional
            )
        self.append_batch(
            values,
            keys=keys,
            producer_id=producer,
            sequence=sequence,
            transactional=transactional,
        )
        self.open_transaction |= transactional
        if producer >= 0:
            self.sequences[producer] = sequence + count

    def append_batch(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes],
        producer_id: int,
        sequence: int,
        transactional: bool,
    ) -> None:
        append(
            self.log,
            *values,
            keys=keys,
            timestamp=self.now_ms,
            producer_id=producer_id,
            sequence=sequence,
            transactional=transactional,
        )

    def end_transaction(self, *, commit: bool) -> None:
        if self.open_transaction:
            self.outdated.discard(self.end)
            self.written[self.end] = WrittenRecord(None, self.epoch, self.end)
            end(self.log, 9, commit=commit)
            self.open_transaction = False

    def begin_epoch(self) -> None:
        self.epoch += 1
        self.log.begin_epoch(LeaderEpoch(self.epoch))

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def flush(self) -> None:
        finish(self.log.flush())
        self.recovery_point = self.log.recovery_point

    def truncate(self, offset: int) -> None:
        self.before_cut, before = self.written, self.end
        # The batch that holds the offset is removed as a whole.
        self.cut_to = self.written[offset].batch if offset in self.written else offset
        self.written = {at: one for at, one in self.written.items() if at < self.cut_to}
        finish(self.log.truncate_to(offset))
        assert self.end <= min(offset, before)
        # After a crash the model no longer knows the batches below the log start. The log end does
        # not show records that compaction removed before the truncation.
        if offset >= self.log_start:
            assert self.reaches(min(self.cut_to, before))
        self.written = {at: one for at, one in self.written.items() if at < self.end}
        self.before_cut = None
        self.note_cut()
        self.recovery_point = self.log.recovery_point
        self.log_start = min(self.log_start, self.end)
        self.begin_epoch()
        self.know_producers()

    def note_cut(self) -> None:
        # Compaction keeps the last batch of each producer. If the truncation removes it, the log
        # knows more about the producer than its bytes show.
        self.cut_below_cleaned |= self.end < self.end_when_cleaned
        self.end_when_cleaned = min(self.end_when_cleaned, self.end)
        self.compacted_until = min(self.compacted_until, self.end)
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, self.end)

    def compact(self) -> None:
        """Clean everything that is cleanable, and check that the replaced records are gone."""
        self.flush()
        end = self.log.log_end_offset
        dirt = self.log.find_cleanable(
            self.first_dirty_offset, high_watermark=end, now_ms=self.now_ms
        )
        until = finish(dirt).end_offset
        aborted = self.log.aborted_transactions(0, end)
        last: dict[bytes, int] = {}
        outdated: set[int] = set()
        for at, one in sorted(self.written.items()):
            if at >= until or one.value is None:
                continue
            if one.transactional and any(a.first_offset <= at <= a.last_offset for a in aborted):
                outdated.add(at)
                continue
            if at >= (self.first_dirty_offset or 0):
                last[one.key] = at
        outdated |= {
            at
            for at, one in self.written.items()
            if one.value is not None and at < last.get(one.key, 0)
        }
        self.outdated |= outdated
        self.compacted_until = max(self.compacted_until, until)
        self.end_when_cleaned = end
        done = finish(
            self.log.compact(
                LocalCleaner(),
                self.first_dirty_offset,
                high_watermark=end,
                secret=bytes(16),
                clock_ms=lambda: self.now_ms,
            )
        )
        if done is not None:
            assert done.first_dirty_offset == until
            self.first_dirty_offset = until
            assert not outdated & set(dict(contents(self.log)))

    def know_producers(self) -> None:
        self.sequences = {
            producer.producer_id: producer.last_sequence + 1 for producer in self.log.producers
        }
        self.open_transaction = self.log.producers.first_open_offset is not None

    def trim(self, offset: int) -> None:
        self.log.advance_log_start(Offset(offset))
        self.log_start = self.log.log_start_offset

    def retain(self) -> None:
        finish(self.log.delete_old_segments(high_watermark=self.end, now_ms=self.now_ms))
        self.log_start = self.lowest_start = self.log.log_start_offset
        self.recovery_point = self.log.recovery_point
        finish(self.log.purge(self.now_ms))

    def restart(self) -> None:
        before = self.log
        finish(before.close())
        self.recovery_point = before.recovery_point
        found = opened(
            self.disk, RULES, recovery_point=self.recovery_point, log_start=self.log_start
        )
        assert all("leftover" in note or "set aside" in note for note in found.notes)
        self.log = found.log
        assert self.reaches(before.log_end_offset)
        assert contents(self.log) == contents(before)
        self.begin_epoch()
        self.know_producers()

    def rot(self, where: float, bits: int, *, clean: bool) -> None:
        """Flip bits of a byte on the device; the log opens, and the owner fetches the records
        again.
        """
        self.flush()
        files = [(one.file.path, one.file.size()) for one in self.log.segments if one.size]
        if not files:
            return
        path, size = files[int(where * len(files))]
        position = int(where * 7919) % size
        at, header = batch_at(self.disk, path, position)
        field = position - at
        if 12 <= field < 16 or (field < 8 and header.next_offset == self.end):
            return  # no CRC covers the epoch and base offset; only a later batch contradicts them
        if clean:
            finish(self.log.close())
        self.disk.rot(path, position, bits)
        self.log = opened(
            self.disk,
            RULES,
            clean=clean,
            recovery_point=self.log.recovery_point,
            log_start=self.log_start,
        ).log
        (damage,) = finish(self.log.scrub(no_pause))
        assert damage.position == at
        self.truncate(max(damage.first_offset, self.log.segments.first.base_offset))
        assert self.log.damaged == ()

    def kill(self) -> None:
        """Kill the process but not the machine: nothing is lost, and nothing is synced."""
        end = self.end
        self.reopen()
        assert self.reaches(end)

    def crash(self, loss: Loss, random: Random) -> None:
        """Lose unsynced data in the given mode, open the log again, and check it."""
        self.disk = self.disk.after_crash(loss, random)
        self.reopen()

    def reopen(self) -> None:
        for _ in range(2):  # opening the log twice changes nothing
            self.log = opened(
                self.disk,
                RULES,
                clean=False,
                recovery_point=self.recovery_point,
                log_start=self.log_start,
                now_ms=self.now_ms,
            ).log
            self.check_after_crash()
        self.written = {at: one for at, one in self.written.items() if at < self.end}
        self.before_cut = None
        self.recovery_point = self.log.recovery_point
        self.log_start = self.lowest_start = self.log.log_start_offset
        self.begin_epoch()
        self.know_producers()

    def check_after_crash(self) -> None:
        log = self.log
        candidates = [self.written] if self.before_cut is None else [self.written, self.before_cut]
        agreeing = [written for written in candidates if self.agrees(written)]
        assert agreeing
        kept = self.recovery_point
        if self.before_cut is not None:
            kept = min(kept, self.cut_to)
        assert self.reaches(kept)
        assert log.recovery_point == min(self.recovery_point, log.log_end_offset)
        self.written = agreeing[0]
        self.note_cut()
        self.check_derived()

    def reaches(self, offset: int) -> bool:
        """Whether the log ends at the offset, or where compaction removed records before a
        truncation.
        """
        return set(range(self.log.log_end_offset, offset)) <= self.outdated

    def agrees(self, written: dict[int, WrittenRecord]) -> bool:
        found = dict(contents(self.log))
        start, end = self.log.log_start_offset, self.log.log_end_offset
        expected = {
            at: one.value
            for at, one in written.items()
            if start <= at < end and one.value is not None
        }
        epochs = all(
            self.log.epochs.epoch_of(at) == one.epoch
            for at, one in written.items()
            if start <= at < end
        )
        missing = expected.keys() - found.keys()
        same = all(expected.get(at) == value for at, value in found.items())
        return start >= self.log_start and same and missing <= self.outdated and epochs

    def check(self) -> None:
        """Check the log during normal operation."""
        assert self.agrees(self.written)
        assert self.recovery_point <= self.log.recovery_point <= self.end
        self.check_derived()

    def check_derived(self) -> None:
        if not self.cut_below_cleaned:
            check_derived(self.log, self.compacted_until)


def check_derived(log: PartitionLog, compacted_until: int = 0) -> None:
    """Check that a follower derives the same state from the same bytes."""
    start = log.segments.first.base_offset
    if log.log_start_offset > 0 or start > 0:
        return  # a follower does not know what was deleted
    follower = opened(SimulatedDisk(), RULES).log
    data = raw(log)
    if data:
        follower.append_replicated(data, fetched_offset=0, now_ms=0)
    assert follower.log_end_offset == log.log_end_offset
    assert sorted(map(_facts, follower.producers)) == sorted(map(_facts, log.producers))
    bound = log.log_end_offset
    assert follower.last_stable_offset(bound) == log.last_stable_offset(bound)
    if compacted_until:
        return  # nor the start of epochs and aborted transactions whose records are gone
    assert follower.aborted_transactions(0, bound) == log.aborted_transactions(0, bound)
    # An epoch may have begun without records.
    assert [e for e in log.epochs if e.start_offset < bound] == list(follower.epochs)


async def no_pause(_: int) -> None:
    """Scrub without a pause."""


def batch_at(disk: SimulatedDisk, path: str, position: int) -> tuple[int, BatchHeader]:
    """The batch that holds a byte, and its position."""
    start = 0
    for batch in batches(read_whole(disk, path)):
        if position < start + batch.header.size:
            return start, batch.header
        start += batch.header.size
    raise AssertionError("no batch has it")


def _facts(producer: object) -> tuple[object, ...]:
    names = ("producer_id", "epoch", "last_sequence", "last_offset", "transaction_first_offset")
    return tuple(str(getattr(producer, name)) for name in names)
