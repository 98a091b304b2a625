"""Declared pipelines whose process is killed, and whose broker is, while topics grow.

A pipeline with state, dead letters, Parquet and a topic is killed at each step of a micro-batch.
Its records are good, null, malformed and huge, and late ones follow at the end. Parquet must have
each row once, the topics must have each at least once. `make test` takes one of the steps and ends
the pipeline in the shared session. `make soak` takes all of them, one process after the other, and
kills the broker of a running pipeline.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.run_files import RunFiles
from ottla.pipeline.spec.checks import AVAILABLE_NOW
from ottla.pipeline.spec.loading import load_text
from ottla.sync import Admin, Consumer, Producer
from pipeline.fast_spark import DAEMON, SMALL_DATA, fast_spark
from pipeline.queries import finished
from sampling import SOAK, sample

NAME: Final = "mortal"
BATCH: Final = 20
PATIENCE_S: Final = 300.0
WINDOW_S: Final = 10
DAY_MS: Final = 86_400_000
START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HUGE: Final = "h" * 200_000
# The delay is longer than all records of the lives, whose order among partitions is not certain.
PIPELINE: Final = """\
name: mortal
brokers: {brokers}
trigger: 100 ms
spark: {settings}
sources:
  readings:
    topic: {topic}
    json: device STRING NOT NULL, at TIMESTAMP NOT NULL, n INT NOT NULL
    watermark: {{column: at, delay: 1 hour}}
    metadata: [partition, offset]
    options: {{maxOffsetsPerTrigger: "{batch}"}}
    expect: {{small: {{check: length(device) < 100, otherwise: dead_letter}}}}
steps:
  sums:
    sql: SELECT device, window.start AS start, sum(n) AS total
         FROM readings GROUP BY device, window(at, '10 seconds')
  rows: {{sql: "SELECT n, _partition AS part, _offset AS place FROM readings"}}
sinks:
  - {{from: sums, parquet: sums}}
  - {{from: rows, parquet: rows}}
  - {{from: rows, topic: {topic}.rows}}
