"""All logs of a broker: placement, restarts, failed directories."""

import asyncio
import gc
import logging
import shutil
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from log.log_managers import EPOCH, TOPIC_ID, append, created, lead, opened, partition, values
from log.logs import SMALL
from ottla.clock import SystemClock
from ottla.errors import DescriptorsExhausted, DiskFull, ErrorCode, RequestError, StorageFailure
from ottla.ids import BrokerEpoch, Offset, TopicPartition, Uuid
from ottla.log import loading, log_manager
from ottla.log.checkpoints import format_clean_shutdown
from ottla.log.directory import DirectoryRefused
from ottla.log.disk import read_whole, write_atomically
from ottla.log.files import OsDisk
from ottla.log.loading import HostedLog, Loading
from ottla.log.log_manager import STRAY_DELAY_MS, Cut, LogManager
from ottla.log.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    DirectoryState,
)
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import Crashed, Loss, SimulatedDisk

TWO = ("/one", "/two")

Contents = dict[TopicPartition, list[bytes | None]]
T = TypeVar("T")


def test_new_partitions_go_to_the_directory_with_the_fewest() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, TWO)
        places = [(await created(logs, number)).directory.path for number in range(4)]
        assert places == ["/one", "/two", "/one", "/two"]
        await logs.delete([partition(1), partition(3)])
        assert (await created(logs, 4)).directory.path == "/two"
        avoiding = await logs.create(partition(5), TOPIC_ID, SMALL, avoid=["/two"])
        assert avoiding.directory.path == "/one"
        assert len(logs) == 4

    simulated(program)


def test_c2_logs_reopen_unchanged_after_a_clean_shutdown() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, TWO)
        for number in range(5):
            hosted = await created(logs, number)
            for turn in range(number * 3):
                append(hosted, b"%d %d" % (number, turn), bytes(100))
            hosted.high_watermark = Offset(number)
        logs[partition(4)].log.advance_log_start(Offset(3))
        before = {hosted.partition: await values(hosted) for hosted in logs}
        assert not disk.exists(f"/one/{CLEAN_SHUTDOWN}")
        await logs.close(EPOCH)
        again = await opened(disk.after_crash(Loss.ALL, Random(0)), clock, TWO)
        assert all(one.stopped_cleanly and one.clean_epoch == EPOCH for one in again.directories)
        assert again.last_clean_epoch == EPOCH
        assert {hosted.partition: await values(hosted) for hosted in again} == before
        assert [hosted.topic_id for hosted in again] == [TOPIC_ID] * 5
        assert {one.partition.partition: one.high_watermark for one in again} == {
            number: number for number in range(5)
        }
        assert again[partition(4)].log.log_start_offset == 3
        assert all(one.log.recovery_point == one.log.log_end_offset for one in again)

    simulated(program)


def test_c2_crash_during_a_start_loses_nothing() -> None:
    """Nor is a start trusted that follows an incomplete one."""

    async def stopped(clock: SimulatedClock) -> tuple[SimulatedDisk, Contents]:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        for number in range(3):
            append(await created(logs, number), b"%d" % number, bytes(900), b"x")
            append(logs[partition(number)], b"more")
        before = {hosted.partition: await values(hosted) for hosted in logs}
        await logs.close(EPOCH)
        return disk, before

    async def program(clock: SimulatedClock) -> None:
        more = 0
        ended = False
        while not ended:
            disk, before = await stopped(clock)
            disk.crash_at = len(disk.calls) + more
            try:
                logs = await opened(disk, clock)
                await lead(logs, 1)
                append(logs[partition(0)], b"not flushed")
                ended = True
            except Crashed:
                pass
            for loss in Loss:
                found = disk.after_crash(loss, Random(more))
                again = await opened(found, clock)
                after = {hosted.partition: await values(hosted) for hosted in again}
                if ended:
                    after[partition(0)] = after[partition(0)][:4]
                assert after == before
                # The clean shutdown file was removed before the first log was touched.
                touched = any("t-" in path for _, path in disk.calls[disk.crash_at :])
                assert not (touched and again.directories[0].stopped_cleanly)
            more += 1
        assert more >= 4

    simulated(program)


