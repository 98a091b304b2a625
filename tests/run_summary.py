"""Prints where the time of `make test` went, and what was skipped.

`python tests/run_summary.py STEP COMMAND...` runs a step and notes its seconds. With --print-at-end
before the step, its output is printed in one piece, because others run beside it. The tests of a
step add the seconds of each file of tests/ and the reasons of what they skipped (`note_tests`,
which tests/conftest.py calls). Without arguments the table is printed and the notes are removed.

Seconds by the clock include waiting, also for other tests. The processor time (user and system, of
all processes that a test starts) is what a test costs; two cores have two seconds of it a second.
"""

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

NOTES = Path(__file__).parents[1] / ".test-times.jsonl"
STEP = "OTTLA_TEST_STEP"
PRINT_AT_END: Final = "--print-at-end"
FILES_SHOWN: Final = 20


@dataclass
class Spent:
    """What the tests of a file or an area took."""

    tests: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def add(self, other: "Spent") -> None:
        """Add the tests of another file."""
        self.tests += other.tests
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds


def main(arguments: list[str]) -> int:
    """Run a step, or print the table."""
    if not arguments:
        print(table(map(json.loads, NOTES.read_text().splitlines())))
        NOTES.unlink()
        return 0
    is_printed_at_end = arguments[0] == PRINT_AT_END
    step, *command = arguments[is_printed_at_end:]
    start, cpu_start = time.time(), _children_cpu_seconds()
    environment = {**os.environ, STEP: step}
    with tempfile.TemporaryFile() as output:
        kept = output if is_printed_at_end else None
        done = subprocess.run(command, env=environment, stdout=kept, stderr=kept, check=False)
        if is_printed_at_end:
            output.seek(0)
            print("\n" + output.read().decode(errors="replace"), end="", flush=True)
    _note(
        {
            "step": step,
            "start": start,
            "seconds": time.time() - start,
            "cpu": _children_cpu_seconds() - cpu_start,
        }
    )
    return done.returncode


def note_tests(files: Mapping[str, Spent], skipped: Mapping[str, int]) -> None:
    """Note the tests of this run by file, if it is a step of `make test`."""
    if step := os.environ.get(STEP):
        noted = {path: asdict(spent) for path, spent in files.items()}
        _note({"tests of": step, "files": noted, "skipped": dict(skipped)})


def table(notes: Iterable[Mapping[str, Any]]) -> str:
    """The areas by processor time, the files that take most of it, and the steps by the clock."""
    lines: list[str] = []
    steps: dict[str, tuple[float, float]] = {}
    begin, end = math.inf, 0.0  # the steps run beside each other
    skipped: Counter[str] = Counter()
    for note in notes:
        if "step" in note:
            # `make -n test` in a test runs the line of a step that calls make, and notes it again.
            seconds, cpu = steps.get(note["step"], (0.0, 0.0))
            steps[note["step"]] = seconds + note["seconds"], cpu + note["cpu"]
            begin, end = min(begin, note["start"]), max(end, note["start"] + note["seconds"])
            continue
        lines += _by_area(note["tests of"], note["files"])
        skipped.update(note["skipped"])
    lines.append("steps: seconds by the clock, of processors")
    lines += [f"  {seconds:8.1f} {cpu:8.1f}  {step}" for step, (seconds, cpu) in steps.items()]
    cpus = sum(cpu for _, cpu in steps.values())
    lines.append(f"  {max(end - begin, 0.0):8.1f} {cpus:8.1f}  together")
    lines.append("skipped" if skipped else "nothing was skipped")
    lines += [f"  {count:8}  {reason}" for reason, count in skipped.most_common()]
    return "\n".join(lines)


def _by_area(step: str, noted: Mapping[str, Any]) -> list[str]:
    files = {path: Spent(**spent) for path, spent in noted.items()}
    areas: defaultdict[str, Spent] = defaultdict(Spent)
    for path, spent in files.items():
        parts = path.split("/")
        areas[parts[1] if len(parts) > 2 else "tests"].add(spent)
    lines = [f"{step}: seconds of processors, and of the tests in all processes"]
    lines += _most(areas, len(areas))
    if len(files) > FILES_SHOWN:
        lines.append(f"{step}: the files that take most of it")
        lines += _most(files, FILES_SHOWN)
    return lines


def _most(rows: Mapping[str, Spent], count: int) -> list[str]:
    most = sorted(rows.items(), key=lambda row: -row[1].cpu_seconds)[:count]
    return [
        f"  {one.cpu_seconds:8.1f} {one.seconds:8.1f}  {name} ({one.tests} tests)"
        for name, one in most
    ]


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _note(what: Mapping[str, object]) -> None:
    with NOTES.open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
