"""Many partitions, large records, and micro-batches that wait or are limited, in a real Spark."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.sync import Admin, Producer
from pipeline.queries import done, numbers, running, source, taken

MANY = 1000
FILLED = range(0, MANY, 100)  # the partitions with records
FILLED_LATER = range(0, MANY, 250)
LARGE = 900 * 1024


def test_batch_and_stream_read_1000_partitions(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    servers = {"bootstrap.servers": broker.bootstrap}
    with Admin(servers) as admin:
        admin.create_topic(topic, MANY)
    with Producer(servers) as producer:
        for n in FILLED:
            producer.send(topic, b"%d" % n, partition=n)
    batch = source(spark, broker.bootstrap, stream=False, subscribe=topic).select("value")
    assert batch.rdd.getNumPartitions() == len(FILLED)  # empty partitions have no task
    assert sorted(int(row.value) for row in batch.collect()) == [*FILLED]
    # A stream from the end: it has an offset for each partition, and reads new records of some.
    stream = source(spark, broker.bootstrap, subscribe=topic, startingOffsets="latest")
    stream = stream.select("value")
    assert taken(stream, tmp_path) == []
    with Producer(servers) as producer:
        for n in FILLED_LATER:
            producer.send(topic, b"%d" % n, partition=n)
    [progress] = taken(stream, tmp_path)
    assert progress.numInputRows == len(FILLED_LATER)
    assert numbers(spark, tmp_path) == [*FILLED_LATER]


def test_large_records_are_written_and_read(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    query = f"select repeat(cast(id as string), {LARGE}) as value from range(10)"
    writer = spark.sql(query).write.format("ottla").mode("append")
    writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic).save()
    frame = source(spark, broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=4)
    taken(frame.selectExpr("value", "length(value) as size"), tmp_path)
    found = spark.read.parquet(f"{tmp_path}/rows").selectExpr(
        "cast(substring(value, 1, 1) as string) as first", "size"
    )
    assert sorted((row["first"], row["size"]) for row in found.collect()) == [
        (str(n), LARGE) for n in range(10)
    ]


@pytest.fixture
def telling(spark: Any) -> Generator[None]:
    """Queries report their progress also when they found nothing to do."""
    setting = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(setting, "100")
    yield
    spark.conf.unset(setting)


def seen(query: Any) -> int:
    """The sum of the end offsets that a query saw in its topics at its last progress report."""
    progress = query.lastProgress
    if not progress or progress.sources[0].latestOffset in (None, "null"):
        return 0
    return sum(sum(one.values()) for one in json.loads(progress.sources[0].latestOffset).values())


@pytest.mark.usefixtures("telling")
def test_micro_batches_wait_for_min_offsets_up_to_the_delay(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    """The first micro-batch does not wait. A second query waits for at most one second."""

    def write(values: range) -> None:
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            for n in values:
                producer.send(topic, b"%d" % n, partition=n % 3)

    def frame(delay: str) -> Any:
        return source(
            spark,
            broker.bootstrap,
            subscribe=topic,
            minOffsetsPerTrigger=30,
            maxTriggerDelay=delay,
        ).select("value")

    write(range(3))
    with running(frame("1h"), tmp_path) as query:
        query.until(lambda: done(tmp_path) == 3)
        write(range(3, 30))
        query.until(lambda: seen(query.query) == 30)
        assert done(tmp_path) == 3
        write(range(30, 40))
        # It starts as soon as there are enough; a record that comes later is for the next one.
        query.until(lambda: done(tmp_path) >= 3 + 30)

        def sizes() -> list[int]:
            return [one.numInputRows for one in query.query.recentProgress if one.numInputRows]

        query.until(lambda: len(sizes()) > 1)  # Spark reports a micro-batch after its commit
        assert sizes()[0] == 3
        assert sizes()[1] >= 30
    write(range(40, 43))
    with running(frame("1s"), tmp_path) as query:
        query.until(lambda: done(tmp_path) == 43)
        write(range(43, 46))
        query.until(lambda: done(tmp_path) == 46)
    assert numbers(spark, tmp_path) == [*range(46)]