def test_b1_last_clean_epoch_needs_every_directory() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, TWO)
        assert logs.last_clean_epoch == -1
        await logs.close(EPOCH)
        disk.remove(f"/two/{CLEAN_SHUTDOWN}")
        logs = await opened(disk, clock, TWO)
        assert logs.last_clean_epoch == -1
        await logs.close(EPOCH)
        older = format_clean_shutdown(BrokerEpoch(EPOCH - 1))
        write_atomically(disk, f"/two/{CLEAN_SHUTDOWN}", older.encode())
        assert (await opened(disk, clock, TWO)).last_clean_epoch == EPOCH - 1

    simulated(program)


def test_c2_unflushed_directory_is_not_marked_clean() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, TWO)
        for number in range(2):
            append(await created(logs, number), b"x")
        disk.fails = lambda what, path: what == "sync" and path.startswith("/one/t-0")
        await logs.close(EPOCH)
        assert not disk.exists(f"/one/{CLEAN_SHUTDOWN}")
        assert disk.exists(f"/two/{CLEAN_SHUTDOWN}")

    simulated(program)


def test_c1_recovery_points_follow_flushes_and_truncations() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for _ in range(5):
            append(hosted, b"x")
        await hosted.log.flush()
        await logs.store_checkpoints(hosted.directory)
        assert b"t 0 5" in read_whole(disk, f"/data/{RECOVERY_POINTS}")
        await logs.truncate(partition(0), 3)
        assert b"t 0 3" in read_whole(disk, f"/data/{RECOVERY_POINTS}")
        assert not await logs.truncate_all([Cut(partition(0), Offset(20), fully=True)])
        assert b"t 0 20" in read_whole(disk, f"/data/{RECOVERY_POINTS}")
        assert b"t 0 0" in read_whole(disk, f"/data/{HIGH_WATERMARKS}")
        assert read_whole(disk, f"/data/{LOG_START_OFFSETS}") == b"0\n0\n"

    simulated(program)


def test_many_logs_are_truncated_with_one_round_of_checkpoints() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, TWO)
        for number in range(40):
            hosted = await created(logs, number)
            for _ in range(4):
                append(hosted, b"x")
            hosted.high_watermark = Offset(4)
            await hosted.log.flush()
        disk.calls.clear()
        cuts = [Cut(partition(number), Offset(2)) for number in range(39)]
        cuts.append(Cut(partition(39), Offset(7), fully=True))
        cuts.append(Cut(partition(99), Offset(7)))  # deleted meanwhile
        assert await logs.truncate_all(cuts) == {}
        ends = [(one.log.log_end_offset, one.high_watermark) for one in logs]
        assert ends == [(2, 2)] * 39 + [(7, 4)]
        renames = [path for what, path in disk.calls if what == "rename"]
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS):
            stored = [path for path in renames if name in path]
            assert sorted(path.split("/")[1] for path in stored) == ["one", "two"]
        assert b"t 0 2" in read_whole(disk, f"/one/{RECOVERY_POINTS}")

    simulated(program)


def test_failed_truncation_does_not_stop_the_others() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, TWO)
        for number in range(4):
            append(await created(logs, number), b"x")
        disk.fails = lambda what, path: path.startswith("/one/t-2")
        failures = await logs.truncate_all([Cut(partition(n), Offset(0)) for n in range(4)])
        assert [type(one) for one in failures.values()] == [StorageFailure] * len(failures)
        assert partition(2) in failures
        assert not {partition(1), partition(3)} & set(failures)
        assert [logs[partition(n)].log.log_end_offset for n in (1, 3)] == [0, 0]

    simulated(program)


