"""Jobs on Spark: the declaration of a pipeline, or queries in Python.

`declared` runs a pipeline file with Ottla's own runner of pipelines, in a thread. `queries` runs
queries that Python functions start.

Invariant: the rows of the view come from Spark's last report of each query that runs.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import OttlaError
from ottla.pipeline import load
from shared.example import Context, Progress, RunFailed
from shared.monitor import query_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.pipeline.local_spark import LocalSpark
    from ottla.pipeline.runner import SparkQuery

WORKER_TIMEOUT: Final = "Python worker failed to connect back"
"""Spark's error if a Python process takes longer than 10 s to start, as on a busy machine."""

RESTARTS_MAX: Final = 5
"""A query is restarted so many times after that error."""

STOP_POLL_S: Final = 0.1

Start = Callable[[], "StreamingQuery"]
"""Starts a query, or starts it again from its checkpoint."""

Queries = Callable[["SparkSession", str, Path], Mapping[str, Start]]
"""Returns the queries by name, for a session, bootstrap servers and a directory."""


def queries(make: Queries) -> "Callable[[Context], RestartedQueries]":
    """Return the job of an example with queries in Python; the first one starts first."""

    def job(context: Context) -> RestartedQueries:
        session = _spark(context).session()
        return RestartedQueries(make(session, context.servers, context.directory))

    return job


def declared(file: Path) -> "Callable[[Context], DeclaredPipeline]":
    """Return the job of an example with a declaration.

    The file has the variables `${BROKERS}`, the bootstrap servers, and `${DIRECTORY}`, for its
    Parquet files and checkpoints. Its Python steps are modules in `examples`.
    """

    def job(context: Context) -> DeclaredPipeline:
        return DeclaredPipeline(file, context)

    return job


def _spark(context: Context) -> "LocalSpark":
    assert context.spark is not None, "main() of the example has uses_spark=False"
    return context.spark


class RestartedQueries:
    """Queries that are restarted if a Python process did not start in time."""

    def __init__(self, starts: Mapping[str, Start]) -> None:
        self._running: dict[str, StreamingQuery] = {}
        self._starts = starts
        self._restarts_left = dict.fromkeys(self._starts, RESTARTS_MAX)

    def start(self) -> None:
        """Start the first query from its checkpoint.

        The others start later: each query starts several processes, and if all of them start at
        once, the first results take as long as the last.
        """
        self._start(next(iter(self._starts)))

    def start_rest(self) -> None:
        """Start the other queries."""
        for name in self._starts:
            if name not in self._running:
                self._start(name)

    def check(self) -> None:
        """Restart the queries that failed for that reason; raise RunFailed for other reasons."""
        for name, query in [*self._running.items()]:
            failure = query.exception()
            if failure is None:
                continue
            if WORKER_TIMEOUT not in str(failure):
                raise RunFailed(f"query {name}: {str(failure).strip().splitlines()[0]}")
            if not self._restarts_left[name]:
                raise RunFailed(
                    f"query {name}: {WORKER_TIMEOUT} within 10 s; the machine is too busy"
                )
            self._restarts_left[name] -= 1
            self._start(name)

    def progress(self) -> Sequence[Progress]:
        """Return the progress of the queries that have started."""
        return [query_progress(name, one.lastProgress) for name, one in self._running.items()]

    def stop(self) -> None:
        """Stop all queries."""
        for query in self._running.values():
            query.stop()

    def _start(self, name: str) -> None:
        self._running[name] = self._starts[name]()


class DeclaredPipeline:
    """A pipeline file that Ottla's runner runs in a thread; it restarts queries that fail."""

    def __init__(self, file: Path, context: Context) -> None:
        self._file = file
        self._context = context
        self._running: dict[str, SparkQuery] = {}
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def start(self) -> None:
        """Start the pipeline."""
        self._thread.start()

    def start_rest(self) -> None:
        """Do nothing: the runner of pipelines decides when each query starts."""

    def check(self) -> None:
        """Raise RunFailed if the pipeline has ended."""
        if self._failure is not None:
            if isinstance(self._failure, OttlaError):
                raise RunFailed(str(self._failure))
            raise self._failure

    def progress(self) -> Sequence[Progress]:
        """Return the progress of the queries that have started."""
        found = [*self._running.items()]
        return [query_progress(name, one.lastProgress) for name, one in found]

    def stop(self) -> None:
        """Let the running micro-batches commit, and stop all queries."""
        self._stopping.set()
        while self._thread.is_alive():
            self._thread.join(STOP_POLL_S)

    def _run(self) -> None:
        try:
            self._run_pipeline()
        except Exception as error:  # the edge of this thread: check() raises it
            self._failure = error

    def _run_pipeline(self) -> None:
        from ottla.pipeline.compiler import Bindings, compile_pipeline
        from ottla.pipeline.runner import PipelineRun, StartableQuery

        context = self._context
        variables = {"BROKERS": context.servers, "DIRECTORY": str(context.directory)}
        loaded = load(self._file, environment={**os.environ, **variables})
        stop_file = context.directory / "stop"
        stop_file.unlink(missing_ok=True)
        compiled = compile_pipeline(
            _spark(context).session(),
            loaded,
            str(self._file),
            Bindings(stop_file=str(stop_file)),
        )
        startable = [
            StartableQuery(
                one.query.name,
                self._remembered(one.query.name, one.start),
                is_dead_letters=one.is_dead_letters,
            )
            for one in compiled.queries
        ]
        run = PipelineRun(loaded.pipeline.name, startable, stop_file, refreshes=compiled.refreshes)
        run.run(self._stopping.is_set)

    def _remembered(self, name: str, start: Callable[[], Any]) -> "Callable[[], SparkQuery]":
        """Return a function that starts a query and keeps it for the view."""

        def started() -> "SparkQuery":
            self._running[name] = query = start()
            return query

        return started
