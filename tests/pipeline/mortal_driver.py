"""A Spark driver that kills itself or one of its processes at a chosen step of a query.

The driver copies a topic to files, which Spark writes exactly once, or to another topic, until
nothing is left. At the chosen step it kills the process group, as `kill -9` would: Python, the
virtual machine and all workers. Or the process that takes the step kills only itself: a worker with
its task, or the process that plans for Spark.

A moment is a kind of step and its count. The steps are counted in a file, because several processes
take them. The argument is a JSON object; `main` names its members.
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

from ottla.pipeline.checkpoint_files import write_local_checkpoints_fast
from ottla.pipeline.options import SERVERS, Use
from ottla.pipeline.sink import OttlaStreamWriter, row_writer
from ottla.pipeline.source import OttlaSource, OttlaStreamReader
from ottla.pipeline.source_options import source_options


@dataclass(frozen=True)
class Kill:
    """Which process is killed, and at which step."""

    step: str
    time: int
    is_alone: bool
    counts: str
    target: int
    """The process that is killed; a process group if it is negative."""

    def step_taken(self, step: str) -> None:
        """Kill the processes if this is the chosen step."""
        if step != self.step:
            return
        with Path(self.counts).open("ab") as counts:  # an append is atomic among processes
            counts.write(b".")
            counts.flush()
            times = counts.tell()
        if times != self.time:
            return
        if not self.is_alone:
            os.kill(self.target, signal.SIGKILL)
        if self.is_alone or self.target < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def mortal_source(kill: Kill) -> type[OttlaSource]:
    """Return the data source, whose processes take the steps."""

    class MortalReader(OttlaStreamReader):
        def initialOffset(self) -> Any:  # noqa: N802
            found = super().initialOffset()
            kill.step_taken("begin")
            return found

        def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
            found = super().latestOffset(start, limit)
            kill.step_taken("look")
            return found

        def partitions(self, start: Any, end: Any) -> Any:
            kill.step_taken("plan")
            found = super().partitions(start, end)
            kill.step_taken("planned")
            return found

        def read(self, partition: Any) -> Iterator[Any]:
            kill.step_taken("read")
            for batch in super().read(partition):
                yield batch
                kill.step_taken("reading")
            kill.step_taken("have read")

        def commit(self, end: Any) -> None:
            kill.step_taken("commit")
            super().commit(end)
            kill.step_taken("committed")

    class MortalWriter(OttlaStreamWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            kill.step_taken("write")
            done = super().write(iterator)
            kill.step_taken("written")
            return done

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            kill.step_taken("sink commit")
            super().commit(messages, batchId)
            kill.step_taken("sink committed")

    class MortalSource(OttlaSource):
        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            return MortalReader(source_options(self._given, Use.STREAM), schema)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return MortalWriter(row_writer(self._given, schema, overwrite=False))

    return MortalSource


def main(given: dict[str, Any]) -> None:
    source = mortal_source(Kill(**given["kill"], target=-os.getpgid(0)))
    builder: Any = SparkSession.builder
    spark = (
        builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", given["java_options"])
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(source)
    frame = spark.readStream.format("ottla").options(**given["options"]).load()
    writer = frame.select("value", "partition", "offset").writeStream
    if given["copy"] is not None:
        writer = frame.select("value").writeStream.format("ottla").option("topic", given["copy"])
        writer = writer.option(SERVERS, given["options"][SERVERS])
    folder = given["folder"]
    write_local_checkpoints_fast(spark, folder)
    query = (
        writer.option("checkpointLocation", f"{folder}/place")
        .trigger(availableNow=True)
        .start(f"{folder}/rows" if given["copy"] is None else None)
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
