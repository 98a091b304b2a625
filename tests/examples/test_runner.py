"""A run of an example on a real broker, with queries that need no Spark."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from ottla.pipeline.local_spark import LocalSpark
from ottla.sync import Admin, Consumer, Producer
from shared import runner
from shared.dev_broker import BrokerFailed, DevBroker
from shared.example import Context, Example, Job, Progress, RunFailed, Topic
from shared.feed import generated
from shared.monitor import QueryProgress, count_records
from shared.runner import (
    Run,
    argument_parser,
    next_commands,
    report,
    stop_on_signals,
)
from shared.spark_job import declared
from shared.view import Screen

INPUT, COPIES = Topic("numbers", "numbers", 2), Topic("copies", "copies", 1)


@dataclass(frozen=True)
class Number:
    due_ms: int
    key: str
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


def numbers(seed: int, start_ms: int, end_ms: int) -> Iterator[Number]:
    """Ten numbers per second."""
    for number in range(start_ms // 100, end_ms // 100):
        yield Number(number * 100, str(number % seed), b"%d" % number)


class CopyJob:
    """Replaces a job on Spark; it has always read everything."""

    def __init__(self, stage: "Stage", servers: str) -> None:
        self._stage = stage
        self._servers = servers

    def start(self) -> None:
        self._stage.states.append("started")
        if self._stage.writes:
            with Producer({"bootstrap.servers": self._servers}) as producer:
                producer.send("copies", b"1").result()

    def check(self) -> None:
        if self._stage.failure is not None:
            raise self._stage.failure

    def progress(self) -> Sequence[Progress]:
        with Admin({"bootstrap.servers": self._servers}) as admin:
            count = count_records(admin, [INPUT])["numbers"]
        return [QueryProgress("copy", 3, 100, 10.0, records_read=count)]

    def stop(self) -> None:
        self._stage.states.append("stopped")


class Spark:
    """Replaces a Spark session that has started."""

    def __init__(self, started: Callable[[], bool] = lambda: True) -> None:
        self._started = started

    def wait(self, seconds: float) -> bool:
        return self._started()

    def session(self) -> object:
        return self


class Stage:
    """A broker, and the run of an example on it."""

    def __init__(self, broker: DevBroker, data: Path) -> None:
        self.broker = broker
        self.stop = threading.Event()
        self.output = io.StringIO()
        self.states: list[str] = []  # of the job
        self.failure: Exception | None = None
        self.writes = True
        self._data = data

    def run(self, spark: Spark | None = None, seconds: float | None = 0.2) -> None:
        example = self.example()
        screen = Screen(example, self.output)
        local = cast("LocalSpark", spark or Spark())
        Run(example, screen, self.broker, local, self._data, self.stop).run(7, seconds)

    def example(self) -> Example:
        return Example("copy", INPUT, [COPIES], generated("numbers", numbers), self.job)

    def job(self, context: Context) -> CopyJob:
        assert context.directory == self._data / "copy"
        return CopyJob(self, context.servers)

    def sent(self) -> list[int]:
        """The numbers in the input."""
        servers = self.broker.wait_until_listening()
        found: list[int] = []
        with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign(*INPUT.partitions)
            ends = consumer.end_offsets(*INPUT.partitions)
            while len(found) < sum(ends.values()):
                found += [int(record.value or b"") for record in consumer.poll(10)]
        return found

    def stages(self) -> list[str]:
        """The stages that were shown, without repetitions."""
        lines = [line.split("s  ", 1)[1] for line in self.output.getvalue().splitlines()]
        return [*dict.fromkeys(line.partition(":")[0] for line in lines)]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Stage]:
    monkeypatch.setattr(runner, "POLL_S", 0.02)
    (tmp_path / "copy").mkdir()
    with DevBroker(0, tmp_path, tmp_path / "broker.log") as broker:
        yield Stage(broker, tmp_path)


def test_run_goes_through_its_stages(stage: Stage) -> None:
    stage.run()
    assert stage.stages() == [
        "starting the broker",
        "starting Spark",
        "starting the queries",
        "running",
        "catching up",
        "stopped",
    ]
    last = stage.output.getvalue().splitlines()[-1]
    assert last.endswith("1 copies, lag 0")
    assert stage.states == ["started", "stopped"]


def test_each_start_sends_only_the_input_from_then_on(stage: Stage) -> None:
    start = time.time_ns() // 100_000_000
    stage.run()
    stage.run()
    sent = stage.sent()
    assert sent
    assert min(sent) >= start
    assert len(sent) == len(set(sent))


def test_start_after_a_pause_sends_nothing_of_the_pause(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now_ns() - 25 * 60 * 1_000_000_000)
        stage.run()
        stopped = time.time_ns() // 100_000_000
    before = len(stage.sent())
    start = time.time_ns() // 100_000_000
    stage.run()
    sent = stage.sent()
    assert before
    assert len(sent) > before
    assert not [number for number in sent if stopped < number < start]


def test_stop_event_ends_a_run_without_a_failure(stage: Stage) -> None:
    looks = iter(range(3))

    def started() -> bool:
        if next(looks, None) is None:
            stage.stop.set()
        return False

    stage.run(Spark(started), seconds=None)
    assert stage.stages() == ["starting the broker", "starting Spark"]
    assert stage.states == []


def test_broker_that_is_killed_ends_the_run(stage: Stage) -> None:
    def started() -> bool:
        process: Any = stage.broker._process  # pyright: ignore[reportPrivateUsage]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return False

    with pytest.raises(BrokerFailed, match="the broker was killed by SIGKILL"):
        stage.run(Spark(started), seconds=None)


def test_job_that_fails_ends_the_run(stage: Stage) -> None:
    stage.failure = RunFailed("query first: out of range")
    with pytest.raises(RunFailed, match=r"^query first: out of range$"):
        stage.run()


def test_java_that_is_gone_ends_the_run(stage: Stage) -> None:
    stage.failure = Py4JNetworkError("Answer from Java side is empty")
    with pytest.raises(RunFailed, match=r"^Spark has ended: Answer from Java side is empty$"):
        stage.run()


def test_run_without_results_fails(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FIRST_RESULTS_S", 0.1)
    stage.writes = False
    with pytest.raises(RunFailed, match=r"^no copies were written; see .*/copy/spark.log$"):
        stage.run()


def test_mistake_in_a_pipeline_file_ends_the_run(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yml"
    file.write_text("name: copy\nsources: {numbers: {topic: ${BROKERS}}}\nsinks: []\n")
    job = declared(file)(Context("127.0.0.1:9092", tmp_path, 7, 0, lambda: True))
    job.start()
    job.stop()
    with pytest.raises(RunFailed, match=r"pipeline\.yml:2:"):
        job.check()
    assert job.progress() == []


def test_next_commands_are_quoted_for_a_shell() -> None:
    assert next_commands("make run", [], Path(".ottla")) == (
        "`make run` continues from here. `rm -r .ottla` deletes the data."
    )
    text = next_commands("make run", ["--data", "a b"], Path("a b"))
    assert """`make run ARGS='--data '"'"'a b'"'"''`""" in text
    assert "`rm -r 'a b'`" in text


def test_picture_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    feed = generated("numbers", numbers)
    job = cast("Callable[[Context], Job]", None)
    example = Example("copy", INPUT, [COPIES], feed, job)
    screen = Screen(example, io.StringIO())
    assert report(screen, None) is None
    assert report(screen, tmp_path / "picture.svg") is None
    failure = report(screen, tmp_path / "not there" / "picture.svg")
    assert failure is not None
    assert failure.startswith("the summary or the picture could not be written: ")
    assert "not there/picture.svg" in failure
    assert "\n" not in failure


def test_help_says_from_when_the_seconds_count() -> None:
    help_text = " ".join(argument_parser("copy").format_help().split())
    assert "Stop so many seconds after the broker has started" in help_text


def test_wrong_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, reason in (
        (["--port", "65536"], "'65536' is not a port (0 to 65535)"),
        (["--seconds", "0"], "'0' is not a number of seconds greater than 0"),
        (["--seconds", "inf"], "'inf' is not a number of seconds greater than 0"),
        (["--seconds", "x"], "'x' is not a number of seconds greater than 0"),
    ):
        with pytest.raises(SystemExit):
            argument_parser("copy").parse_args(arguments)
        assert reason in capsys.readouterr().err


@pytest.fixture
def _restored_signals() -> Generator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_restored_signals")
@pytest.mark.parametrize("when", ["sensors.description", "rich.table", "shared.runner"])
def test_ctrl_c_during_the_imports_prints_no_traceback(when: str) -> None:
    # The process sends the signal to itself when it imports a module.
    program = f"""
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {when!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
sys.path[:0] = {sys.path!r}
runpy.run_module("sensors", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.fixture
def _signals() -> Generator[None]:
    """Restore the signal handlers: processes that later tests start would inherit ignored ones."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_first_signal_requests_a_stop_and_the_second_raises() -> None:
    with stop_on_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
