"""`ottla pipeline run`: starts Spark, runs the queries of a pipeline, and shows them.

Everything that can be checked without Spark is checked before Spark starts.

Invariant: the output of Spark goes to a log file, and that of the command to the terminal, both
without the values of variables. The first signal stops the pipeline in order; the second one ends
the command at once.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import msgspec

from ottla.cli.escapes import printable
from ottla.cli.failures import Failed, Misused, failure_of
from ottla.cli.output import Output
from ottla.cli.pipeline.run_pages import Address, RunPages
from ottla.cli.pipeline.run_view import LiveView, ProgressEvents, progress_result, summary
from ottla.cli.pipeline.spark_submit import check_master
from ottla.cli.result import Failure, Result
from ottla.cli.stop_request import StopRequest
from ottla.errors import OttlaError
from ottla.pipeline.earlier_runs import (
    QueryDirectories,
    check_changes,
    check_new_start,
    check_skipped_batches,
    keep_declaration,
    query_directories,
    remote_directories,
)
from ottla.pipeline.hook_caller import HookCaller
from ottla.pipeline.hooks import HookSchedule
from ottla.pipeline.progress import PipelineProgress
from ottla.pipeline.run_files import RunFiles
from ottla.pipeline.spec.checks import AVAILABLE_NOW
from ottla.pipeline.spec.loading import Loaded
from ottla.pipeline.spec.model import Pipeline
from ottla.pipeline.spec.problems import InvalidPipeline
from ottla.pipeline.spec.redaction import Redaction
from ottla.pipeline.starting_position import BadPosition, start_from
from ottla.release import how_to_install
from ottla.settings.invalid_settings import InvalidSettings

WRITE_S: Final = 1.0
"""The time between two writes of the status file."""

ROWS_SHOWN: Final = 20
"""Rows of a micro-batch that a console sink prints at most, as Spark's does."""

SAVING: Final = (
    "Saving Spark's classes once, for faster starts; this takes about a minute; another Ctrl-C "
    "skips it"
)

_POLL_S: Final = 0.1
_EMPTY_LINES: Final = 4
"""The lines of a table without rows."""

_log: Final = logging.getLogger("ottla.pipeline.run")


class RunOptions(NamedTuple):
    """The options of the command."""

    once: bool
    master: str
    restarts: int
    grace_s: float
    log_format: str
    log_level: str
    output: Output
    http: Address | None
    """Where the live page, metrics and health are served."""
    keep_state: bool = False
    """Whether a query continues even if the pipeline has changed."""


def run_pipeline(
    file: Path, loaded: Loaded, options: RunOptions, position: str | None = None
) -> Result:
    """Run a pipeline until it ends or a signal stops it; raises an OttlaError.

    With `position`, the sources start there. Directories are shown as `loaded.written` has them.
    """
    with hidden_values(loaded.redaction):
        pipeline = loaded.pipeline
        if position is not None:
            try:
                pipeline = start_from(pipeline, position)
            except BadPosition as error:
                raise Misused(f"--from: {error}") from None
        if options.once:
            pipeline = msgspec.structs.replace(pipeline, trigger=AVAILABLE_NOW)
        loaded = loaded._replace(pipeline=pipeline)
        queries = query_directories(pipeline, loaded.written)
        with _reported_failure(loaded, options):
            _check_start(loaded, queries, options, is_new=position is not None)
        add_python_path(file)
        files = RunFiles(pipeline.name)
        with files.running(), StopRequest() as stop, ExitStack() as resources:
            with _reported_failure(loaded, options):
                pages = resources.enter_context(RunPages(loaded.written, options.http))
            shown = resources.enter_context(_Shown(files, options, pages, loaded.redaction))
            hooks = resources.enter_context(HookCaller())
            shown.write(PipelineProgress(pipeline.name))
            schedule = HookSchedule(pipeline)

            def report(progress: PipelineProgress) -> None:
                shown.show(progress)
                hooks.call(schedule.due_calls(progress))

            def is_stopping() -> bool:
                return stop.number is not None

            try:
                keep_declaration(queries, loaded.written)
                return _run(file, loaded, options, files, shown, report, is_stopping)
            except Exception as error:
                hooks.call(schedule.end_calls(loaded.redaction.hide(str(error))))
                raise


@contextmanager
def hidden_values(redaction: Redaction) -> Generator[None]:
    """Raise errors without the values of variables."""
    try:
        yield
    except InvalidPipeline:
        raise  # the problems are hidden already
    except (OttlaError, InvalidSettings) as error:
        failure = failure_of(error) if isinstance(error, OttlaError) else Failure(str(error))
        hidden = redaction.hide(failure.message)
        if hidden == failure.message:
            raise
        if isinstance(error, Misused | InvalidSettings):
            raise Misused(hidden) from None
        raise Failed(hidden, failure.code) from None
    except Exception as error:
        hidden = redaction.hide(str(error))
        if hidden == str(error):
            raise
        raise Failed(f"{type(error).__name__}: {hidden}", "INTERNAL") from None


