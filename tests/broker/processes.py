"""A broker in a process of its own, on a port that stays its own while it is down."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

OTTLA = str(Path(sys.executable).parent / "ottla")
PATIENCE_SECONDS = 120.0  # with a start and a stop, on a machine that is busy


class BrokerProcess:
    """`ottla broker`, started as often as one likes; `with` ends it."""

    def __init__(
        self, folder: Path, *overrides: str, config: Path | None = None, log: Path | None = None
    ) -> None:
        # Held without listening: nobody else is given the port, and the broker can listen on it.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = int(self._reserved.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self.log = log or folder / "broker.log"
        settings = (f"listeners=PLAINTEXT://{self.address}", f"log.dirs={folder}/data", *overrides)
        self._command: Sequence[str] = (
            *(OTTLA, "broker"),
            *(() if config is None else ("--config", str(config))),
            *(word for one in settings for word in ("--override", one)),
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self._reserved.close()

    def spawn(self) -> None:
        """Start it, without waiting until it serves."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log, stdout=log)

    def start(self) -> None:
        self.spawn()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.serves():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except (ConnectionError, TimeoutError):  # nobody listens yet, or nobody has time
            return False
        return True

    def kill(self) -> None:
        """As `kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """As asked to; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(PATIENCE_SECONDS)
        self._process = None
        return code

    def resident_bytes(self) -> int:
        """The memory that it has now."""
        return self._status_bytes("VmRSS")

    def resident_peak_bytes(self) -> int:
        """The most memory that it had since it was asked to forget."""
        return self._status_bytes("VmHWM")

    def ports(self) -> set[int]:
        """Where it listens."""
        descriptors = Path(f"/proc/{self.pid}/fd").iterdir()
        links = {os.readlink(one) for one in descriptors if one.is_symlink()}
        found: set[int] = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self.pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in links:
                    found.add(int(words[1].rpartition(":")[2], 16))
        return found

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status_bytes(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"there is no {name}")