def test_recreated_partition_starts_without_old_offsets() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for _ in range(5):
            append(hosted, b"old")
        await hosted.log.flush()
        hosted.high_watermark = Offset(5)
        await logs.store_checkpoints(hosted.directory)
        await logs.delete([partition(0)])
        with pytest.raises(RequestError) as refused:
            append(hosted, b"too late")
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await values(hosted) == [b"old"] * 5  # a reader of the old log can still read
        append(await created(logs, 0), b"new")
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            assert read_whole(disk, f"/data/{name}") == b"0\n0\n"
        again = await opened(disk.after_crash(Loss.ALL, Random(1)), clock)
        found = again[partition(0)]
        assert (found.log.recovery_point, found.high_watermark) == (0, 0)

    simulated(program)


def test_deleted_directories_are_removed_after_the_delay() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        for number in range(3):
            append(await created(logs, number), b"x")

        def folders() -> list[str]:
            return [name for name in disk.names("/data") if name.startswith("t-")]

        await logs.delete([partition(0)])
        await logs.delete([partition(2)], DirectoryState.STRAY)
        assert [name.rpartition("-")[2] for name in folders()] == ["delete", "1", "stray"]
        await logs.purge()
        assert len(folders()) == 3
        await clock.sleep(SMALL.file_delete_delay_ms / 1000)
        await logs.purge()
        assert [name.rpartition("-")[2] for name in folders()] == ["1", "stray"]
        await logs.delete([partition(1)])
        await logs.close(EPOCH)
        again = await opened(disk, clock)
        assert len(again) == 0
        await again.purge()
        assert [name.rpartition("-")[2] for name in folders()] == ["stray"]

    simulated(program)


def test_deleted_logs_are_freed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """To free a log closes its files: those of a wide topic would delay other requests."""
    monkeypatch.setattr(log_manager, "DELETES_PER_ROUND", 4)

    def open_logs() -> int:
        return sum(isinstance(one, HostedLog) for one in gc.get_objects())

    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock)
        for number in range(20):
            await created(logs, number)
        gc.collect()
        gc.disable()
        try:
            before = open_logs()
            work, freed = asyncio.create_task(logs.delete([*map(partition, range(20))])), [0]
            while not work.done():
                await asyncio.sleep(0)
                freed.append(before - open_logs())
            assert freed[-1] == 20
            assert max(after - before for before, after in pairwise(freed)) <= 2 * 4
        finally:
            gc.enable()

    simulated(program)


def test_b12_strays_are_removed_after_a_delay_once_they_are_known() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        for number in range(2):
            append(await created(logs, number), b"x")

        def strays() -> int:
            return sum(name.endswith("-stray") for name in disk.names("/data"))

        await logs.delete([partition(0)], DirectoryState.STRAY)
        await logs.close(EPOCH)
        logs = await opened(disk, clock)
        await logs.delete([partition(1)], DirectoryState.STRAY)
        await clock.sleep(2 * STRAY_DELAY_MS / 1000)
        await logs.purge()
        assert strays() == 2, "the replicas of the broker are not known"
        logs.expire_strays()
        await logs.purge()
        assert strays() == 2
        await clock.sleep(STRAY_DELAY_MS / 1000)
        await logs.purge()
        assert strays() == 0

    simulated(program)


def test_c5_failed_sync_takes_only_its_directory_offline() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        told: list[tuple[str, list[object]]] = []
        logs = await opened(
            disk, clock, TWO, offline=lambda d, gone: told.append((d.path, list(gone)))
        )
        for number in range(4):
            append(await created(logs, number), b"x")
        disk.fails = lambda what, path: what == "sync" and path.startswith("/one/")
        with pytest.raises(StorageFailure):
            await logs.guarded(logs[partition(0)].directory, logs[partition(0)].log.flush)
        disk.fails = lambda what, path: False
        assert told == [("/one", [partition(0), partition(2)])]
        calls = len(disk.calls)
        for number in (0, 2):
            with pytest.raises(StorageFailure):
                append(logs[partition(number)], b"more")
            with pytest.raises(StorageFailure):
                await logs[partition(number)].log.flush()
            assert await values(logs[partition(number)]) == [b"x"]
        await logs.store_checkpoints(logs.directories[0])
        assert not any(path.startswith("/one") for _, path in disk.calls[calls:])
        append(logs[partition(1)], b"more")
        assert (await created(logs, 9)).directory.path == "/two"
        await logs.close(EPOCH)
        assert not disk.exists(f"/one/{CLEAN_SHUTDOWN}")
        assert disk.exists(f"/two/{CLEAN_SHUTDOWN}")

    simulated(program)


