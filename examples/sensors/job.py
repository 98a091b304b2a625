"""The job: three queries over the readings. Spark runs it anywhere.

    spark-submit --py-files sensors.zip job.py --bootstrap-server HOST:PORT --output FOLDER

Invariant: each query goes on where its checkpoint says. Averages are in their files exactly once;
alerts and dead letters are in their topics at least once.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.pipeline import register
from sensors.folders import AVERAGES, CHECKPOINTS
from sensors.session import session
from sensors.topics import ALERTS, DEAD_LETTERS, READINGS
from sensors.transformations import alerts, averages, dead_letters, readings

BATCH_READINGS_MAX: Final = 100_000


def queries(
    spark: SparkSession, servers: str, output: str, **trigger: Any
) -> dict[str, Callable[[], StreamingQuery]]:
    """What starts each query: averages into files, alerts and dead letters into topics."""
    register(spark)
    raw = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", READINGS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_READINGS_MAX)
        .load()
    )
    rows = readings(raw)

    def averages_to_files() -> DataStreamWriter:
        files = averages(rows).coalesce(1).writeStream.format("parquet")
        return files.option("path", f"{output}/{AVERAGES}")

    def started(name: str, written: Callable[[], DataStreamWriter]) -> StreamingQuery:
        place = f"{output}/{CHECKPOINTS}/{name}"
        writer = written().queryName(name).option("checkpointLocation", place)
        return writer.trigger(**trigger).start()

    wanted = {
        "averages": averages_to_files,
        "alerts": lambda: to_topic(alerts(rows), servers, ALERTS),
        "dead-letters": lambda: to_topic(dead_letters(raw), servers, DEAD_LETTERS),
    }
    return {name: partial(started, name, written) for name, written in wanted.items()}


def to_topic(rows: DataFrame, servers: str, topic: str) -> DataStreamWriter:
    """Write rows to a topic."""
    writer = rows.writeStream.format("ottla").option("kafka.bootstrap.servers", servers)
    return writer.option("topic", topic)


def main() -> None:
    """Run until a query fails or the job is ended; with --once until there is nothing more."""
    parser = argparse.ArgumentParser(description="Averages, alerts and dead letters of readings.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", metavar="HOST:PORT")
    parser.add_argument("--output", required=True, help="where files and places go")
    parser.add_argument("--once", action="store_true", help="read what there is, and end")
    given = parser.parse_args()
    spark = session()
    trigger: dict[str, Any] = (
        {"availableNow": True} if given.once else {"processingTime": "1 second"}
    )
    wanted = queries(spark, given.bootstrap_server, given.output, **trigger)
    running = [start() for start in wanted.values()]
    if not given.once:
        spark.streams.awaitAnyTermination()
    for query in running:
        query.awaitTermination() if given.once else query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
