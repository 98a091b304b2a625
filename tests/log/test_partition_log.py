"""A partition log: append, read, truncate and delete, on a simulated disk."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from cases import each_case
from log.logs import FOLDER, SMALL, append, contents, end, fill, made, new_log, opened, raw
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import LeaderEpoch, Offset, ProducerId
from ottla.log.appender import UnexpectedOffset
from ottla.log.cached_reads import NotCached
from ottla.log.disk import write_atomically
from ottla.log.files import OsDisk
from ottla.log.flusher import GroupCommit, flush_due
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import TimestampType, batches
from ottla.records.compression import Compression
from ottla.records.errors import CorruptRecords
from ottla.testing.disk import Loss, SimulatedDisk, finish


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def names(log: PartitionLog) -> list[str]:
    return log.disk.names(FOLDER)


# Appending.


def test_batches_get_next_offsets_and_leader_epoch() -> None:
    log = new_log()
    log.begin_epoch(LeaderEpoch(7))
    assert append(log, b"a", b"b") == (0, 1, -1, False)
    assert append(log, b"c") == (2, 2, -1, False)
    assert log.log_end_offset == 3
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert {batch.header.leader_epoch for batch in batches(raw(log))} == {7}


@each_case("compression", list(Compression))
def test_log_append_time_is_written_into_the_header(compression: Compression) -> None:
    log = new_log()
    appended = append(
        log,
        b"a",
        b"b",
        timestamp=5,
        now_ms=1234,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        compression=compression,
    )
    assert appended.append_time == 1234
    (batch,) = batches(raw(log))
    assert batch.crc_ok
    assert [record.timestamp for record in batch.records()] == [1234, 1234]
    assert log.segments.active.latest == (1234, 1)


def test_duplicate_returns_its_first_offset() -> None:
    log = new_log()
    first = append(log, b"a", b"b", producer_id=9, timestamp=3)
    append(log, b"c", producer_id=9, sequence=2)
    again = append(log, b"a", b"b", producer_id=9, timestamp=3)
    assert again.duplicate
    assert again[:2] == first[:2]
    assert log.log_end_offset == 3
    with pytest.raises(RequestError, match="OUT_OF_ORDER"):
        append(log, b"d", producer_id=9, sequence=5)
    assert log.log_end_offset == 3


def test_batch_larger_than_a_segment_is_rejected() -> None:
    with pytest.raises(RequestError) as refused:
        append(new_log(), bytes(2000))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a16_follower_has_the_bytes_of_the_leader() -> None:
    leader, follower = new_log(), opened(SimulatedDisk()).log
    fill(leader, 30)
    leader.begin_epoch(LeaderEpoch(3))
    append(leader, b"t", producer_id=4, transactional=True)
    end(leader, 4, commit=False)
    fill(leader, 5, start=32)
    while follower.log_end_offset < leader.log_end_offset:
        fetched = follower.log_end_offset
        data = finish(finish(leader.read(fetched, leader.log_end_offset, 400)).read())
        follower.append_replicated(data, fetched_offset=fetched, now_ms=0)
    assert raw(follower) == raw(leader)
    assert list(follower.epochs) == list(leader.epochs) == [(0, 0), (3, 30)]
    assert follower.aborted_transactions(0, 99) == leader.aborted_transactions(0, 99) != []
    producer = follower.producers.get(ProducerId(4))
    assert producer is not None
    assert producer.transaction_first_offset is None


def test_a16_follower_rejects_unexpected_batches() -> None:
    log = opened(SimulatedDisk()).log
    one = made([b"a"], base_offset=0)
    log.append_replicated(one, fetched_offset=0, now_ms=0)
    with pytest.raises(UnexpectedOffset):
        log.append_replicated(one, fetched_offset=0, now_ms=0)
    with pytest.raises(UnexpectedOffset):
        log.append_replicated(one, fetched_offset=1, now_ms=0)
    damaged = bytearray(made([b"abc"], base_offset=1))
    damaged[-2] ^= 1
    with pytest.raises(CorruptRecords):
        log.append_replicated(bytes(damaged), fetched_offset=1, now_ms=0)
    falling = made([b"a"], base_offset=5) + made([b"b"], base_offset=4)
    with pytest.raises(UnexpectedOffset):
        log.append_replicated(falling, fetched_offset=1, now_ms=0)
    assert log.log_end_offset == 1
    assert contents(log) == [(0, b"a")]


def test_follower_keeps_the_gaps_of_a_compacted_leader() -> None:
    log = opened(SimulatedDisk()).log
    log.append_replicated(made([b"a"], base_offset=3), fetched_offset=0, now_ms=0)
    log.append_replicated(made([b"b"], base_offset=9), fetched_offset=4, now_ms=0)
    # Two offsets so far apart that one segment cannot hold both.
    far = 2**31 + 100
    log.append_replicated(
        made([b"c"], base_offset=11) + made([b"d"], base_offset=far), fetched_offset=10, now_ms=0
    )
    assert contents(log) == [(3, b"a"), (9, b"b"), (11, b"c"), (far, b"d")]
    for asked in (0, 3, 4, 9, 10, 12, far):
        offset, value = contents(log, asked)[0]
        assert offset >= asked
        assert value is not None
    assert log.log_end_offset == far + 1


def test_follower_without_records_starts_after_a_large_gap() -> None:
    """The first segment cannot hold the first record that the leader's compaction has left."""
    disk, far = SimulatedDisk(), 2**31 + 100
    log = opened(disk).log
    log.append_replicated(made([b"a"], base_offset=far), fetched_offset=0, now_ms=0)
    assert bases(log) == [far]
    finish(log.close())
    again = opened(disk, recovery_point=far + 1)
    assert again.notes == []
    assert contents(again.log, far) == [(far, b"a")]


