"""Runs the queries of a pipeline: starts, watches, restarts and stops them.

Invariant: every query that was started is stopped when `run` returns or raises. A stop lets the
running micro-batch commit: the sources offer no more records, Spark finishes what it has, and only
then the query is stopped. A query that waits for its next trigger has finished, unless the trigger
is due within STOP_MARGIN_S. After the grace period queries are interrupted, and the next run
repeats the interrupted micro-batch.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from ottla.errors import OttlaError
from ottla.pipeline.progress import (
    PipelineProgress,
    QueryProgress,
    QueryState,
    advanced,
    is_next,
)
from ottla.pipeline.restarts import GiveUp, RestartPolicy, after_failure, failure_of

POLL_S: Final = 0.25
GRACE_S: Final = 60.0
STOP_MARGIN_S: Final = 5.0
"""A stop of a query takes less than this, also on a busy machine."""

WAITING: Final = "Waiting for next trigger"
"""The message of a query whose last micro-batch has committed."""

_log: Final = logging.getLogger(__name__)


class PipelineFailed(OttlaError):
    """A query cannot continue; the text has its name and the reason."""


class SparkProgress(Protocol):
    """A report of Spark."""

    @property
    def json(self) -> str:
        """The report as JSON."""
        ...


class SparkQuery(Protocol):
    """The part of Spark's StreamingQuery that the runner uses."""

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query runs."""
        ...

    @property
    def status(self) -> Any:
        """What the query does, with the key `message`."""
        ...

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        """The last report, or None."""
        ...

    @property
    def recentProgress(self) -> Any:  # noqa: N802
        """The last reports."""
        ...

    def exception(self) -> Any:
        """Return the error of the query, or None."""
        ...

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until there is nothing to do."""
        ...

    def stop(self) -> None:
        """Stop the query, and interrupt its micro-batch."""
        ...


class StartableQuery(NamedTuple):
    """A query, and how to start it from its checkpoint."""

    name: str
    start: Callable[[], SparkQuery]
    is_dead_letters: bool = False
    trigger_s: float = 0.0
    """The interval of its micro-batches; Spark starts them at multiples of it since the epoch."""
    state_steps: tuple[str, ...] = ()
    """The step of each operator with state, in the order of Spark's reports."""


class TableRefresh(NamedTuple):
    """A side table that is read again from time to time."""

    name: str
    interval_s: float
    read_again: Callable[[], None]
    """Lets the next micro-batch see the current rows."""


class PipelineRun:
    """One run of a pipeline."""

    def __init__(
        self,
        name: str,
        queries: Sequence[StartableQuery],
        stop_file: Path,
        *,
        policy: RestartPolicy | None = None,
        refreshes: Sequence[TableRefresh] = (),
        report: Callable[[PipelineProgress], None] = lambda progress: None,
        grace_s: float = GRACE_S,
        elapsed_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
        epoch_s: Callable[[], float] = time.time,
        hide: Callable[[str], str] = str,
    ) -> None:
        """`hide` removes the values of variables from errors."""
        self._name = name
        self._policy = policy or RestartPolicy()
        self._queries = [
            _Supervised(one, self._policy, elapsed_s, epoch_s, hide) for one in queries
        ]
        self._hide = hide
        self._stop_file = stop_file
        self._report = report
        self._grace_s = grace_s
        self._elapsed_s = elapsed_s
        self._wait = wait
        self._started_s = elapsed_s()
        self._refreshes = [(one, elapsed_s() + one.interval_s) for one in refreshes]

    @property
    def progress(self) -> PipelineProgress:
        """The progress of all queries."""
        elapsed_s = self._elapsed_s() - self._started_s
        return PipelineProgress(self._name, elapsed_s, [one.progress for one in self._queries])

    def run(self, is_stopping: Callable[[], bool]) -> PipelineProgress:
        """Run until all queries have ended or a stop is requested; raises PipelineFailed."""
        _log.info("pipeline started", {"pipeline": self._name, "queries": len(self._queries)})
        failure: str | None = None
        try:
            while not is_stopping() and not all(one.is_done for one in self._queries):
                for query in self._queries:
                    if is_stopping():
                        break
                    query.advance()
                    self._report(self.progress)
                if failed := [one for one in self._queries if one.reason is not None]:
                    failure = f"query {failed[0].name}: {failed[0].reason}"
                    break
                self._refresh()
                self._wait(POLL_S)
            self._drain()
        finally:
            for query in self._queries:
                query.stop()
        self._report(self.progress)
        _log.info("pipeline stopped", {"pipeline": self._name})
        if failure is not None:
            raise PipelineFailed(failure)
        return self.progress

    def _refresh(self) -> None:
        """Read the side tables again whose time has come."""
        now_s = self._elapsed_s()
        for at, (table, due_s) in enumerate(self._refreshes):
            if now_s < due_s:
                continue
            self._refreshes[at] = (table, now_s + table.interval_s)
            try:
                table.read_again()
            except Exception as error:  # whatever Spark raises; the old rows are still there
                if _is_lost(error):
                    raise
                fields = {"source": table.name, "error": failure_of(self._hide(str(error))).text}
                _log.warning("side table not refreshed", fields)
            else:
                _log.info("side table refreshed", {"source": table.name})

    def _drain(self) -> None:
        """Let the running micro-batches commit, for at most the grace period."""
        running = [one for one in self._queries if one.is_running]
        if not running:
            return
        self._stop_file.touch()
        until_s = self._elapsed_s() + self._grace_s
        threads: dict[_Supervised, threading.Thread] = {}
        for query in running:
            thread = threading.Thread(
                target=query.finish_batch, name=f"stop {query.name}", daemon=True
            )
            query.show_stopping()
            thread.start()
            threads[query] = thread
        while threads:
            for query in [*threads]:
                if query.waits_for_trigger() or not threads[query].is_alive():
                    del threads[query]
                    query.stop()  # at once: a later trigger would start another micro-batch
            self._report(self.progress)
            if self._elapsed_s() >= until_s:
                break
            for thread in [*threads.values()][:1]:
                thread.join(POLL_S)
        for query in threads:
            fields = {"query": query.name, "grace_s": self._grace_s}
            _log.warning("query interrupted", fields)


