"""`make judge`: run every test that needs a real Kafka 4.3.1, and check the recordings with it.

    python -m judges                       check all recordings and run the live tests
    python -m judges --record              write the recordings again
    python -m judges tests/compat -k list  the same for some tests; arguments are pytest's

Prints a table of the recordings and one of the live tests, and writes both as JSON, with the
machine and the commit, to `judges/results/`. The exit code is 0 only if every test passed, no
answer differs from its recording, and (in a complete run) every recorded scenario was asked.
"""

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import write_report
from judges.recording import (
    MODE,
    RECORDED,
    REPORT,
    Mode,
    read_scenarios,
    write_scenarios,
)

ROOT = Path(__file__).parents[1]
MARKED = "judge or recorded"
PIPED_WIDTH = 110


@dataclass
class CheckedRecording:
    """The result of checking a recording."""

    scenarios: int = 0
    answers: int = 0
    differences: int = 0


@dataclass
class FileResult:
    """The outcome of the tests of one file."""

    tests: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0


def main(arguments: list[str]) -> int:
    """Run the tests and report; the exit code."""
    records = "--record" in arguments
    chosen = [one for one in arguments if one != "--record"]
    with tempfile.TemporaryDirectory(prefix="judge-") as folder:
        report, results = Path(folder) / "report", Path(folder) / "results.xml"
        report.touch()
        mode = Mode.RECORD if records else Mode.CHECK
        code = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "2", "-m", MARKED, f"--junitxml={results}",
             "-o", "junit_family=xunit1", *chosen],
            cwd=ROOT,
            env={**os.environ, MODE: mode.value, REPORT: str(report)},
            check=False,
        ).returncode  # fmt: skip
        lines: list[dict[str, Any]] = [json.loads(one) for one in report.read_text().splitlines()]
        ran = _ran(results)
    unasked = [] if chosen else _unasked(lines)
    if records and code == 0:
        _forget(unasked)
        unasked = []
    checked = _checked(lines)
    differing = [one for one in lines if one["differences"]]
    _print(checked, ran, differing, unasked)
    path = _write(
        {
            "mode": mode.value,
            "arguments": chosen,
            "recordings": {name: asdict(one) for name, one in checked.items()},
            "differences": differing,
            "recorded_but_not_asked": unasked,
            "tests": {name: asdict(one) for name, one in ran.items()},
            "pytest_exit_code": code,
        }
    )
    print(f"figures: {path}")
    return 0 if code == 0 and not differing and not unasked else 1


def _checked(lines: list[dict[str, Any]]) -> dict[str, CheckedRecording]:
    found: dict[str, CheckedRecording] = defaultdict(CheckedRecording)
    for one in sorted(lines, key=lambda one: one["recording"]):
        row = found[one["recording"]]
        row.scenarios += 1
        row.answers += one["answers"]
        row.differences += len(one["differences"])
    return dict(found)


def _ran(results: Path) -> dict[str, FileResult]:
    """The outcomes of all tests, by file."""
    found: dict[str, FileResult] = defaultdict(FileResult)
    if not results.exists():
        return {}
    for case in ElementTree.parse(results).iter("testcase"):
        row = found[case.get("file", "")]
        row.tests += 1
        row.failed += case.find("failure") is not None or case.find("error") is not None
        row.skipped += case.find("skipped") is not None
        row.seconds += float(case.get("time", 0))
    return dict(sorted(found.items()))


def _recordings() -> dict[str, Path]:
    return {
        str(path.relative_to(RECORDED).with_suffix("")): path
        for path in sorted(RECORDED.rglob("*.json"))
    }


def _unasked(lines: list[dict[str, Any]]) -> list[list[str]]:
    """The recorded scenarios that no test asked for, with the name of their recording."""
    asked = {(one["recording"], one["scenario"]) for one in lines}
    return [
        [name, scenario]
        for name, path in _recordings().items()
        for scenario in read_scenarios(path)
        if (name, scenario) not in asked
    ]


def _forget(unasked: list[list[str]]) -> None:
    paths = _recordings()
    for name in {name for name, _ in unasked}:
        gone = {scenario for other, scenario in unasked if other == name}
        kept = {key: one for key, one in read_scenarios(paths[name]).items() if key not in gone}
        if kept:
            write_scenarios(paths[name], kept)
        else:
            paths[name].unlink()


def _print(
    checked: dict[str, CheckedRecording],
    ran: dict[str, FileResult],
    differing: list[dict[str, Any]],
    unasked: list[list[str]],
) -> None:
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    table = Table(title="Recorded answers, compared with Apache Kafka 4.3.1")
    for name in ("recording", "scenarios", "answers compared", "differences"):
        table.add_column(name, justify="left" if name == "recording" else "right")
    for name, one in checked.items():
        table.add_row(name, str(one.scenarios), str(one.answers), str(one.differences))
    console.print(table)
    table = Table(title="Tests with a live Kafka")
    for name in ("file", "tests", "failed", "skipped", "seconds"):
        table.add_column(name, justify="left" if name == "file" else "right")
    for name, one in ran.items():
        table.add_row(name, str(one.tests), str(one.failed), str(one.skipped), f"{one.seconds:.0f}")
    console.print(table)
    for one in differing:
        console.print(f"{one['recording']}, {one['scenario']}:", style="bold", markup=False)
        console.print_json(json.dumps(one["differences"]))
    for name, scenario in unasked:
        console.print(f"{name}, {scenario}: recorded, but no test asks it", markup=False)


def _write(figures: dict[str, Any]) -> Path:
    return write_report(Path(__file__).with_name("judge.py"), figures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