# Rolling.


def test_segments_roll_by_size() -> None:
    log = new_log()
    fill(log, 30)
    assert len(bases(log)) > 3
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert [offset for offset, _ in contents(log)] == list(range(30))


def test_segments_roll_by_the_timestamps_of_records() -> None:
    log = new_log(rules=LogConfig(segment_ms=100, segment_jitter_ms=20))
    append(log, b"a", timestamp=1000)
    append(log, b"b", timestamp=1090)
    append(log, b"c", timestamp=1100)
    assert bases(log) == [0]
    append(log, b"d", timestamp=1101)
    assert bases(log) == [0, 3]
    append(log, b"e", timestamp=1191)
    assert bases(log) == [0, 3]
    # The random jitter makes the second segment roll half of the jitter earlier.
    append(log, b"f", timestamp=1192)
    assert bases(log) == [0, 3, 5]


def test_segments_without_timestamps_roll_by_the_clock() -> None:
    log = new_log(rules=LogConfig(segment_ms=100))
    append(log, b"a", timestamp=-1, now_ms=50)
    append(log, b"b", timestamp=-1, now_ms=100)
    assert bases(log) == [0]
    append(log, b"c", timestamp=-1, now_ms=101)
    assert bases(log) == [0, 2]


def test_segments_roll_when_an_index_is_full() -> None:
    log = new_log(rules=LogConfig(index_bytes_max=24, index_interval_bytes=0))
    fill(log, 12)
    assert len(bases(log)) > 3
    assert [offset for offset, _ in contents(log)] == list(range(12))


# Reading.


def test_fetch_returns_whole_batches_within_the_limit() -> None:
    log = new_log(rules=LogConfig(index_interval_bytes=200))
    fill(log, 20)
    size = len(raw(log)) // 20
    for offset in range(20):
        for batches_wanted in (1, 2, 3, 7):
            for extra in (0, 1, size - 1):
                found = log.read_cached(offset, 20, batches_wanted * size + extra)
                data = found.cached()
                assert data is not None
                headers = [batch.header for batch in batches(data)]
                assert headers[0].base_offset == offset
                assert len(headers) == min(batches_wanted, 20 - offset)
    assert log.read_cached(3, 20, 1).size == size  # a first batch has no limit


