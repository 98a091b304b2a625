"""When a log goes to the device, and what goes there.

Invariant: the recovery point moves only after everything below it is on the device (rule C1):
records first, then the indexes and snapshots made of them, then the names in the folder. One
flush at a time covers all that was appended before it began.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.ids import Offset
from ottla.log.disk import Disk, File, write_atomically
from ottla.log.log_config import LogConfig
from ottla.log.segment import Indexes, Segment
from ottla.log.snapshots import Snapshots


def flush_due(rules: LogConfig, *, unflushed_messages: int, since_flush_ms: int) -> bool:
    """Whether flush.messages or flush.ms asks for a flush."""
    return unflushed_messages > 0 and (
        unflushed_messages >= rules.flush_messages or since_flush_ms >= rules.flush_ms
    )


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """One flush: decided on the event loop, carried out in a thread."""

    folder: str
    files: Sequence[File]
    closed: Sequence[Segment]  # those whose indexes are not yet written
    snapshots: Mapping[Offset, bytes]
    epochs: tuple[str, str] | None  # path and text of the leader epochs, if they changed
    last: bool = False  # the log is not used after it

    def carry_out(self, disk: Disk, snapshots: Snapshots) -> list[Indexes]:
        """Return when all of it is on the device, with the indexes of the closed segments.

        After the last one there are none, and its records files are closed before others are
        opened, so that a broker that stops needs no more open files than it has.
        """
        for file in self.files:
            file.sync()
        for file in self.files if self.last else ():
            file.close()
        for segment in self.closed:
            segment.write_indexes(disk)
        snapshots.write(self.snapshots)
        disk.sync_folder(self.folder)
        if self.epochs is not None:
            path, text = self.epochs
            write_atomically(disk, path, text.encode())
        return [] if self.last else [segment.open_indexes(disk) for segment in self.closed]


class Flushable(Protocol):
    """What a group commit needs of a log."""

    @property
    def recovery_point(self) -> Offset:
        """Below it everything is on the device."""
        ...

    @property
    def rules(self) -> LogConfig:
        """What the topic asks for."""
        ...

    def flush(self) -> Awaitable[None]:
        """Move the recovery point to where the log ends now."""
        ...


class GroupCommit:
    """Lets acknowledgements wait for the device; whoever comes during a flush shares the next.

    An append after which a flush is `wanted` is acknowledged when it is `durable`.
    """

    __slots__ = ("_log", "_turn")

    def __init__(self, log: Flushable) -> None:
        self._log = log
        self._turn = asyncio.Lock()

    def wanted(self, offset: int) -> bool:
        """Whether flush.messages asks for a flush now that the log ends at an offset."""
        unflushed = offset - self._log.recovery_point
        return flush_due(self._log.rules, unflushed_messages=unflushed, since_flush_ms=0)

    async def durable(self, offset: int) -> None:
        """Return when everything below an offset is on the device."""
        while self._log.recovery_point < offset:
            async with self._turn:
                if self._log.recovery_point < offset:
                    await self._log.flush()
