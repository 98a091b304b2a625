"""The blocks of docs/pipelines.md are valid, and its output is what the command prints.

tests/pipeline/test_spark_pipelines_guide.py has the blocks that need Spark or a broker.
"""

import configparser
import io
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from cli.console import ottla
from ottla.cli.pipeline.plan import plan_result
from ottla.cli.pipeline.run_view import rendered
from ottla.cli.result import Result, Table
from ottla.pipeline import InvalidPipeline
from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState, TopicLag
from ottla.release import JAVA_MIN
from pipeline.spec.declarations import loaded

GUIDE = Path(__file__).parents[3] / "docs" / "pipelines.md"
TEXT = GUIDE.read_text()


EVERY_BLOCK: list[tuple[str, str]] = re.findall(
    r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE
)
"""The language and the text of each block."""


def blocks(language: str) -> list[str]:
    return [text for one, text in EVERY_BLOCK if one == language]


FIRST = blocks("yaml")[0]
SERVICE = blocks("ini")[0]
DOCKERFILE = blocks("dockerfile")[0]


def test_every_block_has_a_test() -> None:
    first_lines = [text.splitlines()[0] for _, text in EVERY_BLOCK]
    outputs = [line for line in first_lines if line.startswith("$ ottla pipeline ")]
    assert [line.split()[3] for line in outputs] == [
        *("init", "validate", "validate", "plan", "run", "redrive", "test"),
    ], "each of them has a test here or in test_spark_pipelines_guide.py"
    languages = [len(blocks(one)) for one in ("yaml", "python", "py", "ini", "dockerfile", "sh")]
    assert languages == [9, 1, 2, 1, 1, 1]
    others = len(first_lines) - len(outputs) - sum(languages)
    assert others == 1, "the errors of a wrong file"


def test_first_pipeline_has_no_problems() -> None:
    assert loaded(FIRST).warnings == ()


def test_plan_is_that_of_the_guide() -> None:
    shown = show_lines(plan_result(loaded(FIRST).written))
    assert "$ ottla pipeline plan sensors.yaml\n" + "\n".join(shown) + "\n```" in TEXT


def show_lines(result: Result) -> list[str]:
    parts = (one.lines() if isinstance(one, Table) else [one] for one in result.shown)
    return [line for part in parts for line in part]


def test_errors_are_those_of_the_guide() -> None:
    wrong = FIRST.replace("topic:", "topics:").replace("FROM readings", "FROM reading")
    with pytest.raises(InvalidPipeline) as error:
        loaded(wrong)
    assert f"```\n{error.value}\n```\n" in TEXT


def test_other_blocks_fit_into_the_first_pipeline() -> None:
    parts = [block for block in blocks("yaml")[1:] if not block.startswith("#")]
    assert len(parts) == 7
    first: Any = yaml.safe_load(FIRST)
    for block in parts:
        more: Any = yaml.safe_load(block)
        whole = {**first, **more}
        for key in ("sources", "steps"):
            whole[key] = {**first[key], **more.get(key, {})}
        if "devices" not in whole["sources"]:
            whole["sources"]["devices"] = {"parquet": "data/devices"}
        if "sources" in more:  # the first pipeline needs the columns of its own source
            whole["sources"]["readings"]["json"] += ", temperature DOUBLE"
        text = yaml.safe_dump(whole, sort_keys=False)
        text = text.replace("/run/secrets/sensors", "password")
        for profile in (None, *more.get("profiles", {})):
            assert loaded(text, profile, BROKERS="127.0.0.1:9092"), block


def test_validation_prints_what_the_guide_shows(tmp_path: Path) -> None:
    (tmp_path / "sensors.yaml").write_text(FIRST)
    [block] = [one for one in blocks("") if ": no errors (" in one]
    done = ottla("pipeline", "validate", "sensors.yaml", folder=tmp_path)
    assert f"$ ottla pipeline validate sensors.yaml\n{done.stdout}" == block
    schema = ottla("pipeline", "schema", folder=tmp_path)
    assert json.loads(schema.stdout)["$defs"], "the guide saves it for editors"
    assert "$schema=pipeline.schema.json" in blocks("yaml")[1]


def test_run_shows_what_the_guide_shows() -> None:
    lags = {"sensors.readings": TopicLag(0, 0.0)}
    running = QueryProgress(
        "", state=QueryState.RUNNING, rows_in=24_180, lag=0, lags=lags, batches=120
    )
    averages = {"name": "averages-parquet", "batch": 121, "batch_ms": 400, "rows_out": 360}
    dead = {"name": "readings-dead-letters", "batch": 120, "batch_ms": 200, "rows_out": 12}
    late = {"averages": 3}
    queries = [
        replace(
            replace(running, **averages, batches_ms=60_000, state_bytes=300_000, late=late),
            rows_per_s=512,
            failed=FAILED,
        ),
        replace(running, **dead, batches_ms=24_000, rows_per_s=903, is_dead_letters=True),
    ]
    written = io.StringIO()
    view = rendered(PipelineProgress("sensors", 131, queries), "http://127.0.0.1:41573/")
    Console(file=written, width=110).print(view)
    [block] = [one for one in blocks("") if one.startswith("$ ottla pipeline run ")]
    _, *lines = block.splitlines()
    assert list(map(words, written.getvalue().splitlines())) == list(map(words, lines))


FAILED = {"readings.plausible": 5}


def words(line: str) -> list[str]:
    return line.split()


# Deploying.


def check_run(line: list[str]) -> dict[str, str]:
    """Check a command line of `ottla pipeline run`, and return its options."""
    assert line[:4] == ["ottla", "pipeline", "run", "sensors.yaml"]
    shown = ottla("pipeline", "run", "--help").stdout
    options = dict(zip(line[4::2], line[5::2], strict=True))
    for option in options:
        assert option in shown
    return options


def test_systemd_unit_waits_for_a_stop_in_order() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read_string(SERVICE)
    service = unit["Service"]
    program, *line = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/ottla")
    options = check_run(["ottla", *line])
    assert int(service["TimeoutStopSec"]) >= int(options["--grace"]) + 30, "Java ends after that"
    assert service["KillMode"] == "mixed"
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    name, _ = service["LoadCredential"].split(":")
    assert f"${{file:/run/credentials/sensors.service/{name}}}" in TEXT


def test_container_runs_the_command() -> None:
    lines = dict(line.split(" ", 1) for line in DOCKERFILE.splitlines())
    options = check_run([*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])])
    assert f"openjdk-{JAVA_MIN}-jre-headless" in DOCKERFILE
    [commands] = blocks("sh")
    [timeout] = re.findall(r"--stop-timeout (\d+)", commands)
    assert int(timeout) >= int(options["--grace"]) + 30
    assert f":{lines['WORKDIR']}/.ottla " in commands


def test_python_form_equals_the_file() -> None:
    [code] = blocks("python")
    names: dict[str, Any] = {}
    exec(compile(code, str(GUIDE), "exec"), names)
    assert names["pipeline"] == loaded(FIRST).written
    assert names["checked"].pipeline == loaded(FIRST).pipeline


def test_links_have_targets() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-")
        for one in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    }
    for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", TEXT):
        assert not target or (GUIDE.parent / target).exists(), target
        assert target or anchor in headings, anchor
