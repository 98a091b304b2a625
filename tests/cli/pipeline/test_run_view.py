"""What `ottla pipeline run` shows: the live view, the log events and the summary."""

import io
import logging
from dataclasses import replace

import pytest
from rich.console import Console

from ottla.cli.pipeline.run_view import LiveView, ProgressEvents, rendered, summary
from ottla.cli.result import Failure, Table
from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState, TopicLag

AVERAGES = QueryProgress(
    "averages-parquet",
    state=QueryState.RUNNING,
    batch=121,
    batch_ms=420,
    rows_in=24180,
    rows_out=360,
    rows_per_s=512.4,
    batches=2,
    batches_ms=700,
    lag=3,
    lags={"sensors.readings": TopicLag(3, 1.5)},
    late={"averages": 4},
    state_rows=2000,
    state_bytes=3_400_000,
    failed={"readings.plausible": 5},
)
DEAD = QueryProgress(
    "readings-dead-letters",
    is_dead_letters=True,
    state=QueryState.WAITING,
    batch=7,
    rows_in=24180,
    rows_out=12,
    restarts=1,
    error="no broker",
)
NEW = QueryProgress("hot-topic")
PROGRESS = PipelineProgress("sensors", 3731.2, [AVERAGES, DEAD, NEW])


def test_live_view_has_a_line_for_each_query() -> None:
    written = io.StringIO()
    Console(file=written, width=110).print(rendered(PROGRESS))
    lines = [" ".join(line.split()) for line in written.getvalue().splitlines()]
    assert lines == [
        "Pipeline sensors 1:02:11",
        "query state batch time mean rows in rows out rows/s memory lag",
        "averages-parquet running 121 0.4 s 0.3 s 24,180 360 512 3.4 MB 3 (1.5 s)",
        "readings-dead-letters waiting to restart 7 0.0 s - 24,180 12 0 0.0 MB -",
        "hot-topic starting …",
        "12 dead letters 5 readings.plausible 4 late rows of averages",
        "readings-dead-letters: no broker",
        "Ctrl-C stops the pipeline. The next run continues from here.",
    ]


def test_live_view_of_queries_without_state_is_narrow() -> None:
    written = io.StringIO()
    Console(file=written, width=110).print(rendered(PipelineProgress("p", 1, [DEAD])))
    assert "memory" not in written.getvalue()
    assert max(map(len, written.getvalue().splitlines())) <= 100


def test_live_view_prints_rows_above_the_table() -> None:
    written = io.StringIO()
    with LiveView(written) as view:
        view.show_stage("Starting Spark")
        view.show(PROGRESS)
        view.print("Batch 0")
    assert "Batch 0\n" in written.getvalue()


def test_progress_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    events = ProgressEvents()
    later = replace(AVERAGES, batch=122)
    for elapsed_s, query in ((0, NEW), (1, AVERAGES), (5, later), (10, later), (12, later)):
        events.show(PipelineProgress("p", elapsed_s, [query]))
    events.show(PipelineProgress("p", 30, [later]))
    assert [record.args["batch"] for record in caplog.records if isinstance(record.args, dict)] == [
        121,
        122,
    ]


def test_summary_has_totals_and_the_failure() -> None:
    result = summary(PROGRESS, [Failure("query hot-topic: away")])
    table = next(one for one in result.shown if isinstance(one, Table))
    first = "averages-parquet", "running", 24180, 360, 4, 3, 0
    assert table.rows[0] == first
    assert result.shown[-3:] == [
        "12 dead letters",
        "4 late rows of averages",
        "5 rows failed readings.plausible",
    ]
    assert (result.value["dead_letters"], result.value["elapsed_s"]) == (12, 3731.2)
    assert len(result.failures) == 1


def test_one_dead_letter_is_not_several() -> None:
    first = replace(AVERAGES, late={"averages": 1}, failed={"readings.plausible": 1})
    one = PipelineProgress("sensors", 1, [first, replace(DEAD, rows_out=1)])
    assert summary(one).shown[-3:] == [
        "1 dead letter",
        "1 late row of averages",
        "1 row failed readings.plausible",
    ]
