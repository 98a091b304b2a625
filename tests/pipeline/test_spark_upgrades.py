"""Changes of a pipeline that continue from its checkpoint, on a real Spark."""

from pathlib import Path
from typing import Any

from judges.ottla_broker import OttlaBroker
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.earlier_runs import check_changes, keep_declaration, query_directories
from ottla.pipeline.spec.loading import load_text
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