def test_fetch_ends_below_the_upper_offset() -> None:
    log = new_log()
    for _ in range(12):
        append(log, b"a", b"b", b"c" * 50)
    for upper in range(37):
        got: list[int] = []
        offset = 0
        while True:
            data = log.read_cached(offset, upper, 10_000).cached()
            if not data:
                break
            headers = [batch.header for batch in batches(data)]
            got += [header.last_offset for header in headers]
            offset = headers[-1].next_offset
        assert got == [last for last in range(2, 36, 3) if last < upper]


@each_case("cut", [1, 17, 33])
def test_fetch_after_a_truncation_finds_the_new_batches(cut: int) -> None:
    log = new_log(rules=LogConfig(index_interval_bytes=200))
    fill(log, 150)  # more than are found without the file
    assert len(contents(log)) == 150  # every fetch ends at another batch
    finish(log.truncate_to(cut))
    for number in range(cut, 150):
        append(log, b"%d" % number * (1 + number % 5), timestamp=number)
    for start in reversed(range(150)):  # the positions of the last fetches come first
        found = contents(log, start)
        assert [offset for offset, _ in found] == [*range(start, 150)]
        assert dict(found)[149] == b"149" * 5


def test_offsets_outside_the_log_are_out_of_range() -> None:
    log = new_log()
    assert log.read_cached(0, 0, 100).size == 0
    fill(log, 5)
    log.advance_log_start(Offset(2))
    assert log.read_cached(5, 5, 100).cached() == b""
    for offset in (1, 6):
        with pytest.raises(RequestError) as refused:
            log.read_cached(offset, 5, 100)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_uncached_bytes_are_read_in_a_thread() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 40)
    finish(log.flush())
    expected = contents(log)
    disk.cold = True
    with pytest.raises(NotCached):
        log.read_cached(1, 40, 100)
    # The position of the latest batches is in memory.
    assert log.read_cached(39, 40, 100).size > 0
    assert log.read_cached(39, 40, 100).cached() is None
    assert contents(log) == expected


def test_slice_can_be_read_after_its_segment_is_deleted() -> None:
    log = new_log()
    fill(log, 30)
    first = log.read_cached(0, 30, 500)
    expected = first.cached()
    log.advance_log_start(Offset(29))
    assert finish(log.delete_old_segments(high_watermark=30, now_ms=0)) > 1
    finish(log.purge(10**9))
    assert first.cached() == expected


def test_offsets_are_found_by_timestamp() -> None:
    log = new_log()
    for number in range(30):
        append(log, b"x" * 40, b"y" * 40, timestamp=1000 + 10 * number)
    for asked in range(990, 1300):
        found = finish(log.find_timestamp(asked))
        times = [1000 + 10 * (n // 2) + n % 2 for n in range(60)]
        expected = next(((n, t) for n, t in enumerate(times) if t >= asked), None)
        assert (None if found is None else found[:2]) == expected
    found = finish(log.find_max_timestamp())
    assert found == (59, 1291, 0)
    log.advance_log_start(Offset(21))
    assert finish(log.find_timestamp(0)) == (21, 1101, 0)


def test_first_record_with_the_max_timestamp_is_found() -> None:
    log = new_log()
    assert finish(log.find_max_timestamp()) is None
    for timestamp in (5, 90, 3, 90, 7):
        append(log, b"x", timestamp=timestamp)
    assert finish(log.find_max_timestamp()) == (1, 90, 0)
    log.advance_log_start(Offset(4))
    assert finish(log.find_max_timestamp()) == (4, 7, 0)


def test_open_transaction_holds_the_last_stable_offset() -> None:
    log = new_log()
    append(log, b"a")
    append(log, b"b", producer_id=1, transactional=True)
    append(log, b"c", producer_id=2, transactional=True)
    assert log.last_stable_offset(log.log_end_offset) == 1
    end(log, 1, commit=False)
    assert log.last_stable_offset(log.log_end_offset) == 2
    end(log, 2, commit=True)
    assert log.last_stable_offset(Offset(4)) == 2
    assert log.last_stable_offset(log.log_end_offset) == 5
    assert [t[:3] for t in log.aborted_transactions(0, 5)] == [(1, 1, 3)]
    assert log.aborted_transactions(4, 5) == []


# Epochs and truncation.


def test_a1_epoch_is_stored_with_its_first_record() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 3)
    finish(log.flush())
    log.begin_epoch(LeaderEpoch(4))
    log.begin_epoch(LeaderEpoch(6))
    finish(log.flush())
    assert stored_epochs(disk) == b"0\n1\n0 0\n"
    assert log.end_offset(0) == (0, 3)
    assert log.end_offset(5) == (0, 3)
    assert log.end_offset(6) == (6, 3)
    with pytest.raises(AssertionError):
        append(log, b"late", leader_epoch=4)
    append(log, b"first", leader_epoch=6)
    finish(log.flush())
    assert stored_epochs(disk) == b"0\n2\n0 0\n6 3\n"


def test_epoch_without_records_costs_no_write_at_a_restart() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 3)
    finish(log.close())
    calls = len(disk.calls)
    for epoch in range(1, 4):
        log = opened(disk, recovery_point=3).log
        log.begin_epoch(LeaderEpoch(epoch))
        finish(log.close())
    assert len(disk.calls) == calls


