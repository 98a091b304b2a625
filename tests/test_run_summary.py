"""The table at the end of `make test`."""

import json
import sys
from pathlib import Path

import pytest

import run_summary
from run_summary import Spent


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notes"
    monkeypatch.setattr(run_summary, "NOTES", path)
    return path


def test_areas_steps_and_skips_are_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], notes: Path
) -> None:
    assert run_summary.main(["check", sys.executable, "-c", ""]) == 0
    monkeypatch.setenv(run_summary.STEP, "tests")
    files = {
        "tests/log/test_files.py": Spent(tests=2, seconds=40.0, cpu_seconds=3.5),
        "tests/cli/test_start.py": Spent(tests=4, seconds=10.0, cpu_seconds=6.0),
        "tests/cli/topic/test_topic.py": Spent(tests=3, seconds=4.0, cpu_seconds=1.0),
        "tests/test_ids.py": Spent(tests=1, seconds=0.5, cpu_seconds=0.4),
    }
    run_summary.note_tests(files, {"no Java": 4})
    assert run_summary.main(["tests", sys.executable, "-c", ""]) == 0
    assert run_summary.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "tests: seconds of processors, and of the tests in all processes",
        "       7.0     14.0  cli (7 tests)",
        "       3.5     40.0  log (2 tests)",
        "       0.4      0.5  tests (1 tests)",
    ]
    assert [line.split()[-1] for line in lines[5:8]] == ["check", "tests", "together"]
    assert lines[8:] == ["skipped", "         4  no Java"]
    assert not notes.exists()


def test_files_that_take_most_are_in_the_table() -> None:
    spent = {f"tests/log/test_{n:02}.py": {"tests": 1, "cpu_seconds": n} for n in range(30)}
    lines = run_summary.table([{"tests of": "tests", "files": spent, "skipped": {}}]).splitlines()
    assert lines[2] == "tests: the files that take most of it"
    assert lines[3] == "      29.0      0.0  tests/log/test_29.py (1 tests)"
    assert lines[3 + run_summary.FILES_SHOWN].startswith("steps")


def test_processor_time_of_a_step_is_that_of_its_processes(notes: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    run_summary.main(["tests", sys.executable, "-c", code])
    assert json.loads(notes.read_text())["cpu"] >= 0.2


@pytest.mark.parametrize("option", [[], [run_summary.PRINT_AT_END]])
def test_output_of_a_step_is_printed(option: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('found', flush=True); print('failed', file=sys.stderr)"
    run_summary.main([*option, "check", sys.executable, "-c", code])
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == (
        ("\nfound\nfailed\n", "") if option else ("found\n", "failed\n")
    )


def test_failed_step_exits_with_its_status(notes: Path) -> None:
    assert run_summary.main(["check", sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert json.loads(notes.read_text())["step"] == "check"


def test_run_outside_of_make_test_notes_nothing(
    monkeypatch: pytest.MonkeyPatch, notes: Path
) -> None:
    monkeypatch.delenv(run_summary.STEP, raising=False)
    run_summary.note_tests({"tests/test_ids.py": Spent(1, 1.0, 1.0)}, {})
    assert not notes.exists()


def test_step_that_is_noted_twice_keeps_its_seconds() -> None:
    notes = [
        {"step": "check", "start": 1000.0, "seconds": 80.0, "cpu": 90.0},
        {"step": "check", "start": 1080.0, "seconds": 0.0, "cpu": 0.0},
    ]
    assert run_summary.table(notes).splitlines()[1] == "      80.0     90.0  check"


def test_steps_that_ran_beside_each_other_count_once_by_the_clock() -> None:
    notes = [
        {"step": "check", "start": 1001.0, "seconds": 80.0, "cpu": 90.0},
        {"step": "tests", "start": 1000.0, "seconds": 500.0, "cpu": 800.0},
    ]
    assert run_summary.table(notes).splitlines()[3] == "     500.0    890.0  together"
