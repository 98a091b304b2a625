"""The source in a real Spark: batches and streams of a topic."""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline import register
from ottla.pipeline.fork_server import shared_server_executable
from ottla.sync import Admin, Producer
from pipeline.queries import source

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
THE_TIME_MS = 1_700_000_000_000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

Reading = Callable[..., Any]


needs_fork_server = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")


@pytest.fixture
def reading(spark: Any, broker: OttlaBroker, topic: str) -> Reading:
    """A function that reads the topic of the test with options; `stream=True` for a stream."""

    def begun(*, stream: bool = False, **options: object) -> Any:
        reader = (spark.readStream if stream else spark.read).format("ottla")
        if not {"subscribe", "subscribePattern", "assign"} & options.keys():
            options["subscribe"] = topic
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    return begun


def write(broker: OttlaBroker, topic: str, values: range, **settings: object) -> None:
    """Write numbers to the partitions in turn, each with a timestamp a second later."""
    with Producer({"bootstrap.servers": broker.bootstrap, **settings}) as producer:
        for n in values:
            producer.send(
                topic,
                b"%d" % n,
                key=None if n % 5 == 4 else b"k%d" % n,
                partition=n % 3,
                headers=[("n", b"%d" % n), ("none", None)] if n % 2 else [],
                timestamp_ms=THE_TIME_MS + 1000 * n,
            )


def numbers(frame: Any) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_workers_import_installed_packages(spark: Any) -> None:
    """They are not imported from an archive, in which nothing is compiled."""

    def place(_: object) -> str:
        return str(__import__("pyspark").__file__)

    [file] = spark.sparkContext.parallelize([0], 1).map(place).collect()
    assert Path(file).is_file()


@needs_fork_server
def test_processes_of_a_registered_session_are_forked(
    spark: Any, broker: OttlaBroker, topic: str
) -> None:
    write(broker, topic, range(3))
    session = spark.newSession()
    before = session.sparkContext.pythonExec
    register(session)
    assert session.sparkContext.pythonExec == before  # only the data source has another
    frame = session.read.format("ottla").option("subscribe", topic)
    assert frame.option("kafka.bootstrap.servers", broker.bootstrap).load().count() == 3
    python = shared_server_executable(sys.executable)
    assert python is not None
    launchers = [
        one.parent.name
        for one in Path("/proc").glob("[0-9]*/cmdline")
        if str(Path(python).parent).encode() in _content(one)
    ]
    assert launchers


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # the process has ended
        return b""


def test_batch_has_the_columns_of_the_connector(
    reading: Reading, broker: OttlaBroker, topic: str
) -> None:
    write(broker, topic, range(30))
    frame = reading(includeHeaders="true")
    assert frame.columns == [*COLUMNS, "headers"]
    assert reading().columns == COLUMNS
    rows = sorted(frame.collect(), key=lambda row: int(row.value))
    assert len(rows) == 30
    for n, row in enumerate(rows):
        assert row.key == (None if n % 5 == 4 else b"k%d" % n)
        assert (row.topic, row.partition, row.offset, row.timestampType) == (
            topic,
            n % 3,
            n // 3,
            0,
        )
        assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp(
            THE_TIME_MS / 1000 + n, tz=UTC
        )
        headers: list[Any] = row.headers or []
        assert [(one.key, one.value) for one in headers] == (
            [("n", b"%d" % n), ("none", None)] if n % 2 else []
        )


