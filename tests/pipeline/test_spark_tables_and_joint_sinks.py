"""Side tables that are refreshed, and sinks that share one query, on a real Spark."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from judges.ottla_broker import OttlaBroker
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.spec.loading import load_text
from pipeline.queries import finished
from pipeline.test_spark_runner import send
from pipeline.test_spark_sink import records

PIPELINE = """\
name: {topic}
brokers: {brokers}
checkpoints: {folder}/checkpoints
output: {folder}
trigger: available now
together: true
sources:
  lines: {{topic: {topic}, binary: line}}
  places: {{parquet: "{folder}/places", refresh: 1 minute}}
  floors:
    query: SELECT max(floor) AS floor, place FROM parquet.`{folder}/floors`
           WHERE floor NOT IN (SELECT floor FROM parquet.`{folder}/closed`) GROUP BY place
    refresh: 2 minutes
steps:
  placed:
    sql: SELECT CAST(line AS STRING) AS device, place, floor
         FROM lines JOIN places ON CAST(line AS STRING) = device LEFT JOIN floors USING (place)
sinks:
  - {{from: placed, topic: {topic}.out, key: device, exactly_once: false}}
  - {{from: placed, parquet: out, partition_by: [place], exactly_once: false}}
  - {{from: placed, python: "{module}:store", exactly_once: false}}
"""
MODULE = """
calls = []
stored = []


def store(rows, batch):
    calls.append((batch, sorted(row.device for row in rows.collect())))
    if len(calls) == 2:
        raise RuntimeError("the store is away")
    stored.append(calls[-1])
"""


def compiled(spark: Any, text: str) -> Any:
    return compile_pipeline(spark, load_text(text, "p", environment={}, read_file=str))


def test_joint_sinks_see_refreshed_tables_and_repeat_a_failed_batch(
    spark: Any,
    broker: OttlaBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = f"joint_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def add(table: str, row: str) -> None:
        spark.sql(f"SELECT {row}").coalesce(1).write.mode("append").parquet(f"{tmp_path}/{table}")

    add("places", "'a' AS device, 'roof' AS place")
    add("floors", "9 AS floor, 'roof' AS place")
    add("closed", "0 AS floor")
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, folder=tmp_path, module=module)
    pipeline = compiled(spark, text)
    [query] = pipeline.queries
    refreshes = [(one.name, one.interval_s) for one in pipeline.refreshes]
    assert refreshes == [("places", 60), ("floors", 120)]
    send(broker, topic, "a", "b")
    done = finished(query.start)
    assert done.lastProgress.observedMetrics["ottla.output"].rows == 1
    add("places", "'b' AS device, 'cellar' AS place")
    add("floors", "-1 AS floor, 'cellar' AS place")
    add("closed", "9 AS floor")
    send(broker, topic, "a", "b")
    for refresh in pipeline.refreshes:
        refresh.read_again()
    with pytest.raises(StreamingQueryException, match="the store is away"):
        finished(query.start)
    finished(query.start)
    # The sinks before the one that failed have the rows of the repeated micro-batch twice.
    repeated = [("a", "roof", None), ("b", "cellar", -1)]
    expected = sorted([("a", "roof", 9), *repeated, *repeated], key=str)
    out = [(one.key, json.loads(one.value)) for one in records(broker, f"{topic}.out")]
    found = [(row["device"], row["place"], row.get("floor")) for _, row in out]
    assert sorted(found, key=str) == expected
    assert all(key.decode() == row["device"] for key, row in out)
    rows = spark.read.parquet(f"{tmp_path}/out").collect()
    assert sorted(((row.device, row.place, row.floor) for row in rows), key=str) == expected
    assert sys.modules[module].calls == [(0, ["a"]), (1, ["a", "b"]), (1, ["a", "b"])]
    assert sys.modules[module].stored == [(0, ["a"]), (1, ["a", "b"])]
    sys.modules.pop(module)
