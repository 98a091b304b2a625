"""A cluster of real processes: three brokers on an ensemble of three ZooKeeper servers.

Invariant: at the end of the `with` all processes have ended. Every port stays reserved while its
process is down.

    with ProcessCluster(folder) as cluster:
        broker = cluster.brokers[cluster.wait_until_whole().leader(0)]
        broker.kill()  # like kill -9
        broker.start()  # with its data, on its ports
        cluster.ensemble.kill(2)
"""

import glob
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from kazoo.client import KazooClient

from judges.wire import Wire
from ottla.cluster.znodes import StateNode, parse_state, state_path
from ottla.coordination.ensemble import Member, ServerConfig, pyspark_class_path
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
)

HOST: Final = "127.0.0.1"
NODES: Final = (1, 2, 3)
OTTLA: Final = str(Path(sys.executable).parent / "ottla")
PATIENCE_S: Final = 120.0  # for every wait, on a busy machine
POLL_S: Final = 0.05
METADATA_POLL_S: Final = 0.2  # brokers and clients need the processor meanwhile
TICK_MS: Final = 500
SESSION_TIMEOUT_MS: Final = 4000
LAG_TIME_MAX_MS: Final = 6000
RESPONSE_S: Final = 2.0  # a stopped process accepts connections and does not respond
LOG_CHARACTERS_SHOWN: Final = 3000


