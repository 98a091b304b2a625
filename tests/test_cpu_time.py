"""Processor time of a process and of those that it starts."""

import subprocess
import sys

import pytest

from cpu_time import CpuMeter

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"


def test_ended_children_are_counted() -> None:
    meter = CpuMeter()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert meter.read() > 0.28  # the system counts hundredths
    assert meter.read() < 0.1


def test_running_descendants_are_counted() -> None:
    code = f"{BUSY}print(flush=True)\ninput()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    meter = CpuMeter()
    with subprocess.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert meter.read() > 0.28  # the system counts hundredths
        process.communicate(b"\n")


def test_children_of_a_short_test_are_counted_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meter = CpuMeter()
    monkeypatch.setattr(CpuMeter, "LONG_S", 60.0)
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert meter.read() < 0.1
    monkeypatch.setattr(CpuMeter, "LONG_S", 0.0)
    assert meter.read() > 0.28  # the system counts hundredths
