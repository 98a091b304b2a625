"""Calls that block, such as those to a terminal or a pipe, beside an event loop.

Invariant: one call at a time, in the order in which they began. Nobody waits for the thread at the
end: a reader that never reads does not keep a command from being interrupted.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class BlockingCalls:
    """A thread of its own for them; it begins with the first."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def begin(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Let it be done; the future tells when, and what came of it."""
        if self._thread is None:
            # As a daemon it may be left in the middle of a call.
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
            # Whatever it is, who waits for it hears it.
            except Exception as raised:
                found, error = None, raised
            try:
                done.get_loop().call_soon_threadsafe(_tell, done, found, error)
            except RuntimeError:  # the loop has ended, and nobody waits
                return


def _tell(done: "asyncio.Future[Any]", found: object, error: Exception | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(found)
