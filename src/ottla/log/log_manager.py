"""All logs of a broker, over its data directories.

Invariant: a partition is in one directory. A directory that fails goes offline as a whole: its
logs take nothing more, what they hold stays readable, the other directories go on. One that is full
refuses what needs room, and goes on when there is some. Checkpoints follow what changes them before
anything relies on it: a recovery point that was lowered and a partition that was deleted are stored
before the call returns, and no partition is made while they tell of one that had its name.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Self

from ottla.clock import Clock
from ottla.errors import DiskFull, ErrorCode, RequestError, StorageFailure
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition, Uuid
from ottla.log.checkpoints import format_partition_metadata
from ottla.log.deleted_dirs import DeletedDirectories
from ottla.log.directory import DataDirectory, DirectoryRefused
from ottla.log.disk import Disk, write_atomically
from ottla.log.loading import CHECKPOINTS, HostedLog, Loaded, load, make, reporter
from ottla.log.log_config import LogConfig
from ottla.log.names import PARTITION_METADATA, DirectoryState, marked_directory
from ottla.log.shield import uninterrupted

_LOG = logging.getLogger(__name__)

DELETE_AT_ONCE: Final = 50  # logs that are given up before others have their turn
CLOSE_AT_ONCE: Final = 8  # logs that are flushed side by side when the broker stops

Offline = Callable[[DataDirectory, Sequence[TopicPartition]], None]
"""Told that a directory failed, and which partitions were in it."""


class LogManager:
    """The logs of a broker, found by partition."""

    def __init__(
        self,
        disk: Disk,
        *,
        clock: Clock,
        random: Callable[[], float],
        new_id: Callable[[], Uuid],
        offline: Offline = lambda directory, partitions: None,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.directories: list[DataDirectory] = []
        self.missing: dict[str, StorageFailure] = {}  # directories that could not be opened
        self._random = random
        self._new_id = new_id
        self._offline = offline
        self._hosted: dict[TopicPartition, HostedLog] = {}
        # How many partitions each directory has, by its path, with those that are being made.
        self._counts: Counter[str] = Counter()
        self._discarded = DeletedDirectories(disk, clock, new_id)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        paths: Sequence[str],
        config_of: Callable[[str], LogConfig],
        *,
        cluster_id: str,
        node_id: BrokerId,
        clock: Clock,
        random: Callable[[], float],
        new_id: Callable[[], Uuid],
        parallel: int = 2,
        offline: Offline = lambda directory, partitions: None,
    ) -> Self:
        """Take the directories and open every log in them; `parallel` at a time in each.

        A directory that cannot be used is left out as long as there is another one. One that is
        somebody else's is refused, DirectoryRefused, and so are all of them.
        """
        logs = cls(disk, clock=clock, random=random, new_id=new_id, offline=offline)
        try:
            for path in paths:
                await logs._claim(path, cluster_id, node_id)
            claimed = list(logs.directories)
            for directory, loaded in zip(
                claimed,
                await asyncio.gather(*(logs._load(one, config_of, parallel) for one in claimed)),
                strict=True,
            ):
                if loaded is not None:
                    logs._take(directory, loaded)
            if not logs.directories:
                reasons = "; ".join(map(str, logs.missing.values()))
                raise StorageFailure(f"no data directory can be used: {reasons}")
        except BaseException:
            logs.release()
            raise
        return logs

    async def _claim(self, path: str, cluster_id: str, node_id: BrokerId) -> None:
        try:
            directory = await self.disk.blocking(
                lambda: DataDirectory.claim(
                    self.disk, path, cluster_id=cluster_id, node_id=node_id, new_id=self._new_id
                )
            )
        except StorageFailure as failure:
            self._leave_out(path, failure)
            return
        self.directories.append(directory)

    async def _load(
        self, directory: DataDirectory, config_of: Callable[[str], LogConfig], parallel: int
    ) -> Loaded | None:
        started = self.clock.elapsed_s()
        try:
            await self.disk.blocking(directory.begin)
            loaded = await load(
                directory,
                config_of,
                clock=self.clock,
                random=self._random,
                parallel=parallel,
                report=reporter(self.clock),
            )
        except (StorageFailure, FileNotFoundError) as failure:
            directory.failure = StorageFailure(str(failure))
            directory.release()
            self.directories.remove(directory)
            self._leave_out(directory.path, directory.failure)
            return None
        _LOG.info(
            "data directory open",
            {
                "directory": directory.path,
                "partitions": len(loaded.logs),
                "seconds": round(self.clock.elapsed_s() - started, 3),
                "clean": directory.stopped_cleanly,
            },
        )
        return loaded

    def _take(self, directory: DataDirectory, loaded: Loaded) -> None:
        for note in loaded.notes:
            _LOG.warning("found while opening", {"directory": directory.path, "note": note})
        for hosted in loaded.logs:
            other = self._hosted.get(hosted.partition)
            if other is not None:
                raise DirectoryRefused(
                    f"{hosted.partition} is in {other.directory.path} and in {directory.path}: "
                    f"move one of the two folders away"
                )
            self._hosted[hosted.partition] = hosted
            self._counts[hosted.directory.path] += 1
        self._discarded.found(loaded.deleted)

    def _leave_out(self, path: str, failure: StorageFailure) -> None:
        _LOG.error("data directory cannot be used", {"directory": path, "reason": str(failure)})
        self.missing[path] = failure

    # What there is.

    def __getitem__(self, partition: TopicPartition) -> HostedLog:
        return self._hosted[partition]

    def get(self, partition: TopicPartition) -> HostedLog | None:
        """The log of a partition, if this broker has it."""
        return self._hosted.get(partition)

    def __iter__(self) -> Iterator[HostedLog]:
        return iter(list(self._hosted.values()))

    def __len__(self) -> int:
        return len(self._hosted)

    def _inside(self, directory: DataDirectory) -> list[HostedLog]:
        return [hosted for hosted in self._hosted.values() if hosted.directory is directory]

    @property
    def online(self) -> list[DataDirectory]:
        """The directories that work."""
        return [directory for directory in self.directories if directory.failure is None]

    # Partitions that come and go.

    @uninterrupted
    async def create(
        self,
        partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        *,
        epoch: LeaderEpoch | None = None,
        avoid: Collection[str] = (),
    ) -> HostedLog:
        """Make the log of a new partition, in the directory that has the fewest.

        The epoch that its leader begins with is stored with it. Directories whose paths are to be
        avoided take none, unless all of them are.
        """
        assert partition not in self._hosted
        directory = self._fewest(avoid)
        aside = marked_directory(partition, DirectoryState.STRAY, self._new_id().hex())
        now_ms = self.clock.now_ms()
        self._counts[directory.path] += 1
        try:
            for name in directory.telling_of(partition):  # what a crash or a full disk left there
                await self.store(name, directory)
            directory.check_online()
            hosted = await self.disk.blocking(
                lambda: make(
                    directory, partition, topic_id, epoch, config, aside, now_ms, self._random
                )
            )
            if directory.failure is not None:  # its log is not among those that were told
                hosted.log.close_files()
            directory.check_online()
        except BaseException as failure:
            self._counts[directory.path] -= 1
            if isinstance(failure, StorageFailure):
                self.fail(directory, failure)
            raise
        self._hosted[partition] = hosted
        return hosted

    def _fewest(self, avoid: Collection[str]) -> DataDirectory:
        online = self.online
        if not online:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "all data directories are offline")
        usable = [one for one in online if one.path not in avoid] or online
        return min(usable, key=lambda one: self._counts[one.path])

    @uninterrupted
    async def delete(
        self, partitions: Collection[TopicPartition], state: DirectoryState = DirectoryState.DELETED
    ) -> None:
        """Give partitions up; their files are removed after file.delete.delay.ms.

        As stray they are kept until a person removes them.
        """
        gone = [self._hosted.pop(partition) for partition in partitions]
        self._counts.subtract(one.directory.path for one in gone)
        failures: list[StorageFailure] = []
        for start in range(0, len(gone), DELETE_AT_ONCE):
            some = gone[start : start + DELETE_AT_ONCE]
            for hosted in some:
                await hosted.log.retire("the partition was deleted")
            for directory in _directories(some):
                try:
                    await self._rename(directory, some, state)
                except StorageFailure as failure:
                    failures.append(failure)  # the other directories come first
        for directory in _directories(gone):
            await self.store_checkpoints(directory)
        for failure in failures:
            raise failure

    async def _rename(
        self, directory: DataDirectory, gone: Sequence[HostedLog], state: DirectoryState
    ) -> None:
        inside = [one for one in gone if one.directory is directory]
        if directory.failure is None:
            rename = self._discarded.rename
            await self.guarded(directory, lambda: rename(directory, inside, state))

    @uninterrupted
    async def identify(self, hosted: HostedLog, topic_id: Uuid) -> None:
        """Store whose log it is that did not say; stored when this returns."""
        path = f"{hosted.log.directory}/{PARTITION_METADATA}"
        data = format_partition_metadata(topic_id).encode()

        async def work() -> None:
            await self.disk.blocking(lambda: write_atomically(self.disk, path, data))

        await self.guarded(hosted.directory, work)
        hosted.topic_id = topic_id

    # Cutting, which may lower a recovery point.

    @uninterrupted
    async def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Let a log end at an offset; stored when this returns."""
        hosted = self._hosted[partition]
        await self.guarded(hosted.directory, lambda: hosted.log.truncate_to(offset))
        await self._after_cut(hosted)

    @uninterrupted
    async def start_anew(self, partition: TopicPartition, offset: Offset) -> None:
        """Drop all records of a log, which begins at an offset; stored when this returns."""
        hosted = self._hosted[partition]
        await self.guarded(hosted.directory, lambda: hosted.log.truncate_fully_and_start_at(offset))
        await self._after_cut(hosted)

    async def _after_cut(self, hosted: HostedLog) -> None:
        if hosted.first_dirty_offset is not None:
            hosted.first_dirty_offset = min(hosted.first_dirty_offset, hosted.log.log_end_offset)
        hosted.high_watermark = min(hosted.high_watermark, hosted.log.log_end_offset)
        await self.store_checkpoints(hosted.directory)

    # Checkpoints.

    async def store_checkpoints(self, directory: DataDirectory) -> None:
        """Put all checkpoints of a directory on the device."""
        for name in CHECKPOINTS:
            await self.store(name, directory)

    async def store(self, name: str, directory: DataDirectory) -> None:
        """Put one checkpoint of a directory on the device."""
        offset_of = CHECKPOINTS[name]

        def offsets() -> dict[TopicPartition, Offset]:
            inside = ((one.partition, offset_of(one)) for one in self._inside(directory))
            return {partition: offset for partition, offset in inside if offset is not None}

        if directory.failure is None:
            await self.guarded(directory, lambda: directory.store_offsets(name, offsets))

    # Failing.

    def fail(self, directory: DataDirectory, failure: StorageFailure) -> None:
        """Take a directory offline; whoever got a StorageFailure from one of its logs says so.

        One that is full stays: nothing was changed, and what is deleted makes room.
        """
        if directory.failure is not None:
            return
        if isinstance(failure, DiskFull):
            if not directory.is_full:
                about = {"directory": directory.path, "reason": str(failure)}
                _LOG.error("data directory full until there is room", about)
            directory.is_full = True
            return
        directory.failure = failure
        inside = self._inside(directory)
        for hosted in inside:
            hosted.log.fail(failure)
        about = {"directory": directory.path, "partitions": len(inside), "reason": str(failure)}
        _LOG.error("data directory offline", about)
        self._offline(directory, [hosted.partition for hosted in inside])

    @uninterrupted
    async def guarded(self, directory: DataDirectory, work: Callable[[], Awaitable[None]]) -> None:
        """Do something to a directory, which goes offline when that fails."""
        try:
            await work()
        except StorageFailure as failure:
            self.fail(directory, failure)
            raise
        except FileNotFoundError as missing:  # a file that must be there: the directory is gone
            failure = StorageFailure(f"{directory.path}: {missing}")
            self.fail(directory, failure)
            raise failure from missing

    # Leaving.

    async def purge(self) -> None:
        """Remove the folders of deleted partitions whose delay is over."""
        await self._discarded.purge()

    async def close(self, broker_epoch: BrokerEpoch) -> dict[str, BaseException]:
        """Stop cleanly: what is online is flushed and marked, so that the next start trusts it.

        Returns the directories that are not marked, and why.
        """
        unclean: dict[str, BaseException] = {}
        places = asyncio.Semaphore(CLOSE_AT_ONCE)

        async def close_one(hosted: HostedLog) -> None:
            async with places:
                await self.guarded(hosted.directory, hosted.log.close)

        for directory in self.directories:
            failure: BaseException | None = directory.failure
            if failure is None:
                closing = map(close_one, self._inside(directory))
                ended = await asyncio.gather(*closing, return_exceptions=True)
                failure = next((one for one in ended if one is not None), None)
            try:
                if failure is None:
                    await self.store_checkpoints(directory)
                    await self.guarded(
                        directory, lambda one=directory: one.mark_clean(broker_epoch)
                    )
            except StorageFailure as error:
                failure = error
            if failure is not None:
                unclean[directory.path] = failure
        self.release()
        return unclean

    def release(self) -> None:
        """Let other processes have the directories; nothing is stored."""
        for directory in self.directories:
            directory.release()


def _directories(logs: Iterable[HostedLog]) -> Iterable[DataDirectory]:
    """Where logs are."""
    return {id(one.directory): one.directory for one in logs}.values()
