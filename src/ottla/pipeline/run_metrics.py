# ruff: noqa: E501 - one line per row
"""The metrics and the health of a running pipeline.

Invariant: every exported metric is in the table. Labels are names of the declaration and of topics,
never the values of variables.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ottla import __version__
from ottla.metrics import Family, Kind, Metric
from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState

# fmt: off
INFO: Final = Metric("ottla_pipeline_info", Kind.GAUGE, ("pipeline", "version"),
    "Always 1. The labels identify the pipeline and the release.")
RUN_SECONDS: Final = Metric("ottla_pipeline_run_seconds", Kind.GAUGE, ("pipeline",),
    "Time in seconds since the queries were started.")
UP: Final = Metric("ottla_pipeline_query_up", Kind.GAUGE, ("pipeline", "query"),
    "1 if Spark runs the query, 0 if it waits for a restart, has ended or has not started.")
RESTARTS: Final = Metric("ottla_pipeline_restarts_total", Kind.COUNTER, ("pipeline", "query"),
    "Number of restarts after a failure.")
BATCHES: Final = Metric("ottla_pipeline_batches_total", Kind.COUNTER, ("pipeline", "query"),
    "Number of finished micro-batches.")
BATCHES_SECONDS: Final = Metric("ottla_pipeline_batch_seconds_total", Kind.COUNTER, ("pipeline", "query"),
    "Time in seconds of all finished micro-batches.")
BATCH_SECONDS: Final = Metric("ottla_pipeline_last_batch_seconds", Kind.GAUGE, ("pipeline", "query"),
    "Time in seconds of the last micro-batch.")
REPORTED: Final = Metric("ottla_pipeline_last_report_timestamp_seconds", Kind.GAUGE, ("pipeline", "query"),
    "Time of Spark's last report in seconds since the epoch. An idle query reports every 10 seconds.")
ROWS_IN: Final = Metric("ottla_pipeline_rows_in_total", Kind.COUNTER, ("pipeline", "query"),
    "Number of rows read.")
ROWS_OUT: Final = Metric("ottla_pipeline_rows_out_total", Kind.COUNTER, ("pipeline", "query"),
    "Number of rows written.")
ROWS_RATE: Final = Metric("ottla_pipeline_rows_per_second", Kind.GAUGE, ("pipeline", "query"),
    "Rows per second of the last micro-batch.")
LAG: Final = Metric("ottla_pipeline_lag_records", Kind.GAUGE, ("pipeline", "query", "topic"),
    "Number of offsets of the topic that the query had not read at its last report.")
LAG_SECONDS: Final = Metric("ottla_pipeline_lag_seconds", Kind.GAUGE, ("pipeline", "query", "topic"),
    "Time in seconds that the query was behind the topic at its last report. At the start of a run it counts from the first report.")
LATE: Final = Metric("ottla_pipeline_late_rows_total", Kind.COUNTER, ("pipeline", "query", "step"),
    "Number of rows that the step dropped because they were later than the watermark.")
STATE_ROWS: Final = Metric("ottla_pipeline_state_rows", Kind.GAUGE, ("pipeline", "query"),
    "Number of rows in the state.")
STATE_BYTES: Final = Metric("ottla_pipeline_state_bytes", Kind.GAUGE, ("pipeline", "query"),
    "Memory of the state in bytes.")
FAILED_ROWS: Final = Metric("ottla_pipeline_failed_rows_total", Kind.COUNTER, ("pipeline", "expectation"),
    "Number of rows that failed the expectation.")
DEAD_LETTERS: Final = Metric("ottla_pipeline_dead_letters_total", Kind.COUNTER, ("pipeline",),
    "Number of dead letters.")
# fmt: on

METRICS: Final = (
    INFO, RUN_SECONDS, UP, RESTARTS, BATCHES, BATCHES_SECONDS, BATCH_SECONDS, REPORTED, ROWS_IN, ROWS_OUT,
    ROWS_RATE, LAG, LAG_SECONDS, LATE, STATE_ROWS, STATE_BYTES, FAILED_ROWS, DEAD_LETTERS,
)  # fmt: skip
"""All metrics of a pipeline, in the order of the page."""

_OF_QUERIES: Final[Sequence[tuple[Metric, Callable[[QueryProgress], int | float | None]]]] = (
    (UP, lambda query: int(is_up(query))),
    (RESTARTS, lambda query: query.restarts),
    (BATCHES, lambda query: query.batches),
    (BATCHES_SECONDS, lambda query: query.batches_ms / 1000),
    (BATCH_SECONDS, lambda query: query.batch_ms / 1000),
    (REPORTED, lambda query: query.reported_s),
    (ROWS_IN, lambda query: query.rows_in),
    (ROWS_OUT, lambda query: query.rows_out),
    (ROWS_RATE, lambda query: round(query.rows_per_s, 1)),
)
_OF_STATE: Final[Sequence[tuple[Metric, Callable[[QueryProgress], int | float | None]]]] = (
    (STATE_ROWS, lambda query: query.state_rows),
    (STATE_BYTES, lambda query: query.state_bytes),
)
_DOWN: Final = (QueryState.WAITING, QueryState.FAILED)


def is_up(query: QueryProgress) -> bool:
    """Whether Spark runs a query."""
    return query.state in (QueryState.RUNNING, QueryState.STOPPING)


def unhealthy_queries(progress: PipelineProgress) -> list[str]:
    """Return the queries that have failed, or wait for a restart after a failure."""
    return [one.name for one in progress.queries if one.state in _DOWN]


def metric_families(progress: PipelineProgress) -> Iterator[Family]:
    """Yield the metrics of a pipeline with their values."""
    name = progress.pipeline
    yield INFO, [((name, __version__), 1)]
    yield RUN_SECONDS, [((name,), round(progress.elapsed_s, 3))]
    for metric, value in _OF_QUERIES:
        yield metric, _values(progress, value)
    yield LAG, _lags(progress, lambda lag: lag[0])
    yield LAG_SECONDS, _lags(progress, lambda lag: round(lag[1], 3))
    yield LATE, _late_rows(progress)
    for metric, value in _OF_STATE:
        yield metric, _values(progress, value)
    yield FAILED_ROWS, [((name, one), count) for one, count in progress.failed.items()]
    yield DEAD_LETTERS, [((name,), progress.dead_letters)]


def _values(
    progress: PipelineProgress, value: Callable[[QueryProgress], int | float | None]
) -> Iterable[tuple[Sequence[str], int | float]]:
    for query in progress.queries:
        found = value(query)
        if found is not None:
            yield (progress.pipeline, query.name), found


def _late_rows(progress: PipelineProgress) -> Iterable[tuple[Sequence[str], int]]:
    for query in progress.queries:
        for step, count in query.late.items():
            yield (progress.pipeline, query.name, step), count


def _lags(
    progress: PipelineProgress, value: Callable[[tuple[int, float]], int | float]
) -> Iterable[tuple[Sequence[str], int | float]]:
    for query in progress.queries:
        for topic, lag in query.lags.items():
            yield (progress.pipeline, query.name, topic), value(lag)
