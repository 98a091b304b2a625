"""Spark on a cluster: the tasks run in other processes than the plan, on two workers."""

import json
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from sensors import topics
from sensors.devices import messages

from judges.ottla_broker import OttlaBroker, ottla_broker
from judges.spark_cluster import SparkCluster, SparkFailed
from kafka_java import judge_needed
from ottla.sync import Admin, Consumer, Producer
from pipeline import cluster_job
from pipeline.sensors.judging import check, send
from pipeline.sensors.plain import computed

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTITIONS = 3  # as the broker makes them
RECORDS = 60

SEED, BEGAN_MS, LASTED_MS = 7, 1_700_000_000_000, 40_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[SparkCluster]:
    """A master and two workers."""
    with judge_needed():
        made = SparkCluster(tmp_path_factory.mktemp("cluster"))
    with made as running:
        yield running
    assert not running.processes()


def values(broker: OttlaBroker, topic: str) -> list[bytes]:
    """All values of a topic."""
    settings = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
    found: list[bytes] = []
    with Consumer(settings) as consumer:
        places = consumer.partitions(topic)
        consumer.assign(*places)
        count = sum(consumer.end_offsets(*places).values())
        while len(found) < count:
            found += [one.value or b"" for one in consumer.poll(1.0)]
    return found


def numbers(broker: OttlaBroker, topic: str) -> list[int]:
    return sorted(map(int, values(broker, topic)))


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

    ran = cluster.submit(Path(cluster_job.__file__), broker.bootstrap, topic, str(tmp_path))
    found = json.loads((tmp_path / "read.json").read_text())
    for way in ("discovered", "registered"):
        assert sorted(found[way]) == [*range(RECORDS)]
        assert numbers(broker, f"{topic}-{way}-written") == [*range(RECORDS)]
        assert numbers(broker, f"{topic}-{way}-streamed") == [*range(RECORDS)]
        for job in ("read", "write", "stream"):
            assert len(ran.workers(f"{way}-{job}")) == 2, (way, job)

    # The driver alone tells the group, and only where it listens.
    assert told(broker, "ottla-pipeline.discovered-stream") == 0
    assert told(broker, "ottla-pipeline.registered-stream") == RECORDS


def test_the_sensors_job_finds_there_what_a_plain_computation_finds(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    sent = [*messages(SEED, BEGAN_MS, BEGAN_MS + LASTED_MS)]
    expected = computed([sent])  # --once reads all of it in one micro-batch
    assert min(map(len, (expected.averages, expected.alerts, expected.dead))) > 10

    archive = shutil.make_archive(str(tmp_path / "sensors"), "zip", EXAMPLES, "sensors")
    with ottla_broker() as broker:
        with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            topics.create(admin)
        send(broker.bootstrap, sent)
        ran = cluster.submit(
            EXAMPLES / "sensors/job.py",
            *("--bootstrap-server", broker.bootstrap),
            *("--output", str(tmp_path / "found"), "--once"),
            settings={"spark.submit.pyFiles": archive},
        )
        check(broker.bootstrap, tmp_path / "found", expected)
    assert len(ran.workers()) == 2


def test_a_script_that_fails_shows_what_it_said(cluster: SparkCluster, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('no such luck')\n")
    with pytest.raises(SparkFailed, match="no such luck"):
        cluster.submit(script)
