"""The clients of tasks, without Spark: they are reused, and survive a restart of the broker."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.offset_ranges import OffsetRange
from ottla.pipeline.options import Use
from ottla.pipeline.sink import row_writer
from ottla.pipeline.source import Task
from ottla.pipeline.source_options import SourceOptions, source_options
from ottla.records import batches
from ottla.records.arrow import pyarrow_module
from ottla.sync import Admin

pa: Any = pyarrow_module()

READER, PRODUCER = "ottla spark", "ottla producer"  # the names of their threads


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OttlaBroker]:
    """A broker that only this test uses, and may kill."""
    settings = ("num.partitions=1", "auto.create.topics.enable=true")
    with OttlaBroker(tmp_path, *settings) as broker:
        broker.start()
        yield broker


def options_of(broker: OttlaBroker, topic: str, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **more}
    return source_options(given, Use.STREAM)


def schema_of(**columns: str) -> Any:
    from pyspark.sql.types import StructType

    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


def write(
    broker: OttlaBroker, topic: str, *values: str, partition: int = 0, batch_size: str = ""
) -> int:
    """Run a task of a sink, with empty batches as Spark passes them."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    if batch_size:
        given["kafka.batch.size"] = batch_size
    task = row_writer(given, schema_of(value="string", partition="integer"), overwrite=False)
    places = pa.array([partition] * len(values), pa.int32())
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.utf8()), "partition": places})
    return task.write(iter((batch.slice(0, 0), batch))).rows


def read(
    broker: OttlaBroker, topic: str, start: int, end: int, partition: int = 0, **options: str
) -> list[bytes]:
    """Run a task of a source."""
    task = Task(options_of(broker, topic, **options), schema_of(value="binary", offset="long"))
    wanted = OffsetRange(TopicPartition(topic, PartitionIndex(partition)), start, end)
    return [value for batch in task.read(wanted) for value in batch.column("value").to_pylist()]


def running(name: str) -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == name}


def test_tasks_share_a_client_across_reconnects(own: OttlaBroker) -> None:
    """A killed broker closes idle connections in the harshest way."""
    before = {name: running(name) for name in (READER, PRODUCER)}
    write(own, "kept", "a", "b")
    assert read(own, "kept", 0, 2) == [b"a", b"b"]
    made = {name: running(name) - before[name] for name in (READER, PRODUCER)}
    assert [len(one) for one in made.values()] == [1, 1]
    own.kill()
    own.start()
    write(own, "kept", "c")
    assert read(own, "kept", 2, 3) == [b"c"]
    assert read(own, "kept", 0, 1) == [b"a"]
    assert {name: running(name) - before[name] for name in made} == made


def test_task_without_rows_needs_no_broker() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    task = row_writer(given, schema_of(value="string"), overwrite=False)
    nothing = pa.RecordBatch.from_pydict({"value": pa.array([], pa.utf8())})
    assert task.write(iter((nothing, nothing))).rows == 0


def test_producer_that_failed_is_not_reused(broker: OttlaBroker, topic: str) -> None:
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 1, config={"max.message.bytes": "1000"})
    write(broker, topic, "a")
    kept = running(PRODUCER)
    with pytest.raises(Exception, match="TOO_LARGE"):
        write(broker, topic, "x" * 5000)
    assert len(kept - running(PRODUCER)) == 1
    write(broker, topic, "b")
    assert read(broker, topic, 0, 2) == [b"a", b"b"]


def test_batch_size_follows_topic_and_settings(broker: OttlaBroker, topic: str) -> None:
    values = [f"{n:05d}" * 200 for n in range(100)]  # 100 KB
    small = f"{topic}-small"
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(small, 1, config={"max.message.bytes": "5000"})
    assert write(broker, topic, *values) == 100
    assert write(broker, small, *values) == 100
    for one in (topic, small):
        assert read(broker, one, 0, 100) == [value.encode() for value in values]
    assert batches_in(broker, topic) == 1
    assert batches_in(broker, small) > 20
    told = f"{topic}-told"
    write(broker, told, *values, batch_size="10000")
    assert batches_in(broker, told) > 10


def batches_in(broker: OttlaBroker, topic: str) -> int:
    """The number of batches in the log of a topic."""
    [file] = (broker.data / f"{topic}-0").glob("*.log")
    return sum(1 for _ in batches(file.read_bytes()))


def test_abandoned_read_is_not_continued(broker: OttlaBroker, topic: str) -> None:
    """With `limit`, Spark closes the iterator; the next task reads from its own start."""
    write(broker, topic, "a", "b", "c")
    task = Task(options_of(broker, topic), schema_of(value="binary", offset="long"))
    found = task.read(OffsetRange(TopicPartition(topic, PartitionIndex(0)), 0, 3))
    next(found)
    kept = running(READER)
    del found
    assert len(kept - running(READER)) == 1
    assert read(broker, topic, 1, 3) == [b"b", b"c"]


def test_task_does_not_wait_for_an_earlier_fetch(broker: OttlaBroker, topic: str) -> None:
    """A fetch at the log end may wait for a long time; the next task must not wait for it."""
    write(broker, topic, "a", partition=0)
    write(broker, topic, "b", partition=1)
    patient = {"kafka.fetch.max.wait.ms": "900000", "kafkaConsumer.pollTimeoutMs": "60000"}
    assert read(broker, topic, 0, 1, partition=0, **patient) == [b"a"]
    assert read(broker, topic, 0, 1, partition=1, **patient) == [b"b"]
    write(broker, topic, "c", partition=1)
    assert read(broker, topic, 1, 2, partition=1, **patient) == [b"c"]


def test_small_consecutive_ranges_are_read(broker: OttlaBroker, topic: str) -> None:
    """Both with the rest of an earlier fetch and with new fetches."""
    values = [f"{n}" for n in range(300)]
    write(broker, topic, *values)
    found: list[bytes] = []
    for start in range(0, 300, 7):
        found += read(broker, topic, start, min(start + 7, 300))
    assert found == [value.encode() for value in values]
