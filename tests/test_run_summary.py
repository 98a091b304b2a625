"""The table at the end of `make test`."""

import json
import sys
from pathlib import Path

import pytest

import run_summary


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
    run_summary.note_tests({"log": 3.5, "cli": 40.0}, {"log": 2, "cli": 7}, {"no Java": 4})
    assert run_summary.main(["tests", sys.executable, "-c", ""]) == 0
    assert run_summary.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "tests: seconds of the tests in all processes",
        "      40.0  cli (7 tests)",
        "       3.5  log (2 tests)",
    ]
    assert [line.split()[-1] for line in lines[4:7]] == ["check", "tests", "together"]
    assert lines[7:] == ["skipped", "         4  no Java"]
    assert not notes.exists()


def test_failed_step_exits_with_its_status(notes: Path) -> None:
    assert run_summary.main(["check", sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert json.loads(notes.read_text())["step"] == "check"


def test_run_outside_of_make_test_notes_nothing(
    monkeypatch: pytest.MonkeyPatch, notes: Path
) -> None:
    monkeypatch.delenv(run_summary.STEP, raising=False)
    run_summary.note_tests({"log": 1.0}, {"log": 1}, {})
    assert not notes.exists()


def test_step_that_is_noted_twice_keeps_its_seconds() -> None:
    notes = [{"step": "check", "seconds": 80.0}, {"step": "check", "seconds": 0.0}]
    assert run_summary.table(notes).splitlines()[1] == "      80.0  check"
