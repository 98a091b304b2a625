"""Restarts of a query, from each state that its checkpoint can have, and of its broker."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.sync import Producer
from pipeline.queries import done, numbers, running, source, taken
from sampling import SOAK, sample

KILLS = 3 if SOAK else 1
"""How often the broker is killed while a query reads."""


def write(broker: OttlaBroker, topic: str, values: range) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in values:
            producer.send(topic, b"%d" % n, partition=n % 3)


def test_restarted_query_has_each_record_once(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    frame = source(spark, broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=12)
    frame = frame.select("value")
    write(broker, topic, range(30))
    with running(frame, tmp_path) as query:
        query.until(lambda: done(tmp_path) >= 12)  # somewhere in the middle
    write(broker, topic, range(30, 60))
    with running(frame, tmp_path) as query:
        query.until(lambda: done(tmp_path) >= 40)
    taken(frame, tmp_path)
    assert numbers(spark, tmp_path) == [*range(60)]


STATES = {
    "nothing": ("place/offsets", "place/commits", "rows/_spark_metadata"),
    "offsets": ("place/commits", "rows/_spark_metadata"),
    "offsets and rows": ("place/commits",),
    "everything": (),
}
"""What a crash leaves of the last micro-batch, and the logs that lack it then."""


@pytest.mark.parametrize("state", sample(STATES, 1))
def test_query_resumes_from_any_state_of_its_checkpoint(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, state: str
) -> None:
    """Files that no log names do not count for Spark; other readers have their rows twice."""
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
    files: Any = parquet
    repeated = 15 if "rows/_spark_metadata" in STATES[state] else 0
    assert len(files.read_table(tmp_path / "rows")) == 45 + repeated


@pytest.fixture
def own_broker() -> Generator[OttlaBroker]:
    with ottla_broker({"num.partitions": 3, "auto.create.topics.enable": "true"}) as broker:
        yield broker


def test_query_survives_a_killed_broker(
    spark: Any, own_broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    records = 30 + 60 * KILLS + 30
    write(own_broker, topic, range(records))
    frame = source(spark, own_broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=30)
    with running(frame.select("value"), tmp_path) as query:
        for life in range(KILLS):
            query.until(lambda life=life: done(tmp_path) >= 30 + 60 * life)
            own_broker.kill()  # while the query runs: there is more to read
            own_broker.start()
        query.until(lambda: done(tmp_path) >= records)
        own_broker.kill()  # while there is nothing to read
        own_broker.start()
        write(own_broker, topic, range(records, records + 30))
        query.until(lambda: done(tmp_path) >= records + 30)
    assert numbers(spark, tmp_path) == [*range(records + 30)]
