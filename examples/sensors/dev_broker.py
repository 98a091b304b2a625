"""A broker beside this process: `ottla dev`, as one would start it by hand.

Invariant: it begins with the `with` and listens when `listening()` returns, or BrokerFailed says in
its own words why not. Of one that has ended it is told how, and an error that it told last. It is
asked to stop at the end, and ends as well when this process is killed (on Linux).
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
TAKEN: Final = "choose another port"
OTHER_PORT: Final = "; here it is `make run ARGS='--port N'`"
_PR_SET_PDEATHSIG: Final = 1  # a number of Linux


class BrokerFailed(Failed):
    """There is no broker; the text says why."""


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
        output: IO[str] | None = process.stdout
        assert output is not None
        found = re.search(r"listens on (\S+)\.", output.readline())  # its first line
        if found is None:
            code = process.wait()
            said = self._last_words() or self._how(code)
            raise BrokerFailed(said + OTHER_PORT if TAKEN in said else said)
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
        """How it has ended, when it has, and why, if it said so."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        said = self._last_words()
        return (
            f"{self._how(code)}: {said}" if said else f"{self._how(code)}; {self._log} may say why"
        )

    def _how(self, code: int) -> str:
        if code < 0:
            return f"the broker was ended by {signal.Signals(-code).name}"
        return f"the broker has ended with exit code {code}"

    def _last_words(self) -> str | None:
        """What the command said itself, or an error that the broker told; no other news."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        if not lines or (lines[-1].startswith("time=") and " level=error " not in lines[-1]):
            return None
        return lines[-1]


def ottla() -> str:
    """The command of this environment."""
    return str(Path(sys.executable).parent / "ottla")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # it was killed before this
        os._exit(1)


_DYING = _end_with_parent if sys.platform == "linux" else None
