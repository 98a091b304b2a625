"""`ottla pipeline run` with a secret and hooks: a run whose Python step fails with the secret."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli.console import SCRIPTS
from judges.ottla_broker import OttlaBroker
from ottla.pipeline.earlier_runs import DECLARATION
from ottla.pipeline.run_files import RunFiles
from pipeline.fast_spark import fast_spark
from pipeline.test_spark_runner import send

PATIENCE_S = 300.0
SECRET = 'xyzzy-"plugh"-42'
PIPELINE = """\
name: secrets
brokers: {brokers}
trigger: 100 ms
client: {{client.id: "${{SECRET}}"}}
# A file system that only Spark knows, with the files of a local directory.
checkpoints: viewfs:///kept
spark:
  spark.hadoop.fs.s3a.secret.key: "${{SECRET}}"
  spark.hadoop.fs.viewfs.mounttable.default.link./kept: file://{folder}/checkpoints
sources:
  lines:
    topic: {topic}
    text: line
    expect: {{short: {{check: length(line) < 10, otherwise: drop}}}}
steps:
  checked: {{python: "checks:checked", from: lines}}
sinks:
  - {{from: checked, topic: {topic}.out}}
on_failure: {{command: [sh, -c, "cat >> hooks.jsonl; echo >> hooks.jsonl"], every: 1 second}}
on_expectation: {{rows: 1, command: [sh, -c, "cat >> hooks.jsonl; echo >> hooks.jsonl"]}}
"""
STEP = """\
import os


def checked(rows):
    def check(batches):
        for batch in batches:
            if "fail" in batch.column("line").to_pylist():
                raise RuntimeError("cannot log in with " + os.environ["SECRET"])
            yield batch

    return rows.mapInArrow(check, "line STRING")
"""


def command_lines() -> list[str]:
    """The command lines of all processes."""
    found: list[str] = []
    for one in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path(f"/proc/{one}/cmdline").read_bytes().decode(errors="replace"))
        except OSError:  # it has ended
            continue
    return found


def test_secret_of_a_failing_run_is_nowhere(
    broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    text = PIPELINE.format(brokers=broker.bootstrap, topic=topic, folder=tmp_path)
    (tmp_path / "secrets.yaml").write_text(text)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checks.py").write_text(STEP)
    send(broker, topic, "fine", "longer than it should be")
    words = ("--master", "local[1]", "--restarts", "1", "-o", "json", "--log-format", "json")
    running = subprocess.Popen(
        [str(SCRIPTS / "ottla"), "pipeline", "run", "secrets.yaml", *words],
        cwd=tmp_path,
        env={**fast_spark().environment, "SECRET": SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: set[str] = set()
    files = RunFiles("secrets", tmp_path / ".ottla" / "pipelines")

    def wait_for(holds: Callable[[Any], bool]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while running.poll() is None and not holds(files.read().content):
            assert time.monotonic() < until_s, files.read()
            lines.update(command_lines())
            time.sleep(0.05)

    try:
        wait_for(lambda content: bool(content.get("queries")) and content["queries"][0]["rows_in"])
        send(broker, topic, "fail")
        wait_for(lambda content: False)
        output, errors = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 1, errors

    # The error is everywhere, and the secret nowhere.
    shown = "RuntimeError: cannot log in with ${SECRET}"
    [query, _] = files.read().content["queries"]
    assert (query["state"], query["error"], query["restarts"]) == ("failed", shown, 1)
    assert shown in output
    assert shown in errors
    assert "cannot log in with ${SECRET}" in files.log.read_text()
    events = [json.loads(line) for line in (tmp_path / "hooks.jsonl").read_text().splitlines()]
    expectations = [one for one in events if one["event"] == "expectation"]
    failures = [one for one in events if one["event"] == "failure"]
    assert [(one["expectation"], one["total"]) for one in expectations] == [("lines.short", 1)]
    assert [(one["error"], one["final"]) for one in failures] == [(shown, False), (shown, True)]
    status = subprocess.run(
        [str(SCRIPTS / "ottla"), "pipeline", "status", "-o", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    kept = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    assert len([one for one in kept if "checkpoints" in one.parts]) > 5
    assert tmp_path / "checkpoints" / "checked-topic" / DECLARATION in kept
    for form in ("xyzzy", "plugh"):
        assert form not in output + errors + status.stdout
        assert [one for one, data in kept.items() if form.encode() in data] == []
        assert [one for one in lines if form in one] == []
    started = [one for one in lines if "--properties-file" in one]
    assert any("-XX:SharedArchiveFile=" in one for one in started), "the saved classes are used"
