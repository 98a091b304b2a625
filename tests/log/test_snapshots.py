"""The snapshots of producers that a folder keeps, through many stops and starts."""

from random import Random

import pytest

from log.logs import FOLDER, append, opened
from ottla.ids import LeaderEpoch
from ottla.log.names import Kind, parse_offset_file
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_snapshot import write_snapshot
from ottla.log.rules import LogRules
from ottla.testing.disk import Loss, SimulatedDisk, finish

RULES = LogRules(segment_bytes=1500, delete=True)
STARTS = 40


def snapshots(disk: SimulatedDisk) -> list[int]:
    found = [parse_offset_file(name) for name in disk.names(FOLDER)]
    return [one.offset for one in found if one and one.kind is Kind.PRODUCER_SNAPSHOT]


def run(log: PartitionLog, number: int) -> None:
    """Three batches of a producer, in an epoch of their own."""
    finish(log.begin_epoch(LeaderEpoch(number)))
    for sequence in range(number * 3, number * 3 + 3):
        append(log, b"v", producer_id=1, sequence=sequence)


def test_stops_and_starts_leave_no_more_snapshots_than_segments_and_the_latest() -> None:
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
    # Those of the segments are all there: the first one needs none.
    bases = {segment.base_offset for segment in log.segments}
    assert bases - {0} <= {*snapshots(disk)} <= {*bases, end}


@pytest.mark.parametrize("loss", list(Loss))
def test_producers_are_known_after_any_stop_though_their_batches_are_gone(loss: Loss) -> None:
    """Only snapshots tell of the second producer once the first segment is deleted."""
    random, disk = Random(1), SimulatedDisk()
    log = opened(disk, RULES).log
    finish(log.begin_epoch(LeaderEpoch(0)))
    append(log, b"once", producer_id=2, sequence=5)
    for number in range(STARTS):
        run(log, number)
        finish(log.flush())
        log.advance_log_start(log.segments.active.base_offset)
        finish(log.retain(high_watermark=log.next_offset, now_ms=0))
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
