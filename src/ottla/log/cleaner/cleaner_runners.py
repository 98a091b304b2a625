"""Runs cleanings: in a child process, or in a thread of this process.

Invariant: a runner yields the events of one cleaning in order, the last one is CleaningDone; every
failure is CleaningFailed with a reason. Closing the iterator ends the cleaning; the caller removes
the files that it has written.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Final, Protocol

import msgspec

from ottla.errors import OttlaError, StorageFailure
from ottla.log.cleaner.child_processes import Processes
from ottla.log.cleaner.compaction import CleaningDone, CleaningEvent, CleaningJob, clean
from ottla.log.disk import Disk
from ottla.records.errors import CorruptRecords

CHILD_MODULE: Final = "ottla.log.cleaner.cleaner_process"

_NEWS: Final = msgspec.json.Decoder(CleaningEvent)


class CleaningFailed(OttlaError):
    """The log is unchanged or partly cleaned, and usable; another attempt may fail as well."""


class CleaningAborted(OttlaError):
    """The log was truncated or lost segments during the cleaning; try again later."""


class Cleaner(Protocol):
    """Cleans the files of a log without changing the log."""

    def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningEvent, None]:
        """Clean, and yield every group of segments that is ready to be swapped."""
        ...


class LocalCleaner:
    """Cleans in a thread of this process, for tests and tools."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep

    async def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningEvent, None]:
        """Clean one group after the other."""
        news: Iterator[CleaningEvent] = iter(())

        def step() -> CleaningEvent | None:
            return next(news, None)

        try:
            news = clean(disk, job, clock=self._clock, sleep=self._sleep)
            while (one := await disk.blocking(step)) is not None:
                yield one
        except (CorruptRecords, StorageFailure, FileNotFoundError) as error:
            raise CleaningFailed(f"{job.directory}: {error}") from error


class ChildCleaner:
    """Cleans in a child process, on the real file system."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningEvent, None]:
        """Send the job to the child and yield its events."""
        done = False
        async with self._processes.start(CHILD_MODULE, msgspec.json.encode(job)) as child:
            async for line in child.lines():
                one = _decoded(job, line)
                done = isinstance(one, CleaningDone)
                yield one
            code, errors = await child.ended()
        if code or not done:
            reason = errors or "no error message"
            raise CleaningFailed(
                f"{job.directory}: the cleaner process exited with {code}: {reason}"
            )


def _decoded(job: CleaningJob, line: bytes) -> CleaningEvent:
    try:
        return _NEWS.decode(line)
    except msgspec.MsgspecError as error:
        raise CleaningFailed(
            f"{job.directory}: invalid event {line[:100]!r} of the cleaner process: {error}"
        ) from error
