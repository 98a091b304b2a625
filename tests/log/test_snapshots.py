"""The producer snapshots in a directory, over many restarts."""

from dataclasses import replace
from itertools import count
from random import Random

import pytest

from log.logs import FOLDER, append, new_log, opened
from ottla.errors import DiskFull
from ottla.ids import LeaderEpoch
from ottla.log.log_config import LogConfig
from ottla.log.names import Kind, parse_offset_file
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_snapshot import write_snapshot
from ottla.testing.disk import Crashed, Loss, SimulatedDisk, finish

RULES = LogConfig(segment_bytes=1500, delete=True)
STARTS = 40


def snapshots(disk: SimulatedDisk) -> list[int]:
    found = [parse_offset_file(name) for name in disk.names(FOLDER)]
    return [one.offset for one in found if one and one.kind is Kind.PRODUCER_SNAPSHOT]


def run(log: PartitionLog, number: int) -> None:
    """Append three batches of a producer in a new epoch."""
    log.begin_epoch(LeaderEpoch(number))
    for sequence in range(number * 3, number * 3 + 3):
        append(log, b"v", producer_id=1, sequence=sequence)


def test_restarts_keep_one_snapshot_per_segment_and_the_last() -> None:
    disk, end = SimulatedDisk(), 0
    log = opened(disk, RULES).log
    for number in range(STARTS):
        run(log, number)
        bases = {segment.base_offset for segment in log.segments}
        assert {*snapshots(disk)} <= {*bases, end}
        finish(log.close())
        end = log.recovery_point
        assert end in snapshots(disk)
        log = opened(disk, RULES, recovery_point=end).log
    assert len(log.segments) > 5
    # Every segment has its snapshot, except the first, which needs none.
    bases = {segment.base_offset for segment in log.segments}
    assert bases - {0} <= {*snapshots(disk)} <= {*bases, end}


@pytest.mark.parametrize("ends", ["stopped", "killed", "truncated"])
def test_d1_cached_batches_survive_a_restart_and_a_truncation(ends: str) -> None:
    """A producer retries the oldest of five batches first: the last one alone is not enough."""
    disk = SimulatedDisk()
    log = opened(disk, RULES).log
    for number in range(4):
        run(log, number)
    expected = [one.batches.copy() for one in log.producers]
    assert [len(batches) for batches in expected] == [5]
    finish(log.close())
    log = opened(disk, RULES, recovery_point=log.recovery_point).log
    if ends == "killed":
        log = opened(disk, RULES, recovery_point=log.recovery_point, clean=False).log
    elif ends == "truncated":
        end = log.log_end_offset
        run(log, 4)
        finish(log.truncate_to(end))
    assert [one.batches for one in log.producers] == expected


@pytest.mark.parametrize("loss", list(Loss))
def test_producers_are_known_after_their_batches_are_deleted(loss: Loss) -> None:
    """Only snapshots have the second producer once the first segment is deleted."""
    random, disk = Random(1), SimulatedDisk()
    log = opened(disk, RULES).log
    log.begin_epoch(LeaderEpoch(0))
    append(log, b"once", producer_id=2, sequence=5)
    for number in range(STARTS):
        run(log, number)
        finish(log.flush())
        log.advance_log_start(log.segments.active.base_offset)
        finish(log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=0))
        expected = write_snapshot(log.producers)
        clean = random.random() < 0.6
        if clean:
            finish(log.close())
        point, start = log.recovery_point, log.log_start_offset
        disk = disk.after_crash(loss, random)
        log = opened(disk, RULES, recovery_point=point, log_start=start, clean=clean).log
        assert write_snapshot(log.producers) == expected
        assert {one.producer_id: one.last_sequence for one in log.producers} == {
            1: number * 3 + 2,
            2: 5,
        }
    assert log.log_start_offset > 0


@pytest.mark.parametrize("loss", list(Loss))
def test_producers_survive_a_crash_during_deletion(
    loss: Loss,
) -> None:
    rules = replace(RULES, retention_ms=10)
    for number in count():
        disk = SimulatedDisk()
        log = new_log(disk, rules)
        append(log, b"v", producer_id=7, sequence=3)
        append(log, b"v", producer_id=8, transactional=True)
        finish(log.flush())
        expected = write_snapshot(log.producers)
        disk.crash_at = len(disk.calls) + number
        try:
            assert finish(log.delete_old_segments(high_watermark=2, now_ms=1000)) == 1
            crashed = False
        except Crashed:
            crashed = True
        disk = disk.after_crash(loss, Random(number))
        again = opened(disk, rules, recovery_point=2, clean=False).log
        assert again.log_end_offset == 2
        assert write_snapshot(again.producers) == expected
        if not crashed:
            assert again.log_start_offset == 2
            return


def test_segment_without_producers_needs_no_snapshot() -> None:
    disk = SimulatedDisk()
    log = new_log(disk, replace(RULES, retention_ms=10))
    append(log, b"v")
    room = disk.room("/")
    disk.capacity_bytes = room.total_bytes - room.usable_bytes
    assert finish(log.delete_old_segments(high_watermark=1, now_ms=1000)) == 1
    assert log.log_start_offset == 1


def test_full_disk_deletes_only_segments_with_a_snapshot() -> None:
    disk = SimulatedDisk()
    log = new_log(disk, replace(RULES, segment_bytes=200, retention_ms=10))
    with_room = disk.check_room

    def without_room(more: int, path: str) -> None:
        if ".snapshot" in path:
            raise DiskFull(f"{path}: write: no space left on the disk")
        with_room(more, path)

    for sequence in range(4):
        append(log, bytes(100), producer_id=7, sequence=sequence)
    finish(log.flush())
    append(log, bytes(100), producer_id=7, sequence=4)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3, 4]
    disk.check_room = without_room
    assert finish(log.delete_old_segments(high_watermark=5, now_ms=1000)) == 3
    for _ in range(2):
        with pytest.raises(DiskFull):
            finish(log.delete_old_segments(high_watermark=5, now_ms=1000))
    assert log.log_start_offset == 3
    append(log, b"new", producer_id=7, sequence=5, timestamp=1000)
    disk.check_room = with_room
    assert finish(log.delete_old_segments(high_watermark=6, now_ms=1000)) == 2
    assert log.log_start_offset == 5
    finish(log.purge(10**9))
    assert snapshots(disk) == [5]
