"""A cluster of an earlier version is upgraded broker by broker while clients work.

The earlier version is a wheel of an earlier commit, in a folder of its own. Clients get no error,
nothing is lost, and fields of znodes that neither version knows survive.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

import sampling
from integration.load import (
    PARTITIONS,
    TOPIC,
    AiokafkaClients,
    JavaClients,
    LibrdkafkaClients,
    Load,
)
from integration.process_cluster import PATIENCE_S, BrokerProcess, ProcessCluster
from ottla.client.admin.topics import NewTopic
from ottla.client.sync.administrator import Admin
from ottla.cluster.znodes import state_path, topic_path

pytestmark = pytest.mark.skipif(
    not sampling.SOAK, reason="`make soak` upgrades a cluster of an earlier commit"
)

ROOT: Final = Path(__file__).parents[2]
COMMITS: Final = os.environ.get("OTTLA_UPGRADE_FROM", "HEAD~1 HEAD~50").split()
UNKNOWN: Final = {"field_of_a_later_version": {"a": [1, 2]}}


def source_of(commit: str) -> bytes:
    """Return a tar file with the source of a commit; skips the test without git's history."""
    try:
        done = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("needs git, for the source of an earlier commit")
    if done.returncode:
        pytest.skip(f"needs git's history, for the source of {commit}")
    return done.stdout


def installed(commit: str, folder: Path) -> Path:
    """Build the wheel of a commit; returns the folder with its packages."""
    source, wheels, packages = (folder / name for name in ("source", "wheels", "packages"))
    with tarfile.open(fileobj=io.BytesIO(source_of(commit))) as archive:
        archive.extractall(source, filter="data")
    words = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(wheels))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *words, str(source)], check=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return packages


def runs_from(broker: BrokerProcess, packages: Path) -> bool:
    """Whether the process of a broker has loaded the compiled modules of a folder."""
    return f"{packages}/ottla/" in Path(f"/proc/{broker.pid}/maps").read_text()


class Nodes:
    """The nodes of the topic and of its partitions in ZooKeeper."""

    def __init__(self, connect: str) -> None:
        self._client: Any = KazooClient(connect, timeout=PATIENCE_S)  # it has no type hints
        self._client.start(PATIENCE_S)

    def add(self, fields: Mapping[str, object]) -> None:
        for path, value in self.read().items():
            self._client.set(path, json.dumps({**value, **fields}).encode())

    def read(self) -> dict[str, dict[str, Any]]:
        states = (state_path(TOPIC, index) for index in range(PARTITIONS))
        return {
            path: json.loads(self._client.get(path)[0]) for path in (topic_path(TOPIC), *states)
        }

    def close(self) -> None:
        self._client.stop()
        self._client.close()


def start_again(cluster: ProcessCluster, nodes: Nodes) -> None:
    """Add fields that the brokers do not know to the nodes while no broker runs."""
    for broker in cluster.brokers.values():
        broker.kill()
    nodes.add(UNKNOWN)
    cluster.repair()
    cluster.wait_until_whole()


@pytest.mark.parametrize("commit", COMMITS)
def test_brokers_are_upgraded_one_by_one_under_load(commit: str, tmp_path: Path) -> None:
    packages = installed(commit, tmp_path)
    cluster = ProcessCluster(tmp_path, TOPIC, PARTITIONS)
    for broker in cluster.brokers.values():
        broker.environment = {"PYTHONPATH": str(packages)}
    with cluster, closing(Nodes(cluster.ensemble.connect)) as nodes:
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).or_raise()
            start_again(cluster, nodes)
            before = nodes.read()
            clients = LibrdkafkaClients(), AiokafkaClients(), JavaClients()
            with Load(cluster.bootstrap, *clients) as load:
                load.progress()
                for number, broker in cluster.brokers.items():
                    cluster.wait_until_whole()
                    assert runs_from(broker, packages)
                    assert broker.terminate() == 0, broker.log_tail()
                    broker.environment = {}
                    broker.start()
                    assert not runs_from(broker, packages)
                    load.progress()
                    admin.create_topics([NewTopic(f"new-{number}", PARTITIONS, 3)]).or_raise()
                cluster.wait_until_whole()
                load.progress()
                load.verify()
        for path, after in nodes.read().items():
            assert {**after, **UNKNOWN} == after, path
            assert after.get("leader_epoch", 1) > before[path].get("leader_epoch", 0), path