def test_deletion_continues_after_a_failed_directory() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, TWO)
        for number in range(2):
            append(await created(logs, number), b"old")
        disk.fails = lambda what, path: what == "rename" and path.startswith("/one/t-0")
        with pytest.raises(StorageFailure):
            await logs.delete([partition(0), partition(1)])
        assert [one.path for one in logs.online] == ["/two"]
        assert await values(await created(logs, 1)) == []

    simulated(program)


def test_new_partition_ignores_an_existing_directory() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        disk.make_directory("/data/t-0")
        write_atomically(disk, "/data/t-0/00000000000000000005.log", b"old")
        assert (await created(logs, 0)).log.log_end_offset == 0
        aside = [name for name in disk.names("/data") if name.endswith("-stray")]
        assert len(aside) == 1

    simulated(program)


def test_file_with_the_name_of_a_partition_is_kept() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        disk.make_directory("/data")
        write_atomically(disk, "/data/notes-1", b"mine")
        logs = await opened(disk, clock)
        assert (len(logs), logs.missing) == (0, {})

    simulated(program)


def test_no_partition_is_created_when_all_directories_fail() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock)
        logs.fail(logs.directories[0], StorageFailure("it burns"))
        with pytest.raises(RequestError) as refused:
            await created(logs, 0)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    simulated(program)


class BlockingDisk(SimulatedDisk):
    """Holds the result of each blocking call until it is released."""

    waits: asyncio.Event | None = None

    async def blocking(self, call: Callable[[], T]) -> T:
        outcome = call()
        if self.waits is not None:
            await self.waits.wait()
        return outcome


@pytest.mark.parametrize("remembered", [False, True])
def test_creation_fails_if_the_directory_fails_meanwhile(remembered: bool) -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = BlockingDisk()
        logs = await opened(disk, clock, TWO)
        for number in range(2):
            await created(logs, number)
        directory = logs[partition(0)].directory
        if remembered:  # in a checkpoint, which is replaced before the new log is created
            await created(logs, 2)
            await logs.store(RECOVERY_POINTS, directory)
            await logs.delete([partition(2)])
        assert directory.checkpoints_with(partition(2)) == [RECOVERY_POINTS] * remembered
        disk.waits = asyncio.Event()
        making = asyncio.create_task(created(logs, 2))
        await clock.sleep(1)
        calls = len(disk.calls)
        logs.fail(directory, StorageFailure("a sync failed"))
        disk.waits.set()
        with pytest.raises(StorageFailure, match="/one is offline: a sync failed"):
            await making
        assert logs.get(partition(2)) is None
        assert len(disk.calls) == calls  # the failed directory is not used again
        disk.waits = None
        assert (await created(logs, 2)).directory.path == "/two"
        assert (await created(logs, 3)).directory.path == "/two"

    simulated(program)


