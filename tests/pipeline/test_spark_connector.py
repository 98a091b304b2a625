"""Spark's own Kafka connector beside ours, on the same topics of our broker.

It judges twice: ours gives what it gives, and our broker serves Spark's own client.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.sync import Admin, Producer

RECORDS = 200
THE_TIME_MS = 1_700_000_000_000
SINCE_MS = THE_TIME_MS + 100_000
TOPIC = "compared"
OTHER = "compared-too"
TRIMMED = "compared-trimmed"
TRIMMED_AT = 7
EMPTY = "compared-empty"


@pytest.fixture(scope="module", autouse=True)
def topics(broker: OttlaBroker) -> None:
    """Topics of three partitions, of which one has much more than the others."""
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for topic in (TOPIC, OTHER, TRIMMED):
            for n in range(RECORDS):
                producer.send(
                    topic,
                    None if n % 11 == 0 else b"%d" % n,
                    key=None if n % 5 == 4 else b"k%d" % n,
                    partition=0 if n % 10 else n // 10 % 3,
                    headers=[("n", b"%d" % n), ("none", None)] if n % 2 else [],
                    timestamp_ms=THE_TIME_MS + 1000 * n,
                )
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(EMPTY, 2)
        trimmed = TopicPartition(TRIMMED, PartitionIndex(0))
        admin.delete_records({trimmed: TRIMMED_AT}).or_raise()


def frame(spark: Any, broker: OttlaBroker, name: str, options: Mapping[str, object]) -> Any:
    reader = spark.read.format(name).option("kafka.bootstrap.servers", broker.bootstrap)
    for option, value in options.items():
        reader = reader.option(option, value if isinstance(value, str) else json.dumps(value))
    return reader.load()


def rows(found: Any) -> list[Any]:
    return sorted(found.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def of(topic: str, *numbers: int) -> dict[str, dict[str, int]]:
    return {topic: {str(index): number for index, number in enumerate(numbers)}}


BATCHES: Mapping[str, Mapping[str, object]] = {
    "all": {"subscribe": TOPIC},
    "headers": {"subscribe": TOPIC, "includeHeaders": "true"},
    "options of other uses": {"subscribe": TOPIC, "maxOffsetsPerTrigger": "5", "topic": OTHER},
    "two topics": {"subscribe": f"{TOPIC},{OTHER}"},
    "a pattern": {"subscribePattern": f"^{TOPIC}(-too)?$"},
    "a pattern of a part": {"subscribePattern": "red-t"},
    "a pattern of nothing": {"subscribePattern": "nothing.*"},
    "partitions": {"assign": {TOPIC: [0, 2], OTHER: [1]}},
    "earliest": {"subscribe": TOPIC, "startingOffsets": "earliest", "endingOffsets": "latest"},
    "offsets": {
        "subscribe": TOPIC,
        "startingOffsets": of(TOPIC, 3, -2, 1),
        "endingOffsets": of(TOPIC, 90, 4, -1),
    },
    "nothing between": {
        "subscribe": TOPIC,
        "startingOffsets": of(TOPIC, 5, 2, 1),
        "endingOffsets": of(TOPIC, 5, 2, 1),
    },
    "a time": {"subscribe": TOPIC, "startingTimestamp": str(SINCE_MS)},
    "until a time": {"subscribe": TOPIC, "endingTimestamp": str(SINCE_MS)},
    "times": {
        "subscribe": TOPIC,
        "startingOffsetsByTimestamp": of(TOPIC, SINCE_MS, 0, SINCE_MS),
        "endingOffsetsByTimestamp": of(TOPIC, SINCE_MS + 50_000, SINCE_MS, SINCE_MS + 1),
    },
    "too late a time": {
        "subscribe": TOPIC,
        "startingTimestamp": str(THE_TIME_MS * 2),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a time before offsets": {
        "subscribe": TOPIC,
        "startingTimestamp": str(SINCE_MS),
        "startingOffsetsByTimestamp": of(TOPIC, 0, 0, 0),
        "startingOffsets": "earliest",
    },
    "more tasks": {"subscribe": TOPIC, "minPartitions": "10"},
    "fewer tasks": {"subscribe": TOPIC, "minPartitions": "2"},
    "small tasks": {"subscribe": TOPIC, "maxRecordsPerPartition": "17"},
    "small and more tasks": {
        "subscribe": TOPIC, "maxRecordsPerPartition": "40", "minPartitions": "12",
    },
    "an empty topic": {"subscribe": EMPTY},
    "a trimmed topic": {"subscribe": TRIMMED},
    "gone and put up with": {
        "subscribe": TRIMMED,
        "startingOffsets": of(TRIMMED, 2, 0, 0),
        "failOnDataLoss": "false",
    },
    "committed": {"subscribe": TOPIC, "kafka.isolation.level": "read_committed"},
}  # fmt: skip


@pytest.mark.parametrize("case", BATCHES)
def test_a_batch_is_what_the_connector_gives(spark: Any, broker: OttlaBroker, case: str) -> None:
    theirs = frame(spark, broker, "kafka", BATCHES[case])
    ours = frame(spark, broker, "ottla", BATCHES[case])
    assert ours.schema == theirs.schema
    expected = rows(theirs)
    assert rows(ours) == expected
    if "minPartitions" in BATCHES[case] or case == "all":
        assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()


REFUSED: Mapping[str, Mapping[str, object]] = {
    "no topics": {},
    "two ways": {"subscribe": TOPIC, "subscribePattern": "a.*"},
    "no topic by that name": {"subscribe": "not-there"},
    "latest as a start": {"subscribe": TOPIC, "startingOffsets": "latest"},
    "-1 as a start": {"subscribe": TOPIC, "startingOffsets": of(TOPIC, -1, 0, 0)},
    "earliest as an end": {"subscribe": TOPIC, "endingOffsets": "earliest"},
    "-2 as an end": {"subscribe": TOPIC, "endingOffsets": of(TOPIC, -2, 1, 1)},
    "a partition that is missing": {"subscribe": TOPIC, "startingOffsets": of(TOPIC, 0, 0)},
    "offsets that are none": {"subscribe": TOPIC, "startingOffsets": "soon"},
    "too late a time": {"subscribe": TOPIC, "startingTimestamp": str(THE_TIME_MS * 2)},
    "no task": {"subscribe": TOPIC, "minPartitions": "0"},
    "another reset": {"subscribe": TOPIC, "kafka.auto.offset.reset": "latest"},
    "another deserializer": {"subscribe": TOPIC, "kafka.value.deserializer": "x"},
    "commits": {"subscribe": TOPIC, "kafka.enable.auto.commit": "true"},
    "a start behind the end": {"subscribe": TOPIC, "startingOffsets": of(TOPIC, 5000, 0, 0)},
    "gone": {"subscribe": TRIMMED, "startingOffsets": of(TRIMMED, 2, 0, 0)},
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_connector_refuses_is_refused(spark: Any, broker: OttlaBroker, case: str) -> None:
    for name in ("kafka", "ottla"):
        with pytest.raises(Exception):  # noqa: B017, PT011 - both have their own words
            frame(spark, broker, name, REFUSED[case]).collect()


STREAMS: Mapping[str, Mapping[str, object]] = {
    "all at once": {"subscribe": TOPIC, "startingOffsets": "earliest"},
    "limited": {"subscribe": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"},
    "one by one": {
        "subscribe": TOPIC,
        "startingOffsets": of(TOPIC, 175, 4, -1),
        "maxOffsetsPerTrigger": "1",
    },
    "from a time": {"subscribePattern": f"{TOPIC}(-too)?$", "startingTimestamp": str(SINCE_MS)},
    "latest": {"subscribe": TOPIC},
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_has_the_batches_of_the_connector(
    spark: Any, broker: OttlaBroker, tmp_path: Path, case: str
) -> None:
    """The same offsets end the same micro-batches, and the same rows come."""
    told: dict[str, list[Any]] = {}
    read: dict[str, list[Any]] = {}
    for name in ("kafka", "ottla"):
        reader = spark.readStream.format(name)
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
        for option, value in STREAMS[case].items():
            reader = reader.option(option, value if isinstance(value, str) else json.dumps(value))
        stream = reader.load()
        writer = stream.writeStream.option("checkpointLocation", f"{tmp_path}/{name}-place")
        query = writer.trigger(availableNow=True).start(f"{tmp_path}/{name}")
        assert query.awaitTermination(300)
        batches = [one for one in query.recentProgress if one.numInputRows]
        told[name] = [(one.numInputRows, _offsets(one.sources[0].endOffset)) for one in batches]
        read[name] = rows(spark.read.schema(stream.schema).parquet(f"{tmp_path}/{name}"))
    assert told["ottla"] == told["kafka"]
    assert read["ottla"] == read["kafka"]


def _offsets(told: Any) -> Any:
    return json.loads(told) if isinstance(told, str) else told


def test_what_ours_writes_the_connector_reads_and_the_reverse(
    spark: Any, broker: OttlaBroker, topic: str
) -> None:
    query = (
        "select cast(id as string) as key, cast(concat('v', id) as binary) as value, "
        "array(struct('h' as key, cast(cast(id as string) as binary) as value)) as headers "
        "from range(50)"
    )
    for name in ("kafka", "ottla"):
        writer = spark.sql(query).write.format(name).mode("append")
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
        writer.option("topic", f"{topic}-{name}").save()
    found = {
        (reader, written): {
            (row.key, row.partition, row.value, row.headers[0].value)
            for row in frame(
                spark, broker, reader, {"subscribe": f"{topic}-{written}", "includeHeaders": "true"}
            ).collect()
        }
        for reader in ("kafka", "ottla")
        for written in ("kafka", "ottla")
    }
    first, *others = found.values()
    assert len(first) == 50
    assert all(one == first for one in others)


def test_a_checkpoint_of_the_connector_is_one_of_ours_and_the_reverse(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    """A job that moves goes on where it was, and may move back."""
    found = str(tmp_path / "found")
    for turn, name in enumerate(["kafka", "ottla", "kafka", "ottla"]):
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            for n in range(10):
                producer.send(topic, b"%d" % (10 * turn + n), partition=n % 3)
        (
            spark.readStream.format(name)
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("CAST(value AS STRING) AS value")
            .writeStream.format("json")
            .option("path", found)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
        values = sorted(int(row.value) for row in spark.read.json(found).collect())
        assert values == list(range(10 * turn + 10)), name
