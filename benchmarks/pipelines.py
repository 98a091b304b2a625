"""Declared pipelines, compared with the same jobs in plain PySpark with Spark's Kafka connector.

The job parses JSON records of 100 B, filters them, computes averages of windows per device, and
writes these to Parquet. A declared pipeline also checks each record: what does not parse is a dead
letter, which needs a second query. With dead letters, a condition fails for 1 % of the records, and
the plain job has a second query for them as well.

Invariant: one Spark session on two cores, one broker, the same topics. Both do the same work in
turns, with new checkpoints; the first round of each is not counted. Rates are from the start of the
queries to the end of the last one. Figures are medians.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console

from harness import write_report

sys.path.append(str(Path(__file__).parents[1]))

from judges.ottla_broker import ottla_broker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.spec.loading import Loaded, load, load_text
from ottla.records.arrow import pyarrow_module
from ottla.sync import Admin, Consumer, Producer
from spark import Report, in_turns
from spark_work import PATIENCE_S, Stopwatch, Taken, session

QUESTION: Final = "What does a declared pipeline cost, beside the same job in plain PySpark?"
OURS, THEIRS = "declared", "plain"
PARTITIONS: Final = 4
SIZE: Final = 100
DEVICES: Final = 50
PLAIN_GOAL: Final = 1.5
DEAD_LETTERS_GOAL: Final = 1.2
VALIDATE_GOAL_MS: Final = 300.0
EXAMPLES: Final = Path(__file__).parents[1] / "examples"
SENSORS: Final = EXAMPLES / "sensors" / "pipeline.yml"
SCHEMA: Final = "device STRING, at TIMESTAMP, celsius DOUBLE, text STRING"
CHECK: Final = "celsius < 100"
AVERAGES: Final = (
    "SELECT device, window.start AS start, avg(celsius) AS celsius, count(*) AS readings "
    "FROM readings WHERE celsius > 10 GROUP BY device, window(at, '10 seconds')"
)


class Effort(NamedTuple):
    """The amount of work."""

    rounds: int = 3
    records: int = 2_000_000
    compiles: int = 7
    warm_up_s: float = 20.0
    sensors_s: float = 60.0


QUICK: Final = Effort(rounds=1, records=400_000, compiles=3, warm_up_s=12.0, sensors_s=20.0)


class Job(NamedTuple):
    """A job in both forms, and where it writes."""

    spark: Any
    servers: str
    topic: str
    has_dead_letters: bool


# The job of many records.


def fill(servers: str, topic: str, records: int) -> None:
    """Write JSON records of 100 B to a new topic, evenly to all partitions."""
    pa: Any = pyarrow_module()
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topic(topic, PARTITIONS)
    settings = {"bootstrap.servers": servers, "batch.size": 1 << 16, "linger.ms": 5}
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    rows = 10_000
    with Producer(settings) as producer:
        for number in range(records // rows):
            at = begun + timedelta(seconds=10 * (number // PARTITIONS))
            values = [_value(at, row) for row in range(rows)]
            batch = pa.RecordBatch.from_arrays([pa.array(values)], names=["value"])
            producer.send_arrow(topic, batch, key=None, partition=number % PARTITIONS)


def _value(at: datetime, row: int) -> bytes:
    celsius = 120.5 if row % 100 == 99 else row % 80 + 0.25
    reading = {"device": f"d{row % DEVICES:02}", "at": at.isoformat(), "celsius": celsius}
    text = json.dumps({**reading, "text": ""}, separators=(",", ":"))
    return f"{text[:-2]}{'.' * (SIZE - len(text))}{text[-2:]}".encode()


def declared(job: Job, folder: str) -> Loaded:
    """Return the declaration of the job."""
    expect = f"expect: {{plausible: {{check: {CHECK}, otherwise: dead_letter}}}}"
    text = f"""
        name: readings
        brokers: {job.servers}
        output: {folder}
        checkpoints: {folder}/checkpoints
        trigger: available now
        sources:
          readings:
            topic: {job.topic}
            start: earliest
            json: {SCHEMA}
            watermark: {{column: at, delay: 5 seconds}}
            {expect if job.has_dead_letters else ""}
        steps:
          averages: {{sql: "{AVERAGES}"}}
        sinks:
          - {{from: averages, parquet: averages}}
        dead_letters: {job.topic}.dead
    """
    return load_text(text, "readings.yml", environment={}, read_file=str)


def run_declared(job: Job) -> Taken:
    """Run the declared job once."""
    with _folder() as folder:
        compiled = compile_pipeline(job.spark, declared(job, folder))
        watch = Stopwatch()
        finish([query.start() for query in compiled.queries])
        taken = watch.taken()
        _check(job, f"{folder}/averages")
    return taken


def plain_frames(job: Job) -> tuple[Any, Any]:
    """Return the averages and the dead letters, as one writes them with the connector."""
    spark = job.spark
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.servers)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = f"from_json(CAST(value AS STRING), '{SCHEMA}') AS row"
    rows = records.selectExpr("key", "value", parsed)
    readings = rows.selectExpr("row.*")
    if job.has_dead_letters:
        readings = readings.where(CHECK)
    readings.withWatermark("at", "5 seconds").createOrReplaceTempView("readings")
    failed = rows.where(f"row IS NULL OR NOT coalesce(row.{CHECK}, false)").select("key", "value")
    return spark.sql(AVERAGES), failed


def run_plain(job: Job) -> Taken:
    """Run the plain job once."""
    with _folder() as folder:
        averages, failed = plain_frames(job)
        watch = Stopwatch()
        queries = [_written(averages, folder, "averages").format("parquet").start()]
        if job.has_dead_letters:
            topic = _written(failed, folder, "dead").format("kafka")
            topic = topic.option("kafka.bootstrap.servers", job.servers)
            queries.append(topic.option("topic", f"{job.topic}.plain-dead").start())
        finish(queries)
        taken = watch.taken()
        _check(job, f"{folder}/averages")
    return taken


def _written(frame: Any, folder: str, name: str) -> Any:
    writer = frame.writeStream.trigger(availableNow=True).option("path", f"{folder}/{name}")
    return writer.option("checkpointLocation", f"{folder}/checkpoints/{name}")


def finish(queries: Sequence[Any]) -> None:
    """Wait until all queries have read everything."""
    for query in queries:
        query.awaitTermination(PATIENCE_S)
        if query.isActive or query.exception() is not None:
            raise SystemExit(f"a query of the benchmark has not finished: {query.exception()}")


def _check(job: Job, path: str) -> None:
    windows = job.spark.read.parquet(path).where("readings > 0").count()
    assert windows > 0, "the job has written no windows"


def rates(report: Report, spark: Any, servers: str, effort: Effort) -> None:
    """Rows per second of the job, without and with a condition."""
    topic = "rates"
    fill(servers, topic, effort.records)
    with Admin({"bootstrap.servers": servers}) as admin:
        for dead in ("dead", "plain-dead"):
            admin.create_topic(f"{topic}.{dead}", PARTITIONS)
    for has_dead_letters, work, goal in (
        (False, "without expectations", PLAIN_GOAL),
        (True, "with dead letters", DEAD_LETTERS_GOAL),
    ):
        job = Job(spark, servers, topic, has_dead_letters)
        works: dict[str, Callable[[Job], Taken]] = {OURS: run_declared, THEIRS: run_plain}
        found = in_turns(works, effort.rounds, lambda one, job=job: one(job))
        report.rates(f"job {work}, {SIZE} B", found, effort.records, goal)


# What a declaration adds to a start.


def overheads(report: Report, spark: Any, servers: str, effort: Effort) -> None:
    """Milliseconds of validate, of the compilation, and of the start of the queries."""
    topic = "overheads"
    fill(servers, topic, 40_000)
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topic(f"{topic}.dead", PARTITIONS)
    job = Job(spark, servers, topic, has_dead_letters=True)

    def validate() -> float:
        command = [str(Path(sys.executable).parent / "ottla"), "pipeline", "validate", str(SENSORS)]
        return _ms(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))

    taken_ms = [validate() for _ in range(effort.compiles + 1)][1:]
    report.times("ottla pipeline validate", {OURS: statistics.median(taken_ms)}, VALIDATE_GOAL_MS)

    def planned(which: str) -> float:
        with _folder() as folder:
            if which == THEIRS:
                return _ms(lambda: plain_frames(job))
            return _ms(lambda: compile_pipeline(spark, declared(job, folder)))

    both = {OURS: OURS, THEIRS: THEIRS}
    report.times("plan", _medians(in_turns(both, effort.compiles, planned)))
    starts = in_turns(both, effort.compiles, lambda which: start_ms(job, which))
    report.times("start of the first query", _medians(starts))


def start_ms(job: Job, which: str) -> float:
    """Milliseconds from the start of the query of the averages to its first micro-batch."""
    with _folder() as folder:
        if which == OURS:
            start = compile_pipeline(job.spark, declared(job, folder)).queries[0].start
        else:
            start = _written(plain_frames(job)[0], folder, "averages").format("parquet").start
        begun_s = time.time()
        query: Any = start()
        finish([query])
        first = json.loads(query._jsq.recentProgress()[0].json())["timestamp"]  # noqa: SLF001
    return (datetime.fromisoformat(first).timestamp() - begun_s) * 1000


def _ms(work: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    work()
    return (time.perf_counter() - begun_s) * 1000


def _medians(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(taken_ms) for name, taken_ms in found.items()}


# From a reading to its alert.


def latencies(report: Report, spark: Any, servers: str, effort: Effort) -> None:
    """Milliseconds from the sending of a reading to its alert, in the example `sensors`."""
    sys.path.append(str(EXAMPLES))
    from pyspark import cloudpickle

    import sensors.anomalies

    pickle: Any = cloudpickle
    pickle.register_pickle_by_value(sensors.anomalies)  # the workers cannot import it
    starts: dict[str, Callable[[Any, str, str], list[Any]]] = {
        OURS: start_declared_sensors,
        THEIRS: start_plain_sensors,
    }
    with Admin({"bootstrap.servers": servers}) as admin:
        for topic, partitions in (("readings", 4), ("alerts", 1), ("dead-letters", 1)):
            admin.create_topic(f"sensors.{topic}", partitions)
    found: dict[str, list[float]] = {}
    for order in ([*starts], [*reversed(starts)]):  # Java compiles in the first round
        for name in order:
            found[name] = sorted(_alert_ms(spark, servers, starts[name], effort))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        at = {one: taken_ms[int(share * len(taken_ms))] for one, taken_ms in found.items()}
        report.times(f"sensors: reading to alert, {name}", at)


def start_declared_sensors(spark: Any, servers: str, folder: str) -> list[Any]:
    """Start the queries of the example."""
    loaded = load(SENSORS, environment={"BROKERS": servers, "DIRECTORY": folder})
    return [query.start() for query in compile_pipeline(spark, loaded).queries]


def start_plain_sensors(spark: Any, servers: str, folder: str) -> list[Any]:
    """Start the two queries of the sinks of the example, with the connector."""
    from sensors.anomalies import alerts

    source = load(SENSORS).pipeline.sources["readings"]
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "sensors.readings")
        .option("maxOffsetsPerTrigger", "100000")
        .load()
    )
    row = f"from_json(CAST(value AS STRING), '{source.json}') AS row"
    rows = records.selectExpr("offset AS _offset", row).selectExpr("row.*", "_offset")
    rows = rows.where("device IS NOT NULL AND at IS NOT NULL").withWatermark("at", "5 seconds")
    rows.createOrReplaceTempView("readings")
    averages = spark.sql(str(load(SENSORS).pipeline.steps["averages"].sql))
    found = alerts(rows).selectExpr("device AS key", "to_json(struct(*)) AS value")
    to_topic = (
        found.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "sensors.alerts")
    )
    to_files = averages.writeStream.format("parquet").option("path", f"{folder}/averages")
    return [
        one.option("checkpointLocation", f"{folder}/checkpoints/{number}")
        .trigger(processingTime="1 second")
        .start()
        for number, one in enumerate((to_files, to_topic))
    ]


def _alert_ms(
    spark: Any, servers: str, start: Callable[[Any, str, str], list[Any]], effort: Effort
) -> list[float]:
    """Send readings while the queries run; return how long each alert took."""
    sent_s: dict[tuple[str, float], float] = {}
    taken_ms: list[float] = []
    stopping = threading.Event()
    with _folder() as folder, Consumer({"bootstrap.servers": servers}) as consumer:
        consumer.assign(TopicPartition("sensors.alerts", PartitionIndex(0)))
        consumer.poll(0)
        queries = start(spark, servers, folder)
        sending = threading.Thread(target=_send_readings, args=(servers, sent_s, stopping))
        sending.start()
        try:
            counted_s = until_s = time.monotonic() + PATIENCE_S
            is_warming_up = False
            while time.monotonic() < until_s:
                for record in consumer.poll(0.5):
                    if not is_warming_up:  # from the first alert on
                        is_warming_up = True
                        counted_s = time.monotonic() + effort.warm_up_s
                        until_s = counted_s + effort.sensors_s
                    alert = json.loads(record.value or b"")
                    at_s = datetime.fromisoformat(alert["at"]).timestamp()
                    begun_s = sent_s.get((alert["device"], at_s))  # None in an earlier round
                    if begun_s is not None and time.monotonic() > counted_s:
                        taken_ms.append(1000 * (time.perf_counter() - begun_s))
        finally:
            stopping.set()
            sending.join()
            for query in queries:
                query.stop()
    assert taken_ms, "there were no alerts"
    return taken_ms


def _send_readings(
    servers: str, sent_s: dict[tuple[str, float], float], stopping: threading.Event
) -> None:
    from sensors.devices import messages

    with Producer({"bootstrap.servers": servers}) as producer:
        since_ms = int(time.time() * 1000)
        while not stopping.wait(0.05):
            until_ms = int(time.time() * 1000)
            for one in messages(1, since_ms, until_ms):
                if (read := _reading(one.value)) is not None:
                    sent_s[read] = time.perf_counter()
                producer.send("sensors.readings", one.value, key=one.key.encode())
            since_ms = until_ms


def _reading(value: bytes) -> tuple[str, float] | None:
    try:
        read = json.loads(value)
        return read["device"], datetime.fromisoformat(read["at"]).timestamp()
    except (ValueError, KeyError, TypeError):
        return None  # an invalid reading, which is a dead letter


@contextmanager
def _folder() -> Generator[str]:
    with tempfile.TemporaryDirectory(prefix="ottla-pipelines-", ignore_cleanup_errors=True) as one:
        yield one


def main() -> None:
    arguments = argparse.ArgumentParser(description=QUESTION)
    arguments.add_argument("--quick", action="store_true", help="fewer records, one round")
    arguments.add_argument("--only", choices=("rates", "overheads", "latencies"))
    given = arguments.parse_args()
    quick: bool = given.quick
    effort = QUICK if quick else Effort()
    console = Console(width=None if sys.stdout.isatty() else 120)
    report = Report(QUESTION, OURS, THEIRS)
    with ottla_broker() as broker, session() as spark:
        steps: Mapping[str, Callable[[Report, Any, str, Effort], None]] = {
            "rates": rates,
            "overheads": overheads,
            "latencies": latencies,
        }
        try:
            for name, step in steps.items():
                if given.only in (None, name):
                    with console.status(name):
                        step(report, spark, broker.bootstrap, effort)
        finally:  # print the measurements even after a failure
            console.print(report.table)
    path = write_report(
        Path(__file__), {"question": QUESTION, "quick": quick, "cases": report.cases}
    )
    console.print(f"figures: {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
