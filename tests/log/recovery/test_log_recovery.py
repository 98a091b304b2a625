"""Opening a log after a clean shutdown, after damage, and with files that a crash left behind."""

import asyncio
import os
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from cases import each_case
from log.logs import FOLDER, SMALL, append, contents, end, fill, made, new_log, opened, raw
from ottla.errors import RequestError, StorageFailure
from ottla.ids import LeaderEpoch, Offset, ProducerId
from ottla.inspection.entries import BatchEntry, RecordEntry
from ottla.inspection.listing import View, list_file
from ottla.log.disk import read_whole
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog, open_log
from ottla.records.batch import batches
from ottla.testing.disk import Crashed, Loss, SimulatedDisk, finish
from sampling import sample


def put(disk: SimulatedDisk, name: str, data: bytes) -> None:
    path = f"{FOLDER}/{name}"
    if disk.exists(path):
        disk.remove(path)
    disk.open(path, create=True).write([data], 0)


def content(disk: SimulatedDisk, name: str) -> bytes:
    return read_whole(disk, f"{FOLDER}/{name}")


def set_aside(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.names(FOLDER) if ".truncated" in name]


def take_set_aside(disk: SimulatedDisk) -> list[bytes]:
    """Remove the files that were set aside, and return their contents."""
    names = set_aside(disk)
    found = [content(disk, name) for name in names]
    for name in names:
        disk.remove(f"{FOLDER}/{name}")
    return found


def history(disk: SimulatedDisk, rules: LogConfig = SMALL) -> PartitionLog:
    """A log with several segments and epochs, an aborted and an open transaction."""
    log = new_log(disk, rules)
    fill(log, 12)
    append(log, b"t", producer_id=5, transactional=True, timestamp=20)
    log.begin_epoch(LeaderEpoch(2))
    fill(log, 10, start=20)
    end(log, 5, commit=False)
    append(log, b"i", b"j", producer_id=6, timestamp=40)
    fill(log, 8, start=40)
    append(log, b"open", producer_id=7, transactional=True, timestamp=60)
    return log


def state(log: PartitionLog) -> tuple[object, ...]:
    """The state that must not depend on how it was restored."""
    producers = sorted(
        (
            producer.producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.last_offset,
            producer.transaction_first_offset,
            producer.coordinator_epoch,
        )
        for producer in log.producers
    )
    return (
        log.log_start_offset,
        log.log_end_offset,
        contents(log),
        list(log.epochs),
        producers,
        log.aborted_transactions(log.log_start_offset, log.log_end_offset),
        finish(log.find_max_timestamp()),
        [finish(log.find_timestamp(t)) for t in range(0, 70, 7)],
        log.last_stable_offset(log.log_end_offset),
    )


def test_clean_shutdown_is_trusted() -> None:
    disk = SimulatedDisk()
    log = history(disk)
    expected = state(log)
    finish(log.close())
    with pytest.raises(RequestError, match="closed"):
        append(log, b"after the end")
    calls = len(disk.calls)
    again = opened(disk, recovery_point=log.recovery_point)
    assert disk.calls[calls:] == []
    assert again.notes == []
    assert state(again.log) == expected
    assert again.log.recovery_point == again.log.log_end_offset
    again.log.begin_epoch(LeaderEpoch(2))
    fill(again.log, 20, start=50)
    assert [offset for offset, _ in contents(again.log)][-20:] == list(
        range(log.log_end_offset, log.log_end_offset + 20)
    )