@each_case("loss", list(Loss))
def test_a1_unstored_epochs_are_found_in_the_batches(loss: Loss) -> None:
    """The checkpoint still has an epoch without records, at the same offset as a later one."""
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 3)
    log.begin_epoch(LeaderEpoch(4))
    append(log, b"a", leader_epoch=4)
    finish(log.flush())
    finish(log.truncate_to(3))
    write_atomically(disk, f"{FOLDER}/leader-epoch-checkpoint", b"0\n2\n0 0\n4 3\n")
    log = opened(disk, clean=False, recovery_point=3).log
    for epoch in (5, 6):
        log.begin_epoch(LeaderEpoch(epoch))
        append(log, b"b", leader_epoch=epoch)
    for seed in range(10):
        again = opened(disk.after_crash(loss, Random(seed)), clean=False, recovery_point=3).log
        left = again.log_end_offset
        assert list(again.epochs) == [(0, 0), (5, 3), (6, 4)][: left - 2]


def stored_epochs(disk: SimulatedDisk) -> bytes:
    return disk.open(f"{FOLDER}/leader-epoch-checkpoint").read(0, 100)


@each_case("cut", range(41))
def test_a2_log_is_truncated_at_any_offset(cut: int) -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(20):
        if number in (5, 11):
            log.begin_epoch(LeaderEpoch(number))
        append(log, b"%d" % number, bytes(50), producer_id=3, sequence=2 * number, timestamp=number)
    finish(log.flush())
    whole = contents(log)
    finish(log.truncate_to(cut))
    left = cut // 2 * 2  # truncation removes whole batches
    assert contents(log) == whole[:left]
    assert log.log_end_offset == log.recovery_point == left
    epochs = [(0, 0), (5, 10), (11, 22)]
    assert list(log.epochs) == [entry for entry in epochs if entry[1] < left]
    producer = log.producers.get(ProducerId(3))
    assert (producer.last_sequence if producer else -1) == left - 1
    log.begin_epoch(LeaderEpoch(30))
    for number in range(left // 2, 25):
        append(log, b"new", bytes(40), producer_id=3, sequence=2 * number, timestamp=50)
    assert contents(log)[:left] == whole[:left]
    assert [offset for offset, _ in contents(log)] == list(range(50))
    finish(log.close())
    again = opened(disk, recovery_point=50)
    assert again.notes == []
    assert contents(again.log) == contents(log)


def test_a17_log_restarts_at_an_offset() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 30)
    finish(log.flush())
    finish(log.truncate_fully_and_start_at(Offset(100)))
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (100, 100, 100)
    assert list(log.epochs) == []
    assert [name for name in names(log) if not name.startswith("0")] == ["leader-epoch-checkpoint"]
    log.begin_epoch(LeaderEpoch(1))
    fill(log, 3)
    assert [offset for offset, _ in contents(log)] == [100, 101, 102]
    finish(log.truncate_to(50))
    assert log.log_end_offset == 50


