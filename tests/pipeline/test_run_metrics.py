"""The metrics of a pipeline, parsed by the library of Prometheus."""

import re

from prometheus_client.parser import text_string_to_metric_families

from ottla.metrics import METRICS as BROKER_METRICS
from ottla.metrics import Kind, Metric, exposition
from ottla.pipeline import run_metrics
from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState, TopicLag
from ottla.pipeline.run_metrics import METRICS, metric_families, unhealthy_queries

RUNNING = QueryProgress(
    "averages-parquet",
    state=QueryState.RUNNING,
    batch=121,
    batch_ms=420,
    batches=3,
    batches_ms=900,
    rows_in=24180,
    rows_out=360,
    rows_per_s=512.44,
    lag=3,
    lags={'a"b': TopicLag(3, 1.5)},
    late={"averages": 4, "alerts": 0},
    state_rows=8,
    state_bytes=2048,
    failed={"readings.plausible": 5},
    reported="2026-01-01T00:00:00.500Z",
)
WAITING = QueryProgress(
    "dead", is_dead_letters=True, state=QueryState.WAITING, rows_out=12, restarts=1, error="away"
)
PROGRESS = PipelineProgress("sensors", 31.25, [RUNNING, WAITING, QueryProgress("new")])


def values() -> dict[tuple[str, str], float]:
    """The value of each metric, by its name and the query, topic or expectation."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(exposition(metric_families(PROGRESS))):
        for one in family.samples:
            assert one.labels["pipeline"] == "sensors"
            keys = [key for key in ("topic", "query", "expectation") if key in one.labels]
            subject = one.labels[keys[0]] if keys else ""
            found[one.name.removeprefix("ottla_pipeline_"), subject] = one.value
    return found


def test_metrics_have_the_numbers_of_the_progress() -> None:
    found = values()
    query = "averages-parquet"
    expected = {
        "query_up": 1,
        "batches_total": 3,
        "batch_seconds_total": 0.9,
        "last_batch_seconds": 0.42,
        "last_report_timestamp_seconds": 1767225600.5,
        "rows_in_total": 24180,
        "rows_out_total": 360,
        "rows_per_second": 512.4,
        "state_rows": 8,
        "state_bytes": 2048,
        "restarts_total": 0,
    }
    assert {name: found[name, query] for name in expected} == expected
    assert (found["lag_records", 'a"b'], found["lag_seconds", 'a"b']) == (3, 1.5)
    assert found["failed_rows_total", "readings.plausible"] == 5
    assert (found["query_up", "dead"], found["restarts_total", "dead"]) == (0, 1)
    assert ("rows_out_total", "new") not in found, "nothing counts them yet"
    text = exposition(metric_families(PROGRESS))
    labels = 'pipeline="sensors",query="averages-parquet"'
    assert f'ottla_pipeline_late_rows_total{{{labels},step="averages"}} 4' in text
    assert f'ottla_pipeline_late_rows_total{{{labels},step="alerts"}} 0' in text
    assert 'ottla_pipeline_dead_letters_total{pipeline="sensors"} 12' in text
    assert 'ottla_pipeline_run_seconds{pipeline="sensors"} 31.25' in text


def test_every_metric_is_in_the_table_and_on_the_page() -> None:
    declared = [one for one in vars(run_metrics).values() if isinstance(one, Metric)]
    assert list(METRICS) == declared
    assert [metric for metric, _ in metric_families(PROGRESS)] == declared
    assert not {one.name for one in METRICS} & {one.name for one in BROKER_METRICS}
    for metric in METRICS:
        assert re.fullmatch(r"ottla_pipeline_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert metric.doc.endswith(".")


def test_query_that_waits_for_a_restart_is_unhealthy() -> None:
    assert unhealthy_queries(PROGRESS) == ["dead"]
    states = [one for one in QueryState if one not in (QueryState.WAITING, QueryState.FAILED)]
    healthy = [QueryProgress(str(one), state=one) for one in states]
    assert unhealthy_queries(PipelineProgress("p", 0, healthy)) == []