@each_case("clean", [True, False])
@each_case("suffix", ["index", "timeindex", "txnindex", "snapshot", "checkpoint"])
@each_case("how", ["removed", "cut", "garbage", "zeros"])
def test_missing_files_are_rebuilt(clean: bool, suffix: str, how: str) -> None:
    disk = SimulatedDisk()
    log = history(disk)
    expected = state(log)
    finish(log.close())
    changed = 0
    for name in disk.names(FOLDER):
        if name.endswith(suffix):
            data = content(disk, name)
            if how == "removed" and suffix != "txnindex":  # not every segment has one
                disk.remove(f"{FOLDER}/{name}")
                changed += 1
            elif how == "cut":
                put(disk, name, data[: len(data) - 1])
                changed += 1
            elif how == "garbage":
                put(disk, name, b"\xff" * (len(data) + 5))
                changed += 1
            elif how == "zeros":
                put(disk, name, bytes(len(data) + 1))
                changed += 1
    assert changed or (suffix, how) == ("txnindex", "removed")
    again = opened(disk, clean=clean, recovery_point=log.log_end_offset if clean else 0)
    assert state(again.log) == expected
    finish(again.log.close())
    third = opened(disk, recovery_point=log.log_end_offset)
    assert third.notes == []
    assert state(third.log) == expected


def test_d3_producer_state_is_rebuilt_from_the_log() -> None:
    disk = SimulatedDisk()
    rng = Random(3)
    log = new_log(disk)
    sequences = dict.fromkeys(range(4), 0)
    for turn in range(20):
        for _ in range(15):
            producer = rng.randrange(4)
            append(log, b"x" * 30, producer_id=producer, sequence=sequences[producer])
            sequences[producer] += 1
        if turn % 2:
            finish(log.close())
            clean = True
        else:
            finish(log.flush())
            clean = False
        for name in disk.names(FOLDER):
            if name.endswith(".snapshot") and rng.random() < 0.7:
                disk.remove(f"{FOLDER}/{name}")
        log = opened(disk, clean=clean, recovery_point=log.recovery_point).log
        log.begin_epoch(LeaderEpoch(turn + 1))
        for producer, sequence in sequences.items():
            if sequence:
                again = append(log, b"x" * 30, producer_id=producer, sequence=sequence - 1)
                assert again.duplicate
    assert log.log_end_offset == 300


# Damage.


def damaged_tail_log() -> tuple[SimulatedDisk, list[tuple[int, bytes | None]], str]:
    """A log whose last segment was never flushed."""
    disk = SimulatedDisk()
    log = new_log(disk, LogConfig(index_interval_bytes=100))
    for number in range(8):
        append(
            log,
            b"v%d" % number,
            bytes(number),
            timestamp=number,
            producer_id=1,
            sequence=2 * number,
        )
    finish(log.flush())
    return disk, contents(log), f"{0:020d}.log"


def test_c3_every_length_is_truncated_to_whole_batches() -> None:
    disk, expected, name = damaged_tail_log()
    data = content(disk, name)
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 12 + int.from_bytes(data[ends[-1] + 8 : ends[-1] + 12], "big"))
    for length in range(len(data) + 1):
        put(disk, name, data[:length])
        log = opened(disk, clean=False).log
        whole = sum(end <= length for end in ends) - 1
        assert contents(log) == expected[: 2 * whole]
        assert log.log_end_offset == 2 * whole
        assert log.recovery_point == 0, "nothing was flushed since"
        assert len(content(disk, name)) == ends[whole]


def test_c3_every_byte_flip_is_detected() -> None:
    disk, expected, name = damaged_tail_log()
    data = content(disk, name)
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 12 + int.from_bytes(data[ends[-1] + 8 : ends[-1] + 12], "big"))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        put(disk, name, bytes(damaged))
        log = opened(disk, clean=False).log
        within = max(end for end in ends if end <= at)
        if 12 <= at - within < 16:
            # No CRC covers the leader epoch; the records are undamaged.
            assert contents(log) == expected
        else:
            assert contents(log) == expected[: 2 * ends.index(within)]
            kept = take_set_aside(disk)
            assert kept == [damaged[within:]] or within == ends[-2]
        put(disk, "leader-epoch-checkpoint", b"")


TAIL_BYTES = 64 * 1024
TAIL_SAMPLES = 1500  # of its bytes and lengths; `make soak` takes all of them


def large_tail() -> tuple[SimulatedDisk, str, bytes, list[int]]:
    """A segment of a little more than 64 KB that was never flushed, and the ends of its batches."""
    disk = SimulatedDisk()
    log = new_log(disk, LogConfig())
    number = 0
    while log.segments.active.size < TAIL_BYTES + 500:
        append(log, bytes([number % 251]) * (number * 37 % 4000), timestamp=number)
        number += 1
    finish(log.flush())
    name = f"{0:020d}.log"
    data = content(disk, name)
    ends = [0]
    for batch in batches(data):
        ends.append(ends[-1] + batch.header.size)
    return disk, name, data, ends


