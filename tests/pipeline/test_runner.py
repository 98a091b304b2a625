"""The runner with queries that fail, end and block as a test wants, without Spark."""

import json
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.progress import PipelineProgress, QueryState
from ottla.pipeline.restarts import RestartPolicy
from ottla.pipeline.runner import (
    WAITING,
    PipelineFailed,
    PipelineRun,
    StartableQuery,
    TableRefresh,
)

FAILED = "[STREAM_FAILED] Query [id = 1] terminated with exception: away"


class Report:
    def __init__(self, batch: int) -> None:
        self.json = json.dumps(
            {
                "timestamp": f"2026-01-01T00:00:{batch:02}.000Z",
                "batchId": batch,
                "numInputRows": 10,
                "durationMs": {"addBatch": 1},
            }
        )


class Query:
    """A query that ends at once with an error, or at once without one, or only when stopped."""

    def __init__(self, error: str | None = None, *, ends: bool = True, finishes: bool = True):
        self._error = error
        self._is_active = not ends
        self._stopped = threading.Event()
        self._finishes = finishes
        self.messages: list[str] = []
        self.calls: list[str] = []

    @property
    def status(self) -> Any:
        found = self.messages.pop(0) if len(self.messages) > 1 else self.messages[0]
        return {"message": found}

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self._is_active

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        return Report(1)

    @property
    def recentProgress(self) -> Any:  # noqa: N802
        return [Report(0), Report(1)]

    def exception(self) -> str | None:
        return self._error

    def processAllAvailable(self) -> None:  # noqa: N802
        self.calls.append("finish")
        if not self._finishes:
            self._stopped.wait(60)

    def stop(self) -> None:
        self.calls.append("stop")
        self._is_active = False
        self._stopped.set()


class Time:
    """A clock that moves when the runner waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def elapsed_s(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


def run_of(
    folder: Path,
    *queries: StartableQuery,
    time: Time | None = None,
    report: Callable[[PipelineProgress], None] = lambda progress: None,
    restarts: int = 3,
    grace_s: float = 60.0,
) -> PipelineRun:
    time = time or Time()
    return PipelineRun(
        "p",
        queries,
        folder / "stop",
        policy=RestartPolicy(restarts_max=restarts),
        report=report,
        grace_s=grace_s,
        elapsed_s=time.elapsed_s,
        wait=time.wait,
    )


def test_failed_query_is_restarted_after_growing_delays(tmp_path: Path) -> None:
    time = Time()
    starts: list[float] = []

    def start() -> Query:
        starts.append(time.now_s)
        return Query(FAILED if len(starts) < 4 else None)

    done = run_of(tmp_path, StartableQuery("q", start), time=time).run(lambda: False)
    delays = [later - earlier for earlier, later in pairwise(starts)]
    # A poll sees the failure, so a delay is up to two polls longer.
    assert [round(delay) for delay in delays] == [1, 2, 4]
    [query] = done.queries
    assert (query.state, query.restarts, query.error) == (QueryState.FINISHED, 3, "")
    assert query.rows_in == 20, "each micro-batch counts once, in whichever run it was"


def test_query_that_keeps_failing_stops_the_others(tmp_path: Path) -> None:
    other = Query(ends=False)
    queries = StartableQuery("q", lambda: Query(FAILED)), StartableQuery("other", lambda: other)
    run = run_of(tmp_path, *queries)
    with pytest.raises(PipelineFailed, match="query q: away; it was restarted 3 times"):
        run.run(lambda: False)
    assert other.calls == ["finish", "stop"]
    assert [one.state for one in run.progress.queries] == [QueryState.FAILED, QueryState.STOPPED]


def test_final_error_is_not_retried(tmp_path: Path) -> None:
    starts: list[Query] = []

    def start() -> Query:
        starts.append(Query("DataLost: gone"))
        return starts[-1]

    with pytest.raises(PipelineFailed, match="query q: DataLost: gone"):
        run_of(tmp_path, StartableQuery("q", start)).run(lambda: False)
    assert len(starts) == 1


def test_error_of_a_start_counts_as_a_failure(tmp_path: Path) -> None:
    starts: list[int] = []

    def start() -> Query:
        starts.append(1)
        if len(starts) == 1:
            raise RuntimeError("the checkpoint cannot be read")
        return Query()

    [query] = run_of(tmp_path, StartableQuery("q", start)).run(lambda: False).queries
    assert (query.state, query.restarts) == (QueryState.FINISHED, 1)


def test_stop_lets_micro_batches_commit_before_it_stops(tmp_path: Path) -> None:
    queries = [Query(ends=False), Query(ends=False)]
    shown: list[PipelineProgress] = []
    run = run_of(
        tmp_path,
        *(StartableQuery(str(at), lambda one=one: one) for at, one in enumerate(queries)),
        report=shown.append,
    )
    done = run.run(lambda: len(shown) > 4)
    assert [one.calls for one in queries] == [["finish", "stop"]] * 2
    assert (tmp_path / "stop").exists(), "the sources offer nothing more"
    assert {one.state for one in done.queries} == {QueryState.STOPPED}


def test_micro_batch_is_interrupted_after_the_grace_period(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(ends=False, finishes=False)
    shown: list[PipelineProgress] = []
    start = StartableQuery("q", lambda: query)
    run_of(tmp_path, start, report=shown.append, grace_s=0).run(lambda: len(shown) > 1)
    assert query.calls == ["finish", "stop"]
    assert "query interrupted" in caplog.text


def test_query_that_waits_for_a_far_trigger_is_stopped_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stopped(epoch_s: float, *messages: str) -> Query:
        caplog.clear()
        query = Query(ends=False, finishes=False)
        query.messages += messages
        shown: list[PipelineProgress] = []
        run = PipelineRun(
            "p",
            [StartableQuery("q", lambda: query, trigger_s=600.0)],
            tmp_path / "stop",
            report=shown.append,
            grace_s=1.0,
            epoch_s=lambda: epoch_s,
        )
        run.run(lambda: len(shown) > 1)
        assert query.calls == ["finish", "stop"]
        return query

    committed = stopped(6_000.0, "Processing new data", WAITING, "Processing new data", WAITING)
    assert "query interrupted" not in caplog.text
    assert committed.messages == [WAITING], "one look can be between two micro-batches"
    stopped(6_000.0, "Processing new data")
    assert "query interrupted" in caplog.text
    stopped(6_599.0, WAITING)
    assert "query interrupted" in caplog.text, "the next trigger is too near"


def test_stop_before_a_restart_does_not_wait_for_it(tmp_path: Path) -> None:
    shown: list[PipelineProgress] = []
    run = run_of(tmp_path, StartableQuery("q", lambda: Query(FAILED)), report=shown.append)
    [query] = run.run(lambda: bool(shown) and bool(shown[-1].queries[0].restarts)).queries
    assert (query.state, query.restarts) == (QueryState.STOPPED, 1)


def test_side_table_is_read_again_after_its_interval(tmp_path: Path) -> None:
    time = Time()
    read_s: list[float] = []

    def read_again() -> None:
        read_s.append(time.now_s)
        if len(read_s) == 2:
            raise OSError("away")

    run = PipelineRun(
        "p",
        [StartableQuery("q", lambda: Query(ends=False))],
        tmp_path / "stop",
        refreshes=[TableRefresh("places", 10.0, read_again)],
        elapsed_s=time.elapsed_s,
        wait=time.wait,
    )
    run.run(lambda: time.now_s > 35)
    assert read_s == [10, 20, 30], "a failure does not end the pipeline"
