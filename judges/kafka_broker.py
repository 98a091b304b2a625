"""One broker of Apache Kafka in its own directory, with its own controller or as part of a cluster.

Invariant: while `running`, it serves requests. At the end of the `with` its process has ended and
its directory is deleted, whatever happened in between. It logs to `log`; a failure shows the end of
it. It listens only on loopback, on ports that are reserved for it.

    with KafkaBroker({"log.cleaner.backoff.ms": 100}) as kafka:
        produce_to(kafka.bootstrap)
        kafka.kill()  # like kill -9; `kafka.data` stays
        kafka.start()  # the same data; other ports, unless it keeps_ports
        kafka.stop()  # cleanly

More listeners are given with their protocols: KafkaBroker(listeners={"TLS": "SSL"}) also listens on
`kafka.ports["TLS"]`. Their settings are named listener.name.tls.…. `kafka_cluster.py` starts
several brokers as one cluster.

The broker is a child in the process group of its parent, so that ^C ends both.
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

from judges.java import archive_options, java_command
from judges.single_node import SINGLE_NODE
from judges.wire import Wire
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SMALL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For tests: starts fast and needs little memory. Not for benchmarks, and neither is an archive."""

SERVER_JVM = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
              "-XX:InitiatingHeapOccupancyPercent=35", "-XX:MaxInlineLevel=15")  # fmt: skip
"""For benchmarks: the options of Kafka's own scripts."""

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
    **SINGLE_NODE,
    # After a kill, the next start waits until the session of the killed broker expires, 9 s by
    # default. With a shorter timeout, a live broker could expire on a busy machine.
    "broker.session.timeout.ms": 6000,
    "broker.heartbeat.interval.ms": 500,
}


class KafkaFailed(Exception):
    """Kafka did not start, or failed later; the text has the end of its log."""


class KafkaBroker:
    """A Kafka process that starts with the `with`; `settings` are lines of server.properties."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        formatting: tuple[str, ...] = (),
        jvm: tuple[str, ...] = SMALL_JVM,
        maps_archive: bool = True,
        timeout_s: float = 180,
        keeps_ports: bool = False,
        node_id: int = 1,
    ) -> None:
        self.node_id = node_id
        self.voters: str | None = None  # the controllers of a cluster
        self._keeps_ports = keeps_ports
        self._held: list[socket.socket] = []  # its ports
        self.settings = {**_ALONE, **(settings or {})}
        self.timeout_s = timeout_s  # for a start and for a clean stop
        self.port = 0
        self.ports: dict[str, int] = {}  # of additional listeners
        self._listeners = {**(listeners or {})}
        self._formatting = formatting  # more arguments of `kafka-storage format`
        java_command("")  # raises NoJudge before there is anything to clean up
        self._jvm = (*jvm, *_LOGGING, *(archive_options() if maps_archive else ()))
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
            error.add_note(self.log_tail())
        self.remove()

    @property
    def address(self) -> tuple[str, int]:
        """The address on which it listens."""
        return _HOST, self.port

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for clients."""
        return f"{_HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """The id of the Java process, for measurements."""
        assert self._process is not None
        return self._process.pid

    @property
    def voter(self) -> str:
        """Its controller for controller.quorum.voters; needs keeps_ports."""
        assert self._keeps_ports
        return self._voter(self._ports()[1])

    def wire(self) -> Wire:
        """Connect to it."""
        return Wire(self.address, self.timeout_s)

    def start(self, *options: str) -> None:
        """Start it with its data directory and options of Java; returns when it serves requests."""
        assert not self.running
        for _ in range(_PORT_TRIES):
            began_at = self.log.stat().st_size if self.log.exists() else 0
            self._write_properties()
            with self.log.open("ab") as log:
                self._process = self._run(log, options)
            if self._answers():
                return
            self.kill()
            # Another process may take a port between the choice and the start.
            if "Address already in use" not in self.log.read_text()[began_at:]:
                break
        raise KafkaFailed(f"Kafka did not start.\n{self.log_tail()}")

    def stop(self) -> None:
        """Stop it cleanly."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise KafkaFailed(f"Kafka did not stop.\n{self.log_tail()}") from None
        self._process = None

    def kill(self) -> None:
        """Kill its process, like kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Kill it, and delete all of its files."""
        self.kill()
        self._release_ports()
        shutil.rmtree(self._folder, ignore_errors=True)

    def format(self) -> None:
        """Format its data directory for the cluster before the first start."""
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
        if self._listeners:  # otherwise it is Kafka's default, and is reported as a default
            settings["listener.security.protocol.map"] = ",".join(map(":".join, protocols.items()))
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        self._properties.write_text("".join(lines))

    def _ports(self) -> list[int]:
        if not self._keeps_ports:
            self._release_ports()
        self._held = self._held or [_held_port() for _ in range(2 + len(self._listeners))]
        return [one.getsockname()[1] for one in self._held]

    def _release_ports(self) -> None:
        for one in self._held:
            one.close()
        self._held = []

    def _voter(self, port: int) -> str:
        return f"{self.node_id}@{_HOST}:{port}"

    def _run(self, log: IO[bytes], options: tuple[str, ...]) -> subprocess.Popen[bytes]:
        options = (*self._jvm, *options)
        command = java_command("kafka.Kafka", str(self._properties), options=options)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers(self) -> bool:
        """Wait until it serves requests; False if it ends or takes too long."""
        deadline_s = time.monotonic() + self.timeout_s
        while self.running and time.monotonic() < deadline_s:
            # Until the broker is registered, connections are refused or wait.
            with suppress(OSError), self.wire() as wire:
                wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
                return True
            time.sleep(_POLL_S)
        return False

    def log_tail(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return "Kafka has logged nothing."
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        return "\n".join(["Kafka's log ends so:", *lines])


def _held_port() -> socket.socket:
    """Reserve a port that Kafka can listen on, and that no other process gets for port 0.

    Otherwise a broker of another test could listen on it first, and answer in Kafka's place.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((_HOST, 0))
    return held
