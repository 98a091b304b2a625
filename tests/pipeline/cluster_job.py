"""A script for spark-submit: a read, a write and a stream, with the source known in two ways.

    spark-submit cluster_job.py BOOTSTRAP TOPIC FOLDER

What it reads as a batch is in FOLDER/read.json afterwards; what it writes is in TOPIC-WAY-written,
and what the stream writes in TOPIC-WAY-streamed, where WAY is how Spark knows the source.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.pipeline import register


def steps(spark: SparkSession, way: str, bootstrap: str, topic: str, folder: str) -> list[int]:
    """A read, a write and a stream, jobs with those names; what was read."""
    name_next = spark.sparkContext.setJobDescription
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    name_next(f"{way}-read")
    frame = spark.read.format("ottla").options(**options).load()
    found = [int(row.value) for row in frame.select("value").collect()]

    name_next(f"{way}-write")
    target = {"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}-{way}-written"}
    frame.select("key", "value").write.format("ottla").options(**target).mode("append").save()

    stream = spark.readStream.format("ottla").options(**options, startingOffsets="earliest").load()
    target["topic"] = f"{topic}-{way}-streamed"
    query = (
        stream.select("key", "value")
        .writeStream.format("ottla")
        .options(**target, checkpointLocation=f"{folder}/checkpoint-{way}")
        .queryName(f"{way}-stream")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def main(bootstrap: str, topic: str, folder: str) -> None:
    """Without a word first, then registered."""
    spark = SparkSession.builder.appName("ways").getOrCreate()
    found = {"discovered": steps(spark, "discovered", bootstrap, topic, folder)}
    register(spark)
    found["registered"] = steps(spark, "registered", bootstrap, topic, folder)
    spark.stop()
    Path(folder, "read.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