@contextmanager
def _reported_failure(loaded: Loaded, options: RunOptions) -> Generator[None]:
    """Call the hooks for an error that prevents the start; wrong usage is for the terminal only."""
    try:
        yield
    except Misused:
        raise
    except Exception as error:
        text = loaded.redaction.hide(str(error))
        with (
            _logging(sys.stderr, options.log_format, options.log_level, loaded.redaction),
            HookCaller() as hooks,
        ):
            hooks.call(HookSchedule(loaded.pipeline).end_calls(text))
        raise


def _check_start(
    loaded: Loaded, queries: list[QueryDirectories], options: RunOptions, *, is_new: bool
) -> None:
    """Raise an OttlaError if the pipeline cannot start."""
    if is_new:
        check_new_start(queries)
    check_skipped_batches(queries)
    if not options.keep_state:
        check_changes(queries, loaded.written)
    check_spark(options.master)
    asyncio.run(check_brokers(loaded.pipeline))
    _check_topics(loaded.pipeline)


def check_spark(master: str) -> None:
    """Raise Failed if Spark is not installed, or NoJava if there is no Java for it."""
    from importlib.util import find_spec

    from ottla.pipeline.java import check_java

    check_master(master)
    for name in ("pyspark", "pyarrow", "pandas"):
        if find_spec(name) is None:
            raise Failed(f"Spark needs {name}: {how_to_install('spark')}")
    check_java()


def add_python_path(file: Path) -> None:
    """Let Python steps be modules beside the file, or in the working directory.

    Spark's Python processes get the same path.
    """
    paths = [str(file.resolve().parent), os.getcwd()]
    sys.path[:0] = paths
    before = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*paths, *before]))


async def check_brokers(pipeline: Pipeline) -> None:
    """Raise Failed if no broker responds."""
    from ottla.cli.probe import probe

    if why := await probe({"bootstrap.servers": pipeline.brokers, **pipeline.client}):
        raise Failed(f"{why}; the addresses are in `brokers` of the pipeline", "NETWORK_EXCEPTION")


