"""Shows a running pipeline: a live table on a terminal, elsewhere log events; and its summary.

Invariant: nothing that is shown has the value of a variable: only names and numbers.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

from ottla.cli.escapes import escaped
from ottla.cli.output import Json
from ottla.cli.result import NOTHING, Cell, Failure, Result, Table
from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState

EVENT_S: Final = 10.0
"""The time between two events with the progress of a query."""

_log: Final = logging.getLogger("ottla.pipeline.progress")
_STYLES: Final[Mapping[QueryState, str]] = {
    QueryState.RUNNING: "green",
    QueryState.FINISHED: "green",
    QueryState.FAILED: "red",
    QueryState.WAITING: "yellow",
}


class ProgressEvents:
    """Logs the progress of each query: when it has changed, at most every EVENT_S."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[float, QueryProgress]] = {}

    def show(self, progress: PipelineProgress) -> None:
        """Log what is new."""
        for query in progress.queries:
            at_s, before = self._logged.get(query.name, (-EVENT_S, None))
            is_due = progress.elapsed_s >= at_s + EVENT_S
            if query.batch is None or not is_due or before == query:
                continue
            self._logged[query.name] = (progress.elapsed_s, query)
            _log.info("progress reported", {"query": query.name, **progress_object(query)})


class LiveView:
    """Shows the progress on a terminal during the `with` block."""

    def __init__(self, terminal: TextIO, url: str | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._url = url
        self._console = Console(file=terminal, highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            # Spark writes to stderr, which belongs into the log file.
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def show(self, progress: PipelineProgress) -> None:
        """Show the progress."""
        self._live.update(rendered(progress, self._url), refresh=True)

    def show_stage(self, stage: str) -> None:
        """Show what the command does before there is progress."""
        from rich.text import Text

        self._live.update(Text(stage, style="dim"), refresh=True)

    def print(self, text: str) -> None:
        """Print a text above the table."""
        self._console.print(text, soft_wrap=True)


def rendered(progress: PipelineProgress, url: str | None = None) -> Any:
    """Return the live view; `url` is that of the live page."""
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    title = Text.assemble(
        ("Pipeline ", "dim"), (escaped(progress.pipeline), "bold"), f"   {_time(progress)}"
    )
    if url is not None:
        title.append(f"   {url}", "dim")
    table = RichTable(box=None, pad_edge=False, header_style="dim")
    table.add_column("query", no_wrap=True)
    table.add_column("state", no_wrap=True)
    has_state = any(one.late or one.state_rows for one in progress.queries)
    for heading in _headings(has_state=has_state):
        table.add_column(heading, justify="right", no_wrap=True)
    for query in progress.queries:
        style = _STYLES.get(query.state, "")
        table.add_row(
            escaped(query.name),
            Text(query.state, style=style),
            *_live_cells(query, has_state=has_state),
        )
    dead, what = _counted(progress.dead_letters, "dead letter").split(" ", 1)
    counts = Text.assemble((dead, "bold"), f" {what}")
    for name, count in progress.failed.items():
        counts.append(f"   {count:,} ").append(escaped(name), "yellow" if count else "dim")
    for name, count in late_rows(progress).items():
        counts.append(f"   {_counted(count, 'late row')}")
        counts.append(f" of {escaped(name)}" if name else "")
    parts: list[Any] = [title, table, counts]
    parts += [
        Text(f"{query.name}: {escaped(query.error)}", style="yellow")
        for query in progress.queries
        if query.error
    ]
    parts.append(Text("Ctrl-C stops the pipeline. The next run continues from here.", style="dim"))
    return Group(*parts)


def late_rows(progress: PipelineProgress) -> dict[str, int]:
    """Return the late rows of each step; several queries can have the same step."""
    found: dict[str, int] = {}
    for query in progress.queries:
        for step, count in query.late.items():
            found[step] = max(count, found.get(step, 0))
    return found


def _headings(*, has_state: bool) -> Sequence[str]:
    state = ("memory",) if has_state else ()
    return ("batch", "time", "mean", "rows in", "rows out", "rows/s", *state, "lag")


def _live_cells(query: QueryProgress, *, has_state: bool) -> Sequence[str]:
    if query.batch is None:
        return ("…",)
    state = (f"{query.state_bytes / 1e6:,.1f} MB",) if has_state else ()
    lag = _number(query.lag)
    if query.lag_s is not None:
        lag = f"{lag} ({_seconds(query.lag_s)})"
    return (
        f"{query.batch:,}",
        _seconds(query.batch_ms / 1000),
        _seconds(None if query.mean_ms is None else query.mean_ms / 1000),
        f"{query.rows_in:,}",
        _number(query.rows_out),
        f"{query.rows_per_s:,.0f}",
        *state,
        lag,
    )


def _seconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{seconds:,.1f} s"


def _number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def _time(progress: PipelineProgress) -> str:
    minutes, seconds = divmod(int(progress.elapsed_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def summary(progress: PipelineProgress, failures: Sequence[Failure] = ()) -> Result:
    """Return what a run has done."""
    heads = ("QUERY", "STATE", "ROWS IN", "ROWS OUT", "LATE ROWS", "LAG", "RESTARTS")
    rows: list[tuple[Cell, ...]] = [
        (
            *(one.name, str(one.state), one.rows_in, one.rows_out),
            *(one.late_rows, one.lag, one.restarts),
        )
        for one in progress.queries
    ]
    shown: list[Table | str] = [
        escaped(f"Pipeline {progress.pipeline}, {_time(progress)}"),
        "",
        Table(heads, rows),
        "",
        _counted(progress.dead_letters, "dead letter"),
    ]
    shown += [
        _counted(count, "late row") + (f" of {escaped(name)}" if name else "")
        for name, count in late_rows(progress).items()
    ]
    shown += [
        f"{_counted(count, 'row')} failed {escaped(name)}"
        for name, count in progress.failed.items()
    ]
    return Result(progress_result(progress), shown, failures)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def progress_result(progress: PipelineProgress) -> dict[str, Json]:
    """Return the progress of a pipeline as an object."""
    return {
        "pipeline": progress.pipeline,
        "elapsed_s": round(progress.elapsed_s, 1),
        "dead_letters": progress.dead_letters,
        "failed": progress.failed,
        "queries": [{"name": one.name, **progress_object(one)} for one in progress.queries],
    }


def progress_object(query: QueryProgress) -> dict[str, Json]:
    """Return the progress of a query as an object."""
    found: dict[str, Json] = {
        "state": str(query.state),
        "batch": query.batch,
        "batch_ms": query.batch_ms,
        "rows_in": query.rows_in,
        "rows_out": query.rows_out,
        "rows_per_s": round(query.rows_per_s, 1),
        "lag": query.lag,
        "lag_s": None if query.lag_s is None else round(query.lag_s, 1),
        "late_rows": query.late_rows,
        "late": dict(query.late),
        "state_rows": query.state_rows,
        "state_bytes": query.state_bytes,
        "restarts": query.restarts,
    }
    return {**found, "error": query.error} if query.error else found
