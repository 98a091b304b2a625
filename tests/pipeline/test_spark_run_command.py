"""Commands of `ottla pipeline` that start Spark, as processes."""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from xml.etree import ElementTree

import pytest

from cli.console import SCRIPTS, ottla
from judges.ottla_broker import OttlaBroker
from ottla.cli.pipeline.run_tests import SAVING
from ottla.pipeline.class_archive import ClassArchive
from ottla.pipeline.java import found_java
from ottla.pipeline.run_files import RunFiles
from pipeline.fast_spark import fast_spark
from pipeline.test_spark_runner import send
from pipeline.test_spark_sink import records
from sampling import SOAK

PATIENCE_S = 300.0
PIPELINE = """\
name: lines
brokers: {brokers}
trigger: 100 ms
sources:
  lines:
    topic: {topic}
    json: line STRING
    expect: {{short: {{check: length(line) < 10}}}}
sinks:
  - {{from: lines, console: true}}
dead_letters: {topic}.dead
"""


def command(*words: str) -> list[str]:
    return [str(SCRIPTS / "ottla"), "pipeline", "run", "lines.yaml", *words]


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command("--master", "local[1]", *words),
        cwd=folder,
        env=fast_spark().environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_command_runs_until_ottla_pipeline_stop(
    broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    text = PIPELINE.format(brokers=broker.bootstrap, topic=topic)
    (tmp_path / "lines.yaml").write_text(text)
    refused = start(tmp_path)
    output, errors = refused.communicate(timeout=PATIENCE_S)
    create = f"`ottla topic create {topic}`"
    assert (refused.returncode, output) == (1, "")
    assert errors == f"ottla: topic {topic} does not exist: {create}\n"

    send(broker, topic, '{"line": "one"}', '{"line": "longer than it should be"}', "not JSON")
    running = start(tmp_path, "-o", "json", "--log-format", "json")
    try:
        files = RunFiles("lines", tmp_path / ".ottla" / "pipelines")
        until_s = time.monotonic() + PATIENCE_S
        while not is_complete(files.read().content) and running.poll() is None:
            assert time.monotonic() < until_s, files.read()
            time.sleep(0.1)
        assert files.read().process == running.pid
        page: str = files.read().content["page"]
        with urlopen(f"{page}metrics", timeout=PATIENCE_S) as response:
            metrics = response.read().decode()
        assert 'ottla_pipeline_rows_in_total{pipeline="lines",query="lines-console"} 3' in metrics
        labels = f'pipeline="lines",query="lines-console",topic="{topic}"'
        assert f"ottla_pipeline_lag_records{{{labels}}} 0" in metrics
        stopped = ottla("pipeline", "stop", "lines.yaml", folder=tmp_path)
        shown = f"Pipeline lines, process {running.pid}, has stopped.\n"
        assert (stopped.returncode, stopped.stdout) == (0, shown), stopped.stderr
        output, errors = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    assert running.returncode == 0, errors
    summary = json.loads(output)
    assert (summary["dead_letters"], summary["failed"]) == (1, {"lines.short": 1})
    assert {one["state"] for one in summary["queries"]} == {"stopped"}
    assert {one["name"]: one["rows_in"] for one in summary["queries"]} == ROWS_IN
    assert [one["rows_out"] for one in summary["queries"]] == [2, 1]
    assert "longer than it should be" in errors, "the rows of the console"
    events = [json.loads(line)["event"] for line in errors.splitlines() if line.startswith("{")]
    assert {"pipeline started", "query started", "progress reported", "pipeline stopped"} <= {
        *events
    }
    assert not files.read().is_running
    assert [one.value for one in records(broker, f"{topic}.dead")] == [b"not JSON"]


ROWS_IN = {"lines-console": 3, "lines-dead-letters": 1}
"""The query of the dead letters does not read values that Spark certainly parses."""


def is_complete(content: Any) -> bool:
    queries = content.get("queries", [])
    return {one["name"]: one["rows_in"] for one in queries} == ROWS_IN


TESTS_OF_LINES = """\
tests:
  - {name: a line, given: {lines: [[{line: a}]]}, expect: {lines: [{line: a}]}}
  - {name: another, given: {lines: [[{line: a}, not JSON]]}, expect: {lines: [{line: b}]}}
"""


def test_command_runs_the_tests_of_a_pipeline(tmp_path: Path) -> None:
    text = PIPELINE.format(brokers="127.0.0.1:1", topic="lines")
    (tmp_path / "lines.yaml").write_text(text + TESTS_OF_LINES)
    done = subprocess.run(
        [str(SCRIPTS / "ottla"), "pipeline", "test", "lines.yaml", "--junit", "report.xml"],
        cwd=tmp_path,
        env=fast_spark().environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == "ottla: lines.yaml: 1 of 2 tests failed\n"
    assert done.returncode == 1
    passed, failed, *difference = re.sub(r"\(.* s\)", "", done.stdout).splitlines()
    assert (passed, failed) == ("PASS  a line ", "FAIL  another ")
    assert difference == [
        "      lines: expected 1 row, found 1",
        '        - {"line": "b"}',
        '        + {"line": "a"}',
        "2 tests, 1 failed",
    ]
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("lines", "2", "1")
    failures = {one.get("name"): one.find("failure") for one in suite.findall("testcase")}
    assert failures["a line"] is None
    assert failures["another"] is not None
    assert failures["another"].get("message") == "lines: expected 1 row, found 1"


@pytest.mark.skipif(not SOAK, reason="`make soak` runs the line of --dry-run")
def test_line_for_spark_submit_runs_the_pipeline(
    broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    text = PIPELINE.format(brokers=broker.bootstrap, topic=topic)
    text = text.replace(
        "sinks:", 'steps:\n  upper: {python: "steps.case:upper", from: lines}\nsinks:'
    )
    text = text.replace("{from: lines, console: true}", f"{{from: upper, topic: {topic}.out}}")
    (tmp_path / "lines.yaml").write_text(text)
    (tmp_path / "steps").mkdir()
    step = 'def upper(rows):\n    return rows.selectExpr("upper(line) AS line")\n'
    (tmp_path / "steps" / "case.py").write_text(step)
    send(broker, topic, '{"line": "one"}')
    environment = fast_spark().environment
    shown = subprocess.run(
        command("--master", "local[2]", "--once", "--dry-run", "-o", "json"),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    program, *words = json.loads(shown.stdout)["command"]
    done = subprocess.run(
        [f"{environment['SPARK_HOME']}/bin/{program}", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one.value for one in records(broker, f"{topic}.out")] == [b'{"line":"ONE"}']


@pytest.mark.skipif(not SOAK, reason="`make soak` lets Java save its classes twice at once")
def test_first_use_saves_the_classes_of_spark(tmp_path: Path) -> None:
    text = PIPELINE.format(brokers="127.0.0.1:1", topic="lines")
    tests = "tests:\n  - {name: a line, given: {lines: [[{line: a}]]}"
    tests += ", expect: {lines: [{line: a}]}}\n"
    (tmp_path / "lines.yaml").write_text(text + tests)
    environment = {**os.environ, "OTTLA_SPARK_DIRECTORY": str(tmp_path / "classes")}
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        environment.pop(name, None)

    def test() -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(SCRIPTS / "ottla"), "pipeline", "test", "lines.yaml"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    both = [test(), test()]
    errors = [one.communicate(timeout=PATIENCE_S)[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], errors
    assert f"{SAVING}\n" in errors
    assert "takes about a minute" in SAVING
    archive = ClassArchive(found_java(), tmp_path / "classes")
    assert archive.exists
    assert {one.name for one in archive.directory.iterdir()} == {archive.path.name, "home"}
    later = test()
    assert later.communicate(timeout=PATIENCE_S)[1] == ""