def test_a17_follower_starts_within_a_batch() -> None:
    """The leader deleted records up to the middle of a batch before the follower fetched any."""
    leader, follower = new_log(), opened(SimulatedDisk()).log
    append(leader, b"a", b"b", b"c")
    append(leader, b"d", b"e", b"f")
    leader.advance_log_start(Offset(4))
    finish(follower.truncate_fully_and_start_at(Offset(4)))
    data = finish(finish(leader.read(4, 6, 1000)).read())
    with pytest.raises(UnexpectedOffset) as unexpected:
        follower.append_replicated(data, fetched_offset=4, now_ms=0)
    assert unexpected.value.first_offset <= follower.log_end_offset <= unexpected.value.last_offset
    finish(follower.truncate_fully_and_start_at(Offset(unexpected.value.first_offset)))
    follower.append_replicated(data, fetched_offset=3, now_ms=0)
    follower.advance_log_start(Offset(4))
    assert contents(follower) == contents(leader) == [(4, b"e"), (5, b"f")]


# Flushing.


def test_c1_recovery_point_moves_after_the_sync() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 30)
    seen: list[tuple[str, str, int]] = []
    disk.fails = lambda what, path: seen.append((what, path, log.recovery_point)) or False
    finish(log.flush())
    assert {point for _, _, point in seen} == {0}
    synced = {path for what, path, _ in seen if what == "sync"}
    assert synced >= {FOLDER, *(segment.file.path for segment in log.segments)}
    assert log.recovery_point == 30
    seen.clear()
    finish(log.flush())
    assert seen == []


@each_case("cut", [0, 5, 10, 15, 20])
def test_c1_recovery_point_is_never_above_a_truncated_end(cut: int) -> None:
    """A flush syncs what is above the recovery point, so it would skip the next records."""
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 10)
    finish(log.flush())
    fill(log, 10, start=10)
    finish(log.truncate_to(cut))
    assert log.recovery_point == min(10, cut) <= log.log_end_offset == cut
    log.begin_epoch(LeaderEpoch(1))
    fill(log, 1, start=cut)
    finish(log.flush())
    assert log.recovery_point == log.log_end_offset == cut + 1
    disk = disk.after_crash(Loss.ALL, Random(0))
    assert opened(disk, clean=False, recovery_point=cut + 1).log.log_end_offset == cut + 1


def test_closed_segments_have_their_index_files_after_a_flush() -> None:
    log = new_log()
    fill(log, 30)
    assert not [name for name in names(log) if "index" in name or "snapshot" in name]
    finish(log.flush())
    closed = bases(log)[:-1]
    for suffix in ("index", "timeindex"):
        assert [n for n in names(log) if n.endswith("." + suffix)] == [
            f"{base:020d}.{suffix}" for base in closed
        ]
    assert [n for n in names(log) if n.endswith(".snapshot")] == [
        f"{base:020d}.snapshot" for base in bases(log)[1:]
    ]
    assert [offset for offset, _ in contents(log)] == list(range(30))


def test_c5_failed_sync_breaks_the_log() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 5)
    finish(log.flush())
    fill(log, 5)
    disk.fails = lambda what, path: what == "sync"
    with pytest.raises(StorageFailure):
        finish(log.flush())
    disk.fails = lambda what, path: False
    assert log.recovery_point == 5
    for call in (lambda: append(log, b"a"), lambda: finish(log.flush()), lambda: log.roll(0)):
        with pytest.raises(StorageFailure, match="the log has failed"):
            call()
    assert len(contents(log)) == 10


def test_c6_failed_write_changes_nothing() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 4)
    append(log, b"p", producer_id=1, transactional=True)
    before = (contents(log), list(log.epochs), log.segments.active.latest)
    disk.fails = lambda what, path: what in ("write", "create")
    for attempt in range(3):
        with pytest.raises(StorageFailure):
            append(log, bytes(200 * attempt), producer_id=1, sequence=1, transactional=True)
        with pytest.raises(StorageFailure):
            end(log, 1, commit=True)
        follow = made([b"x"], base_offset=log.log_end_offset, leader_epoch=9)
        with pytest.raises(StorageFailure):
            log.append_replicated(follow, fetched_offset=log.log_end_offset, now_ms=0)
    assert (contents(log), list(log.epochs), log.segments.active.latest) == before
    assert log.last_stable_offset(log.log_end_offset) == 4
    disk.fails = lambda what, path: False
    assert append(log, b"q", producer_id=1, sequence=1, transactional=True).base_offset == 5


