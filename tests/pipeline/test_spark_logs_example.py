"""The logs example: files that are rotated, a collector, and the pipeline on Spark."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from cli.records.harness import run
from judges.ottla_broker import OttlaBroker
from logs.collector import collect_command
from logs.description import DEAD_LETTERS, ERRORS, PIPELINE
from logs.log_files import LogFiles
from logs.services import TRACEBACK, LogLine, lines
from ottla.pipeline import load
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.declared_tests import DeclaredTests
from ottla.pipeline.spec.checks import AVAILABLE_NOW
from ottla.pipeline.spec.loading import Loaded
from ottla.sync import Consumer

START_MS = 1_767_225_600_000  # the start of a minute
STEP_MS = 10_000


def loaded(broker: OttlaBroker, directory: Path) -> Loaded:
    variables = {"BROKERS": broker.bootstrap, "DIRECTORY": str(directory)}
    return load(PIPELINE, environment=variables)


def collect(broker: OttlaBroker, directory: Path) -> None:
    done = run("ottla", *collect_command(directory, broker.bootstrap, "--once"))
    assert (done.returncode, done.stderr) == (0, b""), done


def write_and_collect(broker: OttlaBroker, directory: Path) -> list[LogLine]:
    """Write lines of two minutes to files that are rotated, and collect them now and then."""
    written: list[LogLine] = []
    with LogFiles(directory / "files", file_bytes=30_000) as files:
        for step in range(7):
            start_ms = START_MS + step * STEP_MS
            new = [*lines(7, start_ms, start_ms + STEP_MS)]
            files.write(new)
            written += new
            if step % 2:
                collect(broker, directory)
    collect(broker, directory)
    return written


def records(broker: OttlaBroker, topic: str) -> list[Any]:
    found: list[Any] = []
    settings = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        partitions = consumer.partitions(topic)
        consumer.assign(*partitions)
        ends = consumer.end_offsets(*partitions)
        while len(found) < sum(ends.values()):
            found += consumer.poll(60)
    return found


def counted(written: list[LogLine]) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Return the errors and lines of each service and minute, computed in plain Python."""
    errors: Counter[tuple[str, datetime]] = Counter()
    every: Counter[tuple[str, datetime]] = Counter()
    for line in written:
        if line.text not in TRACEBACK:
            minute = datetime.fromtimestamp(line.at_ms // 60_000 * 60, UTC)
            every[line.service, minute] += 1
            errors[line.service, minute] += b" ERROR " in line.text
    return {one: (errors[one], every[one]) for one in every}


def test_errors_are_counted_and_other_lines_are_set_aside(
    spark: Any, broker: OttlaBroker, tmp_path: Path
) -> None:
    written = write_and_collect(broker, tmp_path)
    collected = Counter(one.value for one in records(broker, "logs"))
    assert collected == Counter(line.text for line in written)

    found = loaded(broker, tmp_path)
    pipeline = msgspec.structs.replace(found.pipeline, trigger=AVAILABLE_NOW)
    compiled = compile_pipeline(spark, found._replace(pipeline=pipeline), str(PIPELINE))
    for query in [one.start() for one in compiled.queries]:
        query.awaitTermination()

    counts: dict[tuple[str, datetime], tuple[int, int]] = {}
    for record in records(broker, ERRORS):
        row = json.loads(record.value)
        assert record.key.decode() == row["service"]
        minute = datetime.fromisoformat(row["minute"])
        counts[row["service"], minute] = (row["errors"], row["lines"])
    assert counts == counted(written)
    expected = Counter(line.text for line in written if line.text in TRACEBACK)
    assert Counter(one.value for one in records(broker, DEAD_LETTERS)) == expected
    assert {*expected} == {*TRACEBACK}


def test_declared_tests_pass(spark: Any, tmp_path: Path, broker: OttlaBroker) -> None:
    found = loaded(broker, tmp_path)
    with DeclaredTests(spark, found) as tests:
        assert len(tests.names) == 2
        for name in tests.names:
            tests.check(name)
