"""A signal that stops a command after what it has read.

Invariant: what was read before SIGINT, SIGTERM or SIGHUP is not lost: reading stops, and the reader
writes what it has. The next signal ends the command at once, like an unhandled one. When everything
is written the command ends anyway, and Ctrl-C is ignored. A signal that was ignored stays ignored,
such as SIGHUP under `nohup`.
"""

import asyncio
import os
import select
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, Self

HEARD: Final = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The last one does not exist on Windows."""


class StopRequest:
    """Handles the first signal during the `with` block."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that arrived."""

        # A thread may wait on it until the process ends, so it is never closed.
        self._woken, self._wake = os.pipe()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in HEARD:
            before = signal.getsignal(number)
            if before not in (None, signal.SIG_IGN):
                self._before[number] = before
                signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._give_back()
        if self.number is not None and kind is None:
            # An event loop that is about to close would be left half closed.
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def read(self, descriptor: int, size: int) -> bytes:
        """Read from a file, waiting for data; empty at its end or after the signal."""
        if sys.platform != "win32":  # waiting for files is not supported there
            waiting = select.poll()  # `select.select` accepts descriptors only up to 1023
            for one in (descriptor, self._woken):
                waiting.register(one, select.POLLIN)
            if any(one == self._woken for one, _ in waiting.poll()):
                return b""
        return os.read(descriptor, size)

    async def may_end(self, work: Coroutine[Any, Any, None], grace_s: float = 0) -> None:
        """Run a coroutine to its end, or cancel it `grace_s` seconds after the signal."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)

        def end() -> None:
            # Nothing reads the byte, so the loop would call this again.
            loop.remove_reader(self._woken)
            loop.call_later(grace_s, task.cancel)

        loop.add_reader(self._woken, end)
        try:
            await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self.number is None or caller is None or caller.cancelling():
                raise
        finally:
            loop.remove_reader(self._woken)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        is_first, self.number = self.number is None, number
        self._give_back()
        if is_first:
            os.write(self._wake, b"\0")
        else:  # it arrived while the first one was being handled
            signal.raise_signal(number)

    def _give_back(self) -> None:
        """Restore the previous handlers."""
        for number, before in self._before.items():
            signal.signal(number, before)


def end_by(number: int) -> int:
    """End like an unhandled signal; returns the exit code for SIGINT, 130."""
    if number == signal.SIGINT:
        return 128 + number
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.kill(os.getpid(), number)
    return 128 + number  # if the signal does not end the process
