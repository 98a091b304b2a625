"""One run of the example without a terminal, which several tests use.

It also saves the archive of Spark's classes for this environment, unless there is one.
"""

import fcntl
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from run_directory import run_directory

EXAMPLES = Path(__file__).parents[3] / "examples"
PATIENCE_S = 600
FIRST_RUN_S: Final = 15


class FirstRun(NamedTuple):
    """A run that has ended."""

    data: Path
    done: subprocess.CompletedProcess[str]


@cache
def first_run() -> FirstRun:
    """Run the example once in a new directory, for all processes of the tests.

    It runs long enough for the averages of every device. One of them fails every 9 s for 3 s, and
    there are no alerts in the first 5 s.
    """
    directory = run_directory() / "sensors"
    directory.mkdir(exist_ok=True)
    data = directory / "data für später"  # with a space and a letter that is not ASCII
    report = directory / "done.json"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not report.exists():
            done = run(data, "--seconds", str(FIRST_RUN_S))
            report.write_text(json.dumps(vars(done)))
    return FirstRun(data, subprocess.CompletedProcess(**json.loads(report.read_text())))


def run(data: Path, *more: str, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run the example without a terminal."""
    return subprocess.run(
        command(data, *more),
        env=environment(**changed),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def command(data: Path, *more: str) -> list[str]:
    """The command of `make run`, on a free port."""
    return [sys.executable, "-m", "sensors", "--port", "0", "--data", str(data), *more]


def environment(**changed: str) -> dict[str, str]:
    """The environment of that command, without the Spark home of other tests."""
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    return {**kept, "PYTHONPATH": python_path(), **changed}


def python_path() -> str:
    """The PYTHONPATH of Spark's Python processes: the examples before what this process has."""
    paths = [str(EXAMPLES), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))
