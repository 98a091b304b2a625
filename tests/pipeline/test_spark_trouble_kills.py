"""Kills: a query whose driver, workers or planner are killed goes on from its checkpoint.

One life after the other is ended between two steps of a micro-batch, all on the same checkpoint;
the last one ends by itself. What is killed is a process of its own (mortal_driver.py).
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from judges.ottla_broker import OttlaBroker
from ottla.pipeline.spark_home import fast_spark_home
from ottla.sync import Admin, Consumer, Producer

DRIVER = Path(__file__).with_name("mortal_driver.py")
BATCH = 30
KILLED = -signal.SIGKILL
FAILED = 1

# Spark gives a Python process ten seconds to start, which is little on a machine that is busy.
NOT_STARTED = "failed to connect back"
TRIES_MAX = 20


class Life(NamedTuple):
    """The step at which it ends, the how manieth of its kind; of whom; how the driver ends."""

    step: str
    time: int
    is_alone: bool = False
    code: int = KILLED


# Each batch has three tasks, and each task one piece of Arrow.
READING = (
    Life("begin", 1),  # nothing is written down yet
    Life("look", 2),  # the end of a batch is known, and not written down
    Life("plan", 2),  # it is written down
    Life("look", 2, is_alone=True, code=FAILED),
    Life("reading", 5),  # rows of a task have been handed to Spark
    Life("have read", 6),  # all tasks are done
    Life("reading", 4, is_alone=True, code=0),  # a task is tried again
)
WRITING = (
    Life("written", 5),  # the rows of some tasks are acknowledged
    Life("sink committed", 2),  # those of all; the batch is not written down as done
    Life("written", 4, is_alone=True, code=0),  # a task is tried again
)


def lived(life: Life, folder: Path, options: dict[str, str], copy: str | None) -> None:
    """One life from the beginning to the end that it is to have."""
    counts = folder / "counts"
    told = {
        "fate": {
            "step": life.step,
            "time": life.time,
            "is_alone": life.is_alone,
            "counts": str(counts),
        },
        "folder": str(folder),
        "options": options,
        "copy": copy,
    }
    env = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(fast_spark_home(folder / "home")),
    }

    def begun() -> subprocess.CompletedProcess[str]:
        counts.unlink(missing_ok=True)
        return subprocess.run(
            [sys.executable, str(DRIVER), json.dumps(told)],
            start_new_session=True,  # it kills the group of its processes
            capture_output=True,
            text=True,
            env=env,
            check=False,
        )

    tries = (begun() for _ in range(TRIES_MAX))
    done = next(one for one in tries if one.returncode != FAILED or NOT_STARTED not in one.stderr)
    assert done.returncode == life.code, f"{life}: {done.returncode}\n{done.stderr[-4000:]}"
    assert len(counts.read_bytes()) >= life.time, f"{life} was not ended there"


def produced(broker: OttlaBroker, topic: str, lives: int) -> list[int]:
    """Enough records for so many lives; each finishes one batch, or two."""
    count = BATCH * (lives + 3)
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=n % 3)
    return [*range(count)]


def options(broker: OttlaBroker, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.group.id": topic,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH),
    }


def test_files_have_each_record_once_whenever_the_driver_or_a_worker_is_killed(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    expected = produced(broker, topic, len(READING))
    for life in READING:
        lived(life, tmp_path, options(broker, topic), None)
    found = spark.read.parquet(f"{tmp_path}/rows").collect()
    assert sorted(int(row.value) for row in found) == expected
    for row in found:
        assert (row.partition, row.offset) == (int(row.value) % 3, int(row.value) // 3)


def test_a_copied_topic_lacks_nothing_whenever_the_driver_or_a_worker_is_killed(
    broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    expected = produced(broker, topic, len(WRITING))
    for life in WRITING:
        lived(life, tmp_path, options(broker, topic), f"{topic}-copy")
    found = values(broker, f"{topic}-copy")
    assert sorted(set(found)) == expected
    # A batch is repeated once for a life that ends in it, and no other is.
    assert len(found) <= len(expected) + BATCH * len(WRITING)


def values(broker: OttlaBroker, topic: str) -> list[int]:
    """The values of all records of a topic."""
    settings = {"bootstrap.servers": broker.bootstrap}
    with Consumer(settings) as consumer, Admin(settings) as admin:
        [told] = admin.describe_topics([topic]).or_raise().values()
        places = [(topic, index) for index in range(len(told.partitions))]
        consumer.assign(*places)
        consumer.seek_to_beginning()
        count = sum(consumer.end_offsets(*places).values())
        found: list[int] = []
        while len(found) < count:
            found += [int(one.value or b"") for one in consumer.poll(1.0)]
    return found
