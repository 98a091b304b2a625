"""Who cleans logs: a child process, or this one.

Invariant: what comes out is the news of one cleaning, in its order, the last of it CleaningDone;
anything else that happens is CleaningFailed, with a reason that a person understands. Closing the
iterator ends the cleaning; the files it has written are left to whoever asked for it.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Final, Protocol

import msgspec

from ottla.errors import OttlaError, StorageFailure
from ottla.log.cleaner.cleaning import CleaningDone, CleaningJob, CleaningNews, clean
from ottla.log.cleaner.processes import Processes
from ottla.log.disk import Disk
from ottla.records.errors import CorruptRecords

CHILD_MODULE: Final = "ottla.log.cleaner.cleaner_process"

_NEWS: Final = msgspec.json.Decoder(CleaningNews)


class CleaningFailed(OttlaError):
    """The log is as it was or in part cleaned, and usable; another attempt may fail as well."""


class CleaningAborted(OttlaError):
    """The log was cut or lost segments while it was cleaned: to be tried again later."""


class Cleaner(Protocol):
    """Does the work of a cleaning, without touching the log."""

    def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningNews, None]:
        """Clean, and tell of every group of segments that is ready to be swapped."""
        ...


class LocalCleaner:
    """Cleans in a thread of this process: for tests, and for tools that have no loop to spare."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep

    async def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningNews, None]:
        """Clean one group after the other."""
        news: Iterator[CleaningNews] = iter(())

        def step() -> CleaningNews | None:
            return next(news, None)

        try:
            news = clean(disk, job, clock=self._clock, sleep=self._sleep)
            while (one := await disk.blocking(step)) is not None:
                yield one
        except (CorruptRecords, StorageFailure, FileNotFoundError) as error:
            raise CleaningFailed(f"{job.directory}: {error}") from error


class ChildCleaner:
    """Cleans in a child process, on the disk of the machine."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningNews, None]:
        """Hand the job over and pass on what the child tells."""
        done = False
        async with self._processes.start(CHILD_MODULE, msgspec.json.encode(job)) as child:
            async for line in child.lines():
                one = _decoded(job, line)
                done = isinstance(one, CleaningDone)
                yield one
            code, errors = await child.ended()
        if code or not done:
            reason = errors or "it said nothing"
            raise CleaningFailed(f"{job.directory}: the cleaner ended with {code}: {reason}")


def _decoded(job: CleaningJob, line: bytes) -> CleaningNews:
    try:
        return _NEWS.decode(line)
    except msgspec.MsgspecError as error:
        raise CleaningFailed(
            f"{job.directory}: the cleaner said {line[:100]!r}: {error}"
        ) from error