def test_removed_directory_goes_offline_with_a_clear_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def program() -> None:
        disk = OsDisk()
        one, two = tmp_path / "one", tmp_path / "two"
        logs = await opened(disk, SystemClock(), [str(one), str(two)])
        for number in range(2):
            append(await created(logs, number), b"x")
        shutil.move(one, tmp_path / "moved")
        with pytest.raises(StorageFailure, match="No such file"):
            await logs.store_checkpoints(logs.directories[0])
        assert logs.online == [logs.directories[1]]
        assert await values(logs[partition(0)]) == [b"x"]
        append(logs[partition(1)], b"y")
        await logs.close(EPOCH)
        disk.close()

    asyncio.run(program())
    (told,) = [one.args for one in caplog.records if one.msg == "data directory offline"]
    assert isinstance(told, Mapping)
    assert str(told["directory"]).endswith("/one")
    assert told["partitions"] == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "the file is missing"),
        (b"", "the file is empty"),
        (b"\xff\0garbage", "the file has no cluster.id and no node.id"),
        (b"versioo=1\ncluster.id=c\nnode.id=1\n", "the file has no node.id"),
        (b"version=0\nbroker.id=1\n", "the file has no cluster.id"),
    ],
    ids=["missing", "empty", "garbage", "without node.id", "without cluster.id"],
)
def test_rewritten_meta_properties_are_logged(
    caplog: pytest.LogCaptureFixture, content: bytes | None, problem: str
) -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        append(await created(logs, 0), b"x")
        await logs.close(EPOCH)
        if content is None:
            disk.remove("/data/meta.properties")
        else:
            write_atomically(disk, "/data/meta.properties", content)
        again = await opened(disk, clock)
        assert await values(again[partition(0)]) == [b"x"]
        await again.close(EPOCH)
        await (await opened(disk, clock)).close(EPOCH)  # nothing to repair, and no second line

    simulated(program)
    (told,) = [one for one in caplog.records if one.msg == "meta.properties rewritten"]
    assert told.levelname == "WARNING"
    assert told.args == {
        "directory": "/data",
        "cluster": "c",
        "node": 1,
        "problem": problem,
        "partitions": 1,
        "copy": "/data/meta.properties.damaged" if content else "",
        "remedy": "check that the directory belongs to this broker; if not, stop the broker",
    }


def test_lack_of_descriptors_is_not_reported_as_a_full_disk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock)
        (directory,) = logs.directories
        for failure in (
            DescriptorsExhausted("a: open: Too many open files"),
            DescriptorsExhausted("b: open: Too many open files"),
            DiskFull("c: write: No space left on device"),
        ):
            logs.fail(directory, failure)
        assert directory.failure is None
        await logs.close(EPOCH)

    simulated(program)
    assert [(one.msg, one.args) for one in caplog.records if one.levelname == "ERROR"] == [
        (
            "file descriptors exhausted",
            {"directory": "/data", "reason": "a: open: Too many open files"},
        ),
        (
            "data directory filled up",
            {"directory": "/data", "reason": "c: write: No space left on device"},
        ),
    ]


def test_unusable_directory_is_skipped_if_another_works() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, TWO)
        for number in range(2):
            append(await created(logs, number), b"x")
        await logs.close(EPOCH)
        disk.fails = lambda what, path: path.startswith("/one/.kafka")
        again = await opened(disk, clock, TWO)
        assert [hosted.partition for hosted in again] == [partition(1)]
        assert list(again.missing) == ["/one"]
        assert again.last_clean_epoch == -1
        await again.close(EPOCH)
        disk.fails = lambda what, path: True
        with pytest.raises(StorageFailure, match="no data directory can be used"):
            await opened(disk, clock, TWO)

    simulated(program)


def test_partition_in_two_directories_is_rejected() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, ["/one"])
        append(await created(logs, 0), b"x")
        await logs.close(EPOCH)
        logs = await opened(disk, clock, ["/two"])
        append(await created(logs, 0), b"y")
        await logs.close(EPOCH)
        for _ in range(2):
            with pytest.raises(DirectoryRefused, match="t-0 is in /one and in /two"):
                await opened(disk, clock, TWO)

    simulated(program)


