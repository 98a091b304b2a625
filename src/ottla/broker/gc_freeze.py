"""Freezes long-lived objects, so that the garbage collector does not scan them again.

The collector scans every object on the event loop. With ten thousand partitions a full collection
takes a quarter of a second, again and again while they are created. After a full collection that
took long, the survivors are frozen (`gc.freeze`).

Invariant: only survivors of a full collection are frozen. A frozen object is still freed when
nothing refers to it; only reference cycles stay, so closed connections and partitions must not
leave cycles.
"""

import gc
import time
from collections.abc import Callable
from typing import Final

LONG_SECONDS: Final = 0.010  # long enough to delay other requests noticeably


class GcFreeze:
    """Freezes the survivors of long collections while it is entered."""

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        """`cpu_s` is the thread's CPU time, so that another busy process does not count."""
        self._cpu_s = cpu_s
        self._began_s = 0.0

    def __enter__(self) -> None:
        gc.callbacks.append(self._note)

    def __exit__(self, *exception: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, about: dict[str, int]) -> None:
        if about["generation"] < 2:
            return  # the survivors are young and may be garbage soon
        if phase == "start":
            self._began_s = self._cpu_s()
        elif self._cpu_s() - self._began_s >= LONG_SECONDS:
            gc.freeze()
