"""The steps with state of a query: their late rows, and the dead letters that they cannot have."""

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.declared_tests import DeclaredTests
from ottla.pipeline.spec.loading import load_text
from ottla.pipeline.spec.problems import InvalidPipeline

PIPELINE = """\
name: {topic}
sources:
  readings:
    topic: {topic}
    json: device STRING, at TIMESTAMP, celsius DOUBLE
    watermark: {{column: at, delay: 5 seconds}}
steps:
  fresh: {{deduplicate: [device, at], from: readings}}
  averages:
    sql: SELECT device, window.start, avg(celsius) AS mean FROM fresh
         GROUP BY device, window(at, '10 seconds')
  plain: {{python: "{module}:counted", from: readings}}
  again: {{sql: SELECT * FROM plain WHERE count > 0}}
sinks:
  - {{from: averages, console: true}}
  - {{from: again, name: again, console: true}}
"""
MODULE = """\
from pyspark.sql import functions as f


def counted(rows):
    return rows.groupBy(f.window("at", "10 seconds"), "device").count()


def renamed(rows):
    return rows.withColumnRenamed("celsius", "count")
"""
TESTS = """\
tests:
  - name: late rows
    given:
      readings:
        - [{device: a, at: "2026-01-01T00:00:01Z", celsius: 1}]
        - [{device: a, at: "2026-01-01T00:01:00Z", celsius: 1}]
        - - {device: a, at: "2026-01-01T00:00:02Z", celsius: 1}
          - {device: b, at: "2026-01-01T00:00:03Z", celsius: 1}
          - {device: a, at: "2026-01-01T00:01:01Z", celsius: 1}
    expect: {averages: [{device: a, mean: 1}]}
    late: {fresh: 2, averages: 0, plain: 2, again: 2}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """A module with Python steps; no other test has its name."""
    name = f"steps_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield name
    sys.modules.pop(name, None)


def test_late_rows_are_those_of_each_step(spark: Any, topic: str, module: str) -> None:
    text = PIPELINE.format(topic=topic, module=module) + TESTS
    loaded = load_text(text, "p.yaml", environment={}, read_file=str)
    queries = compile_pipeline(spark, loaded).queries
    steps = {one.query.name: one.startable.state_steps for one in queries}
    assert steps == {
        "averages-console": ("averages", "fresh"),
        "again": ("plain",),
        "readings-dead-letters": (),
    }
    with DeclaredTests(spark, loaded) as tests:
        tests.check("late rows")


def test_dead_letters_after_groups_of_python_are_refused(
    spark: Any, topic: str, module: str
) -> None:
    expectation = "expect: {many: {check: count > 1, otherwise: dead_letter}}"
    text = PIPELINE.format(topic=topic, module=module)
    text = text.replace("WHERE count > 0}", f"WHERE count > 0, {expectation}}}")

    def compile_text(text: str) -> None:
        compile_pipeline(spark, load_text(text, "p.yaml", environment={}, read_file=str))

    with pytest.raises(InvalidPipeline) as error:
        compile_text(text)
    assert str(error.value) == (
        "p.yaml:13:93: steps.again.expect.many.otherwise: dead_letter is not possible after an "
        "aggregation: a row has no single record. Use drop, or expect it of a source"
    ).removeprefix("p.yaml:13:93: ")
    compile_text(text.replace(":counted", ":renamed"))
