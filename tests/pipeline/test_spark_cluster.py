"""Spark on a cluster: the tasks run on workers, in other processes than the driver.

There is one worker, and two in a soak.
"""

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.console import SCRIPTS
from judges.ottla_broker import OttlaBroker, ottla_broker
from judges.spark_cluster import TIMEOUT_S, SparkCluster, SparkFailed
from kafka_java import judge_needed
from ottla.sync import Admin, Consumer, Producer
from pipeline import cluster_job
from pipeline.fast_spark import SMALL_DATA, TESTS, fast_spark
from pipeline.sensors.first_run import EXAMPLES
from pipeline.sensors.judging import check, is_chosen, send
from pipeline.sensors.plain import Results, compute
from sampling import SOAK
from sensors.devices import messages

PARTITIONS = 3  # the default of the broker
RECORDS = 60

SEED, BEGAN_MS, LASTED_MS = 7, 1_700_000_000_000, 30_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[SparkCluster]:
    """A master and its workers.

    In a soak they have Spark's own home, from whose archive their Python processes import PySpark.
    """
    folder = tmp_path_factory.mktemp("cluster")
    # The executors find neither the examples nor the tests.
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = os.pathsep.join(one for one in given if one not in (str(EXAMPLES), str(TESTS)))
    with judge_needed():
        made = SparkCluster(folder, workers=2, python_path=kept)
    if not SOAK:
        fast = fast_spark()
        made = SparkCluster(
            folder,
            workers=1,
            home=Path(fast.home),
            java_options=fast.java_options,
            python_path=kept,
        )
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


def committed(broker: OttlaBroker, group: str) -> int:
    """The sum of the offsets that a group has committed."""
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        kept = admin.list_group_offsets(group)[group].values()
    return sum(one.offset for one in kept if one)


@pytest.mark.skipif(not SOAK, reason="`make soak` reads, writes and streams in every way")
def test_both_workers_read_write_and_stream(
    cluster: SparkCluster, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    """One application does all of it, because an application takes long to start."""
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in range(RECORDS):
            producer.send(topic, b"%d" % n, key=b"k%d" % n, partition=n % PARTITIONS)
    jobs = [
        (way, job) for way in ("discovered", "registered") for job in ("read", "write", "stream")
    ]
    ran = cluster.submit(
        Path(cluster_job.__file__),
        *(broker.bootstrap, topic, str(tmp_path)),
        *(f"{way}-{job}" for way, job in jobs),
        settings=SMALL_DATA,
    )
    found = json.loads((tmp_path / "read.json").read_text())
    for way, job in jobs:
        assert len(ran.workers(f"{way}-{job}")) == cluster.workers == 2, (way, job)
        read = found[way] if job == "read" else numbers(broker, f"{topic}-{way}-{job}")
        assert sorted(read) == [*range(RECORDS)], (way, job)

    # Only the driver commits for the group, and only where a listener is registered.
    assert committed(broker, "ottla-pipeline.discovered-stream") == 0
    assert committed(broker, "ottla-pipeline.registered-stream") == RECORDS


@contextmanager
def sensors() -> Generator[tuple[str, Results]]:
    """A broker with readings; what a plain computation finds in them."""
    every = messages(SEED, BEGAN_MS, BEGAN_MS + LASTED_MS)
    sent = [one for one in every if is_chosen(one)]
    expected = compute([sent])  # --once reads everything in one micro-batch
    assert min(map(len, (expected.averages, expected.alerts, expected.dead_letters))) > 10
    with ottla_broker() as broker:
        send(broker.bootstrap, sent)
        yield broker.bootstrap, expected


def test_command_runs_sensors_on_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    """Only the driver has the modules of the steps: the executors get them from the command."""
    (tmp_path / "sensors").symlink_to(EXAMPLES / "sensors")
    environment, ran = cluster.driver(SMALL_DATA, by_file=SOAK)
    with sensors() as (servers, expected):
        done = subprocess.run(
            [
                *(str(SCRIPTS / "ottla"), "pipeline", "run", "sensors/pipeline.yml"),
                *("--master", cluster.url, "--once", "--http", "off", "-o", "json"),
            ],
            cwd=tmp_path,
            env={**environment, "BROKERS": servers, "DIRECTORY": str(tmp_path / "found")},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        log = tmp_path / ".ottla" / "pipelines" / "sensors" / "spark.log"
        shown = log.read_text()[-4000:] if log.exists() else ""
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{shown}"
        check(servers, tmp_path / "found", expected)
    for query in ("averages-parquet", "alerts-topic", "readings-dead-letters"):
        assert len(ran.workers(f"sensors.{query}")) == cluster.workers, query


@pytest.mark.skipif(not SOAK, reason="`make soak` checks the output of a failed Spark job")
def test_output_of_a_failed_script_is_shown(cluster: SparkCluster, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('no such luck')\n")
    with pytest.raises(SparkFailed, match="no such luck"):
        cluster.submit(script)
