"""The signals that ask a broker to stop, from its first moment on.

Invariant: a signal that comes before there is an event loop is not lost: it is told to the first
who listens. SIGHUP stops as SIGTERM does, and is ignored where it was (`nohup`), as with Kafka.

What does the work of a broker takes a third of a second to import, so this imports nothing of it.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class StopSignals:
    """Remembers that it is time to stop."""

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None  # the first that came
        self._numbers: list[signal.Signals] = []

    def heed(self) -> None:
        """Remember them from now on, for as long as the process lives."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            signal.signal(number, self._remember)
            self._numbers.append(number)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.asked = self.asked or signal.Signals(number)

    def tell(self, loop: "AbstractEventLoop", stop: Callable[[signal.Signals], None]) -> None:
        """Have `stop` called by a loop, at once when a signal has come already."""
        for number in self._numbers:
            loop.add_signal_handler(number, stop, number)
        if self.asked is not None:
            stop(self.asked)
