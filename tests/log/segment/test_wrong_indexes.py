"""Wrong indexes that look valid cost time but never hide a record (rule C4)."""

from dataclasses import replace
from random import Random
from struct import iter_unpack

import pytest

from log.logs import FOLDER, append, contents, end, opened
from ottla.ids import LeaderEpoch
from ottla.log.disk import read_whole
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import batches
from ottla.testing.disk import SimulatedDisk, finish
from sampling import sample

RULES = LogConfig(segment_bytes=3000, index_interval_bytes=150, retention_ms=10**9)
FIRST = f"{FOLDER}/{0:020d}"
BITS_SAMPLED = 24  # of 192 or 288


def times() -> list[int]:
    """Timestamps that increase in general, but not from each record to the next."""
    random = Random(4)
    return [1000 + 40 * number + random.randrange(300) for number in range(60)]


def written(disk: SimulatedDisk) -> PartitionLog:
    log = opened(disk, RULES).log
    log.begin_epoch(LeaderEpoch(0))
    for number, timestamp in enumerate(times()):
        append(log, b"%03d" % number + bytes(60), timestamp=timestamp)
    finish(log.flush())
    assert len(log.segments) > 2
    return log


def restarted(disk: SimulatedDisk, log: PartitionLog) -> PartitionLog:
    return opened(disk, log.config, recovery_point=log.recovery_point).log


def first_from(timestamp: int) -> int | None:
    return next((at for at, one in enumerate(times()) if one >= timestamp), None)


def check_times(log: PartitionLog) -> None:
    for timestamp in range(900, 4000, 35):
        found = finish(log.find_timestamp(timestamp))
        assert (None if found is None else found.offset) == first_from(timestamp), timestamp
    latest = finish(log.find_max_timestamp())
    assert latest is not None
    assert latest.offset == times().index(max(times()))


def some_bits(disk: SimulatedDisk, path: str, entry: int) -> list[tuple[int, int]]:
    """Bits of the first, a middle and the last entry of an index; `make soak` takes all bits."""
    count = len(read_whole(disk, path)) // entry
    assert count > 4
    numbers = (0, count // 2, count - 1)
    places = [(n * entry + byte, bit) for n in numbers for byte in range(entry) for bit in range(8)]
    return [(position, 1 << bit) for position, bit in sample(places, BITS_SAMPLED)]


@pytest.mark.parametrize("restart", [False, True])
def test_c4_flipped_time_index_bit_returns_the_same_record(restart: bool) -> None:
    whole = SimulatedDisk()
    log = written(whole)
    check_times(log)
    for position, bit in some_bits(whole, FIRST + ".timeindex", 12):
        disk = SimulatedDisk()
        log = written(disk)
        if restart:
            finish(log.close())
        disk.rot(FIRST + ".timeindex", position, bit)
        check_times(restarted(disk, log) if restart else log)


def test_truncated_time_index_hides_no_record() -> None:
    disk = SimulatedDisk()
    log = written(disk)
    finish(log.close())
    file = disk.open(FIRST + ".timeindex")
    for entries in range(file.size() // 12 - 1, -1, -1):
        file.truncate(entries * 12)
        log = restarted(disk, log)
        check_times(log)
        finish(log.close())


def test_wrong_time_index_does_not_delete_a_segment_early() -> None:
    disk = SimulatedDisk()
    log = written(disk)
    finish(log.close())
    last = len(read_whole(disk, FIRST + ".timeindex")) - 12
    disk.rot(FIRST + ".timeindex", last + 6, 0x02)  # half a second earlier
    log = restarted(disk, log)
    latest = max(times()[: list(log.segments)[1].base_offset])
    assert next(iter(log.segments)).latest.timestamp < latest
    log.config = replace(RULES, retention_ms=1000)
    assert finish(log.delete_old_segments(high_watermark=60, now_ms=latest + 1000)) == 0
    assert finish(log.delete_old_segments(high_watermark=60, now_ms=latest + 1001)) == 1


@pytest.mark.parametrize(("name", "entry"), [(".index", 8), (".timeindex", 12)])
def test_c4_flipped_active_index_bits_are_harmless_at_restart(name: str, entry: int) -> None:
    whole = SimulatedDisk()
    rules = replace(RULES, segment_bytes=100_000)

    def closed(disk: SimulatedDisk) -> PartitionLog:
        log = opened(disk, rules).log
        log.begin_epoch(LeaderEpoch(0))
        for number, timestamp in enumerate(times()):
            append(log, b"%03d" % number + bytes(60), timestamp=timestamp)
        finish(log.close())
        return log

    closed(whole)
    expected = [(number, b"%03d" % number + bytes(60)) for number in range(60)]
    for position, bit in some_bits(whole, FIRST + name, entry):
        disk = SimulatedDisk()
        log = closed(disk)
        disk.rot(FIRST + name, position, bit)
        log = restarted(disk, log)
        check_times(log)
        for start in (0, 20, 40, 55):
            assert contents(log, start) == expected[start:]
        log.begin_epoch(LeaderEpoch(1))
        for number in range(5):
            append(log, b"new %d" % number + bytes(100), timestamp=9000 + number)
        assert contents(log)[:60] == expected
        assert contents(log, 62)[0][0] == 62


def test_aborted_transactions_survive_a_wrong_index() -> None:
    def transactions(disk: SimulatedDisk) -> PartitionLog:
        log = opened(disk, RULES).log
        log.begin_epoch(LeaderEpoch(0))
        for number in range(30):
            append(log, b"x" * 60, producer_id=1, sequence=number, transactional=True)
            end(log, 1, commit=number % 3 == 0)
        finish(log.flush())
        return log

    whole = SimulatedDisk()
    every = transactions(whole).aborted_transactions(0, 60)
    for position, bit in some_bits(whole, FIRST + ".index", 8):
        disk = SimulatedDisk()
        log = transactions(disk)
        finish(log.close())
        disk.rot(FIRST + ".index", position, bit)
        log = restarted(disk, log)
        for offset in range(20):
            found = finish(log.read(offset, 60, 300))
            told = log.aborted_transactions(offset, found.upper_offset)
            for batch in batches(finish(found.read())):
                for one in every:
                    if one.first_offset <= batch.header.base_offset < one.last_offset:
                        assert one in told, (position, bit, offset)


def test_index_entry_that_matches_another_batch_is_detected() -> None:
    """A later batch has the timestamp of the entry too, after a batch with a larger one."""
    stamps = [1020, 1010, 1030, 1050, 1015, 1015, 1055, 1015, 1050, 1070, 1030, 1070]
    path = f"{FIRST}.timeindex"
    disk = SimulatedDisk()
    log = opened(disk, replace(RULES, segment_bytes=100_000)).log
    log.begin_epoch(LeaderEpoch(0))
    for number, timestamp in enumerate(stamps):
        append(log, b"%03d" % number + bytes(20), timestamp=timestamp)
    log.roll(0)
    append(log, b"z", timestamp=1)
    finish(log.flush())
    entries = [*iter_unpack(">qi", read_whole(disk, path))]
    number = entries.index((1030, 2))
    disk.rot(path, 12 * number + 11, 2 ^ 10)
    found = finish(log.find_timestamp(1031))
    assert found is not None
    assert found.offset == 3
