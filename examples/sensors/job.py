"""Submits the pipeline to a Spark cluster, without the runner of pipelines.

    spark-submit job.py --bootstrap-server HOST:PORT --output DIRECTORY

`ottla pipeline run` also restarts failed queries and shows their progress; this is for clusters on
which jobs are scripts. Each query continues from its checkpoint.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from ottla.pipeline import load
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.spec.checks import AVAILABLE_NOW

FILE = Path(__file__).resolve().with_name("pipeline.yml")


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
    sys.path.insert(0, str(FILE.parents[1]))
    import sensors.anomalies

    # The workers get the code of the step from here, so it need not be installed there.
    pickle: Any = cloudpickle
    pickle.register_pickle_by_value(sensors.anomalies)
    spark = SparkSession.builder.appName("sensors").getOrCreate()
    variables = {"BROKERS": arguments.bootstrap_server, "DIRECTORY": arguments.output}
    loaded = load(FILE, environment=variables)
    if arguments.once:
        pipeline = msgspec.structs.replace(loaded.pipeline, trigger=AVAILABLE_NOW)
        loaded = loaded._replace(pipeline=pipeline)
    compiled = compile_pipeline(spark, loaded, str(FILE))
    running = [query.start() for query in compiled.queries]
    if not arguments.once:
        compiled.session.streams.awaitAnyTermination()
    for query in running:
        query.awaitTermination() if arguments.once else query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