def test_only_chosen_columns_are_read(reading: Reading, broker: OttlaBroker, topic: str) -> None:
    write(broker, topic, range(6))
    frame = reading(columns="offset, VALUE")
    assert frame.columns == ["value", "offset"]
    rows = sorted((int(row.value), row.offset) for row in frame.collect())
    assert rows == [(n, n // 3) for n in range(6)]
    with_headers = reading(columns="topic,timestampType", includeHeaders="true")
    assert with_headers.columns == ["topic", "timestampType", "headers"]
    assert {(row.topic, row.timestampType) for row in with_headers.collect()} == {(topic, 0)}
    assert reading(columns="headers").where("headers IS NOT NULL").count() == 3


def test_json_is_parsed_in_the_tasks(reading: Reading, broker: OttlaBroker, topic: str) -> None:
    values = (b'{"a":1,"b":"x"}', b"no", None, b'{"a":2}', b'{"a":3,"c":4}', b'{"a":[5]}')
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for value in values:
            producer.send(topic, value, partition=0)
    schema = "a INT, b STRING"
    frame = reading(jsonColumns=schema)
    assert frame.columns == [*COLUMNS, "parsed", "unparsed"]
    rows = frame.select("value", "parsed.a", "parsed.b", "unparsed").orderBy("offset").collect()
    parsed = [(1, "x"), (None, None), (None, None), (2, None), (3, None), (None, None)]
    assert [(row.a, row.b) for row in rows] == parsed
    assert [row.value for row in rows] == [*values]
    left = [None, b"no", None, None, None, b'{"a":[5]}']
    assert [row.unparsed for row in rows] == left
    frame = reading(jsonColumns=schema, jsonUnknownFields="unparsed", columns="OFFSET,Parsed")
    assert frame.columns == ["offset", "parsed"]
    assert [row.offset for row in frame.where("parsed.a > 0").collect()] == [0, 3]
    frame = reading(jsonColumns=schema, skipParsed="true", columns="value,offset")
    rows = frame.orderBy("offset").collect()
    assert [(row.offset, row.value) for row in rows] == [(n, values[n]) for n in (1, 2, 5)]
    assert reading(jsonColumns="x INT NOT NULL", skipParsed="true").count() == len(values)


def test_timestamp_type_is_log_append_time(
    reading: Reading, broker: OttlaBroker, topic: str
) -> None:
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 3, config={"message.timestamp.type": "LogAppendTime"})
    write(broker, topic, range(6))
    assert {row.timestampType for row in reading().collect()} == {1}


def test_every_codec_is_read(reading: Reading, broker: OttlaBroker, topic: str) -> None:
    for number, compression in enumerate(COMPRESSIONS):
        values = range(60 * number, 60 * number + 60)
        write(broker, topic, values, **{"compression.type": compression})
    assert numbers(reading()) == [*range(60 * len(COMPRESSIONS))]


def test_batch_starts_and_ends_at_the_given_offsets(
    reading: Reading, broker: OttlaBroker, topic: str
) -> None:
    write(broker, topic, range(30))
    start = f'{{"{topic}": {{"0": 5, "1": -2, "2": 9}}}}'
    end = f'{{"{topic}": {{"0": 7, "1": 1, "2": -1}}}}'
    assert numbers(reading(startingOffsets=start, endingOffsets=end)) == [1, 15, 18, 29]
    since = THE_TIME_MS + 20_000
    assert numbers(reading(startingTimestamp=since)) == [*range(20, 30)]
    assert numbers(reading(endingTimestamp=since)) == [*range(20)]
    times = f'{{"{topic}": {{"0": {since}, "1": 0, "2": {since}}}}}'
    expected = [n for n in range(30) if n % 3 == 1 or n >= 20]
    assert numbers(reading(startingOffsetsByTimestamp=times)) == expected


def test_partitions_are_selected_by_topic_pattern_or_index(
    reading: Reading, broker: OttlaBroker, topic: str
) -> None:
    write(broker, topic, range(9))
    write(broker, f"{topic}-b", range(9, 18))
    assert numbers(reading(subscribe=f"{topic}, {topic}-b")) == [*range(18)]
    assert numbers(reading(subscribePattern=f"{topic}-[a-c]$")) == [*range(9, 18)]
    assert numbers(reading(assign=f'{{"{topic}": [0, 2]}}')) == [0, 2, 3, 5, 6, 8]


def test_batch_is_divided_into_tasks(reading: Reading, broker: OttlaBroker, topic: str) -> None:
    write(broker, topic, range(90))
    assert reading().rdd.getNumPartitions() == 3
    frame = reading(minPartitions=9)
    assert frame.rdd.getNumPartitions() == 9
    assert numbers(frame) == [*range(90)]
    frame = reading(maxRecordsPerPartition=7)
    assert frame.rdd.getNumPartitions() == 15
    assert numbers(frame) == [*range(90)]


def test_user_schema_is_rejected(spark: Any, broker: OttlaBroker) -> None:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.option("subscribe", "t").schema("key string, value string").load()
    with pytest.raises(Exception, match=r"the schema of a topic is fixed.*: it is key binary"):
        frame.collect()


def test_empty_topic_is_an_empty_batch(reading: Reading, broker: OttlaBroker, topic: str) -> None:
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 3)
    assert numbers(reading()) == []