def served(log: PartitionLog) -> bytes:
    return bytes(finish(log.read_cached(0, log.log_end_offset, 2**30).read()))


def test_c3_any_truncation_length_in_the_last_64_kb() -> None:
    disk, name, data, ends = large_tail()
    around_ends = [end + n for end in ends for n in (-1, 0, 1, 11, 12, 16, 17, 60, 61)]
    lengths = range(len(data) - TAIL_BYTES, len(data) + 1)
    for length in {*sample(lengths, TAIL_SAMPLES), *(set(around_ends) & set(lengths))}:
        put(disk, name, data[:length])
        log = opened(disk, clean=False).log
        whole = bisect_right(ends, length) - 1
        assert log.log_end_offset == whole
        assert served(log) == content(disk, name) == data[: ends[whole]]


def test_c3_any_byte_flip_in_the_last_64_kb() -> None:
    disk, name, data, ends = large_tail()
    headers = [end + n for end in ends for n in range(61)]
    flipped = range(len(data) - TAIL_BYTES, len(data))
    for at in {*sample(flipped, TAIL_SAMPLES), *(set(headers) & set(flipped))}:
        changed = data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
        put(disk, name, changed)
        log = opened(disk, clean=False).log
        hit = bisect_right(ends, at) - 1
        if 12 <= at - ends[hit] < 16:
            # No CRC covers the leader epoch; the records are undamaged.
            assert served(log) == changed
            put(disk, "leader-epoch-checkpoint", b"")
        else:
            assert log.log_end_offset == hit
            assert served(log) == content(disk, name) == data[: ends[hit]]
            kept = take_set_aside(disk)
            assert kept == [changed[ends[hit] :]] or hit == len(ends) - 2


def test_c3_segments_after_damage_are_dropped() -> None:
    disk = SimulatedDisk()
    log = history(disk)
    whole = contents(log)
    finish(log.flush())
    bases = [segment.base_offset for segment in log.segments]
    name = f"{bases[1]:020d}.log"
    damaged = bytearray(content(disk, name))
    damaged[-3] ^= 4
    put(disk, name, bytes(damaged))
    again = opened(disk, clean=False)
    log = again.log
    assert bases[1] < log.log_end_offset < bases[2]
    assert contents(log) == [entry for entry in whole if entry[0] < log.log_end_offset]
    assert any("truncated to" in note for note in again.notes)
    assert not [
        n
        for n in set(disk.names(FOLDER)) - set(set_aside(disk))
        if n[:20].isdigit() and int(n[:20]) > log.log_end_offset
    ]
    log.begin_epoch(LeaderEpoch(9))
    fill(log, 10, start=90)
    assert [offset for offset, _ in contents(log)][-10:] == list(
        range(log.log_end_offset - 10, log.log_end_offset)
    )


@each_case("compact", [False, True])
@each_case("loss", list(Loss))
def test_c3_crash_during_truncation_leaves_no_gap(loss: Loss, compact: bool) -> None:
    rules = replace(SMALL, compact=compact)
    disk = SimulatedDisk()
    log = new_log(disk, rules)
    fill(log, 40)
    finish(log.flush())
    whole = contents(log)
    names = [f"{segment.base_offset:020d}.log" for segment in log.segments]
    assert len(names) > 3
    disk.rot(f"{FOLDER}/{names[1]}", len(content(disk, names[1])) - 3)
    crashes = 0
    while True:
        crashing = disk.after_crash(Loss.ALL, Random(0))
        crashing.crash_at = crashes
        try:
            opened(crashing, rules, clean=False)
            break
        except Crashed:
            left = crashing.after_crash(loss, Random(crashes))
        crashes += 1
        found = contents(opened(left, rules, clean=False).log)
        assert found == whole[: len(found)]
    assert crashes > 5


