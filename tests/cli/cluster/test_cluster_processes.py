"""Brokers as processes on a real ZooKeeper: `ottla cluster start` and what it starts.

All tests share one cluster and its ZooKeeper; those of single brokers use a chroot of their own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import sampling
from cli.golden import check_settled
from file_modes import exposed
from judges.ottla_broker import OttlaBroker
from judges.wire import Wire
from ottla.broker import service
from ottla.broker.node import Node
from ottla.broker.stop_signals import StopSignals
from ottla.cli.cluster.adopt import adopted
from ottla.cli.output import Output
from ottla.cli.result import show
from ottla.coordination.errors import StoreInUse
from ottla.errors import OttlaError
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.release import RELEASE
from ottla.settings.config_parser import broker_config_of

admin: Any = confluent_kafka.admin  # the client's types are not complete

OTTLA = str(Path(sys.executable).parent / "ottla")
PATIENCE_S = 120
POLL_S = 0.02
ENDS = (  # of a broker with a role in partition 0
    ("leader", signal.SIGKILL),
    ("follower", signal.SIGKILL),
    ("controller", signal.SIGKILL),
    ("controller", signal.SIGTERM),
)
ROUNDS = 30 if sampling.SOAK else 1  # of all ends
TOPIC, PARTITIONS = "orders", 3
END_OF_PARTITION = -191  # librdkafka's RD_KAFKA_RESP_ERR__PARTITION_EOF
SETTINGS = ("offsets.topic.num.partitions=1", "ottla.metrics.listener=")


class Started:
    """`ottla cluster start` in a process."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.errors = data.with_suffix(".err")
        overrides = [word for one in SETTINGS for word in ("--override", one)]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [OTTLA, "cluster", "start", "--data", str(data), *arguments, *overrides],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                umask=0,
            )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said.startswith("ready "), self.errors.read_text()
        self.bootstrap = said.split()[1]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        split = (one.rpartition(":") for one in self.bootstrap.split(","))
        return [(host, int(port)) for host, _, port in split]

    @property
    def connect(self) -> str:
        stored = json.loads((self.data / "cluster.json").read_text())
        return ",".join(f"127.0.0.1:{ports[0]}" for ports in stored["zookeepers"])

    def pid(self, name: str) -> int:
        return int((self.data / f"{name}.pid").read_text())

    def pids(self) -> list[int]:
        return [int(path.read_text()) for path in self.data.glob("*.pid")]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def metadata(self, topic: str) -> MetadataResponse:
        """Return what any running broker knows."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            for address in self.addresses:
                with suppress(OSError), Wire(address, 5) as wire:
                    return wire.ask(request, 9, MetadataResponse)
            assert time.monotonic() < deadline_s
            time.sleep(POLL_S)

    def wait_for(self, what: Callable[[MetadataResponse], bool]) -> MetadataResponse:
        deadline_s = time.monotonic() + PATIENCE_S
        while not what(found := self.metadata(TOPIC)):
            assert time.monotonic() < deadline_s, found
            time.sleep(POLL_S)
        return found


def runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until_ended(pids: Sequence[int]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if runs(pid)]:
        assert time.monotonic() < deadline_s, left
        time.sleep(POLL_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Started]:
    started = Started(tmp_path_factory.mktemp("c") / "data", "-n", "3", "--port", "0", "--restart")
    try:
        yield started
        pids = started.pids()
        assert len(pids) == 4
        assert started.stop() == 0
        assert not any(map(runs, pids))
        assert not started.pids()
    finally:
        started.process.kill()
        started.process.communicate()


def ottla(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [OTTLA, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_status_and_files_name_the_processes(cluster: Started) -> None:
    done = ottla("cluster", "status", "-b", cluster.bootstrap, "-o", "json")
    found = json.loads(done.stdout)
    assert found["controller"] in (1, 2, 3)
    assert (found["under_replicated"], found["offline"]) == (0, 0)
    assert [(one["id"], one["address"], one["pid"]) for one in found["brokers"]] == [
        (number, address, cluster.pid(f"broker-{number}"))
        for number, address in enumerate(cluster.bootstrap.split(","), 1)
    ]
    assert {one["version"] for one in found["brokers"]} == {RELEASE}
    assert runs(cluster.pid("zookeeper-1"))


def test_other_users_have_no_access_to_the_files(cluster: Started) -> None:
    names = {path.name for path in cluster.data.rglob("*")}
    assert {"cluster.lock", "broker-1.log", "zookeeper-1.pid", "version-2", "zoo.cfg"} <= names
    assert exposed(cluster.data) == []


def test_second_cluster_in_a_directory_is_refused(cluster: Started) -> None:
    done = ottla("cluster", "start", "--data", str(cluster.data))
    assert done.returncode == 1
    assert f"its cluster is running (pid {cluster.process.pid})" in done.stderr
    assert done.stderr.count("\n") == 1


class Stopping(StopSignals):
    """Stops a broker in this process as soon as it has started."""

    def tell(self, loop: AbstractEventLoop, stop: Callable[[signal.Signals], None]) -> None:
        self.stop = stop


def run_broker(data: Path, connect: str, **settings: object) -> int:
    """Start and stop a broker in this process; returns its id."""
    config = broker_config_of(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(data),
            "zookeeper.connect": connect,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    stopping, ids = Stopping(), list[int]()

    def started(node: Node) -> None:
        ids.append(node.id)
        stopping.stop(signal.SIGTERM)

    service.run(config, started, stopping)
    return ids[0]


def test_broker_generates_an_id_and_keeps_it(cluster: Started, tmp_path: Path) -> None:
    root = f"{cluster.connect}/generated/ids"
    assert run_broker(tmp_path / "one", root) == 1001
    assert run_broker(tmp_path / "one", root) == 1001
    assert run_broker(tmp_path / "two", root, reserved_broker_max_id=2000) == 2002


def test_wrong_chroot_and_cluster_are_refused(cluster: Started, tmp_path: Path) -> None:
    """The cluster's broker 1 runs, and keeps its id."""
    copy, other = tmp_path / "copy", tmp_path / "other"
    shutil.copytree(cluster.data / "broker-1", copy)
    other.mkdir()
    (other / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    for data, root, number, problem in (
        (tmp_path / "new", "", 1, "broker id 1 is already registered: set another node.id"),
        (copy, "", 1, "which answers and has the same directory ids: do not start a copy"),
        (copy, "", 9, "belongs to broker 1, this is broker 9"),
        (copy, "/wrong", 1, "the path /wrong does not exist in the ZooKeeper at 127.0.0.1:"),
        (copy, "/brokers", 1, "there is no cluster in ZooKeeper, and the data directories belong"),
        (other, "", 1, "belongs to cluster abc, this broker to "),
    ):
        with pytest.raises(OttlaError) as raised:
            run_broker(data, f"{cluster.connect}{root}", node_id=number)
        assert problem in str(raised.value)


def test_single_broker_moves_into_the_cluster(cluster: Started, tmp_path: Path) -> None:
    """With its records, its settings and the offsets of a group."""
    root = f"{cluster.connect}/adopted"
    single = ("offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1")
    with OttlaBroker(tmp_path, *single) as broker:
        broker.start()
        client = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        new = admin.NewTopic("t", 1, 1, config={"retention.ms": "777000"})
        client.create_topics([new])["t"].result(PATIENCE_S)
        produced: Any = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(10):
            produced.produce("t", b"%d" % number)
        assert not produced.flush(PATIENCE_S)
        commit(broker.bootstrap, 4)
        with pytest.raises(StoreInUse):
            adopted(broker.data, root)
        assert broker.stop() == 0
    journal = broker.data / service.COORDINATION_FILE
    for output, name in ((Output.JSON, "json"), (Output.TABLE, "txt")):
        printed = StringIO()
        with redirect_stdout(printed):
            show(adopted(broker.data, root), output)
        check_settled(f"cluster-adopt.{name}", printed.getvalue())
        if output is Output.JSON:  # as if it was interrupted before the file got its new name
            journal.with_name(f"{journal.name}.moved").rename(journal)
    with OttlaBroker(
        tmp_path, f"zookeeper.connect={root}", *SETTINGS, *single, data=broker.data
    ) as broker:
        broker.start()
        assert values_after_commit(broker.bootstrap) == [b"%d" % number for number in range(4, 10)]
        client = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        asked = admin.ConfigResource("topic", "t")
        shown = client.describe_configs([asked])[asked].result(PATIENCE_S)
        assert shown["retention.ms"].value == "777000"
        assert broker.stop() == 0


def group_member(bootstrap: str) -> Any:
    member: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    return member


def commit(bootstrap: str, offset: int) -> None:
    member = group_member(bootstrap)
    member.commit(offsets=[confluent_kafka.TopicPartition("t", 0, offset)], asynchronous=False)
    member.close()


def values_after_commit(bootstrap: str) -> list[bytes]:
    member = group_member(bootstrap)
    (at,) = member.committed([confluent_kafka.TopicPartition("t", 0)], PATIENCE_S)
    member.assign([at])
    found: list[bytes] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline_s
        for message in member.consume(100, 0.1):
            if message.error() is not None:
                assert message.error().code() == END_OF_PARTITION
                member.close()
                return found
            found.append(message.value())


class Producer(threading.Thread):
    """Produces numbers with acks=all and idempotence, until `stopping` is set."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.acknowledged: list[int] = []
        self.failed: list[object] = []
        self.stopping = threading.Event()
        # Any: the client's types are not complete.
        self._client: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": PATIENCE_S * 1000,
                "logger": None,
            }
        )

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            if len(self._client) < 500:
                self._client.produce(
                    TOPIC,
                    b"%d" % number,
                    partition=number % PARTITIONS,
                    on_delivery=self._told(number),
                )
                number += 1
            self._client.poll(0.002)
        self._client.flush(PATIENCE_S)

    def _told(self, number: int) -> Callable[[Any, Any], None]:
        def told(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failed.append(error)

        return told

    def progress(self) -> None:
        """Wait until records that were sent after this call are acknowledged."""
        before, deadline_s = len(self.acknowledged), time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < before + 1000:
            assert time.monotonic() < deadline_s
            assert not self.failed, self.failed[:3]
            time.sleep(POLL_S)


def stored(bootstrap: str) -> list[list[int]]:
    """Return the numbers in each partition."""
    consumer: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found = [list[int]() for _ in range(PARTITIONS)]
    consumer.assign(
        [confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)]
    )
    ended: set[int] = set()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline_s
        for message in consumer.consume(5000, 0.1):
            index: int = message.partition()
            if message.error() is None:
                found[index].append(int(message.value()))
            else:
                assert message.error().code() == END_OF_PARTITION
                ended.add(index)
    consumer.close()
    return found


def is_whole(found: MetadataResponse) -> bool:
    partitions = found.topics[0].partitions
    return len(partitions) == PARTITIONS and all(
        one.leader_id > 0 and len(one.isr_nodes) == 3 for one in partitions
    )


def victim(found: MetadataResponse, role: str, random: Random) -> int:
    """Return a broker that leads partition 0, only follows there, or is the controller."""
    (first,) = [one for one in found.topics[0].partitions if one.partition_index == 0]
    if role == "leader":
        return first.leader_id
    if role == "controller":
        return found.controller_id
    return random.choice([one for one in first.replica_nodes if one != first.leader_id])


def test_nothing_acknowledged_is_lost_when_brokers_end(cluster: Started) -> None:
    made = ottla("topic", "create", TOPIC, "-p", str(PARTITIONS), "-b", cluster.bootstrap)
    assert made.returncode == 0, made.stderr
    producer, random = Producer(cluster.bootstrap), Random(sampling.seed())
    producer.start()
    try:
        for role, number in ENDS * ROUNDS:
            found = cluster.wait_for(is_whole)
            producer.progress()
            pid = cluster.pid(f"broker-{victim(found, role, random)}")
            os.kill(pid, number)
            wait_until_ended([pid])
            producer.progress()
        cluster.wait_for(is_whole)
    finally:
        producer.stopping.set()
        producer.join(PATIENCE_S)
    assert not producer.failed
    found = stored(cluster.bootstrap)
    for index, numbers in enumerate(found):
        assert numbers == sorted({*numbers}), f"partition {index}: repeated or out of order"
    assert {*producer.acknowledged} == {number for one in found for number in one}


def result(*arguments: str) -> Any:
    """Return what a command of Ottla prints as JSON."""
    done = ottla(*arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def bytes_by_broker(server: str) -> dict[int, int]:
    """Return the bytes of replicas on each broker."""
    return {
        one["id"]: one["disk_bytes"] for one in result("broker", "list", "-b", server)["brokers"]
    }


def test_added_broker_is_balanced_drained_and_removed(cluster: Started, tmp_path: Path) -> None:
    """A broker joins a cluster that runs, and leaves it again."""
    servers, records, partitions = cluster.bootstrap, 60, 6
    made = ottla("topic", "create", "moves", "-p", str(partitions), "-b", servers)
    assert made.returncode == 0, made.stderr
    producer: Any = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(records):
        producer.produce("moves", bytes(10_000), partition=number % partitions)
    assert not producer.flush(PATIENCE_S)
    wait_for = ("--execute", "-b", servers)
    zookeeper = f"zookeeper.connect={cluster.connect}"
    with OttlaBroker(tmp_path, "node.id=4", zookeeper, *SETTINGS) as added:
        added.start()
        deadline_s = time.monotonic() + PATIENCE_S
        while 4 not in (before := bytes_by_broker(servers)):  # it serves before all others know it
            assert time.monotonic() < deadline_s, before
            time.sleep(POLL_S)
        assert before[4] == 0
        assert result("cluster", "balance", *wait_for)["state"] == "complete"
        assert bytes_by_broker(servers)[4] > 0
        assert result("broker", "drain", "4", *wait_for)["state"] == "complete"
        assert bytes_by_broker(servers)[4] == 0
        assert added.stop() == 0
    status = result("cluster", "status", "-b", servers)
    assert [one["id"] for one in status["brokers"]] == [1, 2, 3]
    assert (status["under_replicated"], status["offline"]) == (0, 0)
    place = confluent_kafka.TopicPartition
    consumer = group_member(servers)
    consumer.assign([place("moves", index, 0) for index in range(partitions)])
    found = ended = 0
    deadline_s = time.monotonic() + PATIENCE_S
    while ended < partitions:
        assert time.monotonic() < deadline_s
        for message in consumer.consume(1000, 0.1):
            found += message.error() is None
            ended += message.error() is not None
    consumer.close()
    assert found == records


def test_processes_end_with_their_parent_and_continue(tmp_path: Path) -> None:
    data = tmp_path / "data"
    killed = Started(data, "-n", "1", "--port", "0", "--zookeepers", "3")
    pids = killed.pids()
    assert len(pids) == 4
    killed.process.kill()
    killed.process.communicate()
    wait_until_ended(pids)
    again = Started(data, "-n", "2")
    old, new = again.bootstrap.split(",")
    assert old == killed.bootstrap
    brokers = result("cluster", "status", "-b", killed.bootstrap)["brokers"]
    assert [one["address"] for one in brokers] == [old, new]
    # Nobody can take over, and there is no ZooKeeper.
    for number in (1, 2, 3):
        os.kill(again.pid(f"zookeeper-{number}"), signal.SIGKILL)
    deadline_s = time.monotonic() + PATIENCE_S
    while "(by SIGKILL): to start it again, press Ctrl-C" not in again.errors.read_text():
        assert time.monotonic() < deadline_s
        time.sleep(POLL_S)
    assert again.stop(signal.SIGINT) == 0
    again.process.communicate()
    assert not again.pids()
