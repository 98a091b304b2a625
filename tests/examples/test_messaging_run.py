"""`make run EXAMPLE=messaging` as a process, and the supervisor of its services."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from messaging.customers import messages
from messaging.description import load_example
from messaging.service import Service
from messaging.supervisor import FAILURES_MAX, ServiceProgress, ServicesJob
from messaging.topics import ORDERS
from ottla.errors import OttlaError
from ottla.sync import Producer
from shared.dev_broker import DevBroker
from shared.example import Context, RunFailed
from shared.monitor import create_topics

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 120.0


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.02)


# The process.


def started(data: Path, *more: str) -> "subprocess.Popen[str]":
    paths = [str(EXAMPLES), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return subprocess.Popen(
        [sys.executable, "-m", "messaging", "--port", "0", "--data", str(data), *more],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def counts(summary: str) -> dict[str, int]:
    found = re.findall(r"^  ([a-z ]+?) {2,}([\d,]+) .*$", summary, re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in found}


def totals(summary: str) -> dict[str, int]:
    """The records of all runs, which are the second number of a line."""
    found = re.findall(r"^  ([a-z ]+?) {2,}[\d,]+ +([\d,]+)", summary, re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in found}


def test_run_ends_in_order_and_continues(tmp_path: Path) -> None:
    process = started(tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "running: " in line:
            break
    process.send_signal(signal.SIGINT)
    summary, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")
    assert f"`rm -r {tmp_path}` deletes the data." in summary

    process = started(tmp_path, "--seconds", "1")
    summary, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")
    found = totals(summary)
    assert found["orders"] > counts(summary)["orders"] > 0, "the orders of both runs"
    assert found["answers"] + found["parked orders"] == found["orders"], "also of the first one"
    assert counts(summary)["lag"] == 0


# The supervisor.


class FailingService(Service):
    """A service that cannot do its work."""

    name = "failing"
    topic = ORDERS

    async def run(self) -> None:
        """Fail, as a service does whose brokers are away; its tasks are in a group."""
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [OttlaError("no broker")])])


class BrokenService(FailingService):
    """A service with a bug."""

    async def run(self) -> None:
        """Fail, as no service should."""
        raise ExceptionGroup("tasks", [OttlaError("no broker"), ZeroDivisionError("a bug")])


def context(servers: str, directory: Path) -> Context:
    return Context(servers, directory, 7, 0, lambda: True)


def test_killed_services_are_restarted_and_orders_have_outcomes(tmp_path: Path) -> None:
    example = load_example()
    with DevBroker(0, tmp_path, tmp_path / "broker.log") as broker:
        servers = broker.wait_until_listening()
        from ottla.sync import Admin

        with Admin({"bootstrap.servers": servers}) as admin:
            create_topics(admin, [*example.counted_topics, *example.topics])
        orders = [*messages(7, 0, 3_000)]
        with Producer({"bootstrap.servers": servers}) as producer:
            for one in orders:
                producer.send(ORDERS, one.value, key=one.key.encode(), headers=one.headers)
        job = ServicesJob(context(servers, tmp_path), kill_interval_s=0.1, down_s=0.01)

        def progress() -> list[ServiceProgress]:
            job.check()
            found = job.progress()
            return [one for one in found if isinstance(one, ServiceProgress)]

        assert [one.lag(len(orders)) for one in progress()] == [None, 0, 0], "not known yet"
        job.start()
        try:
            wait_until(lambda: all(one.counts.restarts > 0 for one in progress()))
            wait_until(lambda: progress()[0].lag(len(orders)) == 0)
        finally:
            job.stop()
        assert not any(one.is_running for one in progress()), "stop waits for the services"
        job.stop()
        cells = [one.cells(len(orders)) for one in progress()]
        assert [one[0] for one in cells] == ["killed"] * 3
        assert all(int(one[-1].replace(",", "")) > 0 for one in cells), "the restarts"


def test_service_that_always_fails_ends_the_run(tmp_path: Path) -> None:
    servers = context("127.0.0.1:1", tmp_path)
    job = ServicesJob(servers, kill_interval_s=0, down_s=0, kinds=[FailingService])
    job.start()
    failures = job._services[0].failures  # pyright: ignore[reportPrivateUsage]
    wait_until(lambda: len(failures) >= FAILURES_MAX)
    with pytest.raises(RunFailed, match=r"^service failing: no broker$"):
        job.check()
    job.stop()


def test_bug_of_a_service_ends_the_run(tmp_path: Path) -> None:
    servers = context("127.0.0.1:1", tmp_path)
    job = ServicesJob(servers, kill_interval_s=0, down_s=0, kinds=[BrokenService])

    def ends() -> bool:
        job.check()
        return False

    job.start()
    with pytest.raises(RunFailed, match="unhandled errors"):
        wait_until(ends)
    job.stop()
