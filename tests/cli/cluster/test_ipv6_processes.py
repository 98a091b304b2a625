"""Brokers reach ZooKeeper, each other and clients through IPv6."""

import json
import random
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from judges.ottla_broker import OTTLA
from ottla import NewTopic
from ottla.sync import Admin, Producer

PORTS = (12_000, 32_000)  # below those of outgoing connections


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def started(stack: ExitStack, *words: str) -> str:
    """Start a command of Ottla until the end of the stack; returns what it prints first."""
    process = stack.enter_context(
        subprocess.Popen([OTTLA, *words, "-o", "json"], stdout=subprocess.PIPE, text=True)
    )
    # A broker that nobody can relieve waits when it is stopped.
    stack.callback(process.kill if words[0] == "broker" else process.terminate)
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6 here")
def test_cluster_on_ipv6(tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = str(random.randrange(*PORTS))
        words = ("--listen", "::1", "--port", port, "--data", str(tmp_path / "zookeeper"))
        connect = json.loads(started(stack, "zookeeper", "start", *words))["address"]
        assert connect == f"[::1]:{port}"
        servers: list[str] = []
        for number in (1, 2):
            settings = {
                "node.id": number,
                "listeners": "PLAINTEXT://[::1]:0",
                "log.dirs": tmp_path / str(number),
                "zookeeper.connect": f"{connect}/six",
                "zookeeper.connection.timeout.ms": 60_000,
                "min.insync.replicas": 2,
                "ottla.metrics.listener": "",
            }
            overrides = [f"--override={name}={value}" for name, value in settings.items()]
            servers.append(
                json.loads(started(stack, "broker", *overrides))["listeners"]["PLAINTEXT"]
            )
        assert all(one.startswith("[::1]:") for one in servers)
        client = {"bootstrap.servers": servers[0]}
        with Admin(client) as admin, Producer[bytes, bytes](client) as producer:
            admin.create_topics([NewTopic("orders", replicas={0: [1, 2], 1: [2, 1]})]).or_raise()
            for index in range(2):  # each broker acknowledges when the other one has the record
                producer.send("orders", b"x", partition=index)
            producer.flush()
            brokers = admin.describe_cluster().brokers
        assert sorted(f"[{one.host}]:{one.port}" for one in brokers) == sorted(servers)
