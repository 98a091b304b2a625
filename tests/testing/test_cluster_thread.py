"""Clusters in a thread, and the pytest fixtures."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import kafka
import pytest

from ottla.errors import OttlaError
from ottla.sync import Producer
from ottla.testing import ClusterThread

CLIENT: Any = kafka  # it has no type hints


def produce(cluster: ClusterThread, *values: bytes) -> list[int]:
    # It waits less long than the tests do, so that it closes before the cluster: kafka-python leaks
    # the sockets of refused connections, and a later test would fail.
    producer = CLIENT.KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all", max_block_ms=20_000
    )
    try:
        return [producer.send("t", one, partition=0).get(20).offset for one in values]
    finally:
        producer.close()


def send(cluster: ClusterThread, value: bytes) -> list[int]:
    """Produce with Ottla's client: kafka-python leaks the sockets of refused connections."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        return [producer.send("t", value, partition=0).result(20).offset]


def consume(cluster: ClusterThread, count: int) -> list[bytes]:
    consumer = CLIENT.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    try:
        partition = CLIENT.TopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


def test_blocking_test_can_use_a_cluster(ottla_cluster: ClusterThread) -> None:
    assert produce(ottla_cluster, b"a", b"b") == [0, 1]
    assert consume(ottla_cluster, 2) == [b"a", b"b"]


def test_brokers_can_stop_and_restart(ottla_cluster: ClusterThread) -> None:
    (broker,) = ottla_cluster.brokers
    assert ottla_cluster.bootstrap_servers == broker.address == f"127.0.0.1:{broker.port}"
    produce(ottla_cluster, b"a")
    broker.kill()
    assert not broker.running
    broker.start()
    assert produce(ottla_cluster, b"b") == [1]
    broker.stop()
    broker.start()
    assert broker.running
    assert consume(ottla_cluster, 2) == [b"a", b"b"]


def test_pause_delays_requests(ottla_cluster: ClusterThread) -> None:
    offsets: list[int] = []
    with ottla_cluster.brokers[0].pause():
        asking = threading.Thread(target=lambda: offsets.extend(produce(ottla_cluster, b"a")))
        asking.start()
        asking.join(0.3)
        assert not offsets
        assert asking.is_alive()
    asking.join(30)
    assert offsets == [0]


def test_full_disk_is_reported_to_the_client(ottla_cluster: ClusterThread) -> None:
    produce(ottla_cluster, b"a")
    (broker,) = ottla_cluster.brokers
    producer = CLIENT.KafkaProducer(
        bootstrap_servers=broker.address, acks="all", retries=0, enable_idempotence=False
    )
    with broker.disk_full(), pytest.raises(CLIENT.errors.KafkaError):
        producer.send("t", b"lost", partition=0).get(20)
    producer.close()
    assert consume(ottla_cluster, 1) == [b"a"]


def test_no_thread_runs_after_the_cluster() -> None:
    before = {*threading.enumerate()}
    with ClusterThread() as cluster:
        folder = cluster.brokers[0].data
        assert {*threading.enumerate()} - before
    assert {*threading.enumerate()} <= before
    assert not folder.exists()


def test_thread_mirrors_a_cluster_of_three() -> None:
    with ClusterThread(brokers=3) as cluster:
        send(cluster, b"a")
        cluster.settled()
        leader, controller = cluster.leader("t", 0), cluster.controller
        assert leader in cluster.brokers
        assert controller in cluster.brokers
        assert cluster.leader("none", 0) is None
        assert leader is not None
        assert cluster.broker(leader.id) is leader
        with pytest.raises(OttlaError, match="no broker 9"):
            cluster.broker(9)
        followers = [one for one in cluster.brokers if one is not leader]
        with cluster.partition(*followers), cluster.slow(leader, 5):
            assert send(cluster, b"b") == [1]
        leader.kill()
        assert send(cluster, b"c") == [2]
        leader.start()
        cluster.settled(timeout=30)
        leader.expire_session()
        cluster.settled()
        image = leader.image
        assert image is not None
        assert len(image.topics["t"].partitions[0].in_sync) == 3
        assert consume(cluster, 3) == [b"a", b"b", b"c"]


THEIR_TESTS = """
import asyncio
import socket
import pytest

@pytest.fixture(scope="session")
def ottla_settings():
    return {"num.partitions": 7}

def test_blocks(ottla_cluster):
    (broker,) = ottla_cluster.brokers
    socket.create_connection(("127.0.0.1", broker.port)).close()

def test_awaits(ottla_session_cluster):
    async def scenario():
        (broker,) = ottla_session_cluster.brokers
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.close()
    asyncio.run(scenario())

def test_replicates(ottla_cluster_of):
    assert len(ottla_cluster_of(3).brokers) == 3
    assert len(ottla_cluster_of(1).brokers) == 1

def test_needs_none():
    import sys
    assert "ottla.testing.pytest_plugin" in sys.modules
"""


def test_pytest_loads_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIR_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "4 passed" in done.stdout, done.stdout


def test_run_without_a_cluster_loads_no_broker() -> None:
    code = "import ottla.testing.pytest_plugin, sys; print('ottla.broker.node' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
