"""The progress of streaming queries: rows, rates, lag, expectations and dead letters.

Spark reports the progress of each micro-batch as an object. `advanced` adds one report to the
totals of a query; `PipelineProgress` has the totals of all queries.

Invariant: totals count from the start of the run, and each micro-batch counts once. The lag is in
offsets, as of the last report of Spark. The lag in seconds is the time from the newest report whose
records are all read until the last one. Until the records of the first report are read, it is the
time since the first report, and the true lag is longer.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, cast

OUTPUT: Final = "ottla.output"
"""The observation with the rows of an output whose rows Spark does not count."""
OUTPUT_ROWS: Final = "rows"

SAMPLES_MAX: Final = 64
"""The reports that are kept for the lag of a topic in seconds; more make it more precise."""

Ends: TypeAlias = Mapping[str, int]
"""The end offset of each partition of a topic."""


class TopicLag(NamedTuple):
    """What a query has not read of a topic."""

    records: int
    seconds: float


class EndSample(NamedTuple):
    """The end of a topic at the time of a report."""

    time_s: float
    ends: Ends


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
    batches: int = 0
    """The micro-batches of this run."""
    batches_ms: int = 0
    """The time that they took."""
    rows_in: int = 0
    rows_out: int | None = None
    """None if nothing counts them."""
    rows_per_s: float = 0.0
    lag: int | None = None
    """None before the first report, or if no source has offsets."""
    lags: Mapping[str, TopicLag] = field(default_factory=dict[str, TopicLag])
    """The lag of each topic."""
    late: Mapping[str, int] = field(default_factory=dict[str, int])
    """The late rows of each step with state; the name is empty if Spark does not show the step."""
    state_rows: int = 0
    state_bytes: int = 0
    """The memory of the state."""
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    """The rows that failed each expectation, as source.expectation."""
    restarts: int = 0
    error: str = ""
    reported: str = ""
    """The time of Spark's last report that was counted."""
    samples: Mapping[str, Sequence[EndSample]] = field(
        default_factory=dict[str, Sequence[EndSample]], repr=False
    )
    """The ends of each topic in earlier reports that are not older than its lag."""

    @property
    def late_rows(self) -> int:
        """The late rows of all steps of the query."""
        return sum(self.late.values())

    @property
    def mean_ms(self) -> float | None:
        """The mean time of a micro-batch; None before the first one."""
        return self.batches_ms / self.batches if self.batches else None

    @property
    def lag_s(self) -> float | None:
        """The lag in seconds, of the topic that is furthest behind; None if `lag` is."""
        return max((one.seconds for one in self.lags.values()), default=None)

    @property
    def reported_s(self) -> float | None:
        """The time of Spark's last report, in seconds since the epoch."""
        return _time_s(self.reported) if self.reported else None


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


def advanced(
    before: QueryProgress, report: Mapping[str, Any], state_steps: Sequence[str] = ()
) -> QueryProgress:
    """Add one of Spark's reports to the totals; one that was counted before changes nothing.

    `state_steps` has the step of each operator with state, in the order of the report.
    """
    reported = str(report.get("timestamp", ""))
    if before.reported and reported <= before.reported:
        return before
    operators = cast("list[Mapping[str, Any]]", report.get("stateOperators") or [])
    rows_in = int(report.get("numInputRows") or 0)
    rows_out = _rows_out(report)
    is_batch = _is_batch(report)
    rate = report.get("processedRowsPerSecond")
    duration = cast("Mapping[str, int]", report.get("durationMs") or {})
    batch_ms = int(duration.get("triggerExecution", 0)) if is_batch else 0
    samples, lags = _lags(before, report, reported)
    failed = dict(before.failed)
    for name, count in _failed(report):
        failed[name] = failed.get(name, 0) + count
    return replace(
        before,
        batch=int(report["batchId"]) if is_batch else before.batch,
        batch_ms=batch_ms if is_batch else before.batch_ms,
        batches=before.batches + is_batch,
        batches_ms=before.batches_ms + batch_ms,
        rows_in=before.rows_in + rows_in,
        rows_out=before.rows_out if rows_out is None else (before.rows_out or 0) + rows_out,
        # Spark reports NaN or infinity as a text for a micro-batch that took no time.
        rows_per_s=float(rate) if isinstance(rate, int | float) else 0.0,
        lag=_lag(report, before.lag),
        lags=lags,
        late=_late(before.late, operators, state_steps),
        state_rows=_total(operators, "numRowsTotal") if operators else before.state_rows,
        state_bytes=_total(operators, "memoryUsedBytes") if operators else before.state_bytes,
        failed=failed,
        reported=reported,
        samples=samples,
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


def _late(
    before: Mapping[str, int], operators: Sequence[Mapping[str, Any]], steps: Sequence[str]
) -> Mapping[str, int]:
    """Return the late rows of each step; Spark counts them for each operator."""
    if len(operators) != len(steps):  # Spark has changed the plan: only the sum is known
        steps = [""] * len(operators)
    found = dict(before)
    for step, operator in zip(steps, operators, strict=True):
        count = int(operator.get("numRowsDroppedByWatermark") or 0)
        if step or count:
            found[step] = found.get(step, 0) + count
    return found


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


def _lags(
    before: QueryProgress, report: Mapping[str, Any], reported: str
) -> tuple[Mapping[str, Sequence[EndSample]], Mapping[str, TopicLag]]:
    """Return the ends of topics to remember, and the lag of each topic."""
    time_s = _time_s(reported) if reported else 0.0
    samples, lags = dict(before.samples), dict(before.lags)
    counted: set[str] = set()
    for source in cast("list[Mapping[str, Any]]", report.get("sources") or []):
        read, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for topic in dict.fromkeys(topic for topic, _ in latest):
            ends = {partition: end for (one, partition), end in latest.items() if one == topic}
            records = sum(
                max(0, end - read.get((topic, partition), 0)) for partition, end in ends.items()
            )
            if topic in counted and records <= lags[topic].records:
                continue  # a topic that is read twice has the lag of the slower stream
            counted.add(topic)
            kept = _since_read(
                [*before.samples.get(topic, ()), EndSample(time_s, ends)],
                {partition: end for (one, partition), end in read.items() if one == topic},
            )
            samples[topic] = kept
            lags[topic] = TopicLag(records, time_s - kept[0].time_s if records else 0.0)
    return samples, lags


def _since_read(samples: Sequence[EndSample], read: Ends) -> Sequence[EndSample]:
    """Return the samples from the newest one whose records are read; all of them without one."""
    first = 0
    for at, sample in enumerate(samples):
        if all(end <= read.get(partition, 0) for partition, end in sample.ends.items()):
            first = at
    kept = samples[first:]
    return kept if len(kept) <= SAMPLES_MAX else [*kept[:-1:2], kept[-1]]


def _time_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


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
