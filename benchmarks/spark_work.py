"""The pieces of work by which a source and a sink of Spark are measured.

Invariant: the work is the same for every format except for its name. Reads pass every row with all
columns to a consumer that uses it. Times include planning, but not the start of Spark.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

from judges.java import SPARK_CONNECTOR_POM, class_path
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline import register
from ottla.records.arrow import pyarrow_module
from ottla.sync import Admin, Consumer, Producer

PATIENCE_S: Final = 300.0
LOOK_S: Final = 0.005
WRITE_TASKS: Final = 4
TRIPS_UNCOUNTED: Final = 10

_NUMBERS: Final = count()


class Stopwatch:
    """A stopwatch that starts when it is created: seconds, and CPU seconds of all processes.

    The CPU seconds include all processes that this one started, the broker too. They hardly depend
    on what else the machine does.
    """

    def __init__(self) -> None:
        self._begun_s, self._cpu_s = time.perf_counter(), _cpu_s()

    def taken(self) -> "Taken":
        """The time since the start."""
        return Taken(time.perf_counter() - self._begun_s, _cpu_s() - self._cpu_s)


@dataclass(frozen=True, slots=True)
class Taken:
    """The cost of a piece of work."""

    seconds: float
    cpu_s: float


def _cpu_s() -> float:
    """The CPU seconds of this process and its descendants, including ended ones."""
    below: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            below.setdefault(int(words[1]), []).append(int(folder.name))
            used[int(folder.name)] = sum(map(int, words[11:15]))
    ours = [os.getpid()]
    for one in ours:
        ours += below.get(one, ())
    return sum(used.get(one, 0) for one in ours) / os.sysconf("SC_CLK_TCK")


@contextmanager
def session() -> Generator[Any]:
    """Spark on two cores, with its Kafka connector and ours."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    folder = Path(tempfile.mkdtemp(prefix="ottla-spark-"))
    builder: Any = SparkSession.builder
    spark = (
        builder.master("local[2]")
        .appName("benchmark")
        .config("spark.jars", class_path(SPARK_CONNECTOR_POM).replace(":", ","))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.memory", "3g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.streaming.noDataProgressEventInterval", "0")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def fill(servers: str, topic: str, partitions: int, size: int, rows: int) -> None:
    """Write rows to a new topic, evenly to all partitions."""
    pa: Any = pyarrow_module()
    values = pa.array([bytes(f"{n:08d}", "ascii").ljust(size, b".") for n in range(10_000)])
    keys = pa.array([b"k%07d" % n for n in range(10_000)])
    batch = pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])
    settings = {"bootstrap.servers": servers, "batch.size": 1 << 16, "linger.ms": 5}
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topic(topic, partitions)
    with Producer(settings) as producer:
        for n in range(rows // batch.num_rows):
            producer.send_arrow(topic, batch, partition=n % partitions)


@dataclass(frozen=True, slots=True)
class Work:
    """The pieces of work for one format."""

    spark: Any
    servers: str
    format: str

    # Many rows.

    def read_batch(self, topic: str) -> tuple[int, Taken]:
        """Aggregate columns of all rows of a topic."""
        watch = Stopwatch()
        found = (
            self._read(self.spark.read, topic)
            .selectExpr(
                "count(*)", "sum(length(value) + length(key))", "max(offset)", "max(timestamp)"
            )
            .collect()
        )
        return found[0][0], watch.taken()

    def read_stream(self, topic: str, rows_max: int) -> tuple[int, Taken, float]:
        """Read a topic in several micro-batches into Spark's noop sink.

        The seconds are those of the micro-batches; the seconds from the start to the first one are
        separate.
        """
        frame = self._read(
            self.spark.readStream, topic, startingOffsets="earliest", maxOffsetsPerTrigger=rows_max
        )
        with _checkpoint() as folder:
            watch = Stopwatch()
            begun_s = time.time()
            query = (
                frame.writeStream.format("noop")
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(PATIENCE_S)
            taken = watch.taken()
        told = _Progress(query).everything()
        first_s = datetime.fromisoformat(told[0]["timestamp"]).timestamp()
        seconds = sum(one["durationMs"]["triggerExecution"] for one in told) / 1000
        rows = sum(one["numInputRows"] for one in told)
        return rows, replace(taken, seconds=seconds), first_s - begun_s

    def rows_to_write(self, size: int, rows: int) -> Any:
        """Rows that are computed before they are written."""
        frame = self.spark.range(0, rows, 1, WRITE_TASKS).selectExpr(
            "cast(cast(id as string) as binary) as key",
            f"cast(rpad(cast(id as string), {size}, '.') as binary) as value",
        )
        kept = frame.cache()
        kept.count()
        return kept

    def write_batch(self, rows: Any, topic: str) -> Taken:
        """Write rows to an existing topic."""
        watch = Stopwatch()
        (
            rows.write.format(self.format)
            .mode("append")
            .option("kafka.bootstrap.servers", self.servers)
            .option("topic", topic)
            .save()
        )
        return watch.taken()

    # Few rows.

    def micro_batches(self, topic: str, each: int) -> dict[str, float]:
        """Milliseconds of triggers without records, and of micro-batches with one record."""
        frame = self._read(self.spark.readStream, topic, startingOffsets="latest")
        with _checkpoint() as folder, Producer({"bootstrap.servers": self.servers}) as producer:
            query = frame.writeStream.format("noop").option("checkpointLocation", folder).start()
            told = _Progress(query)
            try:
                told.until(lambda: told.idle)
                first = told.batch
                for n in range(each):
                    producer.send(topic, b"one", partition=0).result()
                    told.until(lambda n=n: told.idle and told.batch > first + n)
                looks = {told.began}
                told.until(lambda: len(looks) > each or looks.add(told.began))
                idle, busy = told.all()
                idle = idle[-each:]
            finally:
                query.stop()
        return {
            "idle_ms": _median(idle, "triggerExecution"),
            "idle_latest_ms": _median(idle, "latestOffset"),
            "busy_ms": _median(busy[1:] or busy, "triggerExecution"),
            "busy_latest_ms": _median(busy[1:] or busy, "latestOffset"),
        }

    def trips(self, partitions: int, records: int, pause_s: float) -> list[float]:
        """Milliseconds from sending a record to reading the record that a query wrote for it."""
        number = next(_NUMBERS)
        there, back = f"trip-{number}", f"trip-{number}-back"
        with Admin({"bootstrap.servers": self.servers}) as admin:
            for topic in (there, back):
                admin.create_topic(topic, partitions)
        frame = self._read(self.spark.readStream, there, startingOffsets="earliest")
        with _checkpoint() as folder:
            query = (
                frame.selectExpr("key", "concat(value, cast('!' as binary)) as value")
                .writeStream.format(self.format)
                .option("kafka.bootstrap.servers", self.servers)
                .option("topic", back)
                .option("checkpointLocation", folder)
                .start()
            )
            try:
                return self._trips(there, back, partitions, records, pause_s)
            finally:
                query.stop()

    def _trips(
        self, there: str, back: str, partitions: int, records: int, pause_s: float
    ) -> list[float]:
        settings = {"bootstrap.servers": self.servers, "auto.offset.reset": "earliest"}
        sent_s: dict[bytes, float] = {}
        taken_ms: dict[bytes, float] = {}
        with (
            Consumer(settings) as consumer,
            Producer({"bootstrap.servers": self.servers}) as producer,
        ):
            consumer.assign(*(TopicPartition(back, PartitionIndex(n)) for n in range(partitions)))

            def send(numbers: range, wait_s: float) -> None:
                for n in numbers:
                    sent_s[b"%d!" % n] = time.perf_counter()
                    producer.send(there, b"%d" % n, key=b"%d" % n)
                    time.sleep(wait_s)

            def come_back(count: int) -> None:
                until_s = time.monotonic() + PATIENCE_S
                while len(taken_ms) < count and time.monotonic() < until_s:
                    for record in consumer.poll(1.0):
                        value = record.value or b""
                        taken_ms[value] = 1000 * (time.perf_counter() - sent_s[value])

            for n in range(TRIPS_UNCOUNTED):  # the query and its workers start
                send(range(n, n + 1), 0)
                come_back(n + 1)
            last = TRIPS_UNCOUNTED + records
            sending = threading.Thread(target=send, args=(range(TRIPS_UNCOUNTED, last), pause_s))
            sending.start()
            come_back(last)
            sending.join()
        return [taken_ms[b"%d!" % n] for n in range(TRIPS_UNCOUNTED, last)]

    def _read(self, reader: Any, topic: str, **options: object) -> Any:
        reader = reader.format(self.format).option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()


def planning_ms(servers: str, topic: str, times: int) -> float:
    """Milliseconds of our planning of a micro-batch, without Spark."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from ottla.pipeline.options import Use
    from ottla.pipeline.source import OttlaStreamReader
    from ottla.pipeline.source_options import source_options

    given = {
        "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest",
    }  # fmt: skip
    schema: Any = None  # of the tasks, which do not run
    reader = OttlaStreamReader(source_options(given, Use.STREAM), schema)
    taken: list[float] = []
    try:
        start = reader.initialOffset()
        for _ in range(times):
            begun_s = time.perf_counter()
            reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
            taken.append(1000 * (time.perf_counter() - begun_s))
    finally:
        reader.stop()
    return statistics.median(taken)


@contextmanager
def _checkpoint() -> Generator[str]:
    with tempfile.TemporaryDirectory(prefix="ottla-checkpoint-", ignore_cleanup_errors=True) as one:
        yield one


class _Progress:
    """The progress of a query.

    While it runs, only the last report is read, as text. All reports are megabytes if there are
    many partitions, and reading each field takes longer than a micro-batch.
    """

    def __init__(self, query: Any) -> None:
        self._query = query
        self._last: dict[str, Any] = {}

    @property
    def idle(self) -> bool:
        return bool(self._last) and _is_idle(self._last)

    @property
    def batch(self) -> int:
        """The number of the next micro-batch, if the query is idle."""
        return self._last["batchId"]

    @property
    def began(self) -> str:
        return self._last["timestamp"]

    def until(self, holds: Callable[[], Any]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            if (failure := self._query.exception()) is not None:
                raise SystemExit(f"a query of the benchmark has failed: {failure}")
            if time.monotonic() > until_s:
                raise SystemExit("a query of the benchmark does not go on")
            time.sleep(LOOK_S)
            if (last := self._query._jsq.lastProgress()) is not None:  # noqa: SLF001
                self._last = json.loads(last.json())

    def all(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All triggers without records, and all micro-batches with rows."""
        told = self.everything()
        return [one for one in told if _is_idle(one)], [one for one in told if one["numInputRows"]]

    def everything(self) -> list[dict[str, Any]]:
        return [json.loads(one.json()) for one in self._query._jsq.recentProgress()]  # noqa: SLF001


def _is_idle(told: dict[str, Any]) -> bool:
    return not told["numInputRows"] and "addBatch" not in told["durationMs"]


def _median(told: list[Any], name: str) -> float:
    return statistics.median(one["durationMs"].get(name, 0) for one in told)
