"""Changes of a pipeline that continue from its checkpoint, on a real Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.earlier_runs import (
    DECLARATION,
    CannotStartAgain,
    QueryDirectories,
    check_changes,
    keep_declaration,
    query_directories,
    remote_directories,
)
from ottla.pipeline.remote_files import HadoopFiles, RemoteFilesFailed
from ottla.pipeline.spec.loading import load_text
from ottla.pipeline.spec.model import Pipeline
from pipeline.queries import finished
from pipeline.test_spark_runner import send
from pipeline.test_spark_sink import records

PIPELINE = """\
name: {topic}
brokers: {brokers}
checkpoints: {folder}/checkpoints
trigger: available now
sources:
  lines:
    topic: {topic}
    json: word STRING, at TIMESTAMP
    watermark: {{column: at, delay: 5 seconds}}
steps:
  known: {{sql: SELECT * FROM lines WHERE word <> 'x'}}
  counts:
    sql: SELECT word, count(*) AS count FROM known GROUP BY word, window(at, '10 seconds')
sinks: [{{from: counts, topic: "{topic}.out", name: counts}}]
dead_letters: {topic}.dead
"""


def run(spark: Any, text: str) -> None:
    loaded = load_text(text, "p.yaml", environment={}, read_file=str)
    queries = query_directories(loaded.pipeline, loaded.written)
    check_changes(queries, loaded.written)
    keep_declaration(queries, loaded.written)
    compiled = compile_pipeline(spark, loaded)
    [query] = [one for one in compiled.queries if one.query.name == "counts"]
    finished(query.start)


def test_changed_pipeline_continues_with_its_state(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, folder=tmp_path)
    line = '{"word": "a", "at": "2026-01-01T00:00:01"}'
    send(broker, topic, line, line)
    run(spark, text)
    # One more topic and column, another delay, SQL without state, name of a source, and sink.
    send(broker, topic, line)
    send(broker, f"{topic}.more", line, '{"word": "b", "at": "2026-01-01T00:01:00"}')
    for old, new in (
        (f"topic: {topic}\n", f"topic: [{topic}, {topic}.more]\n"),
        ("at TIMESTAMP", "at TIMESTAMP, place STRING"),
        ("5 seconds", "9 seconds"),
        ("  lines:", "  words:"),
        ("FROM lines WHERE word <> 'x'", "FROM words WHERE word <> 'y'"),
        (f"{topic}.out", f"{topic}.other"),
    ):
        assert old in text
        text = text.replace(old, new)
    run(spark, text)
    assert [one.value for one in records(broker, f"{topic}.other")] == [b'{"word":"a","count":4}']


def test_declaration_is_kept_in_other_file_systems(spark: Any, tmp_path: Path) -> None:
    text = PIPELINE.format(topic="t", brokers="127.0.0.1:1", folder=f"file://{tmp_path}/with ä")
    loaded = load_text(text, "p.yaml", environment={}, read_file=str)

    def remote(text: str) -> tuple[list[QueryDirectories], Pipeline]:
        """The directories, as if only Spark could read them."""
        loaded = load_text(text, "p.yaml", environment={}, read_file=str)
        queries = [
            QueryDirectories(one.checkpoint._replace(path=None), ())
            for one in query_directories(loaded.pipeline, loaded.written)
        ]
        return remote_directories(queries, HadoopFiles(spark)), loaded.written

    keep_declaration(*remote(text))
    kept = tmp_path / "with ä" / "checkpoints" / "counts" / DECLARATION
    assert json.loads(kept.read_text())["name"] == loaded.written.name
    changed = text.replace("'10 seconds'", "'20 seconds'")
    check_changes(*remote(changed))  # the query has not started yet
    (kept.parent / "offsets").mkdir()
    (kept.parent / "offsets" / "0").touch()
    check_changes(*remote(text))
    with pytest.raises(CannotStartAgain, match=r"steps\.counts\.sql has changed"):
        check_changes(*remote(changed))
    HadoopFiles(spark).write(f"file://{kept.parent}", DECLARATION, "half of a decl")
    check_changes(*remote(changed))
    kept.unlink()
    check_changes(*remote(changed))


def test_remote_files_that_cannot_be_read_are_one_line(spark: Any) -> None:
    with pytest.raises(RemoteFilesFailed, match=r"^cannot list a checkpoint: .*\n?$"):
        HadoopFiles(spark).names("nosuch://host/directory")
