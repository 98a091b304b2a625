"""A declared pipeline as the job of an example: Ottla's runner of pipelines runs it in a thread.

Invariant: the progress is that of Spark's last report of each query that has started.
"""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import OttlaError
from ottla.pipeline import load
from shared.example import Context, Progress, RunFailed
from shared.monitor import query_progress

if TYPE_CHECKING:
    from ottla.pipeline.local_spark import LocalSpark
    from ottla.pipeline.runner import SparkQuery

STOP_POLL_S: Final = 0.1


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
        from ottla.pipeline.runner import PipelineRun

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
            one.startable._replace(start=self._remembered(one.query.name, one.start))
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
