"""The sink in a real Spark, and the group offsets of a stream."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.pipeline import register
from ottla.sync import Admin, Consumer, Producer

Writing = Callable[..., None]


@pytest.fixture
def writing(spark: Any, broker: OttlaBroker) -> Writing:
    """A function that writes rows, given as an SQL query, with options."""

    def done(query: str, mode: str = "append", **options: object) -> None:
        writer = spark.sql(query).write.format("ottla").mode(mode)
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
        for name, value in options.items():
            writer = writer.option(name, str(value))
        writer.save()

    return done


def records(broker: OttlaBroker, *topics: str) -> list[Any]:
    """All records of topics."""
    settings = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer, Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        listed = admin.list_topics()
        places = [(topic, n) for topic in topics if topic in listed for n in range(3)]
        if not places:
            return []
        consumer.assign(*places)
        left = sum(consumer.end_offsets(*places).values())
        found: list[Any] = []
        while len(found) < left:
            found += consumer.poll(1.0)
    return sorted(found, key=lambda one: (one.topic, one.partition, one.offset))


def test_rows_are_written_with_all_columns(
    writing: Writing, broker: OttlaBroker, topic: str
) -> None:
    writing(
        "select cast(id as string) as key, concat('v', id) as value, cast(id % 3 as int) as "
        "partition, array(struct('h' as key, cast('x' as binary) as value)) as headers "
        "from range(30)",
        topic=topic,
    )
    found = records(broker, topic)
    assert sorted(int(one.key) for one in found) == [*range(30)]
    for one in found:
        assert one.value == b"v" + one.key
        assert one.partition == int(one.key) % 3
        assert one.headers == (("h", b"x"),)


def test_topic_and_partition_columns_are_used(
    writing: Writing, broker: OttlaBroker, topic: str
) -> None:
    writing(
        f"select concat('{topic}-', id % 2) as topic, cast(id as string) as value, "
        "case when id < 10 then 1 else cast(null as int) end as partition from range(40)"
    )
    for parity in (0, 1):
        found = records(broker, f"{topic}-{parity}")
        assert sorted(int(one.value) for one in found) == [*range(parity, 40, 2)]
        assert all(one.partition == 1 for one in found if int(one.value) < 10)


def test_null_keys_and_values_stay_null(writing: Writing, broker: OttlaBroker, topic: str) -> None:
    writing("select cast(null as binary) as key, cast(null as string) as value", topic=topic)
    [one] = records(broker, topic)
    assert (one.key, one.value) == (None, None)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select 'k' as key", "column value is missing"),
        ("select 'v' as value", "column topic is missing"),
        ("select 't' as topic, 1 as value", "column value is int: cast it to binary or string"),
        ("select 't' as topic, 'v' as value, 1L as partition", "column partition is bigint"),
    ],
)
def test_invalid_schema_is_rejected_before_sending(
    writing: Writing, broker: OttlaBroker, query: str, why: str
) -> None:
    with pytest.raises(Exception, match=why):
        writing(query)
    assert records(broker, "t") == []


def test_unknown_columns_are_ignored(writing: Writing, broker: OttlaBroker, topic: str) -> None:
    writing(f"select '{topic}' as topic, 'v' as value, 7L as offset, 1 as size")
    [one] = records(broker, topic)
    assert (one.key, one.value, one.headers) == (None, b"v", ())


def test_rows_without_a_topic_are_rejected(
    writing: Writing, broker: OttlaBroker, topic: str
) -> None:
    with pytest.raises(Exception, match="a row has null in column topic"):
        writing("select cast(null as string) as topic, 'v' as value")


def test_overwrite_mode_is_rejected(writing: Writing, topic: str) -> None:
    with pytest.raises(Exception, match="cannot be overwritten"):
        writing("select 'v' as value", mode="overwrite", topic=topic)


def test_rejected_record_fails_the_write(writing: Writing, broker: OttlaBroker, topic: str) -> None:
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 3, config={"max.message.bytes": "1000"})
    with pytest.raises(Exception, match="TOO_LARGE"):
        writing("select repeat('x', 5000) as value", topic=topic)
    assert records(broker, topic) == []


def test_stream_is_copied_and_group_offsets_are_committed(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    """From one topic to another; the offsets are committed after each micro-batch, the last
    included.
    """
    register(spark)
    register(spark)
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in range(30):
            producer.send(topic, b"%d" % n, partition=n % 3)
    reader = spark.readStream.format("ottla").option("subscribe", topic)
    frame = (
        reader.option("kafka.bootstrap.servers", broker.bootstrap)
        .option("startingOffsets", "earliest")
        .load()
    )
    name = topic.replace("-", "_")
    query = (
        frame.select("key", "value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", f"{topic}-copy")
        .option("checkpointLocation", str(tmp_path))
        .queryName(name)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert sorted(int(one.value) for one in records(broker, f"{topic}-copy")) == [*range(30)]
    [progress] = [one for one in query.recentProgress if one.numInputRows]
    assert progress.sources[0].endOffset == progress.sources[0].latestOffset
    group = f"ottla-pipeline.{name}"
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        until_s = time.monotonic() + 60
        told: dict[Any, Any] = {}
        while not told and time.monotonic() < until_s:  # the listener is called shortly after
            told = {**admin.list_group_offsets(group)[group]}
            time.sleep(0.1)
        assert {one[1]: kept.offset for one, kept in told.items()} == {0: 10, 1: 10, 2: 10}
