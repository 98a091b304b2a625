"""Commits the offsets of a running query to consumer groups, in a thread of its own.

Invariant: `commit` and `finish` return at once, whether or not a broker responds. Of the offsets
of a source that wait, only the newest are committed. A failed commit is logged; the offsets are
committed with those of the next micro-batch, or when the query ends. After `finish`, the thread
and its connections are gone within `2 * FINISH_S`, and the offsets of a later run of the query
are committed only then.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.client.admin import Admin
from ottla.client.sync.portal import Portal
from ottla.pipeline.offset_lookup import admin_settings
from ottla.pipeline.offsets import JsonOffsets, Offsets, from_json
from ottla.pipeline.source_options import SourceOptions
from ottla.settings.admin import ADMIN
from ottla.settings.config_parser import client_config
from ottla.settings.connection import DEFAULT_API_TIMEOUT_MS
from ottla.transport.failures import NotRunning, TimedOut

COMMIT_S_MAX: Final = 10.0
"""Timeout of a commit; `default.api.timeout.ms` can only reduce it. A late commit is of no use:
the next micro-batch has newer offsets."""

FINISH_S: Final = 3.0
"""After the end of the query: timeout of the commit in progress, and of the last one."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitTarget:
    """A source of a query, and the consumer group that gets its offsets."""

    options: SourceOptions
    group: str


class OffsetCommitter:
    """Commits the offsets of one run of a query; `finish` must end it."""

    finished: Future[None]
    """Done when the connections are closed."""

    def __init__(
        self,
        query: str,
        targets: Sequence[CommitTarget | None],
        *,
        after: "OffsetCommitter | None" = None,
    ) -> None:
        """Start the thread; it commits when the committer of an earlier run has finished."""
        self._query = query
        self._sources = [one and _SourceCommits(query, one) for one in targets]
        self._portal = Portal("ottla offset commits", self._disconnect)
        self.finished = self._portal.start(self._run(after))
        self.finished.add_done_callback(self._close)

    def commit(self, ends: Sequence[str | JsonOffsets | None]) -> None:
        """Commit the end offsets of the sources soon, instead of older ones that still wait."""
        for commits, end in zip(self._sources, ends, strict=True):
            if commits is not None and end:
                offsets = from_json(json.loads(end) if isinstance(end, str) else end)
                self._portal.tell(commits.replace, offsets)

    def finish(self) -> None:
        """Try once more to commit what is not committed, then close the connections."""
        for commits in self._sources:
            if commits is not None:
                self._portal.tell(commits.finish)

    def wait(self, timeout_s: float) -> None:
        """Wait until the newest offsets are committed or their commit has failed."""
        with suppress(NotRunning, TimedOut):
            self._portal.run(self._settle(), timeout_s)

    async def _settle(self) -> None:
        for commits in self._sources:
            if commits is not None:
                await commits.is_settled.wait()

    async def _run(self, after: "OffsetCommitter | None") -> None:
        if after is not None:
            await asyncio.wait({asyncio.wrap_future(after.finished)})
        async with asyncio.TaskGroup() as tasks:
            for commits in self._sources:
                if commits is not None:
                    tasks.create_task(commits.run())

    async def _disconnect(self) -> None:
        for commits in self._sources:
            if commits is not None:
                await commits.disconnect()

    def _close(self, finished: Future[None]) -> None:
        self._portal.close()
        if not finished.cancelled() and (error := finished.exception()) is not None:
            _log.error("offset commits stopped: query %s", self._query, exc_info=error)


class _SourceCommits:
    """Commits the offsets of one source; lives in the committer's event loop."""

    def __init__(self, query: str, target: CommitTarget) -> None:
        self._query = query
        self._group = target.group
        self._settings = admin_settings(target.options)
        self._timeout_s = client_config(ADMIN, self._settings)[DEFAULT_API_TIMEOUT_MS] / 1000
        self._admin: Admin | None = None
        self._newest: Offsets = {}
        self._committed: Offsets = {}
        self._is_finishing = False
        self._has_work = asyncio.Event()
        self._limit: asyncio.Timeout | None = None  # of the commit in progress
        self.is_settled = asyncio.Event()
        self.is_settled.set()

    def replace(self, offsets: Offsets) -> None:
        """Commit these offsets next."""
        self._newest = offsets
        self._wake()

    def finish(self) -> None:
        """End after one more commit, and soon end the one in progress."""
        self._is_finishing = True
        self._wake()
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + FINISH_S)

    def _wake(self) -> None:
        self._has_work.set()
        self.is_settled.clear()

    async def run(self) -> None:
        """Commit until the query has ended."""
        is_last = False
        try:
            while not is_last:
                await self._has_work.wait()
                self._has_work.clear()
                is_last = self._is_finishing
                if self._newest != self._committed:
                    await self._try_commit()
                if not self._has_work.is_set():
                    self.is_settled.set()
        finally:
            await self.disconnect()

    async def _try_commit(self) -> None:
        """Commit the newest offsets; a failure closes the connections and is logged."""
        newest = self._newest
        try:
            async with asyncio.timeout(FINISH_S if self._is_finishing else None) as self._limit:
                if self._admin is None:
                    self._admin = await Admin(self._settings).__aenter__()
                timeout_s = min(self._timeout_s, COMMIT_S_MAX)
                committing = self._admin.alter_group_offsets(
                    self._group, newest, timeout_s=timeout_s
                )
                (await committing).or_raise()
            self._committed = newest
            return
        except Exception as error:  # must not fail the query, which resumes from its checkpoint
            reason = str(error) or f"no response in {FINISH_S:g} s"
            _log.warning("offset commit failed: query %s: %s", self._query, reason)
        finally:
            self._limit = None
        await self.disconnect()  # the next commit connects again

    async def disconnect(self) -> None:
        """Close the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()
