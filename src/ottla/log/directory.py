"""A data directory (log.dirs): its owner, its checkpoints, and the clean shutdown mark.

Invariant: one process at a time holds a directory (rule C9). A checkpoint is the old one or the new
one after a crash (rule C1). The clean shutdown mark is removed before the first log is opened, and
written as the last file of a shutdown (rule C2). A directory that failed is not written to again.
The partitions that checkpoints on the device may have entries for are known at any time. A
meta.properties file that does not name the cluster and the broker is written again and reported.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Final, NamedTuple, Self

from ottla.errors import OttlaError, StorageExhausted, StorageFailure
from ottla.ids import BrokerEpoch, BrokerId, Offset, TopicPartition, Uuid
from ottla.log.checkpoints import (
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_offsets,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_offsets,
)
from ottla.log.disk import Disk, Lock, read_whole, write_atomically
from ottla.log.errors import CorruptText
from ottla.log.names import (
    CLEAN_SHUTDOWN,
    DAMAGED_SUFFIX,
    DIRECTORY_LOCK,
    META_PROPERTIES,
    DirectoryState,
    Kind,
    parse_offset_file,
    parse_partition_directory,
)
from ottla.log.set_aside import copy_aside

PARALLEL_FLUSHES: Final = 6
"""Logs that are flushed for acknowledgements at a time; reads need threads, too."""


class DirectoryRefused(OttlaError):
    """The directory belongs to another process or broker; the operator must decide."""


class MetaRepair(NamedTuple):
    """Why meta.properties was written again, in a directory that is not new."""

    problem: str
    partitions: int  # in the directory
    copy: str  # the path of a copy of the old file; empty if it had no content


class DataDirectory:
    """A data directory that this process has locked."""

    __slots__ = (
        "_counting",
        "_lock",
        "_names_changed",
        "_names_synced",
        "_stored_partitions",
        "_stores_begun",
        "_stores_done",
        "_syncing",
        "_turn",
        "clean_epoch",
        "disk",
        "failure",
        "id",
        "is_new",
        "meta_repair",
        "notes",
        "parallel_flushes",
        "path",
        "shortage",
        "stopped_cleanly",
    )

    def __init__(self, disk: Disk, path: str, lock: Lock) -> None:
        self.disk = disk
        self.path = path
        self.id: Uuid | None = None
        self.failure: StorageFailure | None = None
        self.shortage: StorageExhausted | None = None  # since the last checkpoint write
        self.notes: list[str] = []  # for the operator
        self.is_new = False  # it had no meta.properties
        self.meta_repair: MetaRepair | None = None
        self.stopped_cleanly = False
        self.clean_epoch: BrokerEpoch | None = None  # the broker epoch at the last clean shutdown
        self.parallel_flushes = asyncio.Semaphore(PARALLEL_FLUSHES)
        self._lock = lock
        # The partitions of each checkpoint; during a write also those of the next one.
        self._stored_partitions: dict[str, Set[TopicPartition]] = {}
        self._turn = asyncio.Lock()
        # How often each checkpoint was written, and the last write that succeeded.
        self._stores_begun, self._stores_done = Counter[str](), Counter[str]()
        # Names that threads have changed, and how many of them are on the device.
        self._names_changed = self._names_synced = 0
        self._counting, self._syncing = threading.Lock(), threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path})"

    # Opening. All of this waits for the device.

    @classmethod
    def claim(
        cls,
        disk: Disk,
        path: str,
        *,
        cluster_id: str,
        node_id: BrokerId,
        new_id: Callable[[], Uuid],
    ) -> Self:
        """Lock a directory for a broker of a cluster; create it if it is missing."""
        disk.make_directory(path)
        lock = disk.lock(f"{path}/{DIRECTORY_LOCK}")
        if lock is None:
            raise DirectoryRefused(
                f"{path} is in use by another process: stop that broker, or set log.dirs to "
                f"another directory"
            )
        directory = cls(disk, path, lock)
        try:
            directory._identify(cluster_id, node_id, new_id)
        except BaseException:
            lock.release()
            raise
        return directory

    def _identify(self, cluster_id: str, node_id: BrokerId, new_id: Callable[[], Uuid]) -> None:
        found = read_meta(self.disk, self.path)
        self.is_new = found is None
        meta = found or MetaProperties(None, None)
        if meta.cluster_id not in (None, cluster_id):
            raise DirectoryRefused(
                f"{self.path} belongs to cluster {meta.cluster_id}, this broker to {cluster_id}: "
                f"set log.dirs to another directory, or connect to that cluster"
            )
        if meta.node_id not in (None, node_id):
            raise DirectoryRefused(
                f"{self.path} belongs to broker {meta.node_id}, this is broker {node_id}: set "
                f"node.id to {meta.node_id}, or set log.dirs to another directory"
            )
        self.id = meta.directory_id or new_id()
        self.meta_repair = self._meta_repair(found)
        other = () if self.meta_repair is not None else meta.other
        whole = MetaProperties(cluster_id, node_id, self.id, other)
        if whole != meta:
            path = f"{self.path}/{META_PROPERTIES}"
            write_atomically(self.disk, path, format_meta_properties(whole).encode())

    def _meta_repair(self, found: MetaProperties | None) -> MetaRepair | None:
        """Set an incomplete meta.properties aside; None if the file is complete or not expected."""
        if found is None:
            partitions = count_partitions(self.disk, self.path)
            return MetaRepair("the file is missing", partitions, "") if partitions else None
        ids = (("cluster.id", found.cluster_id), ("node.id", found.node_id))
        missing = [name for name, value in ids if value is None]
        if not missing:
            return None
        path = f"{self.path}/{META_PROPERTIES}"
        file = self.disk.open(path)
        try:
            size = file.size()
            copy = copy_aside(self.disk, file, 0, path + DAMAGED_SUFFIX) if size else ""
        finally:
            file.close()
        problem = f"the file has no {' and no '.join(missing)}" if size else "the file is empty"
        return MetaRepair(problem, count_partitions(self.disk, self.path), copy)

    def begin(self) -> None:
        """Read and remove the clean shutdown mark, so that a crash from now on is detected."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        try:
            text = read_whole(self.disk, path).decode("utf-8", "replace")
        except FileNotFoundError:
            return
        try:
            self.clean_epoch = parse_clean_shutdown(text)
            self.stopped_cleanly = True
        except CorruptText as error:
            self.notes.append(f"{path}: ignored, all logs are checked: {error}")
        self.disk.remove(path)
        self.disk.sync_directory(self.path)

    def read_offsets(self, name: str) -> dict[TopicPartition, Offset]:
        """Read an offset checkpoint; a missing or damaged one is empty."""
        path = f"{self.path}/{name}"
        try:
            found = parse_offsets(read_whole(self.disk, path).decode("utf-8", "replace"))
        except FileNotFoundError:
            return {}
        except CorruptText as error:
            self.notes.append(f"{path}: ignored: {error}")
            return {}
        self._stored_partitions[name] = found.keys()
        return found

    # Use.

    def check_in_place(self) -> None:
        """Raise StorageFailure if the directory was removed, moved or replaced."""
        if not self._lock.is_in_place():
            raise StorageFailure(f"{self.path}: removed, moved or replaced while the broker runs")

    def check_online(self) -> None:
        """Raise StorageFailure if the directory has failed."""
        if self.failure is not None:
            raise StorageFailure(f"{self.path} is offline: {self.failure}")

    def checkpoints_with(self, partition: TopicPartition) -> list[str]:
        """The checkpoints on the device that may have an entry for a partition."""
        return [
            name for name, partitions in self._stored_partitions.items() if partition in partitions
        ]

    def sync_names(self) -> None:
        """Return when the names in the directory are on the device; threads share a sync."""
        with self._counting:
            self._names_changed += 1
            mine = self._names_changed
        with self._syncing:
            if self._names_synced < mine:
                with self._counting:
                    until = self._names_changed
                self.disk.sync_directory(self.path)
                self._names_synced = until

    async def store_offsets(
        self, name: str, offsets: Callable[[], Mapping[TopicPartition, Offset]]
    ) -> None:
        """Replace a checkpoint; on the device when this returns.

        `offsets` is called while the lock is held, so that older offsets never replace newer ones.
        It returns the whole checkpoint: one write serves all callers that have waited for the lock.
        """
        begun_before = self._stores_begun[name]
        async with self._turn:
            self.check_online()
            if self._stores_done[name] > begun_before:
                return
            self._stores_begun[name] += 1
            found, path = offsets(), f"{self.path}/{name}"
            self._stored_partitions[name] = self._stored_partitions.get(name, set()) | found.keys()
            await self.disk.blocking(
                lambda: write_atomically(self.disk, path, format_offsets(found).encode())
            )
            self._stored_partitions[name] = found.keys()
            self._stores_done[name] = self._stores_begun[name]
            self.shortage = None

    # Closing.

    async def mark_clean(self, broker_epoch: BrokerEpoch) -> None:
        """Write the clean shutdown mark after everything else is on the device (rule C2)."""
        assert self.failure is None
        path, text = f"{self.path}/{CLEAN_SHUTDOWN}", format_clean_shutdown(broker_epoch)
        await self.disk.blocking(lambda: write_atomically(self.disk, path, text.encode()))

    def release(self) -> None:
        """Release the lock."""
        with suppress(StorageFailure):
            self._lock.release()


def count_partitions(disk: Disk, path: str) -> int:
    """The number of live partition directories in a data directory that have records files."""
    found = 0
    for name in disk.names(path):
        parsed = parse_partition_directory(name)
        inside = f"{path}/{name}"
        if parsed and parsed.state is DirectoryState.LIVE and disk.is_directory(inside):
            files = map(parse_offset_file, disk.names(inside))
            found += any(file is not None and file.kind is Kind.RECORDS for file in files)
    return found


def read_meta(disk: Disk, path: str) -> MetaProperties | None:
    """Read `meta.properties` without the lock; None if the directory was never used."""
    file = f"{path}/{META_PROPERTIES}"
    try:
        return parse_meta_properties(read_whole(disk, file).decode("utf-8", "replace"))
    except FileNotFoundError:
        return None
    except CorruptText as error:
        raise DirectoryRefused(
            f"{file}: {error}: repair the file, or set log.dirs to another directory"
        ) from error
