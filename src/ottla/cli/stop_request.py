"""A signal that asks a command to end with what it has read.

Invariant: what was read before SIGINT, SIGTERM or SIGHUP came is not let go: reading stops, and who
reads writes what it has. The next signal ends the command at once, as one would that nobody hears;
when all is written it ends anyway, and Ctrl-C is ignored. A signal that was ignored before stays
so, as SIGHUP under `nohup`.
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
"""The last is no signal of Windows."""


class StopRequest:
    """Hears of the first signal for as long as the `with` lasts."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that came."""

        # A thread may wait for it to the end of the process, and so it is never closed.
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
            # An event loop that is about to end would be left half ended.
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def read(self, descriptor: int, size: int) -> bytes:
        """What comes from a file, for which it waits; nothing at its end, or after the signal."""
        if sys.platform != "win32":  # one cannot wait for files there
            waiting = select.poll()  # `select.select` takes descriptors up to 1023 alone
            for one in (descriptor, self._woken):
                waiting.register(one, select.POLLIN)
            if any(one == self._woken for one, _ in waiting.poll()):
                return b""
        return os.read(descriptor, size)

    async def may_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it to its end, or until the signal comes, which cancels it."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)

        def end() -> None:
            loop.remove_reader(self._woken)  # nothing takes the byte out: it would come again
            task.cancel()

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
        else:  # it came while this was at work on the first
            signal.raise_signal(number)

    def _give_back(self) -> None:
        """Let signals do what they did before."""
        for number, before in self._before.items():
            signal.signal(number, before)


def end_by(number: int) -> int:
    """End as the signal ends a process that does not hear it; of SIGINT the exit code, 130."""
    if number == signal.SIGINT:
        return 128 + number
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.kill(os.getpid(), number)
    return 128 + number  # where that is not its end