dead_letters: {topic}.dead
"""


class Life(NamedTuple):
    """The step at which the command is killed, and its count over all queries."""

    step: str
    time: int


LIVES: Final = (
    Life("begin", 2),  # Spark has started; some checkpoints have nothing yet
    Life("look", 6),  # the end of a micro-batch is known, but not in the checkpoint
    Life("plan", 5),  # it is in the checkpoint
    Life("planned", 6),
    Life("read", 12),  # tasks are running
    Life("reading", 14),
    Life("have read", 16),  # the tasks of some micro-batches are done
    Life("write", 9),
    Life("written", 10),  # the brokers have acknowledged rows
    Life("sink commit", 3),
    Life("sink committed", 3),  # those of a micro-batch, which the checkpoint does not have
    Life("commit", 5),  # a micro-batch is in the checkpoint
    Life("committed", 6),
)


class History:
    """The records that were sent, and what the pipeline has to make of them."""

    def __init__(self, broker: OttlaBroker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.good: list[int] = []
        self.bad: set[tuple[int, int]] = set()  # partition and offset
        self.late = 0
        self.sums: Counter[tuple[str, int]] = Counter()
        """The totals by device and start of the window."""
        self._next = 0

    def send(self, count: int, partitions: int = 3) -> None:
        """Send good records and some of each bad kind."""
        with Producer({"bootstrap.servers": self.broker.bootstrap}) as producer:
            for _ in range(count):
                self._send_good(producer, partitions)
            wrong = (None, b"", b"not JSON", b'{"device": null}', self._value(HUGE, START_MS))
            acks = [
                producer.send(self.topic, value, partition=number % partitions)
                for number, value in enumerate(wrong)
            ]
            for ack in acks:
                sent = ack.result()
                self.bad.add((sent.partition, sent.offset))

    def close_windows(self) -> None:
        """Send a record that moves the watermark past all others; its own window stays open."""
        with Producer({"bootstrap.servers": self.broker.bootstrap}) as producer:
            value = self._value("last", START_MS + DAY_MS)
            producer.send(self.topic, value, partition=0).result()
        self.good.append(self._next)
        self._next += 1

    def send_late(self, count: int) -> None:
        """Send records that come after the watermark; the steps without state still have them."""
        with Producer({"bootstrap.servers": self.broker.bootstrap}) as producer:
            for _ in range(count):
                producer.send(self.topic, self._value("a", START_MS), partition=1)
                self.good.append(self._next)
                self._next += 1
                self.late += 1

    def _send_good(self, producer: Any, partitions: int) -> None:
        number = self._next
        at_ms = START_MS + number * 100
        device = f"device-{number % 3}"
        value = self._value(device, at_ms)
        producer.send(self.topic, value, partition=number % partitions)
        self.good.append(number)
        self.sums[device, number // (WINDOW_S * 10)] += number
        self._next += 1

    def _value(self, device: str, at_ms: int) -> bytes:
        seconds, ms = divmod(at_ms, 1000)
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{ms:03}Z"
        return json.dumps({"device": device, "at": at, "n": self._next}).encode()

    def check(self, spark: Any, folder: Path, repeats_max: int) -> None:
        """Compare the results with what was sent; each life repeats a micro-batch at most."""
        rows = spark.read.parquet(f"{folder}/rows").collect()
        assert sorted(row.n for row in rows) == self.good
        assert len({(row.part, row.place) for row in rows}) == len(rows)
        sums = {
            (row.device, int(row.start.timestamp() * 1000 - START_MS) // (WINDOW_S * 1000)): (
                row.total
            )
            for row in spark.read.parquet(f"{folder}/sums").collect()
        }
        assert sums == dict(self.sums)
        assert spark.read.parquet(f"{folder}/sums").count() == len(sums)
        copies = [json.loads(one.value)["n"] for one in records(self.broker, f"{self.topic}.rows")]
        assert sorted({*copies}) == self.good, "nothing is lost"
        assert len(copies) <= len(self.good) + BATCH * repeats_max
        dead = [
            {name: value.decode() for name, value in one.headers if name != "trace"}
            for one in records(self.broker, f"{self.topic}.dead")
        ]
        places = [(int(one["ottla.partition"]), int(one["ottla.offset"])) for one in dead]
        assert {*places} == self.bad
        assert len(places) <= len(self.bad) + BATCH * repeats_max
        assert {one["ottla.attempts"] for one in dead} == {"1"}
        print(  # for those who run it alone, with -s
            f"{len(self.good)} records and {len(self.bad)} dead letters, {self.late} late; "
            f"repeated: {len(copies) - len(self.good)} rows, {len(places) - len(self.bad)} dead"
        )


def records(broker: OttlaBroker, topic: str) -> list[Any]:
    with Consumer({"bootstrap.servers": broker.bootstrap}) as consumer:
        places = consumer.partitions(topic)
        consumer.assign(*places)
        consumer.seek_to_beginning()
        count = sum(consumer.end_offsets(*places).values())
        found: list[Any] = []
        while len(found) < count:
            found += consumer.poll(1.0)
    return found


# Processes.


def start(folder: Path, *words: str, life: Life | None = None) -> "subprocess.Popen[str]":
    """Start `ottla pipeline run` in a session of its own."""
    given = {
        "step": "" if life is None else life.step,
        "time": 0 if life is None else life.time,
        "is_alone": False,
        "counts": str(folder / "counts"),
    }
    (folder / "counts").unlink(missing_ok=True)
    command = ("pipeline", "run", "p.yaml", "--master", "local[2]", "--http", "off", *words)
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.mortal_pipeline", *command],
        cwd=folder,
        env={**fast_spark().environment, "OTTLA_MORTAL": json.dumps(given)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of_session(number: int) -> list[str]:
    """The commands of the processes of a session that have not ended."""
    found: list[str] = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (one / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and state != "Z":
                found.append((one / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended
            continue
    return found


def wait_until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s, what()
        time.sleep(0.05)


def live(folder: Path, life: Life, *, waits: bool) -> int:
    """Run the command until it is killed at the step of this life; its session."""
    process = start(folder, "--once", life=life)
    try:
        output, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        end_session(process.pid)
    assert process.returncode == -signal.SIGKILL, f"{life}: {output}\n{errors[-4000:]}"
    assert len((folder / "counts").read_bytes()) >= life.time, f"{life} was not ended at its step"
    files = RunFiles(NAME, folder / ".ottla" / "pipelines")
    assert not files.read().is_running, "nothing holds the lock of a process that is dead"
    if waits:
        wait_until_gone(process.pid)
    return process.pid


def wait_until_gone(session: int) -> None:
    """Java and Spark's Python processes end by themselves when the command is dead."""
    wait_until(lambda: not processes_of_session(session), lambda: processes_of_session(session))


