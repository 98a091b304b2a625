"""One run of the example without a terminal, which several tests use.

It also saves the archive of Spark's classes for this environment, unless there is one.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).parents[3] / "examples"
PATIENCE_S = 600


class FirstRun(NamedTuple):
    """A run that has ended."""

    data: Path
    done: subprocess.CompletedProcess[str]


@cache
def first_run() -> FirstRun:
    """Run the example once in a new directory.

    It runs long enough for the averages of every device, and for the failure of one device.
    """
    directory = tempfile.mkdtemp(prefix="sensors-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    data = Path(directory) / "data für später"  # with a space and a letter that is not ASCII
    return FirstRun(data, run(data, "--seconds", "20"))


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