def offsets_in(disk: SimulatedDisk, names: Sequence[str]) -> list[int]:
    """The offsets of the valid records in files, as `ottla log dump` finds them."""
    found: list[int] = []
    for name in names:
        listed = list_file(
            disk, f"{FOLDER}/{name}", View(records=True), lambda path, done, total: None
        )
        is_valid = False
        for entry in listed:
            if isinstance(entry, BatchEntry):
                is_valid = entry.crc_ok
            elif isinstance(entry, RecordEntry) and is_valid:
                found.append(entry.offset)
    return sorted(found)


def flipped_log(flip: int = 1) -> tuple[SimulatedDisk, int, list[int]]:
    """A log of several segments without a recovery point, and with one flipped byte.

    Also returns the offset of the damaged record, and all offsets.
    """
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 24)
    finish(log.flush())  # so that the bytes are on the device; the recovery point is not stored
    whole = contents(log)
    segment = list(log.segments)[flip]
    name = segment.file.path.rsplit("/", 1)[1]
    second = next(islice(batches(content(disk, name)), 1, None)).header
    position = second.size + 70  # all batches have the same size
    killed = disk.after_kill()
    killed.rot(f"{FOLDER}/{name}", position)
    return killed, second.base_offset, [offset for offset, _ in whole]


def test_c3_valid_batches_after_damage_are_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    disk, damaged, offsets = flipped_log()
    log = opened(disk, clean=False).log
    assert log.log_end_offset == damaged
    assert [offset for offset, _ in contents(log)] == offsets[:damaged]
    names = set_aside(disk)
    assert offsets_in(disk, names) == offsets[damaged + 1 :]
    (told,) = [one for one in caplog.records if one.msg == "valid records set aside"]
    assert told.levelname == "ERROR"
    assert isinstance(told.args, Mapping)
    assert (told.args["first_offset"], told.args["last_offset"]) == (damaged + 1, offsets[-1])
    assert told.args["batches"] == len(offsets) - damaged - 1
    sizes = [len(content(disk, name)) for name in names]
    assert told.args["bytes"] == sum(sizes)
    assert told.args["files"] == ", ".join(f"{FOLDER}/{name}" for name in names)
    # The log continues, and later starts only mention the files.
    log.begin_epoch(LeaderEpoch(1))
    fill(log, 40)
    log.advance_log_start(log.log_end_offset)
    finish(log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=10**9))
    finish(log.purge(2 * 10**9))
    finish(log.close())
    again = opened(disk, recovery_point=log.log_end_offset)
    assert [len(content(disk, name)) for name in set_aside(disk)] == sizes
    assert [note for note in again.notes if "set aside" not in note] == []
    assert len(again.notes) == len(names)


def test_c3_torn_last_write_is_cut_without_a_copy(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 40)
    name = log.segments.active.file.path.rsplit("/", 1)[1]
    data = content(disk, name)
    for tail in (data[:-20], data + bytes(500), data[:-20] + b"\xff" * 20):
        put(disk, name, tail)
        again = opened(disk, clean=False)
        assert any("truncated to" in note for note in again.notes)
        assert set_aside(disk) == []
    assert "valid records set aside" not in caplog.messages


@each_case("loss", [None, *Loss])
@each_case("flip", [0, 1, -1])
def test_c3_crash_while_setting_aside_loses_nothing(loss: Loss | None, flip: int) -> None:
    found, damaged, offsets = flipped_log(flip)
    found.sync_directory(FOLDER)
    crashes, done = 0, False
    while not done:
        disk = found.after_crash(Loss.ALL, Random(0))
        disk.crash_at = crashes
        try:
            opened(disk, clean=False)
            done = True
        except Crashed:
            pass
        random = Random(crashes)
        left = disk.after_kill() if loss is None else disk.after_crash(loss, random)
        log = opened(left, clean=False).log
        kept = [offset for offset, _ in contents(log)]
        assert kept == offsets[:damaged]
        assert offsets_in(left, set_aside(left)) == offsets[damaged + 1 :]
        crashes += 1
    assert crashes > 5


