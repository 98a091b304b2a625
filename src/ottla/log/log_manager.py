"""The log manager: all logs of a broker, in its data directories.

Invariant: a partition is in one data directory. A directory that fails goes offline as a whole: its
logs reject changes and stay readable; the other directories continue. A full directory rejects what
needs space, and recovers when there is space; a lack of file descriptors is handled alike. A
lowered recovery point is stored in the checkpoint before the call returns. The entries of deleted
partitions leave a checkpoint with its next write. No partition is created while a checkpoint has an
entry of an earlier one with its name.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Self, TypeVar

from ottla.clock import Clock
from ottla.errors import (
    DescriptorsExhausted,
    DiskFull,
    ErrorCode,
    OttlaError,
    RequestError,
    StorageExhausted,
    StorageFailure,
)
from ottla.ids import BrokerEpoch, BrokerId, Offset, TopicPartition, Uuid
from ottla.log.checkpoints import format_partition_metadata
from ottla.log.deleted_dirs import DeletedDirectories
from ottla.log.directory import DataDirectory, DirectoryRefused
from ottla.log.disk import Disk, write_atomically
from ottla.log.loading import CHECKPOINTS, HostedLog, Loaded, load, make, reporter
from ottla.log.log_config import LogConfig
from ottla.log.names import PARTITION_METADATA, DirectoryState, marked_directory
from ottla.log.shield import uninterrupted

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

DELETES_PER_ROUND: Final = 50  # logs per rename of directories
CLOSE_PARALLEL: Final = 8  # logs that are flushed in parallel at shutdown
STRAY_DELAY_MS: Final = 3_600_000  # an hour for the operator to rescue a stray partition
TRUNCATE_PARALLEL: Final = 8  # logs that are truncated in parallel

Offline = Callable[[DataDirectory, Sequence[TopicPartition]], None]
"""Called with a directory that failed and the partitions in it."""

Full = Callable[[DataDirectory], None]
"""Called with a directory each time that it has no space for something."""


CurrentId = Callable[[str], Awaitable[Uuid | None]]
"""Returns the id of a topic by name; None if there is no such topic."""


async def _unknown_id(topic: str) -> Uuid | None:
    return None


class Cut(NamedTuple):
    """Where one log is truncated; `fully` deletes every record and starts the log there."""

    partition: TopicPartition
    offset: Offset
    fully: bool = False


class LogManager:
    """The logs of a broker by partition."""

    def __init__(
        self,
        disk: Disk,
        *,
        clock: Clock,
        random: Callable[[], float],
        new_id: Callable[[], Uuid],
        offline: Offline = lambda directory, partitions: None,
        full: Full = lambda directory: None,
        current_id: CurrentId | None = None,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.directories: list[DataDirectory] = []
        self.missing: dict[str, StorageFailure] = {}  # unusable directories and the reasons
        self._random = random
        self._new_id = new_id
        self._offline = offline
        self._full = full
        self._current_id = current_id or _unknown_id
        self._hosted: dict[TopicPartition, HostedLog] = {}
        self._by_topic: dict[str, dict[TopicPartition, HostedLog]] = {}  # the same logs
        # The number of partitions by directory path, including those that are being created.
        self._counts: Counter[str] = Counter()
        self._deleted = DeletedDirectories(disk, clock, new_id)

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
        full: Full = lambda directory: None,
        current_id: CurrentId | None = None,
    ) -> Self:
        """Lock the data directories and open every log in them, `parallel` at a time in each.

        An unusable directory is skipped if there is another one. DirectoryRefused if one directory
        belongs to another process or broker; then none is used.
        """
        logs = cls(
            disk,
            clock=clock,
            random=random,
            new_id=new_id,
            offline=offline,
            full=full,
            current_id=current_id,
        )
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
                    await logs._take(directory, loaded)
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
            self._skip(path, failure)
            return
        self.directories.append(directory)
        if (repair := directory.meta_repair) is not None:
            about = {"directory": path, "cluster": cluster_id, "node": node_id}
            remedy = "check that the directory belongs to this broker; if not, stop the broker"
            _LOG.warning("meta.properties rewritten", about | repair._asdict() | {"remedy": remedy})

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
            self._skip(directory.path, directory.failure)
            return None
        # A new directory was not shut down, cleanly or not.
        is_new = directory.is_new and not loaded.logs
        _LOG.info(
            "data directory opened",
            {
                "directory": directory.path,
                "partitions": len(loaded.logs),
                "seconds": round(self.clock.elapsed_s() - started, 3),
                **({"new": True} if is_new else {"clean": directory.stopped_cleanly}),
            },
        )
        return loaded

    async def _take(self, directory: DataDirectory, loaded: Loaded) -> None:
        for note in loaded.notes:
            _LOG.warning("log recovered", {"directory": directory.path, "note": note})
        self._deleted.found(loaded.deleted)
        self._deleted.found_strays(loaded.strays)
        for hosted in loaded.logs:
            other = self._hosted.get(hosted.partition)
            if other is not None:
                if await self._is_kept(other, hosted):
                    await self._set_aside(hosted)
                    continue
                await self._set_aside(other)
                self._counts[other.directory.path] -= 1
            self._add(hosted)
            self._counts[hosted.directory.path] += 1

    async def _is_kept(self, first: HostedLog, second: HostedLog) -> bool:
        """Choose one of two logs of a partition, in two directories: whether the first is kept.

        A directory had failed. If the topic ids differ, the topic was deleted meanwhile and
        perhaps created again. If not, the directory failed while the log was created in it.
        """
        if first.topic_id != second.topic_id and None not in (first.topic_id, second.topic_id):
            return second.topic_id != await self._current_id(first.partition.topic)
        if first.log.log_end_offset and second.log.log_end_offset:
            raise DirectoryRefused(
                f"{first.partition} is in {first.directory.path} and in "
                f"{second.directory.path}: move one of the two directories away"
            )
        return not second.log.log_end_offset

    async def _set_aside(self, hosted: HostedLog) -> None:
        """Rename a log whose partition has another one; `expire_strays` says when it is removed."""
        hosted.log.close_files()
        about = {
            "partition": str(hosted.partition),
            "directory": hosted.directory.path,
            "records_end": hosted.log.log_end_offset,
        }
        _LOG.warning("second log of a partition set aside", about)
        await self._deleted.rename(hosted.directory, [hosted], DirectoryState.STRAY)

    def _skip(self, path: str, failure: StorageFailure) -> None:
        _LOG.error("data directory skipped", {"directory": path, "reason": str(failure)})
        self.missing[path] = failure

    # Lookups.

    def __getitem__(self, partition: TopicPartition) -> HostedLog:
        return self._hosted[partition]

    def get(self, partition: TopicPartition) -> HostedLog | None:
        """The log of a partition, if this broker has it."""
        return self._hosted.get(partition)

    def __iter__(self) -> Iterator[HostedLog]:
        return iter(list(self._hosted.values()))

    def __len__(self) -> int:
        return len(self._hosted)

    def of_topic(self, name: str) -> list[HostedLog]:
        """The logs of a topic's partitions."""
        return [*self._by_topic.get(name, {}).values()]

    def _inside(self, directory: DataDirectory) -> list[HostedLog]:
        return [hosted for hosted in self._hosted.values() if hosted.directory is directory]

    @property
    def online(self) -> list[DataDirectory]:
        """The data directories that have not failed."""
        return [directory for directory in self.directories if directory.failure is None]

    @property
    def last_clean_epoch(self) -> BrokerEpoch:
        """The broker epoch in which every directory was shut down cleanly; -1 if there is none."""
        epochs = [one.clean_epoch for one in self.directories]
        known = [one for one in epochs if one is not None]
        return BrokerEpoch(-1) if self.missing or len(known) < len(epochs) else min(known)

    # Creation and deletion.

    @uninterrupted
    async def create(
        self,
        partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        *,
        avoid: Collection[str] = (),
    ) -> HostedLog:
        """Create the log of a new partition in the data directory with the fewest partitions.

        Directories in `avoid` are used only if there are no others.
        """
        assert partition not in self._hosted
        directory = self._emptiest(avoid)
        aside = marked_directory(partition, DirectoryState.STRAY, self._new_id().hex())
        now_ms = self.clock.now_ms()
        self._counts[directory.path] += 1
        try:
            for name in directory.checkpoints_with(partition):  # left by a crash
                await self.store(name, directory)
            directory.check_online()
            hosted = await self.disk.blocking(
                lambda: make(directory, partition, topic_id, config, aside, now_ms, self._random)
            )
            if directory.failure is not None:  # this log was not failed with the others
                hosted.log.close_files()
            directory.check_online()
        except BaseException as failure:
            self._counts[directory.path] -= 1
            if isinstance(failure, StorageFailure):
                self.fail(directory, failure)
            raise
        self._add(hosted)
        return hosted

    def _add(self, hosted: HostedLog) -> None:
        key = hosted.partition
        self._hosted[key] = hosted
        self._by_topic.setdefault(key.topic, {})[key] = hosted

    def _remove(self, key: TopicPartition) -> HostedLog:
        of_topic = self._by_topic[key.topic]
        del of_topic[key]
        if not of_topic:
            del self._by_topic[key.topic]
        return self._hosted.pop(key)

    def _emptiest(self, avoid: Collection[str]) -> DataDirectory:
        online = self.online
        if not online:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "all data directories are offline")
        usable = [one for one in online if one.path not in avoid] or online
        return min(usable, key=lambda one: self._counts[one.path])

    @uninterrupted
    async def delete(
        self, partitions: Collection[TopicPartition], state: DirectoryState = DirectoryState.DELETED
    ) -> None:
        """Delete partitions; their files are removed after file.delete.delay.ms.

        Stray partitions are kept: see `expire_strays`.
        """
        gone = [self._remove(partition) for partition in partitions]
        self._counts.subtract(one.directory.path for one in gone)
        failures: list[StorageFailure] = []
        left = drained(gone)
        while some := [*islice(left, DELETES_PER_ROUND)]:
            for hosted in some:
                await hosted.log.retire("the partition was deleted")
            for directory in _directories(some):
                try:
                    await self._rename(directory, some, state)
                except StorageFailure as failure:
                    failures.append(failure)  # continue with the other directories
        for failure in failures:
            raise failure

    async def _rename(
        self, directory: DataDirectory, gone: Sequence[HostedLog], state: DirectoryState
    ) -> None:
        inside = [one for one in gone if one.directory is directory]
        if directory.failure is None:
            rename = self._deleted.rename
            await self.guarded(directory, lambda: rename(directory, inside, state))

    def expire_strays(self) -> None:
        """Remove the directories of stray partitions after a delay.

        The caller knows from the controller which partitions this broker has.
        """
        self._deleted.expire_strays(STRAY_DELAY_MS)

    @uninterrupted
    async def identify(self, hosted: HostedLog, topic_id: Uuid) -> None:
        """Store the topic id of a log that has none; stored when this returns."""
        path = f"{hosted.log.directory}/{PARTITION_METADATA}"
        data = format_partition_metadata(topic_id).encode()

        async def work() -> None:
            await self.disk.blocking(lambda: write_atomically(self.disk, path, data))

        await self.guarded(hosted.directory, work)
        hosted.topic_id = topic_id

    # Truncation, which may lower a recovery point.

    async def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Truncate a log to an offset; stored when this returns."""
        for failure in (await self.truncate_all([Cut(partition, Offset(offset))])).values():
            raise failure

    @uninterrupted
    async def truncate_all(self, cuts: Sequence[Cut]) -> dict[TopicPartition, OttlaError]:
        """Truncate many logs; stored when this returns, with one round of checkpoints.

        Returns the logs that could not be truncated, and the reasons. Requests that wait for a
        flush of these logs fail first (NOT_LEADER_OR_FOLLOWER): their records may go.
        """
        failures: dict[TopicPartition, OttlaError] = {}
        places = asyncio.Semaphore(TRUNCATE_PARALLEL)
        for cut in cuts:
            if (hosted := self._hosted.get(cut.partition)) is not None:
                hosted.commit.fail(
                    RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log was truncated")
                )

        async def truncate_one(cut: Cut) -> HostedLog | None:
            async with places:
                hosted = self._hosted.get(cut.partition)
                if hosted is None:
                    return None  # deleted meanwhile
                log = hosted.log
                truncate = log.truncate_fully_and_start_at if cut.fully else log.truncate_to
                try:
                    await self.guarded(hosted.directory, lambda: truncate(cut.offset))
                except (StorageFailure, RequestError) as failure:
                    failures[cut.partition] = failure
                return hosted

        done = await asyncio.gather(*map(truncate_one, cuts))
        touched = [hosted for hosted in done if hosted is not None]
        for hosted in touched:
            end_offset = hosted.log.log_end_offset
            if hosted.first_dirty_offset is not None:
                hosted.first_dirty_offset = min(hosted.first_dirty_offset, end_offset)
            hosted.high_watermark = min(hosted.high_watermark, end_offset)
        for directory in _directories(touched):
            try:
                await self.store_checkpoints(directory)
            except StorageFailure as failure:
                for hosted in touched:
                    if hosted.directory is directory:
                        failures.setdefault(hosted.partition, failure)
        return failures

    # Checkpoints.

    async def store_checkpoints(self, directory: DataDirectory) -> None:
        """Write all checkpoints of a data directory to the device."""
        for name in CHECKPOINTS:
            await self.store(name, directory)

    async def store(self, name: str, directory: DataDirectory) -> None:
        """Write one checkpoint of a data directory to the device."""
        offset_of = CHECKPOINTS[name]

        def offsets() -> dict[TopicPartition, Offset]:
            inside = ((one.partition, offset_of(one)) for one in self._inside(directory))
            return {partition: offset for partition, offset in inside if offset is not None}

        if directory.failure is None:
            await self.guarded(directory, lambda: directory.store_offsets(name, offsets))

    # Failures.

    def fail(self, directory: DataDirectory, failure: StorageFailure) -> None:
        """Take a data directory offline after a StorageFailure of one of its logs.

        A lack of disk space or descriptors leaves it online: nothing was changed, and it may end.
        """
        if directory.failure is not None:
            return
        if isinstance(failure, StorageExhausted):
            if type(directory.shortage) is not type(failure):
                about = {"directory": directory.path, "reason": str(failure)}
                if isinstance(failure, DescriptorsExhausted):
                    _LOG.error("file descriptors exhausted", about)
                else:
                    _LOG.error("data directory filled up", about)
            directory.shortage = failure
            if isinstance(failure, DiskFull):
                self._full(directory)
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
        """Run work on a data directory, which goes offline if the work fails."""
        try:
            await work()
        except StorageFailure as failure:
            self.fail(directory, failure)
            raise
        except FileNotFoundError as missing:  # the directory was removed
            failure = StorageFailure(f"{directory.path}: {missing}")
            self.fail(directory, failure)
            raise failure from missing

    # Shutdown.

    async def purge(self) -> None:
        """Remove the directories of deleted partitions whose delay is over."""
        await self._deleted.purge()

    async def close(self, broker_epoch: BrokerEpoch) -> dict[str, BaseException]:
        """Shut down cleanly: flush and mark every online directory.

        The next start trusts marked directories. Returns the directories without the mark, and the
        reasons.
        """
        unclean: dict[str, BaseException] = {}
        places = asyncio.Semaphore(CLOSE_PARALLEL)

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
        """Release the locks of the data directories; nothing is stored."""
        for directory in self.directories:
            directory.release()


def drained(items: list[T]) -> Iterator[T]:
    """Take the items out of a list, in order.

    Freeing a thousand logs closes a thousand files: the caller frees them one after the other.
    """
    items.reverse()
    while items:
        yield items.pop()


def _directories(logs: Iterable[HostedLog]) -> Iterable[DataDirectory]:
    """The distinct data directories of logs."""
    return {id(one.directory): one.directory for one in logs}.values()
