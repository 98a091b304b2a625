"""A script for spark-submit: a read, a write and a stream, then a module that runs as a script.

    spark-submit cluster_job.py BOOTSTRAP TOPIC FOLDER [MODULE ARGUMENT...]

Spark finds the data source in two ways: by its name, then registered. The values that a batch read
go to FOLDER/read.json. The batch writes to TOPIC-WAY-written, and the stream to TOPIC-WAY-streamed.
"""

import json
import runpy
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.pipeline import register


def steps(spark: SparkSession, way: str, bootstrap: str, topic: str, folder: str) -> list[int]:
    """Run a read, a write and a stream, as jobs with these names; the values that were read."""
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


def main(bootstrap: str, topic: str, folder: str, *module: str) -> None:
    """Use the source without a registration first, then registered."""
    spark = SparkSession.builder.appName("ways").getOrCreate()
    found = {"discovered": steps(spark, "discovered", bootstrap, topic, folder)}
    register(spark)
    found["registered"] = steps(spark, "registered", bootstrap, topic, folder)
    Path(folder, "read.json").write_text(json.dumps(found))
    if module:
        sys.argv[:] = module
        runpy.run_module(module[0], run_name="__main__")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
