"""The clients of tasks, without Spark around them: they are kept, and survive the broker."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.options import Use
from ottla.pipeline.plan import Range
from ottla.pipeline.sink import writing
from ottla.pipeline.source import Task
from ottla.pipeline.source_options import SourceOptions, source_options
from ottla.records.arrow import pyarrow_module
from ottla.sync import Admin

pa: Any = pyarrow_module()

READER, PRODUCER = "ottla spark", "ottla producer"  # what their threads are called


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OttlaBroker]:
    """A broker of the test's own, which it may end."""
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


def write(broker: OttlaBroker, topic: str, *values: str) -> int:
    """A task of a sink, beside empty batches as Spark hands them over."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    task = writing(given, schema_of(value="string", partition="integer"), overwrite=False)
    places = pa.array([0] * len(values), pa.int32())
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.utf8()), "partition": places})
    return task.write(iter((batch.slice(0, 0), batch))).rows


def read(broker: OttlaBroker, topic: str, start: int, end: int) -> list[bytes]:
    """A task of a source."""
    task = Task(options_of(broker, topic), schema_of(value="binary", offset="long"))
    wanted = Range(TopicPartition(topic, PartitionIndex(0)), start, end)
    return [value for batch in task.read(wanted) for value in batch.column("value").to_pylist()]


def running(name: str) -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == name}


def test_tasks_share_a_client_that_outlives_its_connections(own: OttlaBroker) -> None:
    """A broker that was killed is the worst of what closes a connection that is not in use."""
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


def test_a_task_without_rows_needs_no_broker() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    task = writing(given, schema_of(value="string"), overwrite=False)
    nothing = pa.RecordBatch.from_pydict({"value": pa.array([], pa.utf8())})
    assert task.write(iter((nothing, nothing))).rows == 0


def test_who_failed_to_write_is_not_asked_again(broker: OttlaBroker, topic: str) -> None:
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 1, config={"max.message.bytes": "1000"})
    write(broker, topic, "a")
    kept = running(PRODUCER)
    with pytest.raises(Exception, match="TOO_LARGE"):
        write(broker, topic, "x" * 5000)
    assert len(kept - running(PRODUCER)) == 1
    write(broker, topic, "b")
    assert read(broker, topic, 0, 2) == [b"a", b"b"]


def test_a_read_that_is_given_up_is_not_gone_on_with(broker: OttlaBroker, topic: str) -> None:
    """As by `limit`: Spark closes the iterator, and the next task reads from its own start."""
    write(broker, topic, "a", "b", "c")
    task = Task(options_of(broker, topic), schema_of(value="binary", offset="long"))
    found = task.read(Range(TopicPartition(topic, PartitionIndex(0)), 0, 3))
    next(found)
    kept = running(READER)
    del found
    assert len(kept - running(READER)) == 1
    assert read(broker, topic, 1, 3) == [b"b", b"c"]
