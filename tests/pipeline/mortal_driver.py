"""A driver of Spark that dies: started as a process of its own, with what it is to do in JSON.

It copies a topic to files, which Spark writes exactly once, or to another topic, until nothing is
left. At one moment that it is told of it dies as of `kill -9`: the process of Python, the virtual
machine and who took the step, all at once. Or the process that took the step dies alone: a worker
with its task, or the one that plans for Spark.

A moment is a step of the query, and the how manieth of its kind. Steps are counted in a file, for
they are taken in several processes.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ottla.pipeline.options import SERVERS, Use
from ottla.pipeline.sink import OttlaStreamWriter, writing
from ottla.pipeline.source import OttlaSource, OttlaStreamReader
from ottla.pipeline.source_options import source_options


@dataclass(frozen=True)
class Fate:
    """Who dies, and when."""

    step: str
    time: int
    is_alone: bool
    counts: str
    group: int

    def step_taken(self, step: str) -> None:
        """Die if this is the moment."""
        if step != self.step:
            return
        with Path(self.counts).open("ab") as counts:  # appending is one step, whoever does it
            counts.write(b".")
            counts.flush()
            times = counts.tell()
        if times != self.time:
            return
        if not self.is_alone:
            os.killpg(self.group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def main(told: dict[str, Any]) -> None:
    fate = Fate(**told["fate"], group=os.getpgid(0))

    class MortalReader(OttlaStreamReader):
        def initialOffset(self) -> Any:  # noqa: N802
            found = super().initialOffset()
            fate.step_taken("begin")
            return found

        def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
            found = super().latestOffset(start, limit)
            fate.step_taken("look")
            return found

        def partitions(self, start: Any, end: Any) -> Any:
            fate.step_taken("plan")
            found = super().partitions(start, end)
            fate.step_taken("planned")
            return found

        def read(self, partition: Any) -> Iterator[Any]:
            fate.step_taken("read")
            for batch in super().read(partition):
                yield batch
                fate.step_taken("reading")
            fate.step_taken("have read")

        def commit(self, end: Any) -> None:
            fate.step_taken("commit")
            super().commit(end)
            fate.step_taken("committed")

    class MortalWriter(OttlaStreamWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            fate.step_taken("write")
            done = super().write(iterator)
            fate.step_taken("written")
            return done

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            fate.step_taken("sink commit")
            super().commit(messages, batchId)
            fate.step_taken("sink committed")

    class MortalSource(OttlaSource):
        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            return MortalReader(source_options(self._given, Use.STREAM), schema)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return MortalWriter(writing(self._given, schema, overwrite=False))

    builder: Any = SparkSession.builder
    spark = (
        builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(MortalSource)
    frame = spark.readStream.format("ottla").options(**told["options"]).load()
    writer = frame.select("value", "partition", "offset").writeStream
    if told["copy"] is not None:
        writer = frame.select("value").writeStream.format("ottla").option("topic", told["copy"])
        writer = writer.option(SERVERS, told["options"][SERVERS])
    folder = told["folder"]
    query = (
        writer.option("checkpointLocation", f"{folder}/place")
        .trigger(availableNow=True)
        .start(f"{folder}/rows" if told["copy"] is None else None)
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
