"""Real signals that interrupt a call of a client without a loop, wherever in it they come."""

import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from client.leaks import client_threads

AGAIN_S = 0.01
"""So often it is tried: a signal that comes outside of the client is none."""

MOMENTS_S = [0.0002 * number for number in range(1, 25)]
"""After so long a call is interrupted that has an answer within milliseconds."""

SOON_S = 0.05
"""By then a call that has no answer is deep in its wait."""


@contextmanager
def interruptions() -> Generator[Callable[[float, Callable[[], Any]], bool]]:
    """Gives a function that makes a call, interrupts it once, and tells whether it has."""
    is_calling = False

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal is_calling
        if frame is not None and _is_fragile(frame):
            return
        while frame is not None and is_calling:
            if "ottla/client/sync/" in frame.f_code.co_filename:
                is_calling = False
                raise KeyboardInterrupt
            frame = frame.f_back

    def interrupted(after_s: float, call: Callable[[], Any]) -> bool:
        nonlocal is_calling
        is_calling = True
        signal.setitimer(signal.ITIMER_REAL, after_s, AGAIN_S)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            is_calling = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    usual = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield interrupted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)


def _is_fragile(frame: FrameType) -> bool:
    """Whether Python's own locks would not survive an exception here: only their waits do."""
    code = frame.f_code
    is_a_wait = code.co_name in ("wait", "_wait_for_tstate_lock")
    return code.co_filename == threading.__file__ and not is_a_wait


@contextmanager
def all_threads_end() -> Generator[None]:
    """Check that the threads of all clients that are created in the block end soon after it.

    Other tests may have left a Spark session in this process, whose threads stay.
    """
    before = client_threads()
    yield
    until_s = time.monotonic() + 20
    while left := client_threads() - before:
        assert time.monotonic() < until_s, _stacks(left)
        time.sleep(0.01)


def _stacks(threads: set[threading.Thread]) -> str:
    """Where the threads are."""
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    return "\n".join(
        "".join([one.name, "\n", *traceback.format_stack(frames.get(one.ident or 0))])
        for one in threads
    )
