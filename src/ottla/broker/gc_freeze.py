"""What outlives a long search for garbage is not searched again.

Invariant: only what a full collection has just found to be in use is set aside, and only when that
search held everything else up for long. What is set aside is still freed when nobody refers to it;
only rings of it stay, which is why connections and partitions that end are none.

Python's collector goes through every object there is, on the event loop: with ten thousand
partitions that takes a quarter of a second, again and again while they are made.
"""

import gc
import time
from collections.abc import Callable
from typing import Final

LONG_SECONDS: Final = 0.010  # what others notice


class GcFreeze:
    """While it is entered, what survives a long search is spared the next ones."""

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        """Time is this thread's own: a search is not long because another process is busy."""
        self._cpu_s = cpu_s
        self._began_s = 0.0

    def __enter__(self) -> None:
        gc.callbacks.append(self._note)

    def __exit__(self, *exception: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, about: dict[str, int]) -> None:
        if about["generation"] < 2:
            return  # its survivors are young, and may be garbage in a moment
        if phase == "start":
            self._began_s = self._cpu_s()
        elif self._cpu_s() - self._began_s >= LONG_SECONDS:
            gc.freeze()
