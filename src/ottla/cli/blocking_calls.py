"""Runs blocking calls, such as terminal or pipe I/O, beside an event loop.

Invariant: one call at a time, in order. Nobody waits for the thread at exit: a reader that never
reads cannot keep a command from being interrupted.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class BlockingCalls:
    """A thread for blocking calls, started with the first call."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def begin(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Start a call; the future has its result."""
        if self._thread is None:
            # A daemon thread can be left in the middle of a call.
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((call, done))
        return done

    def _run(self) -> None:
        while True:
            call, done = self._calls.get()
            try:
                found, error = call(), None
            # Any exception is passed to the caller.
            except Exception as raised:
                found, error = None, raised
            try:
                done.get_loop().call_soon_threadsafe(_tell, done, found, error)
            except RuntimeError:  # the loop is closed, nobody waits
                return


def _tell(done: "asyncio.Future[Any]", found: object, error: Exception | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(found)
