"""What `ottla produce` and `ottla consume` print while they wait for brokers."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO

import pytest

from cli.records.harness import BIN, PATIENCE_S, environment, run
from ottla.sync import Producer
from ottla.testing import ClusterThread


@contextmanager
def running(*arguments: str, stdin: bytes = b"") -> Generator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        [str(BIN / "ottla"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            yield process
        finally:
            process.kill()


def line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode()


def test_produce_prints_why_the_broker_refuses_records() -> None:
    with ClusterThread() as cluster:
        servers = cluster.bootstrap_servers
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"0")
        full = cluster.brokers[0].disk_full()
        with running("produce", "t", "-b", servers, stdin=b"1\n") as process:
            waits = line(process.stderr)
            full.end()
            assert process.wait(PATIENCE_S) == 0
    assert waits.startswith("ottla: still waiting for acknowledgements of t-0: KAFKA_STORAGE_ERROR")
    assert "No space left on device" in waits


@pytest.mark.parametrize("stops", ["stop", "kill"])
def test_consume_prints_that_its_broker_is_away_and_back(stops: str) -> None:
    with ClusterThread() as cluster:
        servers, broker = cluster.bootstrap_servers, cluster.brokers[0]
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"0")
        with running("consume", "t", "--follow", "-b", servers) as process:
            assert line(process.stdout) == "0\n"
            getattr(broker, stops)()
            lost = line(process.stderr)
            broker.start()
            back = line(process.stderr)
            with Producer(bootstrap_servers=servers) as producer:
                producer.send("t", b"1")
            assert line(process.stdout) == "1\n"
    assert lost.startswith("ottla: no broker is reachable; the client keeps trying: ")
    assert f"connection refused by {broker.address}" in lost
    assert back == f"ottla: a broker is reachable again: {broker.address}\n"


def test_error_is_not_preceded_by_a_warning() -> None:
    with ClusterThread(settings={"auto.create.topics.enable": "false"}) as cluster:
        ended = run("ottla", "consume", "missing", "-b", cluster.bootstrap_servers)
    assert (ended.returncode, ended.stderr) == (1, b"ottla: topic missing does not exist\n")


def test_produce_prints_that_it_waits_for_a_topic() -> None:
    with ClusterThread(settings={"auto.create.topics.enable": "false"}) as cluster:
        servers = cluster.bootstrap_servers
        with running("produce", "t", "-b", servers, stdin=b"1\n") as process:
            waits = line(process.stderr)
            assert run("ottla", "topic", "create", "t", "-b", servers).returncode == 0
            assert process.wait(PATIENCE_S) == 0
    assert waits.startswith("ottla: topic t does not exist, waiting for it: ")
    assert "`ottla topic create`" in waits
