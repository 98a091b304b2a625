"""A broker beside this process: `ottla dev`, as one would start it by hand.

Invariant: it begins with the `with` and listens when `listening()` returns, or BrokerFailed says in
its own words why not. It is asked to stop at the end, and ends as well when this process is killed
(on Linux).
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

from sensors.failure import Failed

STOP_S: Final = 30.0
_PR_SET_PDEATHSIG: Final = 1  # a number of Linux


class BrokerFailed(Failed):
    """There is no broker; the text is what it said last."""


class DevBroker:
    """Runs while the `with` lasts."""

    def __init__(self, port: int, data: Path, log: Path) -> None:
        self._command = [ottla(), "dev", "--port", str(port), "--data", str(data)]
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "DevBroker":
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for this process, which ends it in turn
                preexec_fn=_DYING,  # noqa: PLW1509  (there are no other threads yet)
            )
        return self

    def listening(self) -> str:
        """The address, once it listens there; BrokerFailed when it does not."""
        process = self._process
        assert process is not None
        said: IO[str] | None = process.stdout
        assert said is not None
        found = re.search(r"listens on (\S+)\.", said.readline())  # its first line
        if found is None:
            process.wait()
            raise BrokerFailed(self._last_words())
        return found[1]

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

    @property
    def failure(self) -> str | None:
        """What it said last when it has ended."""
        if self._process is not None and self._process.poll() is None:
            return None
        return self._last_words()

    def _last_words(self) -> str:
        lines = self._log.read_text().strip().splitlines()
        return lines[-1] if lines else f"the broker has ended; {self._log} is empty"


def ottla() -> str:
    """The command of this environment."""
    return str(Path(sys.executable).parent / "ottla")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # it was killed before this
        os._exit(1)


_DYING = _end_with_parent if sys.platform == "linux" else None
