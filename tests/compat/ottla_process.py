"""Our broker as a process of its own, started as a user starts it, for clients that are not ours.

Invariant: inside the `with` it answers; at its end the process is gone. It listens on loopback
alone, on a port that was free. What it logs is in `log`, and a failure shows it.
"""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from judges.wire import Wire
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

OTTLA = str(Path(sys.executable).parent / "ottla")
START_S = 30

ALONE: Mapping[str, object] = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
}
"""The same as the judge has: one broker is enough, and nothing waits for company."""


class OttlaProcess:
    """A broker that runs."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        self.process = process
        self.address = ("127.0.0.1", port)
        self.bootstrap = f"127.0.0.1:{port}"
        self.data = folder / "data"
        self.log = folder / "broker.log"

    def wire(self) -> Wire:
        """A connection to it."""
        return Wire(self.address)

    def stop(self) -> int:
        """Stop it cleanly; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_S)


@contextmanager
def ottla_broker(settings: Mapping[str, object] | None = None) -> Generator[OttlaProcess]:
    """A running broker of ours, for as long as the `with` lasts."""
    with TemporaryDirectory(prefix="ottla-") as name:
        folder = Path(name)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        given: dict[str, object] = {
            "node.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": folder / "data",
            **ALONE,
            **(settings or {}),
        }
        overrides = [word for key in given for word in ("--override", f"{key}={given[key]}")]
        with (folder / "broker.log").open("wb") as log:
            process = subprocess.Popen(
                [OTTLA, "broker", *overrides], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        running = OttlaProcess(process, port, folder)
        try:
            _wait_until_it_answers(running)
            yield running
        except BaseException as error:
            error.add_note(f"Our broker said:\n{running.log.read_text()[-4000:]}")
            raise
        finally:
            process.kill()
            process.wait()


def _wait_until_it_answers(running: OttlaProcess) -> None:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and running.process.poll() is None:
        with suppress(OSError), running.wire() as wire:
            wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            return
        time.sleep(0.02)
    raise AssertionError("our broker did not start")
