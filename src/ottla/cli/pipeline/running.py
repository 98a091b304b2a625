"""`ottla pipeline status` and `stop`: find the pipelines that run in this directory.

Invariant: a signal goes only to a process that holds the lock of the pipeline.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.cli.escapes import printable
from ottla.cli.failures import Failed
from ottla.cli.output import Json
from ottla.cli.result import Cell, Result, Table
from ottla.pipeline.run_files import RunFiles, RunStatus

_POLL_S: Final = 0.1


def status_result(found: Sequence[RunStatus]) -> Result:
    """Return the pipelines, and their queries."""
    pipelines: list[tuple[Cell, ...]] = []
    queries: list[tuple[Cell, ...]] = []
    for one in found:
        content = one.content
        state = "running" if one.is_running else "stopped"
        pipelines.append(
            (one.name, state, one.process, content.get("elapsed_s"), content.get("dead_letters"))
        )
        for query in _queries(content):
            cells = ("state", "batch", "rows_in", "rows_out", "rows_per_s", "lag", "restarts")
            queries.append((one.name, query.get("name"), *(query.get(name) for name in cells)))
    shown: list[Table | str] = ["no pipeline has run in this directory"]
    if pipelines:
        heads = ("PIPELINE", "STATE", "PROCESS", "SECONDS", "DEAD LETTERS")
        shown = [Table(heads, pipelines)]
    if queries:
        heads = (
            *("PIPELINE", "QUERY", "STATE", "BATCH"),
            *("ROWS IN", "ROWS OUT", "ROWS/S", "LAG", "RESTARTS"),
        )
        shown += ["", Table(heads, queries)]
    return Result({"pipelines": [_object(one) for one in found]}, shown)


def _object(found: RunStatus) -> dict[str, Json]:
    kept = {name: value for name, value in found.content.items() if name != "process"}
    return {**kept, "pipeline": found.name, "running": found.is_running, "process": found.process}


def _queries(content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = content.get("queries")
    return found if isinstance(found, list) else ()  # pyright: ignore[reportUnknownVariableType]


def stop_pipeline(
    files: RunFiles,
    timeout_s: float,
    *,
    send: Callable[[int, int], None] = os.kill,
    elapsed_s: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Result:
    """Ask a pipeline to stop, and wait until it has; raises Failed."""
    name, process = files.name, files.read().process
    if process is None:
        raise Failed(f"pipeline {name} does not run in {files.directory.parent}", "NOT_RUNNING")
    send(process, signal.SIGTERM)
    until_s = elapsed_s() + timeout_s
    while files.read().is_running:
        if elapsed_s() >= until_s:
            what = f"pipeline {name}, process {process}, has not stopped within {timeout_s:g} s"
            raise Failed(what, "TIMED_OUT")
        wait(_POLL_S)
    return Result(
        {"pipeline": name, "process": process, "stopped": True},
        [f"Pipeline {printable(name)}, process {process}, has stopped."],
    )
