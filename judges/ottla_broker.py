"""Our broker in its own process, started by its command: for tests and benchmarks.

Invariant: at the end of the `with` its process has ended. It listens only on loopback, on a port
that stays reserved while it is down. It logs to `log`, and a failure shows the log.

    with OttlaBroker(folder, "log.cleaner.backoff.ms=100") as broker:
        broker.start()
        produce_to(broker.bootstrap)
        broker.kill()  # like kill -9; `broker.data` stays
        broker.start()  # the same data, the same port
        assert broker.stop() == 0
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, Self

from judges.single_node import SINGLE_NODE
from judges.wire import Wire

OTTLA = str(Path(sys.executable).parent / "ottla")
TIMEOUT_S = 120.0  # for a start and for a stop, on a busy machine

UNCOMPILED = "PYTHONDONTWRITEBYTECODE"

_HOST = "127.0.0.1"
_POLL_S = 0.002
_LOG_CHARACTERS_SHOWN = 4000


class Process(Protocol):
    """What a broker's process can do, as with `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its id."""
        ...

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code when it has ended."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""

    def kill(self) -> None:
        """Kill it."""


def new_process(command: Sequence[str], log: Path, env: Mapping[str, str]) -> Process:
    """Start a new interpreter, as a shell does; some tests replace this function."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=output, stdout=output, env=env
        )


class OttlaBroker:
    """`ottla broker`, which can be started repeatedly; the end of the `with` ends it."""

    def __init__(
        self,
        folder: Path,
        *overrides: str,
        config: Path | None = None,
        log: Path | None = None,
        data: Path | None = None,
    ) -> None:
        # Bound without listening: no other process gets the port, and the broker can listen on it.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind((_HOST, 0))
        self.port = int(self._reserved.getsockname()[1])
        self.data = data or folder / "data"
        self.log = log or folder / "broker.log"
        settings = (f"listeners=PLAINTEXT://{self.bootstrap}", f"log.dirs={self.data}", *overrides)
        self._command: Sequence[str] = (
            *(OTTLA, "broker"),
            *(() if config is None else ("--config", str(config))),
            *(word for one in settings for word in ("--override", one)),
        )
        self._process: Process | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The address on which it listens."""
        return _HOST, self.port

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for clients."""
        return f"{_HOST}:{self.port}"

    @property
    def process_id(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self.log.exists():
            log_end = self.log.read_text(errors="replace")[-_LOG_CHARACTERS_SHOWN:]
            error.add_note(f"Log of the broker:\n{log_end}")
        self.close()

    def close(self) -> None:
        """Kill it, and release its port."""
        self.kill()
        self._reserved.close()

    def wire(self) -> Wire:
        """Connect to it."""
        return Wire(self.address)

    # Starting and ending.

    def spawn(self) -> None:
        """Start it without waiting until it serves requests."""
        # Installed modules are compiled; allow the broker to write its compiled modules too.
        env = {name: value for name, value in os.environ.items() if name != UNCOMPILED}
        self._process = new_process(self._command, self.log, env)

    def start(self) -> None:
        """Start it; returns when it serves requests."""
        self.spawn()
        self.wait_until_served()

    def wait_until_served(self) -> None:
        """Return when it serves requests, after `spawn`."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not self.serves():
            assert time.monotonic() < deadline_s, self.log.read_text()
            time.sleep(_POLL_S)

    def serves(self) -> bool:
        """Whether it accepts connections, which it does once everything is ready."""
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        try:
            socket.create_connection(self.address, 5).close()
        except (ConnectionError, TimeoutError):  # no process listens yet, or the machine is busy
            return False
        return True

    def kill(self) -> None:
        """Kill it, like `kill -9`; returns when its port is free."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._wait_for_port()

    def _wait_for_port(self) -> None:
        # A child that the broker was starting holds the broker's sockets from its fork to its exec.
        # A client that connects meanwhile would take it for the next broker, and its connection
        # would be reset when the child closes the sockets.
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                socket.create_connection(self.address, 5).close()
            except ConnectionRefusedError:
                return
            except (
                ConnectionError,
                TimeoutError,
            ):  # just closed, or its backlog is full
                pass
            assert time.monotonic() < deadline_s, f"a process still listens on {self.bootstrap}"
            time.sleep(_POLL_S)

    def stop(self) -> int:
        """Stop it cleanly; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(TIMEOUT_S)
        self._process = None
        return code

    # Measurements of the operating system.

    def resident_bytes(self) -> int:
        """Its current resident memory."""
        return self._status_bytes("VmRSS")

    def resident_peak_bytes(self) -> int:
        """Its peak resident memory since the last reset."""
        return self._status_bytes("VmHWM")

    def forget_peak(self) -> None:
        """Reset the peak to the current resident memory."""
        Path(f"/proc/{self.process_id}/clear_refs").write_text("5")

    def ports(self) -> set[int]:
        """The ports on which it listens."""
        links: set[str] = set()
        for one in Path(f"/proc/{self.process_id}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                links.add(os.readlink(one))
        found: set[int] = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self.process_id}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in links:
                    found.add(int(words[1].rpartition(":")[2], 16))
        return found

    def _status_bytes(self, name: str) -> int:
        for line in Path(f"/proc/{self.process_id}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"there is no {name}")


@contextmanager
def ottla_broker(settings: Mapping[str, object] | None = None) -> Generator[OttlaBroker]:
    """A running broker with the settings of the judge, until the end of the `with`."""
    given = {"node.id": 1, **SINGLE_NODE, **(settings or {})}
    folder = Path(tempfile.mkdtemp(prefix="ottla-"))
    try:
        with OttlaBroker(folder, *(f"{name}={value}" for name, value in given.items())) as broker:
            broker.start()
            yield broker
    finally:
        shutil.rmtree(folder, ignore_errors=True)