@pytest.mark.parametrize("failed", TWO)
def test_log_created_in_two_directories_keeps_its_records(failed: str) -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        (works,) = {*TWO} - {failed}
        logs = await opened(disk, clock, [failed])
        await created(logs, 0)  # as left behind by a directory that failed during the creation
        await logs.close(EPOCH)
        logs = await opened(disk, clock, [works])
        append(await created(logs, 0), b"x")
        await logs.close(EPOCH)
        for _ in range(2):
            again = await opened(disk, clock, TWO)
            (hosted,) = again
            assert hosted.directory.path == works
            assert await values(hosted) == [b"x"]
            assert not disk.exists(f"{failed}/t-0")
            assert any(name.endswith("-stray") for name in disk.names(failed))
            await again.close(EPOCH)

    simulated(program)


@pytest.mark.parametrize("current", [b"deleted meanwhil", b"is a topic again", None])
def test_directory_returns_with_a_log_of_a_deleted_topic(current: bytes | None) -> None:
    deleted, again = Uuid(b"deleted meanwhil"), Uuid(b"is a topic again")
    current_id = None if current is None else Uuid(current)

    async def id_of(topic: str) -> Uuid | None:
        assert topic == "t"
        return current_id

    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, ["/one"])
        append(await created(logs, 0, topic_id=deleted), b"x")
        await logs.close(EPOCH)
        logs = await opened(disk, clock, ["/two"])
        append(await created(logs, 0, topic_id=again), b"y")
        await logs.close(EPOCH)
        for _ in range(2):
            logs = await opened(disk, clock, TWO, current_id=id_of)
            (hosted,) = logs
            kept, aside = ("/two", "/one") if current_id == again else ("/one", "/two")
            assert hosted.topic_id == (again if kept == "/two" else deleted)
            assert await values(hosted) == [b"y" if kept == "/two" else b"x"]
            assert not disk.exists(f"{aside}/t-0")
            assert [name for name in disk.names(aside) if name.endswith("-stray")]
            await logs.close(EPOCH)

    simulated(program)


def test_unknown_files_are_kept() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        for folder in ("/data/lost+found", "/data/t-0.abc-future", "/data/__cluster_metadata-0"):
            disk.make_directory(folder)
            write_atomically(disk, f"{folder}/file", b"x")
        write_atomically(disk, "/data/notes.txt", b"x")
        logs = await opened(disk, clock)
        assert len(logs) == 0
        assert disk.exists("/data/__cluster_metadata-0/file")
        assert disk.exists("/data/t-0.abc-future/file")
        assert disk.exists("/data/lost+found/file")

    simulated(program)


@pytest.mark.parametrize(
    ("clean", "help_bytes", "threads"), [(True, 1, 1), (False, 1, 4), (False, 1 << 20, 1)]
)
def test_threads_help_only_while_records_are_checked(
    monkeypatch: pytest.MonkeyPatch, *, clean: bool, help_bytes: int, threads: int
) -> None:
    monkeypatch.setattr(loading, "LOAD_SECONDS", 0)  # one log per call
    monkeypatch.setattr(loading, "HELP_BYTES", help_bytes)

    class Counting(SimulatedDisk):
        no_pause = most = 0

        async def blocking(self, call: Callable[[], T]) -> T:
            self.no_pause += 1
            self.most = max(self.most, self.no_pause)
            await asyncio.sleep(1)
            self.no_pause -= 1
            return call()

    async def program(clock: SimulatedClock) -> None:
        disk = Counting()
        logs = await opened(disk, clock)
        for number in range(24):
            append(await created(logs, number), b"x")
        if clean:
            await logs.close(EPOCH)
        else:
            logs.release()
        disk.most = 0
        again = await opened(disk, clock, parallel=4)
        assert len(again) == 24
        assert [await values(hosted) for hosted in again] == [[b"x"]] * 24
        assert disk.most == threads

    simulated(program)


