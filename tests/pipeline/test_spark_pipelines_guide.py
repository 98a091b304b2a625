"""The blocks of docs/pipelines.md that need Spark or a broker run as shown.

tests/pipeline/spec/test_pipelines_guide.py has the others.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.console import ottla
from judges.ottla_broker import OttlaBroker
from ottla.cli.pipeline.run_tests import outcome_lines, result_of
from ottla.pipeline import InvalidPipeline
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.declared_tests import DeclaredTests
from ottla.pipeline.spec.loading import load_text
from ottla.sync import Producer
from pipeline.spec.test_pipelines_guide import FIRST, blocks
from pipeline.test_redrive_decision import headers

[TESTS] = [one for one in blocks("yaml") if one.startswith("tests:")]
[PROFILES] = [one for one in blocks("yaml") if one.startswith("brokers:")]
TOPIC = "sensors.readings"


def shown(command: str) -> list[str]:
    """The lines that a block shows as the output of a command."""
    [block] = [one for one in blocks("") if one.startswith(f"$ ottla pipeline {command}")]
    return block.splitlines()[1:]


def test_tests_of_the_guide_pass_and_fail_as_shown(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    profiles = PROFILES.replace("/run/secrets/sensors", "password")
    (tmp_path / "sensors.yaml").write_text(FIRST + profiles + TESTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROKERS", "127.0.0.1:1")
    [block] = [one for one in blocks("py") if "check_tests" in one]
    names: dict[str, Any] = {}
    exec(compile(block, "docs/pipelines.md", "exec"), names)
    names["test_sensors"]()

    wrong = FIRST + TESTS.replace("temperature: 20}", "temperature: 20.5}")
    assert wrong != FIRST + TESTS
    loaded = load_text(wrong, "sensors.yaml", environment={}, read_file=str)
    with DeclaredTests(spark, loaded) as tests:
        outcome = tests.run("averages a window")
    result = result_of(Path("sensors.yaml"), [outcome])
    lines = [*outcome_lines(outcome), *map(str, result.shown)]
    lines += [f"ottla: {one.message}" for one in result.failures]
    assert list(map(without_seconds, lines)) == list(map(without_seconds, shown("test ")))


def without_seconds(line: str) -> str:
    return re.sub(r"\(\d+\.\d s\)", "(SECONDS)", line)


def test_mistake_in_sql_is_shown_by_spark(spark: Any) -> None:
    wrong = FIRST.replace("avg(temperature)", "avg(temprature)")
    loaded = load_text(wrong, "sensors.yaml", environment={}, read_file=str)
    with pytest.raises(InvalidPipeline) as error:
        compile_pipeline(spark, loaded, "sensors.yaml")
    [line] = shown("validate sensors.yaml --spark")
    assert str(error.value).startswith(line.removesuffix("…"))


def test_queries_of_the_guide_run(
    spark: Any, broker: OttlaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = f"brokers: {broker.bootstrap}\ncheckpoints: {tmp_path}/c\noutput: {tmp_path}\n"
    (tmp_path / "sensors.yaml").write_text(FIRST + settings)
    monkeypatch.chdir(tmp_path)
    reading = {"device": "a", "at": "2026-01-01T00:00:01Z", "temperature": 20}
    later = {**reading, "at": "2026-01-01T00:01:00Z"}
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for one in (reading, later):
            producer.send(f"{TOPIC}", json.dumps(one).encode())
    [block] = [one for one in blocks("py") if "compile_pipeline" in one]
    names: dict[str, Any] = {"spark": spark}
    exec(compile(block, "docs/pipelines.md", "exec"), names)
    assert len(names["running"]) == 2
    try:
        for query in names["running"]:
            query.processAllAvailable()
    finally:
        for query in names["running"]:
            query.stop()
    [row] = spark.read.parquet(f"{tmp_path}/out/averages").collect()
    assert (row.device, row.mean, str(row.day)) == ("a", 20.0, "2026-01-01")


def test_init_and_redrive_print_what_the_guide_shows(broker: OttlaBroker, tmp_path: Path) -> None:
    topic = f"init.{TOPIC}"  # other tests use the topic of the guide
    good = {"device": "a", "at": "2026-01-01T00:00:01Z", "temperature": 20.5}
    values = [json.dumps(good).encode()] * 197
    values += [json.dumps({**good, "temperature": "n/a"}).encode()] * 2
    dead = [("not JSON", b"x")] * 12 + [("expectation readings.plausible failed", b"y")] * 3
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for number, value in enumerate((*values, b"not JSON")):
            producer.send(topic, value, partition=number % 3)  # the sample has some of each
        for error, value in dead:
            origin = headers(pipeline="sensors", step="readings", error=error, topic=topic)
            producer.send("sensors.dead-letters", value, headers=origin)
    done = ottla("pipeline", "init", "-b", broker.bootstrap, topic, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = (done.stdout + done.stderr).replace(topic, TOPIC)
    assert printed.splitlines() == shown("init ")

    (tmp_path / "sensors.yaml").write_text(f"{FIRST}brokers: {broker.bootstrap}\n")
    words = ("pipeline", "redrive", "sensors.yaml", "--error", "not JSON")
    done = ottla(*words, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == shown("redrive ")
