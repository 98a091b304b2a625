"""Runs `ottla collect files` as a child process, and the services that write its files.

Invariant: a feed that was stopped has collected every line of the services. The collector also
stops if this process is killed (on Linux).
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from logs.log_files import LogFiles
from logs.services import lines
from ottla.errors import OttlaError
from shared.dev_broker import end_with_parent, ottla_command
from shared.example import Context

TOPIC: Final = "logs"
INTERVAL_S: Final = 0.1
STOP_S: Final = 30.0
EXAMPLES: Final = Path(__file__).parents[1]


class CollectorFailed(OttlaError):
    """The collector has ended; the text has the reason."""


def collect_command(directory: Path, servers: str, *more: str) -> list[str]:
    """Return the arguments of the command that collects the files of a directory."""
    # Rotated files match, too: files can be rotated while nothing collects them.
    said = ["collect", "files", str(directory / "files" / "*.log*"), "--topic", TOPIC]
    return [*said, "--state", str(directory / "collector"), "-b", servers, *more]


class CollectedLogs:
    """The feed of the example: services, and a collector that follows their files."""

    def __init__(self, context: Context) -> None:
        self.failure: Exception | None = None
        self._context = context
        self._log = context.directory / "collector.log"
        self._collector: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, name="services", daemon=True)

    def __enter__(self) -> "CollectedLogs":
        self._log.unlink(missing_ok=True)
        self._collector = self._start()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the services and collect their last lines; a second call does nothing."""
        self._stopping.set()
        self._thread.join()
        collector, self._collector = self._collector, None
        if collector is None:
            return
        collector.terminate()
        _wait(collector)
        if self._context.is_broker_running():
            _wait(self._start("--once"))

    def _start(self, *more: str) -> "subprocess.Popen[bytes]":
        context = self._context
        arguments = collect_command(context.directory, context.servers, *more)
        paths = [str(EXAMPLES), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "logs.collector", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # Ctrl-C is for this process, which stops the collector
            )

    def _write(self) -> None:
        context, start_ms = self._context, self._context.start_ms
        try:
            with LogFiles(context.directory / "files") as files:
                while not self._stopping.wait(INTERVAL_S):
                    end_ms = time.time_ns() // 1_000_000
                    files.write(lines(context.seed, start_ms, end_ms))
                    start_ms = max(start_ms, end_ms)
                    collector = self._collector
                    if collector is not None and collector.poll() is not None:
                        raise CollectorFailed(f"the collector has ended; see {self._log}")
        except (OttlaError, OSError) as error:
            self.failure = error


def _wait(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    end_with_parent()
    os.execv(ottla_command(), [ottla_command(), *sys.argv[1:]])
