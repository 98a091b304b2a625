"""Runs a script in a pseudo-terminal."""

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from cli.scripts import BIN, environment

PATIENCE_S = 60.0


class Terminal:
    """A script, or a program by its path, in a pseudo-terminal; it has ended after the block."""

    def __init__(
        self,
        script: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.said = ""
        self._process = subprocess.Popen(
            [str(BIN / script), *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(env),
            cwd=folder,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def read_until(self, text: str) -> str:
        """Return all output up to this text."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.said:
            assert time.monotonic() < deadline_s, self.said
            if not self._read():
                raise AssertionError(f"it ended and said {self.said!r}")
        return self.said

    def type(self, text: str) -> None:
        """Type text."""
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for the end; returns the exit code."""
        while self._read():
            pass
        return self._process.wait(PATIENCE_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._ours], [], [], PATIENCE_S)
        if not ready:
            raise AssertionError(f"it says nothing after {self.said!r}")
        try:
            data = os.read(self._ours, 4096)
        except OSError:  # the other end is closed
            return False
        self.said += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