def test_c6_full_disk_is_a_storage_failure() -> None:
    disk = SimulatedDisk(capacity_bytes=2000)
    log = new_log(disk)
    with pytest.raises(StorageFailure, match="no space"):
        fill(log, 100)
    assert [offset for offset, _ in contents(log)] == list(range(log.log_end_offset))


@each_case(
    ("messages", "ms", "due"), [(0, 10**9, False), (1, 0, False), (5, 0, True), (1, 70, True)]
)
def test_flushes_are_due_by_count_and_by_time(messages: int, ms: int, due: bool) -> None:
    rules = LogConfig(flush_messages=5, flush_ms=70)
    assert flush_due(rules, unflushed_messages=messages, since_flush_ms=ms) is due


def test_group_commit_shares_a_flush(tmp_path: Path) -> None:
    disk = OsDisk()
    flushes = 0

    async def scenario() -> None:
        nonlocal flushes
        log = opened(disk, folder=str(tmp_path / "t-0")).log
        log.begin_epoch(LeaderEpoch(0))
        flush_all = log.flush

        class Counted:
            @property
            def recovery_point(self) -> Offset:
                return log.recovery_point

            @property
            def config(self) -> LogConfig:
                return log.config

            async def flush(self) -> None:
                nonlocal flushes
                flushes += 1
                await flush_all()

        commit = GroupCommit(Counted())

        async def produce() -> None:
            offset = append(log, b"x").last_offset
            await commit.durable(offset + 1)
            assert log.recovery_point > offset

        await asyncio.gather(*(produce() for _ in range(50)))
        assert log.recovery_point == 50
        await commit.durable(50)

    asyncio.run(scenario())
    disk.close()
    assert flushes <= 2


@pytest.mark.parametrize(("messages", "waits"), [(1, [0, 1, 2, 3]), (2, [1, 3]), (2**63 - 1, [])])
def test_c5_flush_messages_delays_the_acknowledgement(messages: int, waits: list[int]) -> None:
    log = new_log(rules=replace(SMALL, flush_messages=messages))
    commit = GroupCommit(log)
    waited: list[int] = []
    for offset in range(4):
        append(log, b"x")
        if commit.wanted(log.log_end_offset):
            waited.append(offset)
            finish(commit.durable(log.log_end_offset))
            assert log.recovery_point == log.log_end_offset
    assert waited == waits


# Deleting.


def test_retention_renames_files_and_removes_them_later() -> None:
    log = new_log(rules=LogConfig(segment_bytes=1000, retention_ms=10, file_delete_delay_ms=500))
    fill(log, 30)
    finish(log.flush())
    assert finish(log.delete_old_segments(high_watermark=30, now_ms=25)) == 2
    assert log.log_start_offset == bases(log)[0] > 0
    deleted = [name for name in names(log) if name.endswith(".deleted")]
    assert len(deleted) == 2 * 3 + 1  # the first segment has no snapshot
    finish(log.purge(524))
    assert [name for name in names(log) if name.endswith(".deleted")] == deleted
    finish(log.purge(525))
    assert not [name for name in names(log) if name.endswith(".deleted")]
    assert [offset for offset, _ in contents(log)] == list(range(log.log_start_offset, 30))


def test_expired_active_segment_is_rolled_and_deleted() -> None:
    log = new_log(rules=LogConfig(retention_ms=10))
    fill(log, 5)
    assert finish(log.delete_old_segments(high_watermark=4, now_ms=1000)) == 0
    assert finish(log.delete_old_segments(high_watermark=5, now_ms=1000)) == 1
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (5, 5, [5])
    assert finish(log.delete_old_segments(high_watermark=5, now_ms=10**6)) == 0
    fill(log, 2)
    assert [offset for offset, _ in contents(log)] == [5, 6]
