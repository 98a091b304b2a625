"""The directories of deleted partitions: renamed at once, removed after file.delete.delay.ms.

Invariant: a renamed directory has a name that no log is opened by, on the device when `rename`
returns. All directories that are renamed together share one sync. A stray directory is removed only
after a controller has told which replicas the broker has: see `expire_strays`. Until then, and with
one broker, the operator decides.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from ottla.clock import Clock
from ottla.errors import DiskFull, StorageFailure
from ottla.ids import Uuid
from ottla.log.directory import DataDirectory
from ottla.log.disk import Disk, remove_tree
from ottla.log.loading import HostedLog
from ottla.log.names import DirectoryState, marked_directory, partition_directory

_LOG = logging.getLogger(__name__)


class DeletedDirectories:
    """The directories that wait to be removed."""

    def __init__(self, disk: Disk, clock: Clock, new_id: Callable[[], Uuid]) -> None:
        self._disk = disk
        self._clock = clock
        self._new_id = new_id
        self._waiting: list[tuple[int, str]] = []  # with the time of removal
        self._strays: dict[str, None] = {}  # kept

    def found(self, paths: Iterable[str]) -> None:
        """Add directories that an earlier run of the broker left; nobody has them open."""
        self._waiting += [(0, path) for path in paths]

    def found_strays(self, paths: Iterable[str]) -> None:
        """Keep stray directories of an earlier run."""
        self._strays |= dict.fromkeys(paths)

    def expire_strays(self, delay_ms: int) -> None:
        """Remove the stray directories after a delay."""
        due_ms = self._clock.now_ms() + delay_ms
        self._waiting += [(due_ms, path) for path in self._strays]
        self._strays = {}

    async def rename(
        self, directory: DataDirectory, partitions: Sequence[HostedLog], state: DirectoryState
    ) -> None:
        """Rename the directories of partitions, all in one data directory.

        If a full disk has no space for a longer name, that directory stays; DiskFull is raised at
        the end.
        """
        now_ms, disk = self._clock.now_ms(), self._disk
        names = [marked_directory(one.partition, state, self._new_id().hex()) for one in partitions]
        renamed: list[tuple[int, str]] = []

        def on_the_device() -> None:
            full: DiskFull | None = None
            for one, name in zip(partitions, names, strict=True):
                old, new = (
                    f"{directory.path}/{it}" for it in (partition_directory(one.partition), name)
                )
                try:
                    disk.rename(old, new)
                except DiskFull as failure:
                    full = failure
                else:
                    renamed.append((now_ms + one.log.config.file_delete_delay_ms, new))
            disk.sync_directory(directory.path)
            if full is not None:
                raise full

        try:
            await disk.blocking(on_the_device)
        finally:
            if state is DirectoryState.DELETED:
                self._waiting += renamed
            else:
                self.found_strays(path for _, path in renamed)

    async def purge(self) -> None:
        """Remove the directories whose delay is over."""
        now_ms = self._clock.now_ms()
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        self._waiting = [one for one in self._waiting if one[0] > now_ms]
        for path in due:
            try:
                await self._disk.blocking(lambda path=path: remove_tree(self._disk, path))
            except (StorageFailure, FileNotFoundError) as failure:
                # No log is opened by this name; the next start of the broker tries again.
                _LOG.warning(
                    "partition directory not removed", {"directory": path, "reason": str(failure)}
                )
