"""The rows that a streaming query has committed, in the files and lists that Spark writes."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow
from pyarrow import parquet

from ottla.sync import Admin
from ottla.testing import ClusterThread
from shared.example import Context, Example, Feed, Files, Job, Topic
from shared.monitor import CommittedRows, Monitor, OutputState, create_topics, query_progress


class Sink:
    """Writes Parquet files and the lists of `_spark_metadata` as Spark's file sink does."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listed: list[str] = []
        (directory / "_spark_metadata").mkdir(parents=True)

    def write(self, name: str, *ends: int) -> str:
        """Write a file, and return its line of a list."""
        path = self._directory / name
        arrow: Any = pyarrow
        files: Any = parquet
        files.write_table(arrow.table({"end": list(ends)}), path)
        return json.dumps({"path": path.as_uri(), "size": 1, "action": "add"})

    def commit(self, batch: str, *lines: str) -> None:
        listing = self._directory / "_spark_metadata" / batch
        listing.write_text("\n".join(["v1", *lines]))

    def forget(self, *batches: str) -> None:
        for batch in batches:
            (self._directory / "_spark_metadata" / batch).unlink()


def test_only_committed_files_are_read_and_each_once(tmp_path: Path) -> None:
    rows = CommittedRows(tmp_path / "a b", "end")
    assert rows.poll() == 0
    sink = Sink(tmp_path / "a b")
    first = sink.write("part 0.parquet", 10, 10)
    sink.write("not committed.parquet", 90)
    assert rows.poll() == 0
    sink.commit("0", first)
    assert (rows.poll(), rows.latest) == (2, [{"end": 10}] * 2)
    assert rows.poll() == 2
    second = sink.write("part 1.parquet", 20)
    sink.commit("1", second)
    assert (rows.poll(), rows.latest) == (3, [{"end": 20}])


def test_rows_of_one_window_can_come_in_two_batches(tmp_path: Path) -> None:
    rows = CommittedRows(tmp_path, "end")
    sink = Sink(tmp_path)
    sink.commit("0", sink.write("0.parquet", 10, 20))
    sink.commit("1", sink.write("1.parquet", 20))
    sink.commit("2")
    assert (rows.poll(), rows.latest) == (3, [{"end": 20}] * 2)


def test_compacted_lists_repeat_files_and_replace_lists(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    lines = [sink.write(f"{batch}.parquet", batch) for batch in range(4)]
    early, late = CommittedRows(tmp_path, "end"), CommittedRows(tmp_path, "end")
    for batch in (0, 1):
        sink.commit(str(batch), lines[batch])
    assert early.poll() == 2
    sink.commit("2.compact", *lines[:3])
    sink.commit("3", lines[3])
    sink.forget("0", "1")
    assert (early.poll(), early.latest) == (4, [{"end": 3}])
    assert (late.poll(), late.latest) == (4, [{"end": 3}])


def test_rows_of_an_earlier_run_are_skipped(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    sink.commit("0", sink.write("0.parquet", 10, 20))
    rows = CommittedRows(tmp_path, "end")
    rows.skip()
    assert (rows.poll(), rows.total, rows.latest) == (0, 2, [])
    sink.commit("1", sink.write("1.parquet", 15))
    assert (rows.poll(), rows.total, rows.latest) == (1, 3, [{"end": 15}])


def test_monitor_counts_only_its_own_run(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "copy" / "averages")
    sink.commit("0", sink.write("0.parquet", 10, 20))
    example = Example(
        "copy",
        Topic("numbers", "numbers", 1),
        [Files("averages", "averages", "end", str)],
        cast("Callable[[Context], Feed]", None),
        cast("Callable[[Context], Job]", None),
    )
    with ClusterThread() as cluster:
        servers = cluster.bootstrap_servers
        with Admin({"bootstrap.servers": servers}) as admin:
            create_topics(admin, [example.input])
        start = datetime.now(UTC)
        with Monitor(example, servers, tmp_path, {"numbers": 0}) as monitor:
            first = monitor.poll("running")
            sink.commit("1", sink.write("1.parquet", 15))
            later = monitor.poll("running")
    assert first.output("averages") == OutputState(0, 2, [])
    assert later.output("averages") == OutputState(1, 3, [{"end": 15}])
    assert first.since is not None
    assert start <= first.since <= datetime.now(UTC)
    assert later.since == first.since


def test_progress_of_a_query() -> None:
    assert query_progress("averages", None).batch is None
    reported: dict[str, Any] = {
        "batchId": 4,
        "durationMs": {"triggerExecution": 1_200, "addBatch": 900},
        "processedRowsPerSecond": 800.5,
        "sources": [{"endOffset": '{"readings": {"0": 40, "1": 2}}'}],
        "stateOperators": [{"numRowsDroppedByWatermark": 3}],
    }
    progress = query_progress("averages", reported)
    assert (progress.batch, progress.batch_ms, progress.rows_per_s) == (4, 1_200, 800.5)
    assert (progress.records_read, progress.late_rows) == (42, 3)
    reported["sources"] = [{"endOffset": None}]
    reported["durationMs"] = {}
    progress = query_progress("averages", reported)
    assert (progress.batch_ms, progress.records_read) == (0, 0)
