"""Side tables that are refreshed, and sinks that share one query, on a real Spark."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.pipeline import InvalidPipeline
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
steps:
  placed:
    sql: SELECT CAST(line AS STRING) AS device, place
         FROM lines JOIN places ON CAST(line AS STRING) = device
sinks:
  - {{from: placed, topic: {topic}.out, key: device, exactly_once: false}}
  - {{from: placed, parquet: out, partition_by: [place], exactly_once: false}}
  - {{from: placed, python: "{module}:store", exactly_once: false}}
"""
MODULE = """
stored = []


def store(rows, batch):
    stored.append((batch, [row.device for row in rows.collect()]))
"""


def compiled(spark: Any, text: str) -> Any:
    return compile_pipeline(spark, load_text(text, "p", environment={}, read_file=str))


def test_joint_sinks_see_the_refreshed_side_table(
    spark: Any,
    broker: OttlaBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = f"joint_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    places = f"{tmp_path}/places"

    def add(device: str, place: str) -> None:
        rows = spark.sql(f"SELECT '{device}' AS device, '{place}' AS place")
        rows.coalesce(1).write.mode("append").parquet(places)

    add("a", "roof")
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, folder=tmp_path, module=module)
    pipeline = compiled(spark, text)
    [query] = pipeline.queries
    [refresh] = pipeline.refreshes
    assert (refresh.name, refresh.interval_s) == ("places", 60)
    send(broker, topic, "a", "b")
    done = finished(query.start)
    assert done.lastProgress.observedMetrics["ottla.output"].rows == 1
    add("b", "cellar")
    send(broker, topic, "a", "b")
    refresh.read_again()
    finished(query.start)
    out = [(one.key, json.loads(one.value)) for one in records(broker, f"{topic}.out")]
    expected = [("a", "roof"), ("a", "roof"), ("b", "cellar")]
    pairs = sorted((found["device"], found["place"]) for _, found in out)
    assert pairs == expected
    assert all(key.decode() == found["device"] for key, found in out)
    rows = spark.read.parquet(f"{tmp_path}/out").collect()
    assert sorted((row.device, row.place) for row in rows) == expected
    assert [(batch, sorted(found)) for batch, found in sys.modules[module].stored] == [
        (0, ["a"]),
        (1, ["a", "b"]),
    ]
    sys.modules.pop(module)


def test_joint_sinks_of_several_steps_are_refused(spark: Any, topic: str) -> None:
    text = f"""\
name: x
together: true
sources: {{lines: {{topic: {topic}, binary: line}}}}
steps: {{other: {{sql: SELECT * FROM lines}}}}
sinks:
  - {{from: lines, console: true}}
  - {{from: other, console: true}}
"""
    with pytest.raises(InvalidPipeline) as error:
        compiled(spark, text)
    assert str(error.value) == (
        "together: is supported only for sinks of the same source or step; "
        'these read "lines" and "other"'
    )
