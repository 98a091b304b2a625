"""The runner on a real Spark: restarts, stops and continues."""

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import StreamingQueryException

from judges.ottla_broker import OttlaBroker
from ottla.pipeline.compiler import Bindings, compile_pipeline
from ottla.pipeline.progress import PipelineProgress, QueryState
from ottla.pipeline.restarts import Failure, RestartPolicy, failure_of
from ottla.pipeline.runner import PipelineRun, StartableQuery
from ottla.pipeline.spec.checks import AVAILABLE_NOW
from ottla.pipeline.spec.loading import load_text
from ottla.pipeline.starting_position import start_from
from ottla.sync import Producer
from pipeline.queries import PATIENCE_S, finished, source
from pipeline.test_spark_sink import records

PIPELINE = """\
name: {topic}
brokers: {brokers}
checkpoints: {folder}/checkpoints
trigger: 10 ms
sources:
  lines: {{topic: {topic}, binary: line, options: {{maxOffsetsPerTrigger: 5}}}}
steps:
  texts: {{sql: SELECT CAST(line AS STRING) AS line FROM lines}}
sinks:
  - {{from: texts, topic: {topic}.out}}
  - {{from: texts, python: "{module}:store"}}
"""
MODULE = """
calls = []
stored = []


def store(rows, batch):
    calls.append(batch)
    if len(calls) == 1:
        raise RuntimeError("the store is away")
    stored.extend(row.line for row in rows.collect())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """A module with a sink that fails at its first call; no other test has its name."""
    name = f"sinks_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield name
    sys.modules.pop(name, None)


def run(spark: Any, text: str, folder: Path, count: int) -> PipelineProgress:
    """Run a pipeline until each query has read so many rows, and stop it in order."""
    loaded = load_text(text, "p.yaml", environment={}, read_file=str)
    stop_file = folder / "stop"
    stop_file.unlink(missing_ok=True)
    compiled = compile_pipeline(spark, loaded, bindings=Bindings(stop_file=str(stop_file)))
    shown = [PipelineProgress("")]
    going = PipelineRun(
        loaded.pipeline.name,
        [StartableQuery(one.query.name, one.start) for one in compiled.queries],
        stop_file,
        policy=RestartPolicy(restarts_max=20, first_s=0.1),
        report=shown.append,
    )
    return going.run(
        lambda: bool(shown[-1].queries) and min(one.rows_in for one in shown[-1].queries) >= count
    )


def send(broker: OttlaBroker, topic: str, *lines: str) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for line in lines:
            producer.send(topic, line.encode(), partition=0)


def test_pipeline_restarts_stops_and_continues(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, module: str
) -> None:
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, folder=tmp_path, module=module)
    first = [f"first {number}" for number in range(8)]
    send(broker, topic, *first)
    done = run(spark, text, tmp_path, len(first))
    to_topic, to_python = done.queries
    assert (to_topic.state, to_python.state) == (QueryState.STOPPED, QueryState.STOPPED)
    assert to_python.restarts >= 1, "the function has failed once"
    assert (to_topic.rows_in, to_topic.rows_out, to_topic.lag) == (8, 8, 0)
    second = [f"second {number}" for number in range(7)]
    send(broker, topic, *second)
    done = run(spark, text, tmp_path, len(second))
    assert [one.rows_in for one in done.queries] == [7, 7], "a run continues from its checkpoint"
    found = [(one.value or b"").decode() for one in records(broker, f"{topic}.out")]
    every = [f'{{"line":"{line}"}}' for line in first + second]
    assert sorted(found) == sorted(every), "each row once"
    assert sys.modules[module].stored == first + second


SLOW = """
import time
from pathlib import Path

stored = []


def store(rows, batch):
    Path(FOLDER, "running").touch()
    while not Path(FOLDER, "stop").exists():
        time.sleep(0.01)
    stored.extend(row.line for row in rows.collect())
"""


def test_stop_waits_for_the_batch_and_not_for_the_trigger(
    spark: Any,
    broker: OttlaBroker,
    topic: str,
    tmp_path: Path,
    module: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / f"{module}.py").write_text(SLOW.replace("FOLDER", repr(str(tmp_path))))
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, folder=tmp_path, module=module)
    loaded = load_text(text.replace("10 ms", "24 hours"), "p.yaml", environment={}, read_file=str)
    lines = [f"line {number}" for number in range(5)]
    send(broker, topic, *lines)
    compiled = compile_pipeline(spark, loaded, bindings=Bindings(stop_file=str(tmp_path / "stop")))
    run = PipelineRun(
        topic, [one.startable for one in compiled.queries], tmp_path / "stop", grace_s=PATIENCE_S
    )
    done = run.run((tmp_path / "running").exists)
    assert "query interrupted" not in caplog.text
    assert sys.modules[module].stored == lines
    assert [one.rows_in for one in done.queries][1] == 5
    for query in compiled.queries:
        commits = Path(query.query.checkpoint, "commits").glob("[0-9]*")
        offsets = Path(query.query.checkpoint, "offsets").glob("[0-9]*")
        assert {one.name for one in commits} == {one.name for one in offsets}


def test_pipeline_starts_at_the_given_offsets(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, module: str
) -> None:
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, folder=tmp_path, module=module)
    text = text.replace("binary: line", "binary: line, start: latest").rpartition("  - ")[0]
    loaded = load_text(text, "p.yaml", environment={}, read_file=str)
    send(broker, topic, *(f"line {number}" for number in range(8)))
    offsets = json.dumps({topic: {"0": 6, "1": -2, "2": -1}})
    pipeline = msgspec.structs.replace(start_from(loaded.pipeline, offsets), trigger=AVAILABLE_NOW)
    [query] = compile_pipeline(spark, loaded._replace(pipeline=pipeline)).queries
    finished(query.start)
    found = [one.value for one in records(broker, f"{topic}.out")]
    assert found == [b'{"line":"line 6"}', b'{"line":"line 7"}']


def test_errors_of_spark_are_in_the_table(spark: Any, broker: OttlaBroker, topic: str) -> None:
    send(broker, topic, "a")

    def failure(wanted: str, **options: Any) -> Failure:
        frame = source(spark, broker.bootstrap, subscribe=wanted, **options)
        query = frame.writeStream.format("noop").start()
        with pytest.raises(StreamingQueryException) as error:
            query.awaitTermination(PATIENCE_S)
        return failure_of(str(error.value))

    missing = failure(f"{topic}.missing")
    assert missing.kind.name == "missing topic", missing
    assert f"{topic}.missing" in missing.text
    wrong = failure(topic, maxOffsetsPerTrigger="x")
    assert (wrong.kind.name, wrong.kind.is_final) == ("wrong option", True), wrong
    assert "maxOffsetsPerTrigger must be a number above 0" in wrong.text
    lost = failure(topic, startingOffsets=json.dumps({topic: {"0": 9, "1": 0, "2": 0}}))
    assert lost.kind.name == "data loss", lost
