"""A data directory: whose it is, the checkpoints of its partitions, whether it stopped cleanly.

Invariant: one process at a time holds a directory (rule C9). A checkpoint is the old one or the
new one, whatever happens (rule C1). The mark of a clean stop is gone before the first log is
opened, and is written as the last thing of all, on the device (rule C2). A directory that failed
is not written to again: nobody knows what is on its device. Whom the checkpoints on the device may
tell of is known at any time.
"""

import asyncio
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Self

from ottla.errors import OttlaError, StorageFailure
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
from ottla.log.names import CLEAN_SHUTDOWN, DIRECTORY_LOCK, META_PROPERTIES


class DirectoryRefused(OttlaError):
    """The directory is somebody else's; a person has to decide what to do."""


class DataDirectory:
    """A directory that this process holds."""

    __slots__ = (
        "_lock",
        "_told",
        "_turn",
        "clean_epoch",
        "disk",
        "failure",
        "id",
        "is_full",
        "notes",
        "path",
        "stopped_cleanly",
    )

    def __init__(self, disk: Disk, path: str, lock: Lock) -> None:
        self.disk = disk
        self.path = path
        self.id: Uuid | None = None
        self.failure: StorageFailure | None = None
        self.is_full = False  # since the last checkpoint that was stored
        self.notes: list[str] = []  # what a person should know
        self.stopped_cleanly = False
        self.clean_epoch: BrokerEpoch | None = None  # the broker's when it stopped cleanly
        self._lock = lock
        # Whom each checkpoint tells of, and while it is replaced also whom the next one does.
        self._told: dict[str, Set[TopicPartition]] = {}
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path})"

    # Taking it. All of this waits for the device.

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
        """Hold a directory, made if it is missing, as a broker of a cluster."""
        disk.make_directory(path)
        lock = disk.lock(f"{path}/{DIRECTORY_LOCK}")
        if lock is None:
            raise DirectoryRefused(
                f"{path} is in use by another process: stop that broker, or let log.dirs name "
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
        meta = read_meta(self.disk, self.path) or MetaProperties(None, None)
        if meta.cluster_id not in (None, cluster_id):
            raise DirectoryRefused(
                f"{self.path} belongs to cluster {meta.cluster_id}, this broker to {cluster_id}: "
                f"let log.dirs name another directory, or connect to that cluster"
            )
        if meta.node_id not in (None, node_id):
            raise DirectoryRefused(
                f"{self.path} belongs to broker {meta.node_id}, this is broker {node_id}: set "
                f"node.id to {meta.node_id}, or let log.dirs name another directory"
            )
        self.id = meta.directory_id or new_id()
        whole = MetaProperties(cluster_id, node_id, self.id, meta.other)
        if whole != meta:
            path = f"{self.path}/{META_PROPERTIES}"
            write_atomically(self.disk, path, format_meta_properties(whole).encode())

    def begin(self) -> None:
        """Learn how the last stop was, and forget it, so that a crash from now on is one."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        try:
            text = read_whole(self.disk, path).decode("utf-8", "replace")
        except FileNotFoundError:
            return
        try:
            self.clean_epoch = parse_clean_shutdown(text)
            self.stopped_cleanly = True
        except CorruptText as error:
            self.notes.append(f"{path}: not believed, all logs are checked: {error}")
        self.disk.remove(path)
        self.disk.sync_directory(self.path)

    def read_offsets(self, name: str) -> dict[TopicPartition, Offset]:
        """What a checkpoint says; one that is missing or damaged says nothing."""
        path = f"{self.path}/{name}"
        try:
            found = parse_offsets(read_whole(self.disk, path).decode("utf-8", "replace"))
        except FileNotFoundError:
            return {}
        except CorruptText as error:
            self.notes.append(f"{path}: done without: {error}")
            return {}
        self._told[name] = found.keys()
        return found

    # Keeping it.

    def check_online(self) -> None:
        """Raise if it has failed."""
        if self.failure is not None:
            raise StorageFailure(f"{self.path} is offline: {self.failure}")

    def telling_of(self, partition: TopicPartition) -> list[str]:
        """The checkpoints on the device that may tell of a partition."""
        return [name for name, partitions in self._told.items() if partition in partitions]

    async def store_offsets(
        self, name: str, offsets: Callable[[], Mapping[TopicPartition, Offset]]
    ) -> None:
        """Replace a checkpoint, on the device when this returns.

        Offsets are asked for when it is this one's turn, so that none is replaced by older ones.
        """
        async with self._turn:
            self.check_online()
            found, path = offsets(), f"{self.path}/{name}"
            self._told[name] = self._told.get(name, set()) | found.keys()
            await self.disk.blocking(
                lambda: write_atomically(self.disk, path, format_offsets(found).encode())
            )
            self._told[name] = found.keys()
            self.is_full = False

    # Leaving it.

    async def mark_clean(self, broker_epoch: BrokerEpoch) -> None:
        """Let the next start trust the files: everything else is on the device (rule C2)."""
        assert self.failure is None
        path, text = f"{self.path}/{CLEAN_SHUTDOWN}", format_clean_shutdown(broker_epoch)
        await self.disk.blocking(lambda: write_atomically(self.disk, path, text.encode()))

    def release(self) -> None:
        """Let another process have it."""
        with suppress(StorageFailure):
            self._lock.release()


def read_meta(disk: Disk, path: str) -> MetaProperties | None:
    """Whose directory it is, without holding it; None when nobody has had it."""
    file = f"{path}/{META_PROPERTIES}"
    try:
        return parse_meta_properties(read_whole(disk, file).decode("utf-8", "replace"))
    except FileNotFoundError:
        return None
    except CorruptText as error:
        raise DirectoryRefused(
            f"{file}: {error}: mend the file, or let log.dirs name another directory"
        ) from error