def end_session(session: int) -> None:
    """Kill what a failed test has left."""
    if sys.exc_info()[0] is not None:
        for one in Path("/proc").glob("[0-9]*"):
            try:
                if int((one / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                    os.kill(int(one.name), signal.SIGKILL)
            except OSError:
                continue


def declare(broker: OttlaBroker, topic: str, folder: Path) -> str:
    settings = json.dumps({**SMALL_DATA, **DAEMON, "spark.sql.shuffle.partitions": "1"})
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, batch=BATCH, settings=settings)
    (folder / "p.yaml").write_text(text)
    return text


def complete(folder: Path) -> dict[str, Any]:
    """Run the command until it has read what is there; its summary."""
    process = start(folder, "--once", "-o", "json")
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors[-4000:]
    return json.loads(output)


# Tests.


@pytest.mark.skipif(SOAK, reason="a soak takes every step")
@pytest.mark.parametrize("life", sample(LIVES, 1), ids=lambda life: life.step)
def test_pipeline_resumes_after_a_kill(
    spark: Any,
    broker: OttlaBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    life: Life,
) -> None:
    history = History(broker, topic)
    history.send(4 * BATCH)
    text = declare(broker, topic, tmp_path)
    live(tmp_path, life, waits=True)
    history.send(BATCH)
    history.close_windows()
    monkeypatch.chdir(tmp_path)
    text = (
        f"checkpoints: {tmp_path}/.ottla/pipelines/mortal/checkpoints\noutput: {tmp_path}\n" + text
    )
    loaded = load_text(text, "p.yaml", environment={}, read_file=str)
    # Without a limit, few micro-batches are left.
    source = msgspec.structs.replace(loaded.pipeline.sources["readings"], options={})
    pipeline = msgspec.structs.replace(
        loaded.pipeline, trigger=AVAILABLE_NOW, sources={"readings": source}
    )
    for query in compile_pipeline(spark, loaded._replace(pipeline=pipeline)).queries:
        finished(query.start)
    history.check(spark, tmp_path, repeats_max=1)


@pytest.mark.skipif(not SOAK, reason="runs in a soak")
def test_pipeline_resumes_after_a_kill_at_each_step(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    history = History(broker, topic)
    declare(broker, topic, tmp_path)
    sessions: list[int] = []
    partitions = 3
    for number, life in enumerate(LIVES):
        if number == len(LIVES) // 2:
            partitions = 5
            with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
                admin.create_partitions({topic: partitions}).or_raise()
        history.send(4 * BATCH, partitions)
        # Every other run starts while the Java of the run before still ends.
        sessions.append(live(tmp_path, life, waits=number % 2 == 0))
    complete(tmp_path)
    history.close_windows()
    complete(tmp_path)
    history.send_late(7)
    summary = complete(tmp_path)
    late = {one["name"]: one["late_rows"] for one in summary["queries"]}
    assert late["sums-parquet"] > 0, "Spark counts the late rows of a group and window once"
    for session in sessions:
        wait_until_gone(session)
    history.check(spark, tmp_path, repeats_max=len(LIVES))


@pytest.fixture
def own_broker() -> Generator[OttlaBroker]:
    with ottla_broker({"num.partitions": 3, "auto.create.topics.enable": "true"}) as broker:
        yield broker


@pytest.mark.skipif(not SOAK, reason="runs in a soak")
def test_pipeline_survives_its_broker(
    spark: Any, own_broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    history = History(own_broker, topic)
    declare(own_broker, topic, tmp_path)
    history.send(6 * BATCH)
    process = start(tmp_path, "-o", "json")
    status = RunFiles(NAME, tmp_path / ".ottla" / "pipelines")

    def rows_in() -> list[int]:
        assert process.poll() is None, process.communicate()
        return [one["rows_in"] for one in status.read().content.get("queries", [])]

    def has_read(count: int) -> bool:
        return bool(found := rows_in()) and min(found) >= count

    try:
        wait_until(lambda: has_read(BATCH), status.read)
        for round_ in range(3):
            own_broker.kill()
            own_broker.start()
            if round_ == 0:
                with Admin({"bootstrap.servers": own_broker.bootstrap}) as admin:
                    admin.create_partitions({topic: 5}).or_raise()
            history.send(2 * BATCH, 5)
            expected = len(history.good) + len(history.bad)
            wait_until(lambda: has_read(expected), status.read)  # noqa: B023
        own_broker.kill()  # while there is nothing to read
        own_broker.start()
        history.close_windows()
        expected = len(history.good) + len(history.bad)
        wait_until(lambda: has_read(expected), status.read)
        process.terminate()
        output, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        end_session(process.pid)
    assert process.returncode == 0, errors
    summary = json.loads(output)
    print("restarts:", {one["name"]: one["restarts"] for one in summary["queries"]})
    wait_until_gone(process.pid)
    complete(tmp_path)  # closes the windows
    history.check(spark, tmp_path, repeats_max=4 + 10)
