"""Restarts: of a query, from each state that its checkpoint can have; of the broker under it."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.sync import Producer
from pipeline.queries import done, numbers, running, source, taken


def write(broker: OttlaBroker, topic: str, values: range) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in values:
            producer.send(topic, b"%d" % n, partition=n % 3)


def test_a_query_that_is_stopped_and_started_again_has_each_record_once(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    frame = source(spark, broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=7).select("value")
    write(broker, topic, range(30))
    with running(frame, tmp_path) as query:
        query.until(lambda: done(tmp_path) >= 7)  # somewhere in the middle
    write(broker, topic, range(30, 60))
    with running(frame, tmp_path) as query:
        query.until(lambda: done(tmp_path) >= 40)
    taken(frame, tmp_path)
    assert numbers(spark, tmp_path) == [*range(60)]


STATES = {
    "nothing is written down": ("place/offsets", "place/commits", "rows/_spark_metadata"),
    "the offsets are": ("place/commits", "rows/_spark_metadata"),
    "the rows are, too": ("place/commits",),
    "all is": (),
}


@pytest.mark.parametrize("state", STATES)
def test_a_query_goes_on_whatever_of_its_last_batch_is_written_down(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, state: str
) -> None:
    """These are the states that a crash leaves behind; files that no log names do not count."""
    write(broker, topic, range(30))
    frame = source(spark, broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=15)
    frame = frame.select("value")
    assert len(taken(frame, tmp_path)) == 2
    for log in STATES[state]:
        for name in ("1", ".1.crc"):
            (tmp_path / log / name).unlink()
    write(broker, topic, range(30, 45))
    taken(frame, tmp_path)
    assert numbers(spark, tmp_path) == [*range(45)]


@pytest.fixture
def own_broker() -> Generator[OttlaBroker]:
    with ottla_broker({"num.partitions": 3, "auto.create.topics.enable": "true"}) as broker:
        yield broker


def test_a_broker_is_killed_and_started_under_a_query(
    spark: Any, own_broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    write(own_broker, topic, range(300))
    frame = source(spark, own_broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=30)
    with running(frame.select("value"), tmp_path) as query:
        for life in range(3):
            query.until(lambda life=life: done(tmp_path) >= 60 + 90 * life)
            own_broker.kill()  # with the query at work, for there is more to read
            own_broker.start()
        write(own_broker, topic, range(300, 330))
        query.until(lambda: done(tmp_path) >= 330)
        own_broker.kill()  # and with nothing to read
        own_broker.start()
        write(own_broker, topic, range(330, 360))
        query.until(lambda: done(tmp_path) >= 360)
    assert numbers(spark, tmp_path) == [*range(360)]
