"""The examples on Spark as processes: what they print, and the processes that they start."""

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from pipeline.fast_spark import fast_spark
from pipeline.sensors.first_run import PATIENCE_S, environment

POLL_S: Final = 0.1


def started(name: str, data: Path, *more: str) -> "subprocess.Popen[str]":
    """Start an example without a terminal, on a free port."""
    fast_spark()  # the archive of classes exists
    return subprocess.Popen(
        [sys.executable, "-m", name, "--port", "0", "--data", str(data), *more],
        env=environment(),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_results(process: "subprocess.Popen[str]", results: str) -> None:
    """Read lines of progress until there are some results."""
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(rf"[1-9][\d,]* {results}", line):
            return
    pytest.fail(f"the example has ended: {process.communicate()}")


def ended(process: "subprocess.Popen[str]") -> str:
    """Wait for the end in order, and return the summary."""
    summary, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, ""), summary
    return summary


def counts(summary: str) -> dict[str, int]:
    """The counts of a run in its summary."""
    found = re.findall(r"^  ([a-z ]+?) {2,}([\d,]+) .*$", summary, re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in found}


def processes_of(parent: int) -> dict[int, str]:
    """All processes that a process and its children have started, with their commands."""
    told = subprocess.run(["ps", "-ewwo", "pid=,ppid=,args="], capture_output=True, text=True)
    rows = [line.split(None, 2) for line in told.stdout.splitlines()]
    found: dict[int, str] = {}
    parents = {parent}
    while True:
        new = {
            int(row[0]): row[2]
            for row in rows
            if int(row[1]) in parents and int(row[0]) not in found
        }
        if not new:
            return found
        found |= new
        parents = set(new)


def wait_until_gone(processes: dict[int, str]) -> None:
    """Wait until all of these processes have ended."""
    deadline_s = time.monotonic() + PATIENCE_S
    for number, name in processes.items():
        while Path(f"/proc/{number}/cmdline").exists():
            if Path(f"/proc/{number}/cmdline").read_bytes() == b"":
                break  # a zombie
            assert time.monotonic() < deadline_s, f"{name} still runs"
            time.sleep(POLL_S)
