"""One broker of Apache Kafka in a folder of its own: a controller of its own, or one of several.

Invariant: while `running`, it answers. At the end of the `with` its process has ended and its
folder is gone, whatever happened in between. What it logs is in `log`; a failure shows the end of
it. It listens on loopback alone, on ports that were free.

    with KafkaBroker({"log.cleaner.backoff.ms": 100}) as kafka:
        produce_to(kafka.bootstrap)
        kafka.kill()  # as kill -9 does; `kafka.data` is what is left
        kafka.start()  # the same data; other ports, unless it keeps_ports
        kafka.stop()  # cleanly

More listeners are named with their protocols: KafkaBroker(listeners={"TLS": "SSL"}) listens on
`kafka.ports["TLS"]` too. What they need is in the settings, as listener.name.tls.….
Several that are one cluster: `kafka_cluster.py`.

The broker is a child in the group of processes that started it, so that ^C ends both.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from judges.alone import ALONE
from judges.java import java_command
from judges.wire import Wire
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SMALL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Starts soon and takes little: for tests."""

SERVER_JVM = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
              "-XX:InitiatingHeapOccupancyPercent=35", "-XX:MaxInlineLevel=15")  # fmt: skip
"""What Kafka's own scripts give it: for benchmarks."""

_LOGGING = tuple(
    f"-Dorg.slf4j.simpleLogger.{setting}"
    for setting in ("showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS", "showThreadName=false")
)

_CLUSTER_ID = "b3R0bGEtanVkZ2VzLTAwMA"
_HOST = "127.0.0.1"
_LOG_LINES_SHOWN = 40
_POLL_S = 0.05
_PORT_TRIES = 3

_ALONE: Mapping[str, object] = {
    **ALONE,
    # After a kill the next start waits until the one before it counts as gone, 9 s by default.
    # On a busy machine less would let a broker that lives count as gone.
    "broker.session.timeout.ms": 6000,
    "broker.heartbeat.interval.ms": 500,
}


class KafkaFailed(Exception):
    """Kafka did not do what it was started for; the text has the end of its log."""


class KafkaBroker:
    """Started when its `with` begins; `settings` are lines of server.properties."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        formatting: tuple[str, ...] = (),
        jvm: tuple[str, ...] = SMALL_JVM,
        timeout_s: float = 180,
        keeps_ports: bool = False,
        node_id: int = 1,
    ) -> None:
        self.node_id = node_id
        self.voters: str | None = None  # of the controllers, where it is not the only one
        self._keeps_ports = keeps_ports
        self._held: list[socket.socket] = []  # ports that are its own while it is down
        self.settings = {**_ALONE, **(settings or {})}
        self.timeout_s = timeout_s  # for a start, and for a clean stop
        self.port = 0
        self.ports: dict[str, int] = {}  # of the listeners that were asked for besides
        self._listeners = {**(listeners or {})}
        self._formatting = formatting  # more arguments of `kafka-storage format`
        self._jvm = (*jvm, *_LOGGING)
        java_command("")  # NoJudge comes up before there is anything to clean up
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self.data = self._folder / "data"
        self.log = self._folder / "server.log"
        self._properties = self._folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.format()
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.said())
        self.remove()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return _HOST, self.port

    @property
    def bootstrap(self) -> str:
        """The same as clients want it."""
        return f"{_HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """Of the Java process, for who wants to see what it costs."""
        assert self._process is not None
        return self._process.pid

    @property
    def voter(self) -> str:
        """Its controller as the others of a cluster want it; of one that keeps its ports."""
        assert self._keeps_ports
        return self._voter(self._ports()[1])

    def wire(self) -> Wire:
        """A connection to it."""
        return Wire(self.address, self.timeout_s)

    def start(self) -> None:
        """Start it on what is in its data directory; returns when it answers."""
        assert not self.running
        for _ in range(_PORT_TRIES):
            began_at = self.log.stat().st_size if self.log.exists() else 0
            self._write_properties()
            with self.log.open("ab") as log:
                self._process = self._run(log)
            if self._answers():
                return
            self.kill()
            # A port may be taken by another process between the choice and the start.
            if "Address already in use" not in self.log.read_text()[began_at:]:
                break
        raise KafkaFailed(f"Kafka did not start.\n{self.said()}")

    def stop(self) -> None:
        """Stop it cleanly."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise KafkaFailed(f"Kafka did not stop.\n{self.said()}") from None
        self._process = None

    def kill(self) -> None:
        """End its process at once, as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """End it, and delete everything it wrote."""
        self.kill()
        for one in self._held:
            one.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def format(self) -> None:
        """Make its folder one of the cluster's, before the first start."""
        self._write_properties()
        arguments = ("format", "--cluster-id", _CLUSTER_ID, "--config", str(self._properties))
        command = java_command(
            "kafka.tools.StorageTool", *arguments, *self._formatting, options=self._jvm
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KafkaFailed(f"Kafka did not format its folder.\n{done.stdout}{done.stderr}")

    def _write_properties(self) -> None:
        self.port, controller, *others = self._ports()
        self.ports = dict(zip(self._listeners, others, strict=True))
        named = {"PLAINTEXT": self.port, "CONTROLLER": controller, **self.ports}
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._listeners}
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": self.node_id,
            "controller.quorum.voters": self.voters or self._voter(controller),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://{_HOST}:{port}" for name, port in named.items()),
            "log.dirs": self.data,
            **self.settings,
        }
        if self._listeners:  # else it is Kafka's default, and is told as one
            settings["listener.security.protocol.map"] = ",".join(map(":".join, protocols.items()))
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        self._properties.write_text("".join(lines))

    def _ports(self) -> list[int]:
        count = 2 + len(self._listeners)
        if self._keeps_ports and not self._held:
            self._held = [_held_port() for _ in range(count)]
        return [one.getsockname()[1] for one in self._held] or _free_ports(count)

    def _voter(self, port: int) -> str:
        return f"{self.node_id}@{_HOST}:{port}"

    def _run(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        command = java_command("kafka.Kafka", str(self._properties), options=self._jvm)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers(self) -> bool:
        """Wait until it answers; False when it ends or takes too long."""
        deadline_s = time.monotonic() + self.timeout_s
        while self.running and time.monotonic() < deadline_s:
            # It takes requests once the cluster knows it; before, connections are refused or wait.
            with suppress(OSError), self.wire() as wire:
                wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
                return True
            time.sleep(_POLL_S)
        return False

    def said(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return "Kafka has logged nothing."
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        return "\n".join(["Kafka's log ends so:", *lines])


def _held_port() -> socket.socket:
    """A port that is given to nobody else, and that a broker can listen on all the same."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((_HOST, 0))
    return held


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on, all different."""
    sockets = [socket.create_server((_HOST, 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
