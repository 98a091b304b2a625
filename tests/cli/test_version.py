"""`ottla version` as a process."""

import json
import os
import platform
import subprocess
import sys
from importlib import metadata

import pytest
import yaml

from cli.golden import check_golden
from ottla.cli.main import app
from ottla.records import COMPILED

RUN = "from ottla.cli.entry import run; run()"


def ottla(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
    )


def test_json_is_one_object_with_stable_keys() -> None:
    answer = ottla("version", "-o", "json")
    assert answer.returncode == 0
    facts = json.loads(answer.stdout)
    assert set(facts) == {"ottla", "python", "kernel", "kernel_file"}
    assert facts["ottla"] == metadata.version("ottla")
    assert facts["python"] == platform.python_version()


def test_output_is_golden() -> None:
    facts = json.loads(ottla("version", "-o", "json").stdout)
    known = {value: name for name, value in reversed(facts.items())}
    check_golden("version.txt", ottla("version").stdout, known)
    check_golden("version.json", ottla("version", "-o", "json").stdout, known)


def test_yaml_has_the_keys_of_json() -> None:
    told = yaml.safe_load(ottla("version", "-o", "yaml").stdout)
    assert told == json.loads(ottla("version", "-o", "json").stdout)


def test_table_names_the_running_extension(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["version"])(["version"])
    assert ended.value.code == 0
    words = capsys.readouterr().out.split()
    assert ("compiled" in words) is COMPILED
    assert ("python" in words[words.index("extension") :]) is not COMPILED


def test_flag_prints_the_version_as_one_line() -> None:
    for words in (["--version"], ["--version", "topic"]):  # without Typer, and with it
        answer = ottla(*words)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout == f"ottla {metadata.version('ottla')}\n"
    assert "--version" in ottla("--help").stdout


def test_wrong_usage_exits_with_2() -> None:
    answer = ottla("version", "--output", "xml")
    assert answer.returncode == 2
    assert "xml" in answer.stderr
    assert answer.stdout == ""