def test_progress_has_percent_and_remaining_time() -> None:
    progress = Loading("/data", 4, lambda: 4 * 2**30)
    progress.add_checked(partition(0), 2**29)
    progress.add_checked(partition(0), 2**30)
    assert progress.facts(10.0) == {
        "directory": "/data",
        "opened": 0,
        "partitions": 4,
        "checked_gib": 1.0,
        "to_check_gib": 4.0,
        "percent": 25,
        "seconds_left": 30,
    }
    clean = Loading("/data", 2000, opened=500).facts(1.0)
    assert (clean["percent"], clean["seconds_left"]) == (25, 3)
    assert Loading("/data", 0).facts(0.0)["percent"] == 100


def test_unclean_start_logs_its_progress(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "LOAD_SECONDS", 0)  # one log per call

    class Slow(SimulatedDisk):
        clock: SimulatedClock | None = None

        async def blocking(self, call: Callable[[], T]) -> T:
            if self.clock is not None:
                await self.clock.sleep(6)
            return call()

    async def program(clock: SimulatedClock) -> None:
        disk = Slow()
        logs = await opened(disk, clock)
        for number in range(6):
            append(await created(logs, number), b"x")
        logs.release()
        disk.clock = clock
        with caplog.at_level(logging.INFO):
            await opened(disk, clock)

    simulated(program)
    progress = [one.args for one in caplog.records if one.msg == "data directory loading"]
    facts = [one for one in progress if isinstance(one, Mapping)]
    assert any(one["opened"] == 4 and one["partitions"] == 6 for one in facts)
    assert any("seconds_left" in one for one in facts)
    (told,) = [one.args for one in caplog.records if one.msg == "data directory opened"]
    assert isinstance(told, Mapping)
    assert (told["partitions"], told["clean"]) == (6, False)


def test_new_directory_is_not_logged_as_unclean(caplog: pytest.LogCaptureFixture) -> None:
    async def program(clock: SimulatedClock) -> None:
        with caplog.at_level(logging.INFO):
            await opened(SimulatedDisk(), clock)

    simulated(program)
    (told,) = [one.args for one in caplog.records if one.msg == "data directory opened"]
    assert isinstance(told, Mapping)
    assert told["new"] is True
    assert "clean" not in told


async def history(logs: LogManager, flushed: dict[int, int]) -> None:
    """Change a few partitions, and note how much of each was flushed."""

    async def flush(number: int) -> None:
        hosted = logs[partition(number)]
        end = hosted.log.log_end_offset
        await hosted.log.flush()
        flushed[number] = end

    for number in range(3):
        hosted = await created(logs, number)
        for turn in range(4):
            append(hosted, b"%d-%d" % (number, turn), bytes(150))
        await flush(number)
        append(hosted, b"%d-4" % number, bytes(10))
    await logs.store_checkpoints(logs.directories[0])
    flushed[1] = 4
    await logs.truncate(partition(1), 4)
    await lead(logs, 1)
    append(logs[partition(1)], b"1-new")
    await flush(1)
    flushed.pop(2)
    await logs.delete([partition(2)])
    await logs.purge()
    await created(logs, 2)
    append(logs[partition(2)], b"2-0", bytes(150))
    await flush(2)
    await logs.close(EPOCH)


@pytest.mark.parametrize("loss", list(Loss))
def test_c1_crash_at_any_call_keeps_flushed_records(loss: Loss) -> None:
    async def program(clock: SimulatedClock) -> None:
        crash_at, ended = 0, False
        while not ended:
            disk, flushed = SimulatedDisk(), dict[int, int]()
            disk.crash_at = crash_at
            try:
                await history(await opened(disk, clock), flushed)
                ended = True
            except Crashed:
                pass
            again = await opened(disk.after_crash(loss, Random(crash_at)), clock)
            for number, end in flushed.items():
                hosted = again[partition(number)]
                assert hosted.log.log_end_offset >= end
                found = await values(hosted)
                assert found[0] == b"%d-0" % number
            await lead(again, 5)
            for hosted in again:
                append(hosted, b"after")
            crash_at += 1
        assert crash_at > 100

    simulated(program)
