"""Spark's official connector in real-time mode on our broker; Kafka's tool on a query's group."""

import time
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from kafka_java import run_java
from ottla.pipeline import register
from ottla.sync import Admin, Consumer, Producer
from pipeline.queries import PATIENCE_S, Running, source, taken

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def write(broker: OttlaBroker, topic: str, values: range, *, partitions: int) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in values:
            producer.send(topic, b"%d" % n, key=b"k", partition=n % partitions)


@pytest.mark.parametrize("lives", [1, pytest.param(2, marks=pytest.mark.judge)])
def test_connector_copies_a_topic_in_real_time_mode(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, lives: int
) -> None:
    """A task of such a query does not end: it needs a core for each partition."""
    copy = f"{topic}-copy"
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 1)
        admin.create_topic(copy, 1)
    write(broker, topic, range(10), partitions=1)
    frame = source(spark, broker.bootstrap, "kafka", subscribe=topic).select("key", "value")

    def start() -> Any:
        return (
            frame.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", copy)
            .option("checkpointLocation", str(tmp_path))
            .outputMode("update")
            .trigger(realTime="5 seconds")
            .start()
        )

    settings = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
    found: list[int] = []
    with Consumer(settings) as consumer:
        consumer.assign((copy, 0))

        def has(count: int) -> bool:
            found.extend(int(one.value or b"") for one in consumer.poll(0.1))
            return {*found} == {*range(count)}

        for life in range(lives):  # the second starts from the checkpoint
            query = Running(start)
            try:
                query.until(lambda life=life: has(10 + 20 * life))
                write(broker, topic, range(10 + 20 * life, 30 + 20 * life), partitions=1)
                query.until(lambda life=life: has(30 + 20 * life))
            finally:
                query.query.stop()


def lag(broker: OttlaBroker, group: str) -> dict[int, tuple[int, int]]:
    """The offset and the lag of a group in each partition, as Kafka's tool prints them."""
    done = run_java(GROUPS, "--bootstrap-server", broker.bootstrap, "--describe", "--group", group)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(group)]
    assert lines, done.stdout + done.stderr
    # GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG ...
    return {int(words[2]): (int(words[3]), int(words[5])) for words in lines}


def test_kafkas_tool_shows_the_lag_of_a_query(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    register(spark)
    write(broker, topic, range(30), partitions=3)
    group = f"{topic}-group"
    options: dict[str, Any] = {"subscribe": topic, "kafka.group.id": group}
    taken(source(spark, broker.bootstrap, **options).select("value"), tmp_path)
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        until_s = time.monotonic() + PATIENCE_S
        while len(kept := admin.list_group_offsets(group)[group]) < 3:  # the listener runs later
            assert time.monotonic() < until_s
            time.sleep(0.1)
    assert [one and one.offset for one in kept.values()] == [10, 10, 10]
    write(broker, topic, range(30, 36), partitions=3)
    assert lag(broker, group) == {0: (10, 2), 1: (10, 2), 2: (10, 2)}
