"""Prints where the time of `make test` went, and what was skipped.

`python tests/run_summary.py STEP COMMAND...` runs a step and notes its seconds. The tests of a step
add the seconds of each folder of tests/ and the reasons of what they skipped (`note_tests`, which
tests/conftest.py calls). Without arguments the table is printed and the notes are removed.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

NOTES = Path(__file__).parents[1] / ".test-times.jsonl"
STEP = "OTTLA_TEST_STEP"


def main(arguments: list[str]) -> int:
    """Run a step, or print the table."""
    if not arguments:
        print(table(map(json.loads, NOTES.read_text().splitlines())))
        NOTES.unlink()
        return 0
    step, *command = arguments
    start = time.monotonic()
    status = subprocess.run(command, env={**os.environ, STEP: step}, check=False).returncode
    _note({"step": step, "seconds": time.monotonic() - start})
    return status


def note_tests(
    seconds: Mapping[str, float], counts: Mapping[str, int], skipped: Mapping[str, int]
) -> None:
    """Note the tests of this run by area, if it is a step of `make test`."""
    if step := os.environ.get(STEP):
        _note(
            {
                "tests of": step,
                "seconds": dict(seconds),
                "counts": dict(counts),
                "skipped": dict(skipped),
            }
        )


def table(notes: Iterable[Mapping[str, Any]]) -> str:
    """The steps by the clock, the areas by the seconds of their tests in all processes."""
    lines: list[str] = []
    steps: dict[str, float] = {}
    skipped: Counter[str] = Counter()
    for note in notes:
        if "step" in note:
            # `make -n test` in a test runs the line of a step that calls make, and notes it again.
            steps[note["step"]] = steps.get(note["step"], 0.0) + note["seconds"]
            continue
        lines.append(f"{note['tests of']}: seconds of the tests in all processes")
        for area, seconds in sorted(note["seconds"].items(), key=lambda one: -one[1]):
            lines.append(f"  {seconds:8.1f}  {area} ({note['counts'].get(area, 0)} tests)")
        skipped.update(note["skipped"])
    lines.append("steps: seconds by the clock")
    lines += [f"  {seconds:8.1f}  {step}" for step, seconds in steps.items()]
    lines.append(f"  {sum(steps.values()):8.1f}  together")
    lines.append("skipped" if skipped else "nothing was skipped")
    lines += [f"  {count:8}  {reason}" for reason, count in skipped.most_common()]
    return "\n".join(lines)


def _note(what: Mapping[str, object]) -> None:
    with NOTES.open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
