"""The signals that stop a broker, from the first moment of the process.

Invariant: a signal that arrives before there is an event loop is not lost. SIGHUP stops like
SIGTERM, unless it was ignored (`nohup`), as in Kafka.

Importing the broker takes a third of a second, so this module imports nothing of it.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class StopSignals:
    """Remembers that a stop was requested."""

    def __init__(self) -> None:
        self.asked: list[signal.Signals] = []  # before there is an event loop
        self._numbers: list[signal.Signals] = []

    def heed(self) -> None:
        """Install the handlers, for the life of the process."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            signal.signal(number, self._remember)
            self._numbers.append(number)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.asked.append(signal.Signals(number))

    def tell(self, loop: "AbstractEventLoop", stop: Callable[[signal.Signals], None]) -> None:
        """Call `stop` in a loop on each signal; at once for those that have arrived already."""
        for number in self._numbers:
            loop.add_signal_handler(number, stop, number)
        for number in self.asked:
            stop(number)
