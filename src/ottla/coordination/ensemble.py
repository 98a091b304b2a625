"""ZooKeeper servers on this machine, for local clusters.

Invariant: between `start` and `stop` a LocalServer answers on loopback. Acknowledged writes are in
its folder and survive a restart. The process ends with the `with` block. The server is Apache
ZooKeeper; its jars come from PySpark or from the class path that the caller passes.

Every function here blocks: call it outside an event loop or in a thread.
"""

import glob
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from ottla.coordination.errors import EnsembleFailed
from ottla.release import INSTALL_JAVA, how_to_install

HOST: Final = "127.0.0.1"
TICK_MS: Final = 2000  # ZooKeeper's default
PEER_PORT: Final = 2888  # as in ZooKeeper's documentation
ELECTION_PORT: Final = 3888

_STANDALONE: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_MEMBER: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Fast start and a small heap: the server stores little data. The log goes to stdout.
_JVM: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.level=INFO",
    "-Dzookeeper.jmx.log4j.disable=true",
)
_SESSION_MS_MIN, _SESSION_MS_MAX = 1000, 60_000
_INIT_MS, _SYNC_MS = 20_000, 10_000  # for a member to catch up with its leader
_START_S: Final = 60.0
_STOP_S: Final = 20.0
_POLL_S: Final = 0.05
_PORT_TRIES: Final = 3
_LOG_LINES_SHOWN: Final = 30


def keep_files_private() -> None:
    """Let other users read no file that this process and its children create from now on.

    ZooKeeper's data has the password of the brokers.
    """
    os.umask(os.umask(0o077) | 0o027)


def pyspark_class_path() -> str:
    """Return the class path of the jars that PySpark ships, which include ZooKeeper."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnsembleFailed(
            f"no ZooKeeper jars found, PySpark has them: {how_to_install('spark')}"
        )
    jars = str(Path(spec.origin).parent / "jars")
    if not glob.glob(f"{glob.escape(jars)}/zookeeper-3*.jar"):
        raise EnsembleFailed(f"there is no ZooKeeper in {jars}: {how_to_install('spark')}")
    return f"{jars}/*"


def server_command(class_path: str, file: str, main: str = _MEMBER) -> Sequence[str]:
    """Return the command that runs a server with a configuration file in the foreground."""
    # As Spark does: JAVA_HOME, else the PATH.
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        where = f"there is none in JAVA_HOME={home}" if home else "there is none on the PATH"
        raise EnsembleFailed(f"ZooKeeper needs Java, but {where}: {INSTALL_JAVA}")
    return (java, *_JVM, "-cp", class_path, main, file)


class Member(NamedTuple):
    """A server of an ensemble, and the ports on which the other servers reach it."""

    host: str
    peer_port: int = PEER_PORT
    election_port: int = ELECTION_PORT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.peer_port}:{self.election_port}"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server: standalone, or the member `id` of an ensemble, counted from 1."""

    folder: Path
    port: int
    host: str = HOST
    tick_ms: int = TICK_MS
    id: int = 1
    ensemble: Sequence[Member] = ()

    @property
    def connect(self) -> str:
        """The value for zookeeper.connect."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def text(self) -> str:
        """Return the content of zoo.cfg."""
        lines = [
            f"dataDir={self.folder / 'data'}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.host}",
            f"tickTime={self.tick_ms}",
            f"minSessionTimeout={_SESSION_MS_MIN}",
            f"maxSessionTimeout={_SESSION_MS_MAX}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
        ]
        if self.ensemble:
            lines += (
                f"initLimit={_INIT_MS // self.tick_ms}",
                f"syncLimit={_SYNC_MS // self.tick_ms}",
            )
            lines += (f"server.{number}={one}" for number, one in enumerate(self.ensemble, 1))
        return "".join(f"{line}\n" for line in lines)

    def write(self) -> None:
        """Write the files that the server reads."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        (self.folder / "zoo.cfg").write_text(self.text())
        if self.ensemble:
            (self.folder / "data" / "myid").write_text(f"{self.id}\n")

    def command(self, class_path: str) -> Sequence[str]:
        """Return the command that runs the server in the foreground."""
        main = _MEMBER if self.ensemble else _STANDALONE
        return server_command(class_path, str(self.folder / "zoo.cfg"), main)

    def answers(self, timeout_s: float = 5) -> bool:
        """Whether the server serves clients; a member does so when the ensemble has a quorum."""
        host = {"0.0.0.0": HOST, "::": "::1"}.get(self.host, self.host)
        with suppress(OSError), socket.create_connection((host, self.port), timeout_s) as asked:
            asked.sendall(b"srvr")
            return b"Mode: " in asked.makefile("rb").read()
        return False


class LocalServer:
    """One ZooKeeper server with its files in a folder."""

    def __init__(
        self, folder: Path, class_path: str, *, port: int = 0, tick_ms: int = TICK_MS
    ) -> None:
        self.port = port
        self._any_port = port == 0
        self._folder = folder
        self._class_path = class_path
        self._tick_ms = tick_ms
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """The value for zookeeper.connect."""
        return self._config.connect

    @property
    def _config(self) -> ServerConfig:
        return ServerConfig(self._folder, self.port, tick_ms=self._tick_ms)

    @property
    def process_id(self) -> int:
        """The id of the server process, while it runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server process is alive."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server; return when it answers."""
        assert not self.running
        for _ in range(_PORT_TRIES):
            if self._any_port:
                self.port = _free_port()
            self._run()
            if self._answers():
                return
            self.kill()
            # Another process may take the port between the choice and the start.
            if not self._any_port or "Address already in use" not in self._said():
                break
        raise EnsembleFailed(f"ZooKeeper did not start. The end of its log:\n{self._said()}")

    def stop(self) -> None:
        """Stop the server; its files are consistent at any moment."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
            self.kill()

    def kill(self) -> None:
        """Kill the server at once, as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _run(self) -> None:
        config = self._config
        command = config.command(self._class_path)
        config.write()
        with (self._folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _answers(self) -> bool:
        """Wait until the server answers; return False if it exits or takes too long."""
        deadline_s = time.monotonic() + _START_S
        while self.running and time.monotonic() < deadline_s:
            # During startup connections are refused, or the reply is that the server is not serving
            # yet.
            if self._config.answers():
                return True
            time.sleep(_POLL_S)
        return False

    def _said(self) -> str:
        return end_of_log(self._folder / "server.log")


def end_of_log(path: Path) -> str:
    """Return the last lines of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
    return port