def _check_topics(pipeline: Pipeline) -> None:
    """Raise Failed if a topic that a source names does not exist."""
    from ottla.cli.pipeline.topic_check import TIMEOUT_MS, client_settings, named_topics
    from ottla.errors import ErrorCode
    from ottla.settings.admin import ADMIN
    from ottla.sync import Admin

    named = (named_topics(name, one) for name, one in pipeline.sources.items())
    topics = [*dict.fromkeys(topic for one in named for _, topic in one)]
    if not topics:
        return
    with Admin({"default.api.timeout.ms": TIMEOUT_MS, **client_settings(pipeline, ADMIN)}) as admin:
        failed = admin.describe_topics(topics).failed
    missing = [
        str(topic)
        for topic, error in failed.items()
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    if missing:
        nouns = "topic {} does not" if len(missing) == 1 else "topics {} do not"
        names = ", ".join(missing)
        create = f"`ottla topic create {' '.join(missing)}`"
        raise Failed(f"{nouns.format(names)} exist: {create}", "UNKNOWN_TOPIC_OR_PARTITION")
    for error in failed.values():
        raise error


def _run(
    file: Path,
    loaded: Loaded,
    options: RunOptions,
    files: RunFiles,
    shown: "_Shown",
    report: Callable[[PipelineProgress], None],
    is_stopping: Callable[[], bool],
) -> Result:
    from ottla.pipeline.local_spark import LocalSpark, is_on_this_machine
    from ottla.pipeline.runner import PipelineFailed, PipelineRun

    pipeline = loaded.pipeline
    settings = {name: str(value) for name, value in pipeline.spark.items()}
    is_cluster = not is_on_this_machine(options.master)
    progress = PipelineProgress(pipeline.name)
    failures: list[Failure] = []
    with (
        _java_end(files),
        LocalSpark(
            f"ottla {pipeline.name}",
            files.log,
            master=options.master,
            settings=settings,
            hide=loaded.redaction.hide if loaded.redaction else None,
        ) as spark,
    ):
        shown.show_stage("Starting Spark")
        from ottla.pipeline.compiler import Bindings, compile_pipeline
        from ottla.pipeline.executors import check_executors, send_modules
        from ottla.pipeline.restarts import RestartPolicy

        while not spark.wait(_POLL_S):
            if is_stopping():
                return summary(progress)
        session = spark.session()
        if is_cluster:
            shown.show_stage("Waiting for executors")
            send_modules(session.sparkContext, pipeline, files.modules)
            if not check_executors(session.sparkContext, is_stopping):
                return summary(progress)
        _check_remote(session, loaded, options)
        shown.show_stage("Compiling the pipeline")
        bindings = Bindings(console=shown.show_rows, stop_file=str(files.stop_file))
        compiled = compile_pipeline(session, loaded, str(file), bindings)
        run = PipelineRun(
            pipeline.name,
            [one.startable for one in compiled.queries],
            files.stop_file,
            policy=RestartPolicy(restarts_max=options.restarts),
            refreshes=compiled.refreshes,
            report=report,
            grace_s=options.grace_s,
            hide=loaded.redaction.hide,
        )
        try:
            progress = run.run(is_stopping)
        except PipelineFailed as error:
            progress = run.progress
            failures.append(Failure(f"{error}. See {files.log}", "PIPELINE_FAILED"))
        # Once every query has worked, Java has loaded the classes that they need.
        has_worked = not failures and all(one.batches for one in progress.queries)
        if has_worked and spark.save_classes():
            shown.show_stage(SAVING)
            _log.info("saving classes of Spark", {"reason": "the next starts are faster"})
    return summary(progress, failures)


def _check_remote(session: Any, loaded: Loaded, options: RunOptions) -> None:
    """Check the checkpoints that only Spark can read, and keep the declaration there."""
    queries = query_directories(loaded.pipeline, loaded.written)
    if all(one.checkpoint.path is not None for one in queries):
        return
    from ottla.pipeline.remote_files import HadoopFiles

    remote = remote_directories(queries, HadoopFiles(session))
    check_skipped_batches(remote)
    if not options.keep_state:
        check_changes(remote, loaded.written)
    keep_declaration(remote, loaded.written)


@contextmanager
def _java_end(files: RunFiles) -> Generator[None]:
    """Report the end of Java, such as after a lack of memory, on one line."""
    try:
        yield
    except Exception as error:
        from py4j.protocol import Py4JNetworkError

        if not isinstance(error, Py4JNetworkError | ConnectionError):
            raise
        raise Failed(f"Spark has ended unexpectedly. See {files.log}") from error


class _Shown:
    """Where a run is shown: on the terminal and the pages, in log events and the status file.

    It keeps its own copies of stdout and stderr, which Spark's output does not reach.
    """

    def __init__(
        self, files: RunFiles, options: RunOptions, pages: RunPages, redaction: Redaction
    ) -> None:
        self._files = files
        self._options = options
        self._pages = pages
        self._redaction = redaction
        self._is_live = options.output is Output.TABLE and sys.stdout.isatty()
        self._view: LiveView | None = None
        self._events: ProgressEvents | None = None
        self._rows: TextIO = sys.stdout
        self._written_s = -WRITE_S
        self._written: Mapping[str, Any] = {}
        self._resources = ExitStack()

    def __enter__(self) -> "_Shown":
        with ExitStack() as resources:
            terminal = resources.enter_context(os.fdopen(os.dup(1), "w"))
            errors = resources.enter_context(os.fdopen(os.dup(2), "w"))
            is_table = self._options.output is Output.TABLE
            self._rows = terminal if is_table else errors
            log = errors
            if self._is_live:
                log = resources.enter_context(self._files.events.open("a"))
                self._view = resources.enter_context(LiveView(terminal, self._pages.url))
            self._events = ProgressEvents()
            resources.enter_context(
                _logging(log, self._options.log_format, self._options.log_level, self._redaction)
            )
            self._resources = resources.pop_all()
        if self._pages.url is not None:
            _log.info("live page opened", {"url": self._pages.url})
        return self

    def __exit__(self, *exception: object) -> None:
        self._resources.close()

    def show_stage(self, stage: str) -> None:
        """Show what the command does before there is progress."""
        if self._view is not None:
            self._view.show_stage(stage)

    def show(self, progress: PipelineProgress) -> None:
        """Show the progress."""
        if self._view is not None:
            self._view.show(progress)
        if self._events is not None:
            self._events.show(progress)
        self._pages.show(progress)
        states = [one.state for one in progress.queries]
        is_new = states != self._written.get("states")
        if is_new or progress.elapsed_s >= self._written_s + WRITE_S:
            self._written_s = progress.elapsed_s
            self._written = {"states": states}
            self.write(progress)

    def write(self, progress: PipelineProgress) -> None:
        """Write the status file."""
        page = {} if self._pages.url is None else {"page": self._pages.url}
        self._files.write({**progress_result(progress), **page})

    def show_rows(self, rows: Any, batch: int) -> None:
        """Print a micro-batch of a console sink, if it has rows."""
        table: str = rows._show_string(ROWS_SHOWN, False, False)  # noqa: SLF001
        if table.count("\n") <= _EMPTY_LINES:
            return
        text = f"Batch {batch}\n{table}"
        if self._view is not None:
            self._view.print(text)
        else:
            lines = (printable(line) for line in text.splitlines())
            print(*lines, sep="\n", file=self._rows, flush=True)


class _WithoutValues(logging.Formatter):
    """Formats events without the values of variables."""

    def __init__(self, lines: logging.Formatter, redaction: Redaction) -> None:
        super().__init__()
        self._lines = lines
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        return self._redaction.hide(self._lines.format(record))


@contextmanager
def _logging(stream: TextIO, form: str, level: str, redaction: Redaction) -> Generator[None]:
    from ottla.broker.event_lines import EventLines, LineFormat

    handler = logging.StreamHandler(stream)
    handler.setFormatter(_WithoutValues(EventLines(LineFormat(form)), redaction))
    logger = logging.getLogger("ottla")
    before = logger.level
    logger.setLevel(level.upper())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
