"""Spark on a cluster: the tasks run in other processes than the plan, on two workers."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from judges.ottla_broker import OttlaBroker
from judges.spark_cluster import STEP, SparkCluster, SparkFailed
from kafka_java import judge_needed
from ottla.sync import Admin, Consumer, Producer
from pipeline import cluster_job

PARTITIONS = 3  # as the broker makes them
RECORDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[SparkCluster]:
    """A master and two workers."""
    with judge_needed():
        made = SparkCluster(tmp_path_factory.mktemp("cluster"))
    with made as running:
        yield running
    assert not running.processes()


def numbers(broker: OttlaBroker, topic: str) -> list[int]:
    """The values of a topic."""
    settings = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
    places = [(topic, n) for n in range(PARTITIONS)]
    found: list[int] = []
    with Consumer(settings) as consumer:
        consumer.assign(*places)
        count = sum(consumer.end_offsets(*places).values())
        while len(found) < count:
            found += [int(one.value or b"") for one in consumer.poll(1.0)]
    return sorted(found)


def told(broker: OttlaBroker, group: str) -> int:
    """How many records a group has heard of."""
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        kept = admin.list_group_offsets(group)[group].values()
    return sum(one.offset for one in kept if one)


def test_both_workers_read_write_and_stream(
    cluster: SparkCluster, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in range(RECORDS):
            producer.send(topic, b"%d" % n, key=b"k%d" % n, partition=n % PARTITIONS)

    assert cluster_job.STEP == STEP
    cluster.submit(Path(cluster_job.__file__), broker.bootstrap, topic, str(tmp_path))
    found = json.loads((tmp_path / "read.json").read_text())
    for way in ("discovered", "registered"):
        assert sorted(found[way]) == [*range(RECORDS)]
        assert numbers(broker, f"{topic}-{way}-written") == [*range(RECORDS)]
        assert numbers(broker, f"{topic}-{way}-streamed") == [*range(RECORDS)]
        for step in ("read", "write", "stream"):
            assert len(cluster.workers_of(f"{way} {step}")) == 2, (way, step)

    # The driver alone tells the group, and only where it listens.
    assert told(broker, f"ottla-pipeline.{topic}-discovered") == 0
    assert told(broker, f"ottla-pipeline.{topic}-registered") == RECORDS


def test_a_script_that_fails_shows_what_it_said(cluster: SparkCluster, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('no such luck')\n")
    with pytest.raises(SparkFailed, match="no such luck"):
        cluster.submit(script)
