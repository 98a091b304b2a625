"""The tests of pipeline files as items of pytest, in a run inside the test run."""

import os
from pathlib import Path
from typing import Any

import pytest

PIPELINE = """\
name: lines
sources:
  lines: {topic: lines, text: line}
steps:
  long: {python: "steps_of_items:long", from: lines}
sinks: [{from: long, console: true}]
tests:
  - {name: keeps long lines, given: {lines: [[a, abcd]]}, expect: {long: [{line: abcd}]}}
  - {name: keeps all lines, given: {lines: [[a]]}, expect: {long: [{line: a}]}}
"""
STEPS = "def long(lines):\n    return lines.where('length(line) > 2')\n"


class Reports:
    """What an inner run reports."""

    def __init__(self) -> None:
        self.tests: dict[str, tuple[str, str]] = {}
        self.files: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            name = report.nodeid.rpartition("/")[2]
            self.tests[name] = (report.outcome, str(report.longrepr or ""))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.files[report.nodeid] = str(report.longrepr)


def run(folder: Path, *words: str) -> Reports:
    found = Reports()
    plugins = [word for name in ("cacheprovider", "faulthandler") for word in ("-p", f"no:{name}")]
    words = (*words, "-q", "--capture=no", "-c", os.devnull, "--rootdir", str(folder), *plugins)
    pytest.main([str(folder), *words], plugins=[found])
    return found


def test_pipeline_files_with_tests_are_items(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines.yaml").write_text(PIPELINE)
    (tmp_path / "steps_of_items.py").write_text(STEPS)
    found = run(tmp_path)
    assert found.tests["lines.yaml::keeps long lines"] == ("passed", "")
    outcome, text = found.tests["lines.yaml::keeps all lines"]
    assert outcome == "failed"
    assert text.splitlines() == [
        "lines: keeps all lines",
        "long: expected 1 row, found 0",
        '  - {"line": "a"}',
    ]
    assert len(found.tests) == 2
    assert spark.range(3).count() == 3, "the session of others goes on"


def test_other_files_are_not_collected(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    (tmp_path / "without_tests.yaml").write_text(PIPELINE.partition("tests:")[0])
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe")
    found = run(tmp_path)
    assert (found.tests, found.files) == ({}, {})


def test_wrong_pipeline_file_is_an_error_of_the_collection(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(PIPELINE.replace("text: line", "txt: line"))
    [text] = run(tmp_path).files.values()
    assert "wrong.yaml:3:25: sources.lines.txt: unknown key; did you mean text?" in text


def test_collection_can_be_switched_off(tmp_path: Path) -> None:
    (tmp_path / "lines.yaml").write_text(PIPELINE)
    found = run(tmp_path, "-o", "ottla_pipeline_tests=false")
    assert (found.tests, found.files) == ({}, {})