def test_c3_second_damage_at_an_offset_replaces_no_file() -> None:
    disk = SimulatedDisk()
    values: list[bytes] = []
    for number in range(3):
        log = opened(disk, clean=False).log
        log.begin_epoch(LeaderEpoch(number))
        for offset in range(log.log_end_offset, 3):
            values.append(b"%d of %d" % (offset, number))
            append(log, values[-1])
        finish(log.flush())
        disk = disk.after_kill()
        disk.rot(f"{FOLDER}/{0:020d}.log", 70)
    opened(disk, clean=False)
    name = f"{0:020d}.log.truncated"
    assert set_aside(disk) == [name, f"{name}-2", f"{name}-3"]
    kept = b"".join(content(disk, one) for one in set_aside(disk))
    assert all(value in kept for value in values if not value.startswith(b"0"))


def test_c3_no_space_to_set_records_aside_changes_nothing() -> None:
    disk, damaged, _ = flipped_log()
    before = {name: content(disk, name) for name in disk.names(FOLDER)}
    disk.capacity_bytes = sum(map(len, before.values()))
    with pytest.raises(StorageFailure, match="cannot be set aside"):
        opened(disk, clean=False)
    logs = {name: data for name, data in before.items() if name.endswith(".log")}
    assert {name: content(disk, name) for name in logs} == logs
    disk.capacity_bytes = None
    assert opened(disk, clean=False).log.log_end_offset == damaged


def test_c3_segment_after_a_shortened_one_is_dropped() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 20)
    finish(log.flush())
    first = log.segments.first
    second = [segment.base_offset for segment in log.segments][1]
    data = content(disk, f"{0:020d}.log")
    put(disk, f"{0:020d}.log", data[: len(data) // second * (second - 1)])
    assert first.size == len(data)
    log = opened(disk, clean=False).log
    assert log.log_end_offset == second - 1
    assert len(contents(log)) == second - 1


def test_c4_damage_above_the_recovery_point_is_truncated() -> None:
    disk = SimulatedDisk()
    log = history(disk)
    finish(log.close())
    name = log.segments.active.file.path.rsplit("/", 1)[1]
    put(disk, name, content(disk, name)[:-5])
    again = opened(disk, recovery_point=log.segments.active.base_offset)
    assert again.log.log_end_offset == log.log_end_offset - 1
    assert "the whole segment is scanned" in again.notes[0]


def test_unreadable_snapshot_is_written_again() -> None:
    disk = SimulatedDisk()
    log = history(disk)
    finish(log.close())
    name = f"{log.log_end_offset:020d}.snapshot"
    good = content(disk, name)
    put(disk, name, good[:-1])
    finish(opened(disk, recovery_point=log.log_end_offset).log.close())
    assert content(disk, name) == good


def test_recovery_reports_progress() -> None:
    disk, _, name = damaged_tail_log()
    told: list[tuple[int, int]] = []
    open_log(
        disk,
        FOLDER,
        SMALL,
        clean=False,
        now_ms=0,
        random=lambda: 0.0,
        progress=lambda done, total: told.append((done, total)),
    )
    total = len(content(disk, name))
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_log_start_above_the_records_empties_the_log() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 20)
    finish(log.flush())
    again = opened(disk, clean=False, log_start=500).log
    assert (again.log_start_offset, again.log_end_offset) == (500, 500)
    assert contents(again) == []
    assert list(again.epochs) == []


# Files that a crash left behind.


def test_unknown_files_are_kept_and_logged() -> None:
    disk = SimulatedDisk()
    finish(history(disk).close())
    put(disk, "notes.txt", b"mine")
    put(disk, "leader-epoch-checkpoint.tmp", b"0\n")
    again = opened(disk)
    assert again.notes == [f"{FOLDER}/notes.txt: not a file of the log, ignored"]
    assert content(disk, "notes.txt") == b"mine"
    assert "leader-epoch-checkpoint.tmp" not in disk.names(FOLDER)


def compacted(log: PartitionLog) -> tuple[bytes, int, int]:
    """One cleaned segment that replaces the first three: every other record is gone."""
    bases = [segment.base_offset for segment in log.segments]
    values = [(offset, value) for offset, value in contents(log) if offset < bases[3]]
    kept = [entry for entry in values if entry[0] % 2 or entry[0] == bases[3] - 1]
    data = b"".join(
        made([value or b""], base_offset=offset, leader_epoch=0, timestamp=offset)
        for offset, value in kept
    )
    return data, bases[3], len(kept)


def cleaning(step: int) -> tuple[SimulatedDisk, list[int], list[int], bool]:
    """A cleaning stopped after a number of steps, and whether the new segments are in use."""
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 40)
    finish(log.close())
    old = [offset for offset, _ in contents(log)]
    data, until, _ = compacted(log)
    new = [o for o in old if o >= until or o % 2 or o == until - 1]
    replaced = [s.base_offset for s in log.segments if s.base_offset < until]
    half = len(data) // 2
    cut = 0
    while cut < half:
        cut += 12 + int.from_bytes(data[cut + 8 : cut + 12], "big")
    second = int.from_bytes(data[cut : cut + 8], "big")
    parts = {0: data[:cut], second: data[cut:]}
    steps: list[Callable[[], object]] = []
    for base, part in parts.items():
        steps.append(lambda base=base, part=part: put(disk, f"{base:020d}.log.cleaned", part))
        steps.append(lambda base=base: put(disk, f"{base:020d}.index.cleaned", b""))
        steps.append(lambda base=base: put(disk, f"{base:020d}.timeindex.cleaned", b""))

    def rename(name: str, to: str) -> Callable[[], None]:
        return lambda: disk.rename(f"{FOLDER}/{name}", f"{FOLDER}/{to}")

    suffixes = ("log", "index", "timeindex")
    for base in sorted(parts, reverse=True):
        for suffix in suffixes:
            name = f"{base:020d}.{suffix}"
            steps.append(rename(name + ".cleaned", name + ".swap"))
    counts_from = len(steps)
    for base in replaced:
        for suffix in suffixes:
            name = f"{base:020d}.{suffix}"
            steps.append(rename(name, name + ".deleted"))
    for base in parts:
        for suffix in suffixes:
            name = f"{base:020d}.{suffix}"
            steps.append(rename(name + ".swap", name))
    for act in steps[:step]:
        act()
    return disk, old, new, step >= counts_from


