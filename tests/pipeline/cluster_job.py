"""A script for spark-submit: reads, writes and streams.

    spark-submit cluster_job.py BOOTSTRAP TOPIC FOLDER WAY-JOB...

WAY says how Spark finds the data source: `discovered` by its name, or `registered`, which must come
last. JOB is `read`, `write` or `stream`. The values that a batch read go to FOLDER/read.json by
way; a write and a stream copy TOPIC to TOPIC-WAY-JOB.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ottla.pipeline import register


class Jobs:
    """The jobs, on one topic."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, folder: str) -> None:
        self._spark = spark
        self._servers = {"kafka.bootstrap.servers": bootstrap}
        self._topic = topic
        self._folder = folder
        self.found: dict[str, list[int]] = {}

    def run(self, name: str) -> None:
        """Run a job under its name."""
        self._spark.sparkContext.setJobDescription(name)
        way, _, job = name.partition("-")
        if job == "read":
            rows = self._frame().select("value").collect()
            self.found[way] = [int(row.value) for row in rows]
        elif job == "write":
            target = {**self._servers, "topic": f"{self._topic}-{name}"}
            writer = self._frame().select("key", "value").write.format("ottla")
            writer.options(**target).mode("append").save()
        else:
            assert job == "stream", name
            self._stream(name)

    def _frame(self) -> DataFrame:
        return self._loaded(self._spark.read)

    def _loaded(self, reader: Any, **options: str) -> DataFrame:
        chosen = {**self._servers, "subscribe": self._topic, **options}
        return reader.format("ottla").options(**chosen).load()

    def _stream(self, name: str) -> None:
        stream = self._loaded(self._spark.readStream, startingOffsets="earliest")
        target = {**self._servers, "topic": f"{self._topic}-{name}"}
        query = (
            stream.select("key", "value")
            .writeStream.format("ottla")
            .options(**target, checkpointLocation=f"{self._folder}/checkpoint-{name}")
            .queryName(name)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def main(bootstrap: str, topic: str, folder: str, *names: str) -> None:
    """Run the jobs that find the source by its name, then those that need its registration."""
    spark = SparkSession.builder.appName("ways").getOrCreate()
    jobs = Jobs(spark, bootstrap, topic, folder)
    is_registered = False
    for name in names:
        if name.startswith("registered") and not is_registered:
            register(spark)
            is_registered = True
        jobs.run(name)
    Path(folder, "read.json").write_text(json.dumps(jobs.found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
