"""A program that ends without stopping Spark: its groups have the offsets of its queries."""

import asyncio
import subprocess
import sys
from pathlib import Path

from judges.ottla_broker import ottla_broker
from ottla.client.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.ids import PartitionIndex, TopicPartition
from pipeline.fast_spark import fast_spark

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from ottla.pipeline import register

servers, folder, java_options = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", java_options).getOrCreate()
register(spark)
readings = spark.readStream.format("ottla").option("kafka.bootstrap.servers", servers)
readings = readings.option("subscribe", "t").option("startingOffsets", "earliest").load()
query = readings.writeStream.queryName("brief").format("noop").trigger(availableNow=True)
query.option("checkpointLocation", folder).start().awaitTermination()
"""
PATIENCE_S = 300.0


async def filled(servers: str, count: int) -> None:
    async with Admin({"bootstrap.servers": servers}) as admin:
        await admin.create_topic("t", partitions=1)
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            await producer.send("t", str(number).encode())


async def committed(servers: str) -> int | None:
    async with Admin({"bootstrap.servers": servers}) as admin:
        found = await admin.list_group_offsets("ottla-pipeline.brief")
    place = found["ottla-pipeline.brief"][TopicPartition("t", PartitionIndex(0))]
    return None if place is None else place.offset


def test_group_has_the_last_offsets_at_exit(tmp_path: Path) -> None:
    with ottla_broker() as broker:
        asyncio.run(filled(broker.bootstrap, 100))
        checkpoint, options = str(tmp_path / "checkpoint"), fast_spark().java_options
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, broker.bootstrap, checkpoint, options],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env=fast_spark().environment,
        )
        assert done.returncode == 0, done.stderr
        assert "ERROR" not in done.stderr
        assert asyncio.run(committed(broker.bootstrap)) == 100