STEPS = 6 + 6 + 9 + 6


@each_case("step", range(STEPS + 1))
@each_case("clean", [True, False])
def test_c7_interrupted_cleaning_is_completed_or_discarded(step: int, clean: bool) -> None:
    disk, old, new, counts = cleaning(step)
    rules = LogConfig(segment_bytes=1000, index_interval_bytes=150, compact=True)
    again = opened(disk, rules, clean=clean, recovery_point=40 if clean else 0)
    assert [offset for offset, _ in contents(again.log)] == (new if counts else old)
    for asked in range(40):
        assert contents(again.log, asked)[0][0] >= asked
    left = disk.names(FOLDER)
    assert not [name for name in left if name.endswith((".cleaned", ".swap", ".deleted"))]
    finish(again.log.close())
    third = opened(disk, rules, recovery_point=40)
    assert third.notes == []
    assert raw(third.log) == raw(again.log)


# A real disk.


def test_log_on_a_real_disk_survives_restarts(tmp_path: Path) -> None:
    disk = OsDisk()
    folder = str(tmp_path / "t-0")

    async def first() -> PartitionLog:
        log = opened(disk, folder=folder).log
        log.begin_epoch(LeaderEpoch(1))
        for number in range(200):
            append(
                log, b"%d" % number, bytes(50), timestamp=number, producer_id=3, sequence=2 * number
            )
        await log.flush()
        await log.truncate_to(301)
        assert log.log_end_offset == 300
        log.begin_epoch(LeaderEpoch(2))
        append(log, b"new", producer_id=3, sequence=300)
        await log.delete_old_segments(high_watermark=301, now_ms=10**12)
        await log.flush()
        return log

    log = asyncio.run(first())
    assert log.log_start_offset == 301
    asyncio.run(second(disk, folder))
    disk.close()


