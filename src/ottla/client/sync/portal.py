"""A portal: an event loop in a thread of its own, and calls into it from other threads.

Invariant: a call returns or raises in the thread that made it and never waits for a closed loop: it
raises NotRunning. An interrupted caller cancels its call. What lives in the loop is closed before
the loop. Nothing waits longer than CLOSE_S for the thread to end; a forked process, which has no
such thread, never waits for it.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar

from ottla.client.arguments import seconds_of
from ottla.transport.failures import NotRunning, TimedOut

P = ParamSpec("P")
T = TypeVar("T")

CLOSE_S: Final = 5.0
"""After this the thread has ended, or is left to end with the process."""

WIND_UP_S: Final = 2.0
"""How long the closing loop waits for calls to end, and again for what it closes."""

LOOK_S: Final = 0.5
"""Polling interval of a waiting thread: a signal just before a lock is awaited is not noticed."""

CLOSED: Final = "the client was closed"
FORKED: Final = (
    "this client belongs to the process that started it: create a new one after the fork"
)
OWN_THREAD: Final = (
    "a blocking call is not allowed in the client's own thread, which calls deserializers and "
    "partitioners: it would wait for itself"
)


class Portal:
    """A loop that runs until `close`, or until nothing refers to the portal.

    `ending` closes what lives in the loop. It runs at the end if nobody has done so, and is
    cancelled, which makes it close at once.
    """

    def __init__(
        self, name: str, ending: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._is_open = True
        self._process = os.getpid()
        self._calls: set[asyncio.Task[Any]] = set()
        start = _Start()
        # A daemon thread: a program that forgets to close still exits.
        self._thread = threading.Thread(
            target=_live, args=(start, self._calls, ending), name=name, daemon=True
        )
        try:
            self._thread.start()
            self.loop, self._over = start.wait()
            living = (self.loop, self._over, self._thread, self._process)
            # Also called at interpreter exit: no loop runs while Python shuts down.
            self._end = weakref.finalize(self, _end, *living)
        except BaseException:  # an interrupt: nobody else could close it
            start.give_up()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine in the loop and wait for it; raises TimedOut."""
        try:
            limit_s = None if timeout_s is None else seconds_of(timeout_s)
        except TypeError:
            coroutine.close()
            raise
        call = Call(coroutine, limit_s, self._calls)
        try:
            future = self.start(call.run())
            # A call cancelled before it started never signals that it is done.
            while not call.wait(LOOK_S) and not future.done():
                pass
            return future.result()
        except CancelledError:
            raise NotRunning(CLOSED) from None
        except BaseException:
            self.tell(
                call.drop
            )  # does nothing if it has ended; otherwise the caller was interrupted
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop and return."""
        try:
            self._check()
        except BaseException:
            coroutine.close()
            raise
        with self._lock:
            if self._is_open:
                return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        coroutine.close()
        raise NotRunning(CLOSED)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the loop and return its result."""

        async def called() -> T:
            return function(*args, **kwargs)

        return self.run(called())

    def tell(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call a function in the loop before all later calls, without waiting."""
        doing = partial(function, *args, **kwargs)
        try:
            if self.is_here:
                self.loop.call_soon_threadsafe(doing)
                return
        except RuntimeError:
            pass
        doing()  # the loop is closed or belongs to another process, so call it here

    def close(self) -> None:
        """Close the loop and everything in it; idempotent."""
        if (
            self._process == os.getpid()
        ):  # after a fork the lock may be held by a thread that does not exist here
            with self._lock:
                self._is_open = False
        try:
            self._end()
        except BaseException:  # an interrupt: the loop may not have been told yet
            _tell_over(self.loop, self._over, self._process)
            raise

    @property
    def is_open(self) -> bool:
        """Whether calls are possible in this process."""
        return self.is_here and self._is_open

    @property
    def is_here(self) -> bool:
        """Whether it belongs to this process."""
        return self._process == os.getpid()

    def _check(self) -> None:
        if not self.is_here:
            raise NotRunning(FORKED)
        if threading.current_thread() is self._thread:
            raise RuntimeError(OWN_THREAD)


class _Start:
    """What the thread reports about its loop to the thread that started it."""

    def __init__(self) -> None:
        self._told: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._is_given_up = False
        self._is_here = threading.Lock()
        self._is_here.acquire()

    def tell(self, loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
        self._told = (loop, over)
        self._is_here.release()
        if self._is_given_up:
            over.set()

    def wait(self) -> tuple[asyncio.AbstractEventLoop, asyncio.Event]:
        while not self._is_here.acquire(timeout=LOOK_S):
            pass
        assert self._told is not None
        return self._told

    def give_up(self) -> None:
        """Close the loop as soon as it runs: the starting thread was interrupted."""
        self._is_given_up = True
        if self._told is not None:
            _tell_over(*self._told, os.getpid())


class Call(Generic[T]):
    """A coroutine on its way into the loop, and the thread that waits for it.

    Its end is signalled by a lock of its own: a thread that is interrupted inside the locks of a
    concurrent future may leave them locked, and the loop would wait forever.

    It can be dropped at any moment, also when the loop has received it and the caller does not know
    its future yet.
    """

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        timeout_s: float | None,
        calls: set[asyncio.Task[Any]],
    ) -> None:
        self._coroutine = coroutine
        self._timeout_s = timeout_s
        self._calls = calls
        self.task: asyncio.Task[Any] | None = None
        self._is_dropped = False
        self._is_done = threading.Lock()
        self._is_done.acquire()

    async def run(self) -> T:
        """The coroutine that runs in the loop."""
        if self._is_dropped:
            raise asyncio.CancelledError
        self.task = task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        task.add_done_callback(self._done)  # runs after the future has its result
        if self._timeout_s is None:
            return await self._coroutine
        # In here and not around the coroutine, so that a call dropped before its start is handled
        # too.
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._coroutine
        except TimeoutError as error:
            raise TimedOut(f"the call did not finish in {self._timeout_s:g} s") from error

    def drop(self) -> None:
        """Cancel it, or prevent its start."""
        self._is_dropped = True
        if self.task is None:
            self._coroutine.close()
        else:
            self.task.cancel()

    def wait(self, timeout_s: float) -> bool:
        """Wait in the calling thread; returns whether it is done."""
        return self._is_done.acquire(timeout=timeout_s)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        self._is_done.release()


def _live(
    start: _Start,
    calls: set[asyncio.Task[Any]],
    ending: Callable[[], Coroutine[Any, Any, None]] | None,
) -> None:
    """The thread's main function; it refers to the portal only during the start."""

    async def until_over() -> None:
        over = asyncio.Event()
        start.tell(asyncio.get_running_loop(), over)
        await over.wait()
        await _wound_up(calls, ending)

    # At its end the runner cancels what still runs, which wakes all waiting threads.
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(until_over())


async def _wound_up(
    calls: set[asyncio.Task[Any]], ending: Callable[[], Coroutine[Any, Any, None]] | None
) -> None:
    """End all calls and close what is still open.

    A loop that ends with open connections might wait for them forever.
    """
    for call in calls:
        call.cancel()
    if calls:
        await asyncio.wait({*calls}, timeout=WIND_UP_S)
    if ending is None:
        return
    closing = asyncio.get_running_loop().create_task(ending())
    await asyncio.sleep(0)  # let it start
    closing.cancel()
    await asyncio.wait((closing,), timeout=WIND_UP_S)


def _end(
    loop: asyncio.AbstractEventLoop, over: asyncio.Event, thread: threading.Thread, process: int
) -> None:
    is_told = thread.is_alive() and _tell_over(loop, over, process)
    if is_told and threading.current_thread() is not thread:
        thread.join(CLOSE_S)


def _tell_over(loop: asyncio.AbstractEventLoop, over: asyncio.Event, process: int) -> bool:
    """Stop a loop of this process; False if it has ended or belongs to another process."""
    if process != os.getpid():
        return False
    try:
        loop.call_soon_threadsafe(over.set)
    except RuntimeError:
        return False  # it has ended in the meantime
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
