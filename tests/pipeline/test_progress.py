"""Numbers of running queries, from the reports of Spark."""

import json
from typing import Any

from ottla.pipeline.progress import (
    OUTPUT,
    SAMPLES_MAX,
    PipelineProgress,
    QueryProgress,
    TopicLag,
    advanced,
    is_next,
)


def report(batch: int, rows: int = 10, **more: Any) -> dict[str, Any]:
    """A report of Spark; the time is that of its micro-batch unless it is given."""
    return {
        "timestamp": f"2026-01-01T00:00:{batch:02}.000Z",
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 2.0,
        "durationMs": {"addBatch": 40, "triggerExecution": 50},
        "stateOperators": [],
        "sources": [],
        "sink": {"numOutputRows": -1},
        "observedMetrics": {},
        **more,
    }


def idle(batch: int) -> dict[str, Any]:
    return report(
        batch,
        rows=0,
        timestamp=f"2026-01-01T00:01:{batch:02}.000Z",
        durationMs={"triggerExecution": 3},
        processedRowsPerSecond="NaN",
    )


def offsets(**partitions: int) -> str:
    return json.dumps({"t": {name.removeprefix("p"): end for name, end in partitions.items()}})


def test_rows_add_up_and_repeated_reports_do_not_count() -> None:
    query = QueryProgress("q")
    for one in (report(0), report(1, 5), report(1, 5), report(0), report(2, 1)):
        query = advanced(query, one)
    assert (query.rows_in, query.batch, query.batch_ms, query.rows_per_s) == (16, 2, 50, 2.0)
    assert query.rows_out is None


def test_idle_report_is_not_a_micro_batch() -> None:
    query = advanced(advanced(QueryProgress("q"), report(3)), idle(4))
    assert (query.batch, query.batch_ms, query.rows_in, query.rows_per_s) == (3, 50, 10, 0.0)


def test_reports_can_be_missing_after_a_gap_or_a_pause() -> None:
    query = advanced(QueryProgress("q"), report(3))
    assert is_next(query, report(4))
    assert not is_next(query, report(5))
    assert not is_next(query, idle(4))
    assert not is_next(QueryProgress("q"), report(0))


def test_written_rows_are_those_of_the_sink_or_of_the_observation() -> None:
    query = QueryProgress("q")
    query = advanced(query, report(0, sink={"numOutputRows": 4}))
    query = advanced(query, report(1, observedMetrics={OUTPUT: {"rows": 3}}))
    query = advanced(query, report(2))
    assert query.rows_out == 7


def test_lag_is_the_sum_of_the_partitions() -> None:
    source = {"endOffset": offsets(p0=5, p1=7), "latestOffset": offsets(p0=9, p1=7, p2=2)}
    files = {"endOffset": {"logOffset": 3}, "latestOffset": None}
    query = advanced(QueryProgress("q"), report(0, sources=[source, files]))
    assert query.lag == 6
    assert advanced(query, idle(1)).lag == 6, "a report without offsets keeps the last lag"
    assert advanced(QueryProgress("q"), report(0, sources=[files])).lag is None


def read(end: int, latest: int) -> dict[str, str]:
    return {"endOffset": offsets(p0=end), "latestOffset": offsets(p0=latest)}


def test_lag_in_seconds_is_the_time_since_all_records_were_there() -> None:
    query = QueryProgress("q")
    assert query.lag_s is None
    found: list[TopicLag] = []
    # Each report is a second later, and the topic gets ten records in each second.
    ends = (10, 10, 10, 25, 40, 60)
    for second, end in enumerate(ends):
        query = advanced(query, report(second, sources=[read(end, 10 * (second + 1))]))
        found.append(query.lags["t"])
    assert found == [(0, 0.0), (10, 1.0), (20, 2.0), (15, 2.0), (10, 1.0), (0, 0.0)]
    assert (query.lag_s, len(query.samples["t"])) == (0.0, 1), "older ends are not needed"


def test_lag_in_seconds_counts_from_the_first_report() -> None:
    query = QueryProgress("q")
    for second in range(3):
        query = advanced(query, report(second, sources=[read(second, 100)]))
    assert query.lags["t"] == (98, 2.0)


def test_ends_of_a_topic_are_bounded() -> None:
    query = QueryProgress("q")
    for number in range(10 * SAMPLES_MAX):
        time = f"2026-01-01T00:{number // 60:02}:{number % 60:02}.000Z"
        query = advanced(query, report(number, timestamp=time, sources=[read(0, number + 1)]))
    assert len(query.samples["t"]) <= SAMPLES_MAX
    assert query.lag_s == 10 * SAMPLES_MAX - 1


def test_topic_that_is_read_twice_has_the_lag_of_the_slower_stream() -> None:
    for sources in ([read(5, 9), read(8, 9)], [read(8, 9), read(5, 9)]):
        assert advanced(QueryProgress("q"), report(0, sources=sources)).lags["t"].records == 4


def test_late_rows_and_failed_rows_are_totals_and_state_is_the_last() -> None:
    operators = [
        {"numRowsDroppedByWatermark": 2, "numRowsTotal": 7, "memoryUsedBytes": 100},
        {"numRowsDroppedByWatermark": 1, "numRowsTotal": 1, "memoryUsedBytes": 20},
    ]
    observed = {"readings": {"rows": 10, "plausible": 3}, OUTPUT: {"rows": 1}}
    query = QueryProgress("q")
    for batch in range(2):
        one = report(batch, stateOperators=operators, observedMetrics=observed)
        query = advanced(query, one)
    assert (query.late_rows, query.state_rows, query.state_bytes) == (6, 8, 120)
    assert (query.batches, query.batches_ms) == (2, 100)
    assert query.failed == {"readings.plausible": 6}


def test_pipeline_counts_dead_letters_and_the_largest_lag() -> None:
    whole = PipelineProgress(
        "p",
        1.0,
        [
            QueryProgress("a", rows_out=5, lag=3, failed={"x.y": 2}),
            QueryProgress("b", rows_out=5, lag=8, failed={"x.y": 1}),
            QueryProgress("c", is_dead_letters=True, rows_out=4, lag=0),
        ],
    )
    assert (whole.dead_letters, whole.lag, whole.failed) == (4, 8, {"x.y": 2})
    assert PipelineProgress("p", 1.0, [*whole.queries, QueryProgress("d")]).lag is None


def test_late_rows_are_those_of_their_steps() -> None:
    def operators(*late: int) -> dict[str, Any]:
        return {"stateOperators": [{"numRowsDroppedByWatermark": one} for one in late]}

    steps = ("averages", "fresh")
    query = advanced(QueryProgress("q"), report(0, **operators(1, 0)), steps)
    query = advanced(query, report(1, **operators(2, 5)), steps)
    assert (query.late, query.late_rows) == ({"averages": 3, "fresh": 5}, 8)
    other = advanced(query, report(2, **operators(1)), steps)
    assert other.late == {"averages": 3, "fresh": 5, "": 1}, "of a plan that is not known"


def test_mean_time_is_that_of_micro_batches() -> None:
    query = advanced(QueryProgress("q"), report(0))
    assert QueryProgress("q").mean_ms is None
    assert advanced(query, idle(1)).mean_ms == 50
