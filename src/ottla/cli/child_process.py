"""Server processes that a command runs for as long as it runs itself.

Invariant: the file with the process id names the process while it runs: it is replaced in one step
at each start, and removed when the process has ended. On Linux, a child gets SIGTERM when this
process ends, whatever ended it.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """What to run; its output goes to `log`, except what `ChildProcess.line` returns."""

    name: str  # for people: "broker 1"
    command: Sequence[str]
    log: Path
    pid_file: Path | None = None
    says_ready: bool = False  # whether it prints a line when it is ready


class ChildProcess:
    """A running child."""

    def __init__(self, server: ServerProcess, process: asyncio.subprocess.Process) -> None:
        self.server = server
        self.pid = process.pid
        self._process = process

    @classmethod
    async def start(cls, server: ServerProcess, inherited: Sequence[int] = ()) -> "ChildProcess":
        """Start a process; it inherits the listed file descriptors."""
        with server.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *server.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if server.says_ready else log,
                stderr=log,
                pass_fds=inherited,
                start_new_session=True,  # Ctrl-C reaches this process only
                preexec_fn=_dying_with(os.getpid()),
            )
        if server.pid_file is not None:
            new = server.pid_file.with_suffix(".new")
            new.write_text(f"{process.pid}\n")
            new.replace(server.pid_file)
        return cls(server, process)

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs, -9 after SIGKILL."""
        return self._process.returncode

    async def line(self) -> str:
        """Return the next line that it prints; empty when it ends before."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.code is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def ended(self) -> int:
        """Return the exit code when it has ended."""
        code = await self._process.wait()
        path = self.server.pid_file
        if path is not None:
            with suppress(OSError):
                if path.read_text() == f"{self.pid}\n":
                    path.unlink()
        return code


async def end(
    children: Sequence[ChildProcess], signals: Sequence[signal.Signals], seconds: float
) -> None:
    """End processes: send signals to all, and kill those that run after some seconds."""
    for child in children:
        for number in signals:
            child.send(number)
    ending = asyncio.gather(*(child.ended() for child in children))
    try:
        await asyncio.wait_for(asyncio.shield(ending), seconds)
    except TimeoutError:
        for child in children:
            child.send(signal.SIGKILL)
        await ending


def _dying_with(parent: int) -> Callable[[], None] | None:
    """Return what a child runs before its program, so that it ends with its parent."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:  # it has ended already
            os._exit(1)

    return prepare
