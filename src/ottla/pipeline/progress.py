"""The progress of streaming queries: rows, rates, lag, expectations and dead letters.

Spark reports the progress of each micro-batch as an object. `advanced` adds one report to the
totals of a query; `PipelineProgress` has the totals of all queries.

Invariant: totals count from the start of the run, and each micro-batch counts once. The lag is in
offsets, as of the last report of Spark.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, cast

OUTPUT: Final = "ottla.output"
"""The observation with the rows of an output whose rows Spark does not count."""
OUTPUT_ROWS: Final = "rows"


class QueryState(StrEnum):
    """What a query does."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting to restart"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The totals of a query, and its last micro-batch."""

    name: str
    is_dead_letters: bool = False
    state: QueryState = QueryState.STARTING
    batch: int | None = None
    """The id of the last micro-batch; None before the first one has ended."""
    batch_ms: int = 0
    rows_in: int = 0
    rows_out: int | None = None
    """None if nothing counts them."""
    rows_per_s: float = 0.0
    lag: int | None = None
    """None before the first report, or if no source has offsets."""
    late_rows: int = 0
    state_rows: int = 0
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    """The rows that failed each expectation, as source.expectation."""
    restarts: int = 0
    error: str = ""
    reported: str = ""
    """The time of Spark's last report that was counted."""


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """The queries of a pipeline at one time."""

    pipeline: str
    elapsed_s: float = 0.0
    queries: Sequence[QueryProgress] = ()

    @property
    def dead_letters(self) -> int:
        """The dead letters of this run."""
        return sum(one.rows_out or 0 for one in self.queries if one.is_dead_letters)

    @property
    def lag(self) -> int | None:
        """The lag of the slowest query; None until every query has reported one."""
        known = [one.lag for one in self.queries if one.lag is not None]
        return max(known) if known and len(known) == len(self.queries) else None

    @property
    def failed(self) -> dict[str, int]:
        """The rows that failed each expectation; several queries can read the same source."""
        found: dict[str, int] = {}
        for query in self.queries:
            for name, count in query.failed.items():
                found[name] = max(count, found.get(name, 0))
        return found


def advanced(before: QueryProgress, report: Mapping[str, Any]) -> QueryProgress:
    """Add one of Spark's reports to the totals; one that was counted before changes nothing."""
    reported = str(report.get("timestamp", ""))
    if before.reported and reported <= before.reported:
        return before
    operators = cast("list[Mapping[str, Any]]", report.get("stateOperators") or [])
    rows_in = int(report.get("numInputRows") or 0)
    rows_out = _rows_out(report)
    is_batch = _is_batch(report)
    rate = report.get("processedRowsPerSecond")
    duration = cast("Mapping[str, int]", report.get("durationMs") or {})
    failed = dict(before.failed)
    for name, count in _failed(report):
        failed[name] = failed.get(name, 0) + count
    return replace(
        before,
        batch=int(report["batchId"]) if is_batch else before.batch,
        batch_ms=int(duration.get("triggerExecution", 0)) if is_batch else before.batch_ms,
        rows_in=before.rows_in + rows_in,
        rows_out=before.rows_out if rows_out is None else (before.rows_out or 0) + rows_out,
        # Spark reports NaN or infinity as a text for a micro-batch that took no time.
        rows_per_s=float(rate) if isinstance(rate, int | float) else 0.0,
        lag=_lag(report, before.lag),
        late_rows=before.late_rows + _total(operators, "numRowsDroppedByWatermark"),
        state_rows=_total(operators, "numRowsTotal") if operators else before.state_rows,
        failed=failed,
        reported=reported,
    )


def is_next(before: QueryProgress, report: Mapping[str, Any]) -> bool:
    """Whether no report can be missing between the last one that was counted and this one."""
    if before.batch is None or not _is_batch(report) or not report.get("numInputRows"):
        return False
    return int(report["batchId"]) <= before.batch + 1


def _is_batch(report: Mapping[str, Any]) -> bool:
    """Whether a micro-batch has run; Spark also reports when there is nothing to do."""
    duration = cast("Mapping[str, int]", report.get("durationMs") or {})
    return "addBatch" in duration


def _total(parts: Iterable[Mapping[str, Any]], name: str) -> int:
    return sum(int(one.get(name) or 0) for one in parts)


def _rows_out(report: Mapping[str, Any]) -> int | None:
    """Return the rows that a micro-batch has written; None if nobody counted them."""
    sink = cast("Mapping[str, Any]", report.get("sink") or {})
    written = sink.get("numOutputRows")
    if isinstance(written, int) and written >= 0:
        return written
    observed = _observed(report).get(OUTPUT)
    return None if observed is None else int(observed.get(OUTPUT_ROWS) or 0)


def _failed(report: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    for name, counts in _observed(report).items():
        if name != OUTPUT:
            for expectation, count in counts.items():
                if expectation != OUTPUT_ROWS:
                    yield f"{name}.{expectation}", int(count or 0)


def _observed(report: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return cast("Mapping[str, Mapping[str, Any]]", report.get("observedMetrics") or {})


def _lag(report: Mapping[str, Any], before: int | None) -> int | None:
    """Return the offsets that are not read yet, of all sources."""
    known: list[int] = []
    for source in cast("list[Mapping[str, Any]]", report.get("sources") or []):
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if latest:
            known.append(sum(max(0, end - ends.get(one, 0)) for one, end in latest.items()))
    return sum(known) if known else before


def _offsets(given: object) -> dict[tuple[str, str], int]:
    """Return the offsets of a source by topic and partition; nothing for other kinds of sources."""
    try:
        found: object = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        (topic, partition): offset
        for topic, partitions in cast("dict[str, object]", found).items()
        if isinstance(partitions, dict)
        for partition, offset in cast("dict[str, object]", partitions).items()
        if isinstance(offset, int)
    }