class _Supervised:
    """A query over all its starts."""

    def __init__(
        self,
        query: StartableQuery,
        policy: RestartPolicy,
        elapsed_s: Callable[[], float],
        epoch_s: Callable[[], float],
        hide: Callable[[str], str],
    ) -> None:
        self.name = query.name
        self.progress = QueryProgress(query.name, query.is_dead_letters)
        self.reason: str | None = None
        """Why the query cannot continue."""
        self._start = query.start
        self._policy = policy
        self._elapsed_s = elapsed_s
        self._epoch_s = epoch_s
        self._hide = hide
        self._trigger_s = query.trigger_s
        self._state_steps = query.state_steps
        self._has_waited = False  # at the last look
        self._running: SparkQuery | None = None
        self._start_s = elapsed_s()  # when it started, or when it is to start again
        self._restarts = 0  # in a row

    @property
    def is_running(self) -> bool:
        """Whether Spark runs the query."""
        return self._running is not None

    @property
    def is_done(self) -> bool:
        """Whether the query has ended by itself."""
        return self.progress.state in (QueryState.FINISHED, QueryState.FAILED)

    def advance(self) -> None:
        """Start the query if it is time, count its progress, and decide if it has ended."""
        if self.is_done:
            return
        query = self._running
        if query is None:
            if self._elapsed_s() >= self._start_s:
                self._begin()
            return
        is_active = query.isActive  # before the progress, which is complete when it has ended
        self._count(query)
        if is_active:
            return
        self._running = None
        error = query.exception()
        if error is None:
            self._change(QueryState.FINISHED)
            _log.info("query finished", {"query": self.name})
        else:
            self._failed(str(error))

    def show_stopping(self) -> None:
        """Show that the query finishes its micro-batch."""
        self._change(QueryState.STOPPING)

    def finish_batch(self) -> None:
        """Wait until there is nothing to do; the sources offer no more records."""
        query = self._running
        if query is not None:
            try:
                query.processAllAvailable()
            except Exception as error:  # the outer edge of a thread; the query has failed
                text = failure_of(self._hide(str(error))).text
                fields = {"query": self.name, "error": text}
                _log.warning("query failed", fields)

    def waits_for_trigger(self) -> bool:
        """Whether the query has committed its micro-batch, and its next trigger is far away.

        Only at the second look: after a micro-batch that took longer than the trigger, the next one
        follows at once.
        """
        query = self._running
        if query is None or self._trigger_s <= STOP_MARGIN_S:
            return False
        until_trigger_s = self._trigger_s - self._epoch_s() % self._trigger_s
        waits = until_trigger_s > STOP_MARGIN_S and query.status["message"] == WAITING
        waited, self._has_waited = self._has_waited, waits
        return waits and waited

    def stop(self) -> None:
        """Stop the query, if it runs."""
        query, self._running = self._running, None
        if query is not None:
            query.stop()
            self._count(query)
        if not self.is_done:
            self._change(QueryState.STOPPED)

    def _begin(self) -> None:
        self._start_s = self._elapsed_s()
        try:
            self._running = self._start()
        except OttlaError:
            raise
        except Exception as error:  # whatever Spark raises at the start of a query
            if _is_lost(error):
                raise
            self._failed(str(error))
            return
        self._change(QueryState.RUNNING)
        _log.info("query started", {"query": self.name, "restarts": self.progress.restarts})

    def _failed(self, text: str) -> None:
        failure = failure_of(self._hide(text))
        ran_s = self._elapsed_s() - self._start_s
        decision = after_failure(failure, restarts=self._restarts, ran_s=ran_s, policy=self._policy)
        fields: dict[str, object] = {"query": self.name, "error": failure.text}
        if isinstance(decision, GiveUp):
            self.reason = decision.reason
            self._change(QueryState.FAILED, error=failure.text)
            _log.error("query failed", fields)
            return
        self._restarts = decision.restarts
        self._start_s = self._elapsed_s() + decision.delay_s
        restarts = self.progress.restarts + 1
        self.progress = replace(
            self.progress, state=QueryState.WAITING, error=failure.text, restarts=restarts
        )
        fields |= {"kind": failure.kind.name, "restart_in_s": round(decision.delay_s, 1)}
        _log.warning("query failed", fields)

    def _count(self, query: SparkQuery) -> None:
        last = query.lastProgress
        if last is None:
            return
        report = _report(last)
        if not is_next(self.progress, report):
            for earlier in query.recentProgress:
                self.progress = advanced(self.progress, _report(earlier), self._state_steps)
        self.progress = advanced(self.progress, report, self._state_steps)

    def _change(self, state: QueryState, error: str = "") -> None:
        self.progress = replace(self.progress, state=state, error=error)


def _report(progress: SparkProgress) -> Mapping[str, Any]:
    return json.loads(progress.json)


def _is_lost(error: Exception) -> bool:
    """Whether Java has ended, so that no query can be started again."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, Py4JNetworkError | ConnectionError)