def test_deleted_records_are_skipped_or_an_error(
    reading: Reading, broker: OttlaBroker, topic: str
) -> None:
    write(broker, topic, range(30))
    first = TopicPartition(topic, PartitionIndex(0))
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.delete_records({first: 5}).or_raise()
    left = [n for n in range(30) if n % 3 or n >= 15]
    assert numbers(reading()) == left
    start = f'{{"{topic}": {{"0": 2, "1": 0, "2": 0}}}}'
    with pytest.raises(Exception, match=r"records from offset 2 are missing.*starts at 5"):
        numbers(reading(startingOffsets=start))
    assert numbers(reading(startingOffsets=start, failOnDataLoss="false")) == left


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "must list every partition"),
        ({"subscribe": "no-such-topic"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"kafka.fetch.max.byte": "1"}, "fetch.max.bytes"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_invalid_option_is_reported(
    reading: Reading, broker: OttlaBroker, topic: str, options: dict[str, str], why: str
) -> None:
    write(broker, topic, range(3))
    with pytest.raises(Exception, match=why):
        reading(**options).collect()


# Streams.


def taken(frame: Any, folder: Path) -> list[Any]:
    """Let a query write what is available now to files; its progress."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}/place")
    query = writer.trigger(availableNow=True).start(f"{folder}/rows")
    assert query.awaitTermination(300)
    return [one for one in query.recentProgress if one.numInputRows]


def test_stream_reads_small_batches_and_resumes(
    spark: Any, reading: Reading, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    write(broker, topic, range(60))

    def frame() -> Any:
        return reading(stream=True, startingOffsets="earliest", maxOffsetsPerTrigger=25)

    sizes = [one.numInputRows for one in taken(frame(), tmp_path)]
    assert numbers(spark.read.parquet(f"{tmp_path}/rows")) == [*range(60)]
    assert len(sizes) == 3
    assert max(sizes) <= 25
    write(broker, topic, range(60, 75))
    assert sum(one.numInputRows for one in taken(frame(), tmp_path)) == 15
    assert numbers(spark.read.parquet(f"{tmp_path}/rows")) == [*range(75)]
    assert taken(frame(), tmp_path) == []


def test_new_partitions_and_topics_are_discovered(
    spark: Any, reading: Reading, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    write(broker, topic, range(6))

    def frame() -> Any:
        return reading(stream=True, subscribePattern=f"{topic}.*", startingOffsets="earliest")

    taken(frame(), tmp_path)
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_partitions({topic: 4}).or_raise()
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send(topic, b"6", partition=3)
    write(broker, f"{topic}-more", range(7, 10))
    taken(frame(), tmp_path)
    assert numbers(spark.read.parquet(f"{tmp_path}/rows")) == [*range(10)]


def test_group_offsets_are_committed_by_the_next_batch(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    """The session is not registered, so the last micro-batch is not committed.

    It is a session of its own, because other tests register the shared one.
    """
    write(broker, topic, range(60))
    options: dict[str, Any] = {"subscribe": topic, "kafka.group.id": topic}
    frame = source(spark.newSession(), broker.bootstrap, maxOffsetsPerTrigger=30, **options)
    assert len(taken(frame, tmp_path)) == 2
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        told = admin.list_group_offsets(topic)[topic]
    assert {one[1]: kept.offset for one, kept in told.items() if kept} == {0: 10, 1: 10, 2: 10}


def test_filters_are_pushed_down_on_request(
    spark: Any, reading: Reading, broker: OttlaBroker, topic: str
) -> None:
    write(broker, topic, range(30))
    register(spark, push_filters=True)
    try:
        frame = reading().where("partition = 1 and offset >= 4 and offset < 8")
        assert frame.rdd.getNumPartitions() == 1
        assert numbers(frame) == [13, 16, 19, 22]
        since = datetime.fromtimestamp(THE_TIME_MS / 1000 + 20, tz=UTC)
        assert numbers(reading().where(f"timestamp >= '{since.isoformat()}'")) == [*range(20, 30)]
        assert numbers(reading().where("offset > 100")) == []
    finally:
        register(spark)
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_registered_session_reads_correctly_with_filters(
    spark: Any, reading: Reading, broker: OttlaBroker, topic: str
) -> None:
    """Pushed filters would break this, so a registered session does not push them."""
    write(broker, topic, range(30))
    register(spark)
    frame = reading()
    assert numbers(frame.where("partition = 1")) == [*range(1, 30, 3)]
    halves = frame.where("partition = 0").union(frame.where("partition = 2"))
    assert numbers(halves) == [n for n in range(30) if n % 3 != 1]
    assert numbers(frame) == [*range(30)]


def test_isolation_level_is_passed_on(reading: Reading, broker: OttlaBroker, topic: str) -> None:
    """Our broker rejects transactions, so this shows only that the setting is passed on."""
    write(broker, topic, range(6))
    assert numbers(reading(**{"kafka.isolation.level": "read_committed"})) == [*range(6)]
