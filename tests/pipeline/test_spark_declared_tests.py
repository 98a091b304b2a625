"""The tests of a declaration on a real Spark."""

from typing import Any

import pytest

from ottla.pipeline.declared_tests import DeclaredTests
from ottla.pipeline.spec.loading import Loaded, load_text

PIPELINE = """\
name: sensors
sources:
  readings:
    topic: sensors.readings
    json: device STRING NOT NULL, at TIMESTAMP, celsius DOUBLE
    metadata: [key]
    watermark: {column: at, delay: 5 seconds}
    expect:
      plausible: {check: celsius < 120 OR celsius IS NULL, otherwise: dead_letter}
      known: {check: celsius IS NOT NULL}
  places: {parquet: does/not/exist}
steps:
  means:
    sql: SELECT device, window.start AS start, avg(celsius) AS mean
         FROM readings GROUP BY device, window(at, '10 seconds')
  placed: {sql: "SELECT device, place, _key AS k FROM readings JOIN places USING (device)"}
sinks:
  - {from: means, console: true}
  - {from: placed, console: true}
tests:
  - name: passes
    given:
      readings:
        - - {device: a, at: "2026-01-01T00:01:00", celsius: 20, _key: x}
          - {device: a, at: "2026-01-01T00:01:05", celsius: 22, _key: y}
        - - {device: a, at: "2026-01-01T00:00:01", celsius: 100}
          - {device: a, at: "2026-01-01T00:02:00", celsius: 500}
          - {device: b, at: "2026-01-01T00:02:00"}
          - not JSON
      places: [[{device: a, place: roof}]]
    expect:
      means: [{device: a, mean: 21, start: "2026-01-01T00:01:00"}]
      placed: [{place: roof, k: x}, {place: roof, k: y}, {device: a, k: null}]
    late: {means: 1}
    dead_letters: {readings: 2}
    failed: {readings.plausible: 1, readings.known: 1}
  - name: differs
    given:
      readings: [[{device: b, at: "2026-01-01T00:01:00", celsius: 500}, not JSON]]
      places: [[{device: a, place: roof}]]
    expect: {placed: [{device: b}], means: [{meen: 1}]}
    late: {means: 2}
    dead_letters: {readings: 1}
    failed: {readings.plausible: 3}
"""
HOT = '{"device": "b", "at": "2026-01-01T00:01:00", "celsius": 500}'


def loaded(text: str) -> Loaded:
    return load_text(text, "p.yaml", environment={}, read_file=str)


def test_declared_tests_run_the_streaming_queries(spark: Any) -> None:
    with DeclaredTests(spark, loaded(PIPELINE)) as tests:
        assert tests.names == ["passes", "differs"]
        tests.check("passes")
        with pytest.raises(AssertionError) as error:
            tests.check("differs")
        assert str(error.value).splitlines() == [
            "sensors: differs",
            "placed: expected 1 row, found 0",
            '  - {"device": "b"}',
            'means: there is no column "meen"; did you mean mean?',
            "dead letters of readings: expected 1, found 2",
            f"  + {HOT}: expectation readings.plausible failed: celsius < 120 OR celsius IS NULL",
            "  + not JSON: the value is not JSON with the columns of the schema",
            "late rows of means: expected 2, found 0",
            "rows that fail readings.plausible: expected 3, found 1",
        ]


def test_expectation_that_fails_the_query_can_be_expected(spark: Any) -> None:
    text = """\
name: strict
sources:
  lines: {topic: a, text: line, expect: {short: {check: length(line) < 3, otherwise: fail}}}
sinks: [{from: lines, console: true}]
tests:
  - {name: refused, given: {lines: [[abcd]]}, failed: {lines.short: 1}}
  - {name: surprise, given: {lines: [[abcd]]}, expect: {lines: [{line: abcd}]}}
"""
    with DeclaredTests(spark, loaded(text)) as tests:
        assert tests.run("refused").problems == []
        [problem] = tests.run("surprise").problems
        assert "expectation lines.short failed: length(line) < 3" in problem
        assert "the expectation has otherwise: fail" in problem, "the error is in the table"