def wait_until(what: str, condition: Callable[[], bool], poll_s: float = POLL_S) -> None:
    """Wait until something is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not in {PATIENCE_S:g} s: {what}"
        time.sleep(poll_s)


def _reserved(ports: ExitStack) -> int:
    """Return a port that is bound but not listened on: no other process gets it by chance."""
    bound = ports.enter_context(socket.socket())
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, 0))
    return int(bound.getsockname()[1])


class _ServerProcess:
    """A process that can be started repeatedly."""

    def __init__(self, name: str, log: Path, ports: ExitStack) -> None:
        self.name = name
        self.log = log
        self.port = _reserved(ports)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None

    def spawn(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        assert self._process is None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )

    def check_running(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} has ended:\n{self.log_tail()}"

    def kill(self) -> None:
        """Kill it, like `kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def terminate(self) -> int:
        """Stop it with SIGTERM; returns its exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(PATIENCE_S)
        self._process = None
        return code

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_CHARACTERS_SHOWN:]


def _class_archive(java: str) -> Path:
    """Return where the archive of ZooKeeper's classes is, for this Java and these jars."""
    files = sorted(glob.glob(pyspark_class_path()))
    versions = "".join(
        f"{one} {os.stat(one).st_mtime_ns} " for one in (os.path.realpath(java), *files)
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = f"zookeeper-{hashlib.sha256(versions.encode()).hexdigest()[:12]}.jsa"
    return cache / "ottla" / "archives" / name


class Ensemble:
    """ZooKeeper servers."""

    def __init__(self, folder: Path, ports: ExitStack) -> None:
        self._class_path = pyspark_class_path()
        self._servers = {
            number: _ServerProcess(f"ZooKeeper {number}", folder / f"zookeeper-{number}.log", ports)
            for number in NODES
        }
        members = [Member(HOST, _reserved(ports), _reserved(ports)) for _ in NODES]
        self._configs = {
            number: ServerConfig(
                folder / f"zookeeper-{number}",
                server.port,
                tick_ms=TICK_MS,
                id=number,
                ensemble=members,
            )
            for number, server in self._servers.items()
        }
        self._archive = _class_archive(self._configs[NODES[0]].command(self._class_path)[0])

    @property
    def connect(self) -> str:
        return ",".join(config.connect for config in self._configs.values())

    @property
    def ports(self) -> Sequence[int]:
        """The ports for clients."""
        return [server.port for server in self._servers.values()]

    def launch(self, *numbers: int) -> None:
        """Start some servers without waiting until they serve clients."""
        for number in numbers:
            self._configs[number].write()
            options = (f"-XX:SharedArchiveFile={self._archive}",) if self._archive.exists() else ()
            self._spawn(number, *options)

    def _spawn(self, number: int, *options: str) -> None:
        java, *words = self._configs[number].command(self._class_path)
        self._servers[number].spawn((java, *options, *words))

    def write_class_archive(self) -> None:
        """Write the archive of ZooKeeper's classes, unless there is one.

        A server writes it when it ends. A server that maps it starts with half of the processor
        time, because it reads and verifies fewer classes.
        """
        if self._archive.exists():
            return
        self._archive.parent.mkdir(parents=True, exist_ok=True)
        part = self._archive.with_suffix(f".{os.getpid()}")
        recorded, *others = NODES
        self.launch(*others)
        self._configs[recorded].write()
        ignore_missing = "-XX:+IgnoreUnrecognizedVMOptions"  # for a Java that cannot write it
        self._spawn(recorded, ignore_missing, f"-XX:ArchiveClassesAtExit={part}")
        self.wait_until_serving()
        self._servers[recorded].terminate()
        with suppress(FileNotFoundError):
            os.replace(part, self._archive)

    def start(self, *numbers: int) -> None:
        """Start some servers; returns when they serve clients."""
        self.launch(*numbers)
        self.wait_until_serving()

    def wait_until_serving(self) -> None:
        """Wait until all servers that run serve clients."""
        for number in self.running:
            wait_until(f"ZooKeeper {number} serves", partial(self._serves, number))

    @property
    def running(self) -> list[int]:
        """The servers that run."""
        return [number for number, server in self._servers.items() if server.running]

    def _serves(self, number: int) -> bool:
        self._servers[number].check_running()
        return self._configs[number].answers(RESPONSE_S)

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self._servers[number].kill()

    def states(self, topic: str, partitions: int) -> list[StateNode]:
        """Return the stored states of a topic's partitions."""
        client: Any = KazooClient(self.connect, timeout=PATIENCE_S)  # it has no type hints
        client.start(PATIENCE_S)
        try:
            paths = [state_path(topic, index) for index in range(partitions)]
            return [parse_state(client.get(path)[0], path) for path in paths]
        finally:
            client.stop()
            client.close()


class BrokerProcess(_ServerProcess):
    """`ottla broker` with a listener for clients, one for brokers, and the metrics page."""

    def __init__(
        self, number: int, folder: Path, connect: str, ports: ExitStack, prefix: Sequence[str]
    ) -> None:
        super().__init__(f"broker {number}", folder / f"broker-{number}.log", ports)
        self.id = number
        self.internal_port = _reserved(ports)
        self.advertised_internal_port = self.internal_port  # or that of a proxy
        self.connect = connect  # the ZooKeeper servers, or proxies for them
        self.environment: Mapping[str, str] = {}
        self._metrics_port = _reserved(ports)
        self._prefix = prefix
        self._settings: Mapping[str, object] = {
            "node.id": number,
            "listeners": self._endpoints(self.internal_port),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": folder / f"broker-{number}",
            "zookeeper.connection.timeout.ms": 60_000,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "replica.lag.time.max.ms": LAG_TIME_MAX_MS,
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": 3,
            "offsets.topic.num.partitions": 3,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "ottla.metrics.listener": f"{HOST}:{self._metrics_port}",
        }

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    def _endpoints(self, internal_port: int) -> str:
        return f"PLAINTEXT://{HOST}:{self.port},INTERNAL://{HOST}:{internal_port}"

    def launch(self) -> None:
        """Start it without waiting until it serves requests."""
        advertised = self._endpoints(self.advertised_internal_port)
        settings = {
            **self._settings,
            "advertised.listeners": advertised,
            "zookeeper.connect": self.connect,
        }
        words = [
            word for item in settings.items() for word in ("--override", "{}={}".format(*item))
        ]
        self.spawn((*self._prefix, OTTLA, "broker", *words), self.environment)

    def wait_until_serving(self) -> None:
        wait_until(f"{self.name} serves", self._serves)

    def start(self) -> None:
        """Start it; returns when it serves requests."""
        self.launch()
        self.wait_until_serving()

    def _serves(self) -> bool:
        self.check_running()
        with suppress(OSError):
            socket.create_connection(self.address, RESPONSE_S).close()
            return True
        return False

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def metric(self, name: str) -> float:
        """Return the value of a metric without labels."""
        url = f"http://{HOST}:{self._metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
            lines: list[str] = page.read().decode().splitlines()
        (found,) = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
        return float(found)


@dataclass(frozen=True, slots=True)
class Seen:
    """The cluster as one broker knows it."""

    metadata: MetadataResponse
    topic: str

    @property
    def controller(self) -> int:
        return self.metadata.controller_id

    @property
    def leaders(self) -> dict[int, int]:
        """The leaders by partition."""
        return {one.partition_index: one.leader_id for one in self._partitions}

    @property
    def in_sync(self) -> dict[int, set[int]]:
        """The ISRs by partition."""
        return {one.partition_index: {*one.isr_nodes} for one in self._partitions}

    @property
    def _partitions(self) -> Sequence[MetadataResponsePartition]:
        (found,) = [one.partitions for one in self.metadata.topics if one.name == self.topic]
        return found

    @property
    def is_whole(self) -> bool:
        """Whether all replicas of all topics are in sync."""
        partitions = [one for topic in self.metadata.topics for one in topic.partitions]
        return (
            self.controller in NODES
            and len(self.metadata.brokers) == len(NODES)
            and all(one.leader_id in NODES for one in partitions)
            and all({*one.isr_nodes} == {*NODES} for one in partitions)
        )


class SmallDisk:
    """A file system in memory with a limited size, in a mount namespace of its own.

    It needs no rights of root where the system lets users create namespaces. Processes with
    `prefix` see it as `folder`.
    """

    SIZE_MB: Final = 96

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        mount = (
            f"mount -t tmpfs -o size={self.SIZE_MB}m tmpfs '{folder}' && echo mounted && exec cat"
        )
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._holder = subprocess.Popen(
            ("unshare", "--map-root-user", "--mount", "sh", "-c", mount),
            stdin=pipe,
            stdout=pipe,
            stderr=null,
        )
        assert self._holder.stdout is not None
        self.is_mounted = self._holder.stdout.readline() == b"mounted\n"
        pid = self._holder.pid
        enter = ("nsenter", "--user", "--mount", "--preserve-credentials", "--target", str(pid))
        self.prefix: Sequence[str] = enter if self.is_mounted else ()
        self._filler = Path(f"/proc/{pid}/root{folder}/filler")

    @classmethod
    def mounted(cls, folder: Path) -> "SmallDisk | None":
        """Return a mounted disk, or None if the system does not allow it."""
        if shutil.which("unshare") is None or shutil.which("nsenter") is None:
            return None
        disk = cls(folder)
        if disk.is_mounted:
            return disk
        disk.close()
        return None

    def fill(self) -> None:
        """Leave no space."""
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0")

    def free(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


@dataclass
class ProcessCluster:
    """Three brokers and their ensemble; all run at the start of the `with`."""

    folder: Path
    topic: str
    partitions: int
    brokers: dict[int, BrokerProcess] = field(default_factory=dict[int, BrokerProcess])
    _resources: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.ensemble = Ensemble(self.folder, self._resources)
        self.small_disk = SmallDisk.mounted(self.folder / "broker-3")  # of broker 3
        for number in NODES:
            prefix = self.small_disk.prefix if self.small_disk and number == NODES[-1] else ()
            self.brokers[number] = BrokerProcess(
                number, self.folder, self.ensemble.connect, self._resources, prefix
            )

    def __enter__(self) -> Self:
        try:
            self.ensemble.write_class_archive()
            self.repair()
            self.wait_until_whole()  # brokers accept connections before they are registered
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for broker in self.brokers.values():
            broker.kill()
        self.ensemble.kill(*NODES)
        if self.small_disk is not None:
            self.small_disk.close()
        self._resources.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{one.port}" for one in self.brokers.values())

    def seen_by(self, broker: BrokerProcess) -> Seen | None:
        """Return what a broker knows; None if it does not respond."""
        with suppress(OSError), Wire(broker.address, RESPONSE_S) as wire:
            return Seen(wire.ask(MetadataRequest(topics=None), 9, MetadataResponse), self.topic)
        return None

    def wait_until_seen(
        self, what: str, by: Sequence[int], condition: Callable[[Seen], bool]
    ) -> None:
        """Wait until each of some brokers knows something."""
        for number in by:

            def is_known(broker: BrokerProcess = self.brokers[number]) -> bool:
                seen = self.seen_by(broker)
                return seen is not None and condition(seen)

            wait_until(f"broker {number} knows: {what}", is_known, METADATA_POLL_S)

    def wait_until_whole(self) -> Seen:
        """Wait until every broker knows that all replicas are in sync; returns what they know."""
        self.wait_until_seen("all replicas are in sync", NODES, lambda seen: seen.is_whole)
        seen = self.seen_by(self.brokers[NODES[0]])
        assert seen is not None
        return seen

    def wait_until_controller(self, number: int) -> None:
        """Wait until a broker is the controller."""
        self.wait_until_seen("it controls", [number], lambda seen: seen.controller == number)

    def repair(self) -> None:
        """Start what does not run; returns when everything serves requests."""
        self.ensemble.launch(*(one for one in NODES if one not in self.ensemble.running))
        for broker in self.brokers.values():
            if not broker.running:
                broker.launch()
        self.ensemble.wait_until_serving()
        for broker in self.brokers.values():
            broker.wait_until_serving()

    def isr_shrinks(self) -> float:
        """Return how often leaders have removed slow followers from ISRs."""
        return sum(one.metric("ottla_isr_shrinks_total") for one in self.brokers.values())
