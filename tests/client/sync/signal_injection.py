"""Real signals that interrupt a call of a sync client at any point."""

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
"""Interval between signals; one that arrives outside the client is ignored."""

MOMENTS_S = [0.0002 * number for number in range(1, 25)]
"""Delays of the signal, for calls that are answered within milliseconds."""

SOON_S = 0.05
"""Delay of the signal, for calls that get no response: by then they wait."""


@contextmanager
def interruptions() -> Generator[Callable[[float, Callable[[], Any]], bool]]:
    """Yield a function that makes a call, interrupts it once, and returns whether it was
    interrupted.
    """
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
    """Return whether an exception here would break Python's locks; only their waits are safe."""
    code = frame.f_code
    is_a_wait = code.co_name in ("wait", "_wait_for_tstate_lock")
    return code.co_filename == threading.__file__ and not is_a_wait


@contextmanager
def check_threads_end() -> Generator[None]:
    """Check that the threads of all clients that are created in the block end soon after it."""
    with client_threads() as started:
        yield
        until_s = time.monotonic() + 20
        while left := started():
            assert time.monotonic() < until_s, _stacks(left)
            time.sleep(0.01)


def _stacks(threads: set[threading.Thread]) -> str:
    """Return the stacks of the threads."""
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    return "\n".join(
        "".join([one.name, "\n", *traceback.format_stack(frames.get(one.ident or 0))])
        for one in threads
    )
