"""Our data source beside Spark's official Kafka connector, on the same topics of our broker.

The connector's answers to all cases are recorded: the rows that it reads, the tasks, the ends of
its micro-batches, and what it refuses. Our source is compared with them without Spark; `make judge`
asks the connector again. A few cases run in Spark with both, and `make judge` runs all of them so.
"""

import json
import pickle
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cases import Cases
from judges.ottla_broker import OttlaBroker
from judges.recording import Json, Recording
from ottla.errors import RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.loss import DataLost
from ottla.pipeline.options import SERVERS, BadOption, Use
from ottla.pipeline.source import OttlaSource, OttlaStreamReader
from ottla.pipeline.source_options import source_options
from ottla.sync import Admin, Producer
from pipeline.micro_batches import MicroBatches
from recorded import recording

__all__ = ["recording"]  # a fixture

Options: TypeAlias = Mapping[str, Json]

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


def text(options: Options) -> dict[str, str]:
    """Options as Spark passes them."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in options.items()
    }


def frame(spark: Any, broker: OttlaBroker, name: str, options: Options) -> Any:
    reader = spark.read.format(name).option(SERVERS, broker.bootstrap)
    return reader.options(**text(options)).load()


def rows(found: Any) -> list[Any]:
    return sorted(found.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def of(topic: str, *numbers: int) -> Json:
    return {topic: {str(index): number for index, number in enumerate(numbers)}}


BATCHES: Mapping[str, Options] = {
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


def live(cases: Iterable[str], *chosen: str) -> list[Any]:
    """The cases as parameters: the chosen ones run in `make test`, the others in `make judge`."""
    assert {*chosen} <= {*cases}
    marks = {True: (), False: (pytest.mark.judge,)}
    return [pytest.param(one, marks=marks[one in chosen]) for one in cases]


@pytest.mark.parametrize("case", live(BATCHES, "headers", "times"))
def test_batch_equals_the_connector(spark: Any, broker: OttlaBroker, case: str) -> None:
    theirs = frame(spark, broker, "kafka", BATCHES[case])
    ours = frame(spark, broker, "ottla", BATCHES[case])
    assert ours.schema == theirs.schema
    expected = rows(theirs)
    assert rows(ours) == expected
    if "minPartitions" in BATCHES[case] or case == "all":
        assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()


REFUSED: Mapping[str, Options] = {
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


@pytest.mark.parametrize("case", live(REFUSED, "gone"))
def test_connector_and_source_reject_the_same_options(
    spark: Any, broker: OttlaBroker, case: str
) -> None:
    for name in ("kafka", "ottla"):
        with pytest.raises(Exception):  # noqa: B017, PT011 - both have their own words
            frame(spark, broker, name, REFUSED[case]).collect()


STREAMS: Mapping[str, Options] = {
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


@pytest.mark.parametrize("case", live(STREAMS, "limited"))
def test_stream_has_the_micro_batches_of_the_connector(
    spark: Any, broker: OttlaBroker, tmp_path: Path, case: str
) -> None:
    """The same offsets end the same micro-batches, and the same rows come."""
    ends: dict[str, list[Any]] = {}
    read: dict[str, list[Any]] = {}
    for name in ("kafka", "ottla"):
        found = stream(spark, broker, name, STREAMS[case], tmp_path)
        ends[name], read[name] = found.ends, found.rows
    assert ends["ottla"] == ends["kafka"]
    assert read["ottla"] == read["kafka"]


class StreamResult:
    """What a stream has read: rows, and the count and the end offsets of each micro-batch."""

    def __init__(self, ends: list[Any], rows: list[Any]) -> None:
        self.ends = ends
        self.rows = rows


def stream(
    spark: Any, broker: OttlaBroker, name: str, options: Options, folder: Path
) -> StreamResult:
    """Let Spark read what is available now, through one of the two sources."""
    reader = spark.readStream.format(name).option(SERVERS, broker.bootstrap)
    found = reader.options(**text(options)).load()
    writer = found.writeStream.option("checkpointLocation", f"{folder}/{name}-place")
    query = writer.trigger(availableNow=True).start(f"{folder}/{name}")
    assert query.awaitTermination(300)
    batches = [one for one in query.recentProgress if one.numInputRows]
    return StreamResult(
        [[one.numInputRows, _offsets(one.sources[0].endOffset)] for one in batches],
        rows(spark.read.schema(found.schema).parquet(f"{folder}/{name}")),
    )


def _offsets(progress: Any) -> Any:
    return json.loads(progress) if isinstance(progress, str) else progress


def test_source_and_connector_read_each_others_records(
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


def test_checkpoints_can_be_used_by_both_sources(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    """A job can move from one source to the other and back."""
    found = str(tmp_path / "found")
    for turn, name in enumerate(["kafka", "ottla", "kafka"]):
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


# Our source without Spark, compared with what is recorded of the connector.

COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


def spark_schema(options: Options) -> StructType:
    """The schema that Spark makes of what the source declares."""
    has_headers = options.get("includeHeaders") == "true"
    return StructType([*COLUMNS.fields, *([HEADERS] if has_headers else [])])


def shown(schema: StructType) -> str:
    return ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in schema.fields)


def facts(row: Mapping[str, Any]) -> list[Json]:
    """A row as JSON, from Spark or from Arrow."""
    when: datetime = row["timestamp"]
    headers: list[Any] | None = row.get("headers")
    return [
        row["topic"],
        row["partition"],
        row["offset"],
        _decoded(row["key"]),
        _decoded(row["value"]),
        round(when.timestamp() * 1000),
        row["timestampType"],
        headers and [[one["key"], _decoded(one["value"])] for one in headers],
    ]


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()


def in_order(found: Iterable[Mapping[str, Any]]) -> list[list[Json]]:
    return sorted(map(facts, found), key=lambda row: row[:3])


def offsets_of(found: list[list[Json]]) -> dict[str, Json]:
    """The offsets of rows by partition, as pairs of a first offset and the one after the last."""
    told: dict[str, Json] = {}
    for (topic, partition), part in groupby(found, key=lambda row: (row[0], row[1])):
        runs: list[Json] = []
        for _, run in groupby(enumerate(part), key=lambda one: int(str(one[1][2])) - one[0]):
            offsets = [int(str(row[2])) for _, row in run]
            runs.append([offsets[0], offsets[-1] + 1])
        told[f"{topic}-{partition}"] = runs
    return told


class OurBatch:
    """A batch that our source reads, as Spark would have it read."""

    def __init__(self, broker: OttlaBroker, options: Options) -> None:
        source = OttlaSource({SERVERS: broker.bootstrap, **text(options)})
        schema = spark_schema(options)
        assert source.schema() == shown(schema)
        reader = source.reader(schema)
        tasks = reader.partitions()
        worker: Any = pickle.loads(pickle.dumps(reader))  # as Spark sends it to a task
        self.tasks = len(tasks)
        self.schema = shown(schema)
        self.rows = in_order(
            row for task in tasks for batch in worker.read(task) for row in batch.to_pylist()
        )


@pytest.mark.recorded
def test_batches_equal_the_recorded_connector(
    request: pytest.FixtureRequest, broker: OttlaBroker, recording: Recording
) -> None:
    cases = Cases()
    known: dict[tuple[Json, ...], list[Json]] = {}

    def asked(options: Options, *, whole: bool) -> Json:
        found = frame(request.getfixturevalue("spark"), broker, "kafka", options)
        rows = in_order(row.asDict() for row in found.collect())
        answer: dict[str, Json] = {
            "schema": shown(found.schema),
            "tasks": found.rdd.getNumPartitions(),
            "offsets": offsets_of(rows),
        }
        return {**answer, "rows": [*rows]} if whole else answer

    for name in ("headers", *(one for one in BATCHES if one != "headers")):
        options, whole = BATCHES[name], name == "headers"
        with cases.case(name), recording.scenario(f"batch: {name}") as scenario:
            answer: Any = scenario.answer(
                {**options}, lambda options=options, whole=whole: asked(options, whole=whole)
            )
            ours = OurBatch(broker, options)
            assert ours.schema == answer["schema"]
            assert offsets_of(ours.rows) == answer["offsets"]
            if "minPartitions" in options or name == "all":
                assert ours.tasks == answer["tasks"]
            if whole:
                assert ours.rows == answer["rows"]
                known = {tuple(row[1:3]): row[3:] for row in answer["rows"]}
            else:  # every topic has the same records
                assert [row[3:7] for row in ours.rows] == [
                    known[tuple(row[1:3])][:4] for row in ours.rows
                ]
    cases.check()


@pytest.mark.recorded
def test_rejected_options_equal_the_recorded_connector(
    request: pytest.FixtureRequest, broker: OttlaBroker, recording: Recording
) -> None:
    cases = Cases()

    def asked(options: Options) -> Json:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - several, of Spark and of Kafka
            frame(request.getfixturevalue("spark"), broker, "kafka", options).collect()
        return type(raised.value).__name__

    for name, options in REFUSED.items():
        with cases.case(name), recording.scenario(f"refused: {name}") as scenario:
            assert scenario.answer({**options}, lambda options=options: asked(options))
            with pytest.raises((BadOption, RequestError, DataLost)):
                OurBatch(broker, options)
    cases.check()


class OurStream(MicroBatches):
    """A stream that our source reads, with all columns; offsets stand for rows."""

    def __init__(self, broker: OttlaBroker, options: Options) -> None:
        super().__init__(**{SERVERS: broker.bootstrap}, **text(options))
        self.ends: list[Any] = []
        self.step_taken = self._note

    def number(self, row: dict[str, Any]) -> int:
        return row["offset"]

    def reader(self, **options: str) -> OttlaStreamReader:
        return OttlaStreamReader(source_options({**self._options, **options}, Use.STREAM), COLUMNS)

    def _note(self, step: str) -> None:
        if step == "done" and self.batches[-1]:
            self.ends.append([len(self.batches[-1]), json.loads(self.place or "")])


@pytest.mark.recorded
def test_micro_batches_equal_the_recorded_connector(
    request: pytest.FixtureRequest, broker: OttlaBroker, recording: Recording, tmp_path: Path
) -> None:
    cases = Cases()

    def asked(name: str) -> Json:
        spark = request.getfixturevalue("spark")
        folder = tmp_path / name.replace(" ", "-")
        found = stream(spark, broker, "kafka", STREAMS[name], folder)
        read = in_order(row.asDict() for row in found.rows)
        return {"ends": found.ends, "offsets": offsets_of(read)}

    for name, options in STREAMS.items():
        with cases.case(name), recording.scenario(f"stream: {name}") as scenario:
            answer: Any = scenario.answer({**options}, lambda name=name: asked(name))
            ours = OurStream(broker, options)
            ours.run()
            assert ours.ends == answer["ends"]
            assert offsets_of(in_order(ours.rows)) == answer["offsets"]
    cases.check()