async def second(disk: OsDisk, folder: str) -> None:
    log = opened(disk, folder=folder, clean=False, recovery_point=301, log_start=301).log
    assert log.log_end_offset == 301
    log.begin_epoch(LeaderEpoch(3))
    for number in range(60):
        append(log, b"%d" % number, bytes(50), timestamp=number)
    await log.close()
    again = opened(disk, folder=folder, recovery_point=log.recovery_point)
    found = await again.log.read(350, again.log.log_end_offset, 1000)
    assert found.size > 0
    assert len(await found.read()) == found.size
    producer = again.log.producers.get(ProducerId(3))
    assert producer is not None
    assert producer.last_sequence == 300
    time = await again.log.find_timestamp(30)
    assert time is not None
    assert time.offset == Offset(301 + 2 * 29 + 1)
    # An unclean shutdown, with the last file truncated in the middle of a batch.
    path = again.log.segments.active.file.path
    os.truncate(path, os.path.getsize(path) - 7)
    cut = opened(disk, folder=folder, clean=False, recovery_point=301).log
    assert cut.log_end_offset == again.log.log_end_offset - 2


def test_epochs_of_a_follower_are_flushed_with_records() -> None:
    leader = history(SimulatedDisk())
    disk = SimulatedDisk()
    log = new_log(disk)  # the log was led in epoch 0 and stored that epoch
    log.append_replicated(raw(leader), fetched_offset=0, now_ms=0)
    finish(log.flush())
    expected = state(log)
    assert len(list(log.epochs)) == 2
    after = disk.after_crash(Loss.ALL, Random(0))
    again = opened(after, clean=False, recovery_point=log.recovery_point).log
    assert state(again) == expected == state(leader)


@pytest.mark.parametrize("loss", list(Loss))
def test_flushed_records_survive_a_power_failure(loss: Loss) -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        log = history(disk)
        finish(log.flush())
        kept = contents(log)
        epochs = list(log.epochs)
        flushed = log.recovery_point
        fill(log, 15, start=70)
        after = contents(log)
        again = opened(disk.after_crash(loss, Random(seed)), clean=False, recovery_point=flushed)
        found = contents(again.log)
        assert found[: len(kept)] == kept
        assert found == after[: len(found)]
        assert list(again.log.epochs) == epochs


def test_c3_truncation_is_durable() -> None:
    disk = SimulatedDisk()
    log = history(disk)
    finish(log.flush())
    path = log.segments.active.file.path
    log.segments.active.file.write([b"torn"], log.segments.active.size)
    calls = len(disk.calls)
    opened(disk, clean=False, recovery_point=log.recovery_point)
    changes = [what for what, where in disk.calls[calls:] if where == path]
    assert changes[:2] == ["truncate", "sync"]


def test_missing_records_file_is_reported_with_its_offsets() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 40)
    finish(log.close())
    first, second, third, *_ = [segment.base_offset for segment in log.segments]
    assert first == 0
    disk.remove(f"{FOLDER}/{second:020d}.log")
    notes = opened(disk, clean=False, recovery_point=40).notes
    assert any(
        f"{second:020d}.log is missing, and with it all records from offset {second} to {third - 1}"
        in note
        for note in notes
    )


def test_note_on_leftover_files_names_their_directory() -> None:
    disk = SimulatedDisk()
    finish(history(disk).close())
    names = [f"{0:020d}.{suffix}.deleted" for suffix in ("index", "timeindex")]
    for name in names:
        put(disk, name, b"old")
    again = opened(disk)
    assert again.notes == [f"{FOLDER}: leftover files removed: {', '.join(names)}"]
    assert not {*names} & {*disk.names(FOLDER)}


def test_interrupted_deletion_is_not_reported_as_a_loss() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 40)
    finish(log.close())
    name = f"{FOLDER}/{0:020d}.log"
    disk.rename(name, f"{name}.deleted")
    notes = opened(disk, clean=False, recovery_point=40).notes
    assert any("its segment does not exist" in note for note in notes)
    assert not any("is missing" in note for note in notes)
