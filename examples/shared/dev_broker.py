"""Runs a broker as a child process, with the command `ottla dev`.

Invariant: the broker starts with the `with` block and stops with it. It also stops if this process
is killed (on Linux).
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

from ottla.errors import OttlaError

STOP_S: Final = 30.0
_PR_SET_PDEATHSIG: Final = 1  # from Linux's prctl.h


class BrokerFailed(OttlaError):
    """The broker did not start, or has ended; the text has the reason."""


class DevBroker:
    """A broker that runs as long as the `with` block."""

    def __init__(self, port: int, data: Path, log: Path) -> None:
        self._command = [ottla_command(), "dev", "--port", str(port), "--data", str(data)]
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._address: str | None = None

    def __enter__(self) -> "DevBroker":
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for this process, which stops the broker
                preexec_fn=_BEFORE_EXEC,  # noqa: PLW1509  (there are no other threads yet)
            )
        return self

    def wait_until_listening(self) -> str:
        """Wait until the broker listens, and return its address; raise BrokerFailed if it ends."""
        if self._address is None:
            process = self._process
            assert process is not None
            output: IO[str] | None = process.stdout
            assert output is not None
            found = re.search(r"\S+:\d+", output.readline())  # the first line
            if found is None:
                raise BrokerFailed(self._error(process.wait()))
            self._address = found[0]
        return self._address

    def __exit__(self, *exception: object) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def check(self) -> None:
        """Raise BrokerFailed if the broker has ended."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            raise BrokerFailed(self._error(code))

    @property
    def is_running(self) -> bool:
        """Whether the broker has not ended."""
        return self._process is not None and self._process.poll() is None

    def _error(self, code: int) -> str:
        """Why the broker ended: its last error, or how the process ended."""
        if code < 0:
            ended = f"the broker was killed by {signal.Signals(-code).name}"
        else:
            ended = f"the broker ended with exit code {code}"
        lines = self._log.read_text(errors="replace").strip().splitlines()
        is_error = lines and (not lines[-1].startswith("time=") or " level=error " in lines[-1])
        return (
            f"{ended}: {lines[-1].removeprefix('ottla: ')}"
            if is_error
            else f"{ended}; see {self._log}"
        )


def ottla_command() -> str:
    """The path of the command `ottla` of this Python."""
    return str(Path(sys.executable).parent / "ottla")


def end_with_parent() -> None:
    """Let this process end when the process that started it ends (on Linux)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # the parent was killed before the call
        os._exit(1)


_BEFORE_EXEC = end_with_parent if sys.platform == "linux" else None
