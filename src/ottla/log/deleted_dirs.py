"""Folders of partitions that were given up: renamed at once, removed when their delay is over.

Invariant: a folder that was given up has a name by which no log is opened, on the device when
`rename` returns; all that are given up together wait for the device once. What is stray is never
removed here: a person decides.
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
    """The folders that wait to be removed."""

    def __init__(self, disk: Disk, clock: Clock, new_id: Callable[[], Uuid]) -> None:
        self._disk = disk
        self._clock = clock
        self._new_id = new_id
        self._waiting: list[tuple[int, str]] = []  # and when each is due

    def found(self, paths: Iterable[str]) -> None:
        """These were left by an earlier start; nobody has them open."""
        self._waiting += [(0, path) for path in paths]

    async def rename(
        self, directory: DataDirectory, given_up: Sequence[HostedLog], state: DirectoryState
    ) -> None:
        """Let the folders of partitions, all in one directory, count no more.

        Those for whose longer name a full disk has no room stay, which is told at the end.
        """
        now_ms, disk = self._clock.now_ms(), self._disk
        names = [marked_directory(one.partition, state, self._new_id().hex()) for one in given_up]
        renamed: list[tuple[int, str]] = []

        def on_the_device() -> None:
            full: DiskFull | None = None
            for one, name in zip(given_up, names, strict=True):
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

    async def purge(self) -> None:
        """Remove the folders whose delay is over."""
        now_ms = self._clock.now_ms()
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        self._waiting = [one for one in self._waiting if one[0] > now_ms]
        for path in due:
            try:
                await self._disk.blocking(lambda path=path: remove_tree(self._disk, path))
            except (StorageFailure, FileNotFoundError) as failure:
                # It does not count any more, and the next start tries again.
                _LOG.warning("folder not removed", {"folder": path, "reason": str(failure)})
