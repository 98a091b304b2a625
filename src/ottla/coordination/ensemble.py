"""A ZooKeeper server on this machine, for local clusters.

Invariant: between `start` and `stop` the server answers on loopback. Acknowledged writes are in its
folder and survive a restart. The process ends with the `with` block. The server is Apache
ZooKeeper; its jars come from PySpark or from the class path that the caller passes.

Every function here blocks: call it outside an event loop or in a thread.
"""

import glob
import importlib.util
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.coordination.errors import EnsembleFailed

HOST: Final = "127.0.0.1"
TICK_MS: Final = 2000  # ZooKeeper's default; session timeouts range from 2 to 20 ticks

_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
# Fast start and a small heap: the server stores little data.
_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_S: Final = 60.0
_STOP_S: Final = 20.0
_POLL_S: Final = 0.05
_PORT_TRIES: Final = 3
_LOG_LINES_SHOWN: Final = 30


def pyspark_class_path() -> str:
    """Return the class path of the jars that PySpark ships, which include ZooKeeper."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnsembleFailed(
            "no ZooKeeper jars found: they come with PySpark, pip install 'ottla[spark]'"
        )
    jars = str(Path(spec.origin).parent / "jars")
    if not glob.glob(f"{glob.escape(jars)}/zookeeper-3*.jar"):
        raise EnsembleFailed(f"there is no ZooKeeper in {jars}: pip install 'ottla[spark]'")
    return f"{jars}/*"


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
        return f"{HOST}:{self.port}"

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
        if shutil.which("java") is None:
            raise EnsembleFailed("ZooKeeper needs java: install Java 17")
        self._folder.mkdir(parents=True, exist_ok=True)
        for _ in range(_PORT_TRIES):
            if self._any_port:
                self.port = _free_port()
            self._write_settings()
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

    def _write_settings(self) -> None:
        lines = [
            f"dataDir={self._folder / 'data'}",
            f"clientPort={self.port}",
            f"clientPortAddress={HOST}",
            f"tickTime={self._tick_ms}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
        ]
        (self._folder / "zoo.cfg").write_text("".join(f"{line}\n" for line in lines))

    def _run(self) -> None:
        command = ["java", *_JVM, "-cp", self._class_path, _MAIN, str(self._folder / "zoo.cfg")]
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
            with suppress(OSError), socket.create_connection((HOST, self.port), 5) as connection:
                connection.sendall(b"srvr")
                if b"Mode: " in connection.makefile("rb").read():
                    return True
            time.sleep(_POLL_S)
        return False

    def _said(self) -> str:
        text = (self._folder / "server.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-_LOG_LINES_SHOWN:])


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
    return port
