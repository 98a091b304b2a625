"""The processes of a local cluster: ports, settings, and what a directory remembers."""

import socket
from itertools import count
from pathlib import Path

import pytest

from cases import each_case
from cli.console import ottla
from ottla.cli.cluster.local_layout import LocalLayout, parse_layout, planned
from ottla.cli.failures import Failed, Misused
from ottla.cli.zookeeper.members import parse_members
from ottla.coordination.ensemble import Member
from ottla.settings import broker
from ottla.settings.config_parser import broker_config_of

DATA = Path("/data")


def plan(
    stored: LocalLayout | None = None,
    brokers: int | None = None,
    port: int | None = None,
    zookeepers: int | None = None,
    taken: int = 0,
) -> LocalLayout:
    free = count(30_000)

    def free_port(wanted: int) -> int:
        return next(free) if wanted in (0, taken) else wanted

    return planned(DATA, stored, free_port, brokers=brokers, port=port, zookeepers=zookeepers)


def test_cluster_has_three_brokers_and_one_zookeeper() -> None:
    found = plan()
    assert found.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert found.connect == "127.0.0.1:30000"
    assert "server.1" not in found.server(1).text()
    assert parse_layout(found.format(), DATA) == found


def test_members_of_an_ensemble_know_each_other() -> None:
    found = plan(zookeepers=3)
    assert found.connect == "127.0.0.1:30000,127.0.0.1:30003,127.0.0.1:30006"
    for number in (1, 2, 3):
        text = found.server(number).text()
        assert "server.1=127.0.0.1:30001:30002\nserver.2=127.0.0.1:30004:30005\n" in text
        assert f"clientPort={29_997 + 3 * number}\n" in text
        assert f"dataDir=/data/zookeeper-{number}/data\n" in text


def test_directory_keeps_its_cluster() -> None:
    stored = plan(brokers=2, port=5000, zookeepers=3)
    assert plan(stored) == plan(stored, brokers=2, zookeepers=3) == stored
    assert plan(stored, brokers=4).brokers == (5000, 5001, 5002, 5003)
    assert plan(stored, port=6000).brokers == (6000, 6001)
    assert plan(stored, taken=30_001).zookeepers[0] == (30_000, 30_000, 30_002)
    with pytest.raises(Failed, match="use -n 2 or more"):
        plan(stored, brokers=1)
    with pytest.raises(Failed, match="has 3 ZooKeeper servers"):
        plan(stored, zookeepers=1)
    with pytest.raises(Failed, match="is damaged"):
        parse_layout("{}", DATA)


def test_ports_are_checked_and_chosen() -> None:
    assert plan(port=0).brokers == (30_000, 30_001, 30_002)
    with pytest.raises(Misused, match="not 3 ports"):
        plan(port=65_534)


@each_case(("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_replicas_follow_the_number_of_brokers(brokers: int, replicas: int, in_sync: int) -> None:
    config = broker_config_of({**plan(brokers=brokers).settings(brokers)})
    assert config[broker.NODE_ID] == brokers
    assert config[broker.LISTENERS] == (f"PLAINTEXT://127.0.0.1:{9091 + brokers}",)
    for setting in (
        broker.DEFAULT_REPLICATION_FACTOR,
        broker.OFFSETS_TOPIC_REPLICATION_FACTOR,
        broker.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    ):
        assert config[setting] == replicas
    for setting in (broker.MIN_INSYNC_REPLICAS, broker.TRANSACTION_STATE_LOG_MIN_ISR):
        assert config[setting] == in_sync
    assert not config.notices


def test_start_without_java_leaves_nothing_behind(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    words = ("cluster", "start", "--data", str(data), "--port", "0")
    for env in ({"PATH": str(tmp_path), "JAVA_HOME": ""}, {"JAVA_HOME": str(tmp_path)}):
        done = ottla(*words, env=env)
        assert done.returncode == 1
        assert "ZooKeeper needs Java, but there is none" in done.stderr
        assert "openjdk-17-jre-headless" in done.stderr
        assert "JAVA_HOME" in done.stderr
        assert not data.exists()


def test_start_on_a_busy_port_leaves_nothing_behind(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        done = ottla("cluster", "start", "-n", "1", "--data", str(data), "--port", port)
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is already in use" in done.stderr
    assert "`ottla cluster start --port N`" in done.stderr
    assert not data.exists()


def test_start_with_a_wrong_override_leaves_nothing_behind(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    words = ("--data", str(data), "--port", "0", "--override", "num.partitions=none")
    done = ottla("cluster", "start", *words)
    assert done.returncode == 2
    assert "num.partitions" in done.stderr
    assert not data.exists()


def test_members_are_named_by_host_and_ports() -> None:
    assert parse_members(None, None) == ()
    assert parse_members(2, "zk1, zk2:1:2,[::1]:3:4") == (
        Member("zk1", 2888, 3888),
        Member("zk2", 1, 2),
        Member("::1", 3, 4),
    )
    assert str(Member("::1", 3, 4)) == "[::1]:3:4"


@each_case(
    ("member", "ensemble", "problem"),
    [
        (1, None, "--id needs --ensemble"),
        (None, "a,b,c", "--ensemble needs --id"),
        (4, "a,b,c", "the ensemble has 3 servers"),
        (1, "a,b,a", "listed twice"),
        (1, "a,b", "two servers tolerate no failure"),
        (1, "a,b:1,c", '"b:1" is not HOST'),
        (1, "a,,c", '"" is not HOST'),
        (1, "a,b:1:70000,c", "a port that is not between"),
    ],
)
def test_wrong_ensembles_are_explained(
    member: int | None, ensemble: str | None, problem: str
) -> None:
    with pytest.raises(Misused) as raised:
        parse_members(member, ensemble)
    assert problem in str(raised.value)
