"""A query whose driver, worker or planner is killed resumes from its checkpoint.

Each life of the query is killed between two steps of a micro-batch; all lives use one checkpoint.
The killed drivers are processes of their own (mortal_driver.py); the shared session then runs the
query to its end. `make test` takes one of the steps, of a query that writes files or that writes a
topic. `make soak` takes all of them, and test_restarts.py has every step of a query that Spark does
not run.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.sync import Admin, Consumer, Producer
from pipeline.fast_spark import fast_spark
from pipeline.queries import NOT_STARTED, finished, source, taken
from sampling import sample

DRIVER = Path(__file__).with_name("mortal_driver.py")
BATCH = 30
KILLED = -signal.SIGKILL
FAILED = 1
TRIES_MAX = 20  # Spark gives a Python process ten seconds to start, too few on a busy machine


class Life(NamedTuple):
    """The step that ends a life and its count; what is killed; the exit code of the driver."""

    step: str
    time: int
    is_alone: bool = False  # whether only the process that takes the step is killed
    code: int = KILLED


# Each micro-batch has three tasks, and each task yields one Arrow batch.
READING = (
    Life("begin", 1),  # nothing is in the checkpoint yet
    Life("look", 2),  # the end of a micro-batch is known, but not in the checkpoint
    Life("plan", 2),  # it is in the checkpoint
    Life("look", 2, is_alone=True, code=FAILED),
    Life("reading", 5),  # Spark has rows of a task
    Life("have read", 6),  # all tasks are done
    Life("reading", 4, is_alone=True, code=0),  # Spark runs the task again
)
WRITING = (
    Life("written", 5),  # the brokers have acknowledged the rows of some tasks
    Life("sink committed", 2),  # those of all tasks; the micro-batch is not committed
    Life("written", 4, is_alone=True, code=0),  # Spark runs the task again
)


def run_life(life: Life, folder: Path, options: dict[str, Any], copy: str | None) -> None:
    """Run a driver until it is killed at the step of this life."""
    counts = folder / "counts"
    given = {
        "kill": {
            "step": life.step,
            "time": life.time,
            "is_alone": life.is_alone,
            "counts": str(counts),
        },
        "folder": str(folder),
        "options": options,
        "copy": copy,
        "java_options": fast_spark().java_options,
    }

    def run() -> subprocess.CompletedProcess[str]:
        counts.unlink(missing_ok=True)
        return subprocess.run(
            [sys.executable, str(DRIVER), json.dumps(given)],
            start_new_session=True,  # the driver kills its process group
            capture_output=True,
            text=True,
            env=fast_spark().environment,
            check=False,
        )

    tries = (run() for _ in range(TRIES_MAX))
    done = next(one for one in tries if one.returncode != FAILED or NOT_STARTED not in one.stderr)
    assert done.returncode == life.code, f"{life}: {done.returncode}\n{done.stderr[-4000:]}"
    assert len(counts.read_bytes()) >= life.time, f"{life} was not ended at its step"


def produce(broker: OttlaBroker, topic: str, lives: Sequence[Life]) -> list[int]:
    """Write enough records for these lives; each commits one micro-batch or two."""
    count = BATCH * (len(lives) + 3)
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=n % 3)
    return [*range(count)]


def options(broker: OttlaBroker, topic: str) -> dict[str, Any]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.group.id": topic,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH),
    }


def files_have_each_record_once(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    lives = sample(READING, 1)
    expected = produce(broker, topic, lives)
    for life in lives:
        run_life(life, tmp_path, options(broker, topic), None)
    frame = source(spark, broker.bootstrap, **options(broker, topic))
    taken(frame.select("value", "partition", "offset"), tmp_path)
    found = spark.read.parquet(f"{tmp_path}/rows").collect()
    assert sorted(int(row.value) for row in found) == expected
    for row in found:
        assert (row.partition, row.offset) == (int(row.value) % 3, int(row.value) // 3)


def copied_topic_has_every_record(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    copy = f"{topic}-copy"
    lives = sample(WRITING, 1)
    expected = produce(broker, topic, lives)
    for life in lives:
        run_life(life, tmp_path, options(broker, topic), copy)
    writer = (
        source(spark, broker.bootstrap, **options(broker, topic))
        .select("value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", copy)
        .option("checkpointLocation", f"{tmp_path}/place")
    )
    finished(writer.trigger(availableNow=True).start)
    found = values(broker, copy)
    assert sorted(set(found)) == expected
    # Each life repeats at most the micro-batch in which it ended.
    assert len(found) <= len(expected) + BATCH * len(lives)


def values(broker: OttlaBroker, topic: str) -> list[int]:
    """The values of all records of a topic."""
    settings = {"bootstrap.servers": broker.bootstrap}
    with Consumer(settings) as consumer, Admin(settings) as admin:
        [described] = admin.describe_topics([topic]).or_raise().values()
        places = [(topic, index) for index in range(len(described.partitions))]
        consumer.assign(*places)
        consumer.seek_to_beginning()
        count = sum(consumer.end_offsets(*places).values())
        found: list[int] = []
        while len(found) < count:
            found += [int(one.value or b"") for one in consumer.poll(1.0)]
    return found


@pytest.mark.parametrize(
    "result",
    sample([files_have_each_record_once, copied_topic_has_every_record], 1),
    ids=lambda result: result.__name__,
)
def test_nothing_is_lost_after_kills(
    result: Callable[[Any, OttlaBroker, str, Path], None],
    spark: Any,
    broker: OttlaBroker,
    topic: str,
    tmp_path: Path,
) -> None:
    result(spark, broker, topic, tmp_path)
