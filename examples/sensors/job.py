"""The job: averages, alerts and dead letters from the readings of devices, as three queries.

    spark-submit job.py --bootstrap-server HOST:PORT --output DIRECTORY

Invariant: every record of the input is either a reading or a dead letter. Each query continues from
its checkpoint. Each average is exactly once in the files that `_spark_metadata` lists; alerts and
dead letters are in their topics at least once.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from math import sqrt
from typing import Any, Final, NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.state import GroupStateTimeout

from ottla.pipeline import register
from ottla.pipeline.checkpoint_files import write_local_checkpoints_fast

READINGS: Final = "sensors.readings"
ALERTS: Final = "sensors.alerts"
DEAD_LETTERS: Final = "sensors.dead-letters"

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # The default is 200. Each partition has its own state, and few are faster for 200 devices.
    "spark.sql.shuffle.partitions": "2",
}
BATCH_READINGS_MAX: Final = 100_000
CHECKPOINTS: Final = {"alerts": "alerts-2"}
"""The directories of checkpoints with another name than their query. Spark cannot read state of an
earlier schema, so a query whose state has a new schema starts with a new checkpoint."""

READING: Final = "device STRING, at TIMESTAMP, temperature DOUBLE, vibration DOUBLE"
ALERT: Final = {
    "device": "STRING",
    "at": "TIMESTAMP",
    "signal": "STRING",
    "value": "DOUBLE",
    "mean": "DOUBLE",
    "deviation": "DOUBLE",
}
WINDOW: Final = "10 seconds"
LATENESS: Final = "5 seconds"

SIGNALS: Final = {"temperature": 0.1, "vibration": 0.02}
"""The signals that can raise alerts, each with the lowest deviation that is assumed."""

MEAN_READINGS: Final = 100.0
"""A running mean covers about so many readings. A float, because the state has only DOUBLE."""

WARM_UP: Final = 25
"""A device raises no alerts before so many readings."""

MEAN_EXPIRES_S: Final = 30.0
"""After so long without readings the means of a device are forgotten: its values may have changed.
It is longer than the 20 s that MEAN_READINGS cover."""

DEVIATIONS: Final = 6
"""A value raises an alert if it is more than so many deviations from the mean."""


def queries(
    spark: SparkSession, servers: str, output: str, **trigger: Any
) -> dict[str, Callable[[], StreamingQuery]]:
    """Return what starts each query: averages to files, alerts and dead letters to topics."""
    register(spark)
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    write_local_checkpoints_fast(spark, output)
    raw = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", READINGS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_READINGS_MAX)
        .load()
    )
    rows = readings(raw)

    def to_files(rows: DataFrame, directory: str) -> DataStreamWriter:
        files = rows.coalesce(1).writeStream.format("parquet")
        return files.option("path", f"{output}/{directory}")

    def to_topic(rows: DataFrame, topic: str) -> DataStreamWriter:
        writer = rows.writeStream.format("ottla").option("kafka.bootstrap.servers", servers)
        return writer.option("topic", topic)

    def start(name: str, write: Callable[[], DataStreamWriter]) -> StreamingQuery:
        checkpoint = f"{output}/checkpoints/{CHECKPOINTS.get(name, name)}"
        writer = write().queryName(name).option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger).start()

    writers = {
        "averages": lambda: to_files(averages(rows), "averages"),
        "alerts": lambda: to_topic(alerts(rows), ALERTS),
        "dead-letters": lambda: to_topic(dead_letters(raw), DEAD_LETTERS),
    }
    return {name: partial(start, name, write) for name, write in writers.items()}


def parse(raw: DataFrame) -> DataFrame:
    """Add to the records of the topic the struct `reading`, and `reason`: null if it is valid."""
    text = f.col("value").cast("string")
    parsed = f.from_json(text, f"{READING}, broken STRING", {"columnNameOfCorruptRecord": "broken"})
    # In an array: else Spark parses the text again for each field that the reason needs.
    both = f.transform(
        f.array(parsed),
        lambda reading: f.struct(reading.alias("reading"), _reason(reading).alias("reason")),
    )
    return raw.withColumn("parsed", both[0]).select(*raw.columns, "parsed.*")


def _reason(reading: Column) -> Column:
    key, value = f.col("key").cast("string"), f.col("value")
    problems = [
        (value.isNull() | (f.length(value) == 0), "the value is empty"),
        (reading.isNull() | reading["broken"].isNotNull(), "the value is not a reading in JSON"),
        (reading["device"].isNull(), "device is missing"),
        (reading["at"].isNull(), "at is missing"),
        (reading["temperature"].isNull(), "temperature is missing"),
        (reading["vibration"].isNull(), "vibration is missing"),
        (key.isNull() | (key != reading["device"]), "the key is not the device"),
    ]
    return f.coalesce(*(f.when(problem, f.lit(text)) for problem, text in problems))


def readings(raw: DataFrame) -> DataFrame:
    """Return the valid readings."""
    valid = parse(raw).where("reason IS NULL")
    columns = ("device", "at", "temperature", "vibration")
    return valid.select(*(f"reading.{column}" for column in columns), "offset")


def dead_letters(raw: DataFrame) -> DataFrame:
    """Return the other records unchanged, with the reason and their origin in headers."""
    invalid = parse(raw).where("reason IS NOT NULL")
    values = {
        "reason": f.col("reason"),
        "origin.topic": f.col("topic"),
        "origin.partition": f.col("partition").cast("string"),
        "origin.offset": f.col("offset").cast("string"),
        "origin.timestamp": f.col("timestamp").cast("string"),
    }
    headers = [
        f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
        for name, value in values.items()
    ]
    return invalid.select("key", "value", f.array(*headers).alias("headers"))


def averages(rows: DataFrame) -> DataFrame:
    """Return the means of each device over ten seconds, once the watermark has passed them."""
    window = f.window("at", WINDOW)
    means = (
        rows.withWatermark("at", LATENESS)
        .groupBy(window.alias("window"), "device")
        .agg(
            f.avg("temperature").alias("temperature"),
            f.avg("vibration").alias("vibration"),
            f.count("*").alias("readings"),
        )
    )
    return means.select(
        f.col("window.start").alias("start"),
        f.col("window.end").alias("end"),
        *("device", "temperature", "vibration", "readings"),
    )


def alerts(rows: DataFrame) -> DataFrame:
    """Return the readings that are far from the running mean of their device, as JSON."""
    means = [f"{signal}_{field}" for signal in SIGNALS for field in RunningMean._fields]
    found = rows.groupBy("device").applyInPandasWithState(
        find_anomalies,
        outputStructType=", ".join(f"{name} {kind}" for name, kind in ALERT.items()),
        stateStructType=", ".join(f"{name} DOUBLE" for name in ("newest_s", *means)),
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
    return found.select(f.col("device").alias("key"), f.to_json(f.struct("*")).alias("value"))


class RunningMean(NamedTuple):
    """The running mean and variance of a signal, in which recent values count more."""

    readings: float = 0.0  # up to MEAN_READINGS
    mean: float = 0.0
    variance: float = 0.0

    def add(self, value: float) -> "RunningMean":
        """Return the mean and variance with another value."""
        readings = min(self.readings + 1, MEAN_READINGS)
        difference = value - self.mean
        mean = self.mean + difference / readings
        change = difference * (value - mean) - self.variance
        return RunningMean(readings, mean, self.variance + change / readings)


def find_anomalies(
    key: tuple[str], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Yield the anomalies of a device in a micro-batch, and update its means in the state."""
    # By offset, so that the result does not depend on how Spark divides the rows.
    rows: Any = pd.concat(frames).sort_values("offset")
    newest_s, *before = state.get if state.exists else (0.0,)
    # A reading can be older than the one before it, because some readings are late.
    expired: list[bool] = []
    for at in rows["at"]:
        expired.append(at.timestamp() - newest_s > MEAN_EXPIRES_S)
        newest_s = max(newest_s, at.timestamp())
    size = len(RunningMean._fields)
    found: list[tuple[Any, ...]] = []
    after: list[float] = [newest_s]
    for number, (signal, deviation_min) in enumerate(SIGNALS.items()):
        mean = RunningMean(*before[size * number : size * (number + 1)])
        for at, is_expired, value in zip(rows["at"], expired, rows[signal].tolist(), strict=True):
            if is_expired:
                mean = RunningMean()
            deviation = max(sqrt(mean.variance), deviation_min)
            if mean.readings >= WARM_UP and abs(value - mean.mean) > DEVIATIONS * deviation:
                found.append((key[0], at, signal, value, mean.mean, deviation))
            mean = mean.add(value)
        after += mean
    state.update(tuple(after))
    if found:
        table: Any = pd.DataFrame
        yield table(found, columns=list(ALERT))


def main() -> None:
    """Run the queries until one of them fails, or with --once until they have read everything."""
    parser = argparse.ArgumentParser(
        description="Compute averages, alerts and dead letters from the readings of devices."
    )
    parser.add_argument(
        "--bootstrap-server",
        default="127.0.0.1:9092",
        metavar="HOST:PORT",
        help="Connect to this broker (127.0.0.1:9092)",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIRECTORY",
        help="Write averages and checkpoints to this directory, which all workers can reach",
    )
    parser.add_argument(
        "--once", action="store_true", help="Exit after the records that are there now"
    )
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName("sensors").getOrCreate()
    trigger: dict[str, Any] = (
        {"availableNow": True} if arguments.once else {"processingTime": "1 second"}
    )
    starts = queries(spark, arguments.bootstrap_server, arguments.output, **trigger)
    running = [start() for start in starts.values()]
    if not arguments.once:
        spark.streams.awaitAnyTermination()
    for query in running:
        query.awaitTermination() if arguments.once else query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
