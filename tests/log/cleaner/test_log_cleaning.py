"""The content of a log after cleaning, compared with a model."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest

from cases import each_case
from log.cleaner.compaction_model import (
    RULES,
    SECRET,
    CompactedLog,
    committed_table,
    files,
    offsets,
    write_randomly,
)
from log.log_model import Owner
from log.logs import append, contents, opened, raw
from ottla.ids import LeaderEpoch, Offset
from ottla.log.cleaner.cleaned_segment import Throttle
from ottla.log.cleaner.cleaner_runners import CleaningAborted, LocalCleaner
from ottla.log.cleaner.compaction import CleaningEvent, CleaningJob, CleaningLimits
from ottla.log.damage import Damage
from ottla.log.disk import Disk
from ottla.records.batch import batches
from ottla.settings.broker import BROKER
from ottla.settings.config import Config
from ottla.settings.config_parser import broker_config
from ottla.testing.disk import SimulatedDisk, finish

T = TypeVar("T")

SCALE = max(1, int(float(os.environ.get("OTTLA_FUZZ_SCALE", "1"))))


@each_case("seed", range(20 * SCALE))
def test_c8_log_equals_the_model_after_every_cleaning(seed: int) -> None:
    random = Random(seed)
    owner = CompactedLog()
    cleanings = full = 0
    for _ in range(14):
        write_randomly(owner, random, random.randrange(5, 25))
        for _ in range(random.choice([1, 1, 2])):
            owner.now_ms += random.choice([0, 10, 60])
            keys = random.choice([4, 20, 10_000])
            limits = CleaningLimits(map_bytes=keys * 24, io_bytes=random.choice([100, 100_000]))
            done = owner.compact(limits=limits)
            owner.check()
            cleanings += done is not None
            full += done is not None and done.map_full
        if random.random() < 0.3:
            assert not any("rebuilt" in note for note in owner.reopen())
            owner.check()
        elif random.random() < 0.3:
            owner.reopen(clean=False)
            owner.check()
    assert cleanings > 5
    assert full


def filled(owner: CompactedLog, batches: int = 12, *, keys: int = 4, size: int = 150) -> None:
    """Append batches of two records to several segments; each key occurs many times."""
    for number in range(batches):
        owner.now_ms += 1
        owner.append(
            [(b"%d" % ((2 * number + each) % keys), bytes(size)) for each in range(2)], producer=1
        )


class InterruptedCleaner(LocalCleaner):
    """Calls a function on the log when a group is ready, before the segments are swapped."""

    def __init__(self, meddle: Callable[[], object], at: int = 0) -> None:
        super().__init__()
        self.meddle = meddle
        self.at = at

    async def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningEvent, None]:
        number = 0
        async for one in super().clean(disk, job):
            if number == self.at:
                self.meddle()
            number += 1
            yield one


def test_clean_log_is_not_cleaned() -> None:
    owner = CompactedLog()
    assert owner.compact() is None
    owner.append([(b"k", b"1"), (b"k", b"2")])
    calls = len(owner.disk.calls)
    assert owner.compact() is None  # all records are in the active segment
    assert not [path for _, path in owner.disk.calls[calls:] if path.endswith(".cleaned")]
    owner.check()


def test_second_cleaning_starts_where_the_first_ended() -> None:
    owner = CompactedLog()
    filled(owner)
    first = owner.compact()
    assert first is not None
    assert first.first_dirty_offset == owner.log.segments.active.base_offset
    assert owner.compact() is None
    filled(owner)
    second = owner.compact()
    assert second is not None
    assert second.map_bytes_read < second.bytes_read
    owner.check()


def test_small_segments_are_merged() -> None:
    owner = CompactedLog()
    filled(owner)
    assert len(owner.log.segments) > 4
    owner.compact()  # segments are grouped by their size before the cleaning
    filled(owner, 2)
    owner.compact()
    assert [segment.base_offset for segment in owner.log.segments] == [0, 20, 24]
    # The snapshots of replaced segments are deleted too.
    bases = {f"{segment.base_offset:020d}.snapshot" for segment in owner.log.segments}
    assert set(files(owner.disk, ".snapshot")) <= bases
    assert files(owner.disk, ".snapshot.deleted")
    owner.check()


def test_old_files_are_removed_after_the_delay() -> None:
    owner = CompactedLog()
    filled(owner)
    owner.compact()
    deleted = files(owner.disk, ".deleted")
    assert len(files(owner.disk, ".log.deleted")) == len(owner.log.segments) - 1
    finish(owner.log.purge(owner.now_ms + RULES.file_delete_delay_ms - 1))
    assert files(owner.disk, ".deleted") == deleted
    finish(owner.log.purge(owner.now_ms + RULES.file_delete_delay_ms))
    assert files(owner.disk, ".deleted") == []
    owner.check()


def test_cleaned_indexes_equal_rebuilt_indexes() -> None:
    owner = CompactedLog(replace(RULES, segment_bytes=3000))
    write_randomly(owner, Random(4), 120)
    owner.compact()
    found = [
        (one.base_offset, one.size, one.offset_index.to_bytes(), one.time_index.to_bytes())
        for one in owner.log.segments
    ]
    assert any(offsets for _, _, offsets, _ in found[:-1])
    finish(owner.log.close())
    again = opened(owner.disk, owner.rules, clean=False).log  # rebuilds all indexes
    assert [
        (one.base_offset, one.size, one.offset_index.to_bytes(), one.time_index.to_bytes())
        for one in again.segments
    ] == found
    latest = finish(owner.log.find_max_timestamp())
    assert latest is not None
    assert finish(again.find_max_timestamp()) == latest


def test_reader_of_an_old_segment_continues() -> None:
    owner = CompactedLog()
    filled(owner)
    held = finish(owner.log.read(0, owner.log.log_end_offset, 10_000))
    before = finish(held.read())
    owner.compact()
    assert finish(held.read()) == before
    finish(owner.log.purge(2**60))
    assert finish(held.read()) == before


def test_records_appended_during_a_cleaning_are_kept() -> None:
    owner = CompactedLog()
    filled(owner)

    def meddle() -> None:
        filled(owner, 3)
        owner.log.roll(owner.now_ms)
        filled(owner, 3)

    # The model cleans the records that existed when the cleaning began.
    assert owner.compact(InterruptedCleaner(meddle)) is not None
    owner.check()


def test_c7_truncation_aborts_the_cleaning() -> None:
    for to, at in [(5, 0), (22, 0), (5, 1), (3, 2)]:
        owner = CompactedLog(replace(RULES, segment_bytes=500))
        filled(owner, 14)
        log = owner.log
        if at:
            assert len(log.segments) > 4
        cut = InterruptedCleaner(lambda log=log, to=to: finish(log.truncate_to(to)), at)
        with pytest.raises(CleaningAborted):
            owner.compact(cut)
        assert log.log_end_offset <= to
        assert max(offsets(log), default=-1) < to
        assert files(owner.disk, ".cleaned") == files(owner.disk, ".swap") == []
        # The log continues like any other.
        owner.first_dirty_offset = None
        log.begin_epoch(LeaderEpoch(0))
        append(log, b"after", leader_epoch=0)
        assert contents(log)[-1][1] == b"after"
        found = opened(owner.disk, owner.rules, clean=False).log
        assert contents(found) == contents(log)


def test_c7_restarting_at_an_offset_aborts_the_cleaning() -> None:
    owner = CompactedLog()
    filled(owner)
    restarted = InterruptedCleaner(lambda: finish(owner.log.truncate_fully_and_start_at(Offset(7))))
    with pytest.raises(CleaningAborted):
        owner.compact(restarted)
    assert (owner.log.log_start_offset, owner.log.log_end_offset) == (7, 7)
    assert files(owner.disk, ".log") == ["00000000000000000007.log"]


def test_retention_of_its_segments_aborts_the_cleaning() -> None:
    owner = CompactedLog(replace(RULES, delete=True, retention_ms=10, segment_bytes=500))
    filled(owner, 14)
    log = owner.log

    def retain() -> None:
        assert (
            finish(
                log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=owner.now_ms + 5)
            )
            > 0
        )

    with pytest.raises(CleaningAborted):
        owner.compact(InterruptedCleaner(retain))
    start = log.log_start_offset
    assert start > 0
    assert offsets(log) == list(range(start, log.log_end_offset))
    # The next cleaning takes the rest.
    owner.first_dirty_offset = None
    done = finish(
        log.compact(
            LocalCleaner(),
            None,
            high_watermark=log.log_end_offset,
            secret=SECRET,
            clock_ms=lambda: owner.now_ms,
        )
    )
    assert done is not None
    assert len(offsets(log)) < log.log_end_offset - start


def test_delete_and_compact_can_be_combined() -> None:
    owner = CompactedLog(replace(RULES, delete=True, retention_ms=100, segment_bytes=500))
    owner.disk.now_ms = owner.now_ms
    filled(owner, 14)
    owner.disk.now_ms = owner.now_ms + 10_000  # a cleaning must not change modification times
    owner.compact()
    owner.check()
    log = owner.log
    kept = offsets(log)
    assert any(not segment.size for segment in log.segments)  # the cleaned segment is empty
    owner.disk.now_ms = owner.now_ms = owner.now_ms + 50
    filled(owner, 14)
    # A cleaned segment keeps its timestamp: it is deleted when its latest record is old enough.
    assert (
        finish(log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=owner.now_ms)) == 0
    )
    assert (
        finish(log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=owner.now_ms + 60))
        > 0
    )
    assert not set(kept[:-4]) & set(offsets(log))
    assert log.log_start_offset == log.segments.first.base_offset > 0
    owner.first_dirty_offset = max(owner.first_dirty_offset or 0, log.log_start_offset)
    dirt = finish(
        log.find_cleanable(
            owner.first_dirty_offset, high_watermark=log.log_end_offset, now_ms=owner.now_ms
        )
    )
    assert not dirt.reset


def test_cleaning_continues_if_the_log_start_moves() -> None:
    owner = CompactedLog()
    filled(owner)
    move = InterruptedCleaner(lambda: owner.log.advance_log_start(Offset(9)))
    assert owner.compact(move) is not None
    assert owner.log.log_start_offset == 9
    assert offsets(owner.log)
    assert committed_table(owner.log) == owner.model.committed()


def test_c4_segment_with_a_damaged_batch_is_not_cleaned() -> None:
    owner = CompactedLog(replace(RULES, segment_bytes=500))
    filled(owner, 14)
    third = list(owner.log.segments)[2]
    third.damaged = (Damage(third.base_offset, Offset(third.base_offset + 1), 0, 400),)
    before = third.file.read(0, third.size)
    done = finish(
        owner.log.compact(
            LocalCleaner(),
            None,
            high_watermark=owner.log.log_end_offset,
            secret=SECRET,
            clock_ms=lambda: owner.now_ms,
        )
    )
    assert done is not None
    assert done.first_dirty_offset == third.base_offset
    assert third in list(owner.log.segments)
    assert third.file.read(0, third.size) == before


def test_one_cleaning_runs_at_a_time() -> None:
    owner = CompactedLog()
    filled(owner)
    with pytest.raises(AssertionError, match="one cleaner at a time"):
        owner.compact(InterruptedCleaner(owner.compact))
    owner.compact()
    owner.check()


def test_cleaned_segment_stays_below_its_limit() -> None:
    """A delete horizon makes batches larger, because every timestamp is encoded relative to it."""
    rules = replace(RULES, segment_bytes=600, delete_retention_ms=10**12)
    owner = CompactedLog(rules)
    for number in range(40):
        owner.now_ms += 1
        owner.append([(b"%d-%d" % (number, each), None) for each in range(8)])
    before = owner.log.segments.size
    bases = {segment.base_offset for segment in owner.log.segments}
    done = owner.compact()
    assert done is not None
    assert done.bytes_written > done.bytes_read
    assert owner.log.segments.size > before
    assert max(segment.size for segment in owner.log.segments) <= 600
    assert {segment.base_offset for segment in owner.log.segments} - bases
    owner.check()
    owner.reopen(clean=False)
    owner.check()


def test_full_indexes_start_a_new_segment() -> None:
    owner = CompactedLog(replace(RULES, segment_bytes=4000, index_bytes_max=48))
    for number in range(60):
        owner.append([(b"%d" % number, bytes(200))])
    # Index entries are now twice as frequent as when the segments were written.
    owner.log.config = owner.rules = replace(owner.rules, index_interval_bytes=0)
    owner.compact()
    for segment in list(owner.log.segments)[:-1]:
        assert segment.offset_index.size <= 48
        assert segment.time_index.size <= 48
    owner.check()


class FakeTime:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds


def test_cleaning_is_throttled() -> None:
    owner = CompactedLog()
    filled(owner, 60)
    time = FakeTime()
    limits = CleaningLimits(bytes_per_second=5000.0, io_bytes=512)
    done = owner.compact(LocalCleaner(time.clock, time.sleep), limits)
    assert done is not None
    moved = done.map_bytes_read + done.bytes_read + done.bytes_written
    assert moved / 5000 * 0.95 <= time.now <= moved / 5000 * 1.7  # some blocks are read twice
    assert max(time.slept) < 0.3
    assert done.took_ms == round(time.now * 1000)
    assert 0 < done.map_ms < done.took_ms
    owner.check()


def test_throttle_does_not_accumulate_credit() -> None:
    time = FakeTime()
    throttle = Throttle(100.0, time.clock, time.sleep)
    throttle.passed(50)
    assert time.now == 0.5
    time.now += 1000
    throttle.passed(100)
    throttle.passed(100)
    assert time.slept == [0.5, 1.0, 1.0]
    free = Throttle(None, time.clock, time.sleep)
    free.passed(10**12)
    assert time.slept == [0.5, 1.0, 1.0]


def test_full_offset_map_needs_several_cleanings() -> None:
    owner = CompactedLog()
    for number in range(120):
        owner.append([(b"%d" % (number % 90), bytes(20)), (b"%d" % (number % 7), b"x")])
    limits = CleaningLimits(map_bytes=24 * 30, load_factor=0.9)
    rounds = 0
    while (done := owner.compact(limits=limits)) is not None:
        rounds += 1
        assert done.keys <= 27
        assert done.map_full == (done.first_dirty_offset < owner.log.segments.active.base_offset)
        owner.check()
    assert rounds > 3
    # The result equals that of a map with room for all keys, except for the tails of batches.
    assert len({r.key for b in batches(raw(owner.log)) for r in b.records()}) == 90


def test_offset_map_for_one_key_makes_progress() -> None:
    owner = CompactedLog()
    filled(owner, 8)
    limits = CleaningLimits(map_bytes=48, load_factor=0.9)
    reached = [0]
    while (done := owner.compact(limits=limits)) is not None:
        assert done.keys == 1
        assert done.first_dirty_offset > reached[-1]
        reached.append(done.first_dirty_offset)
        owner.check()
    assert len(reached) > 8


def test_cleaning_cancelled_in_a_swap_completes_it() -> None:
    """The disk completes the swap that it has begun, and the log must use the new segments."""

    class Cancelling(SimulatedDisk):
        armed = False

        async def blocking(self, call: Callable[[], T]) -> T:
            done = call()
            if self.armed and any(what == "rename" for what, _ in self.calls[-3:]):
                self.armed = False
                raise asyncio.CancelledError
            return done

    disk = Cancelling()
    owner = CompactedLog(replace(RULES, segment_bytes=500), disk)
    filled(owner, 14)
    finish(owner.log.flush())
    before = owner.model.committed()
    disk.armed = True
    with pytest.raises(asyncio.CancelledError):
        owner.compact()
    live = files(disk, ".log")
    assert [f"{one.base_offset:020d}.log" for one in owner.log.segments] == live
    assert committed_table(owner.log) == before
    owner.compact()
    assert committed_table(owner.log) == before


def test_max_compaction_lag_uses_the_first_batch_of_a_segment() -> None:
    rules = replace(RULES, max_compaction_lag_ms=500, min_cleanable_dirty_ratio=1.0)
    owner = CompactedLog(rules)
    filled(owner)
    owner.compact()
    filled(owner)
    owner.reopen()  # so that the transactions are not in memory

    def is_due(now_ms: int) -> bool:
        end = owner.log.log_end_offset
        return finish(
            owner.log.find_cleanable(owner.first_dirty_offset, high_watermark=end, now_ms=now_ms)
        ).is_due

    assert not is_due(owner.now_ms)
    owner.disk.cold = True
    assert is_due(owner.now_ms + 501)
    assert not is_due(owner.now_ms + 400)


def test_limits_are_divided_by_the_number_of_cleaners() -> None:
    config = Config(BROKER, {})
    assert CleaningLimits.of(config) == CleaningLimits(io_bytes=262_144)
    shared = broker_config(
        overrides=[
            "log.cleaner.threads=4",
            "log.cleaner.dedupe.buffer.size=40000000",
            "log.cleaner.io.buffer.load.factor=0.5",
            "log.cleaner.io.buffer.size=800",
            "log.cleaner.io.max.bytes.per.second=1000",
        ]
    )
    assert CleaningLimits.of(shared) == CleaningLimits(10_000_000, 0.5, 100, 250.0)


def test_appends_after_truncating_compacted_segments_survive() -> None:
    owner = Owner(SimulatedDisk())
    for _ in range(3):
        for size in (100, 5, 140):
            owner.append(2, size, -1)
    owner.compact()
    assert [one.size > 0 for one in owner.log.segments][:2] == [False, False]
    owner.truncate(6)  # within the second segment, which compaction emptied
    assert owner.end == owner.log.segments.active.base_offset == 4
    owner.append(4, 0, -1)
    owner.kill()
    assert owner.end == 8
    owner.check()
