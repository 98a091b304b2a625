"""A portal: an event loop in a thread of its own, and the way in for other threads.

Invariant: what is run through a portal returns or raises in the thread that asked for it, and never
waits for a loop that has ended: then it raises NotRunning. Who is interrupted while waiting has
ended what was waited for. What lives in the loop is closed before the loop is. Nothing waits longer
than CLOSE_S for the thread to end, and a process that was forked, which has no such thread, never
waits for it.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar

from ottla.transport.failures import NotRunning, TimedOut

P = ParamSpec("P")
T = TypeVar("T")

CLOSE_S: Final = 5.0
"""By then the thread has ended, or is left to end with the process."""

WIND_UP_S: Final = 2.0
"""So long the loop waits at its end for calls that end, and again for what is closed."""

LOOK_S: Final = 0.5
"""So often who waits looks up: a signal that comes just before a lock is waited for is not seen."""

CLOSED: Final = "the client was closed"
FORKED: Final = "this client belongs to the process that started it: make one after the fork"
OWN_THREAD: Final = (
    "a call that waits cannot be made in the client's own thread, where deserializers, "
    "partitioners and the like are called: it would wait for itself"
)


class Portal:
    """A loop that runs until `close`, or until nobody has the portal any more.

    `ending` is what closes that which lives in the loop; it is called at the end, in case nobody
    has done so before, and cancelled, which it understands as to be done at once.
    """

    def __init__(
        self, name: str, ending: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._is_open = True
        self._process = os.getpid()
        self._calls: set[asyncio.Task[Any]] = set()
        start = _Start()
        # A daemon: a program that forgets to close still ends.
        self._thread = threading.Thread(
            target=_live, args=(start, self._calls, ending), name=name, daemon=True
        )
        try:
            self._thread.start()
            self.loop, self._over = start.wait()
            living = (self.loop, self._over, self._thread, self._process)
            # Also called when the interpreter ends: no loop runs while Python takes itself apart.
            self._end = weakref.finalize(self, _end, *living)
        except BaseException:  # an interrupt: nobody else could end it
            start.give_up()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Wait for a coroutine that runs in the loop; TimedOut when it takes too long."""
        call = Call(coroutine, timeout_s, self._calls)
        try:
            future = self.start(call.run())
            # One that was cancelled before it began has nobody to say that it is done.
            while not call.wait(LOOK_S) and not future.done():
                pass
            return future.result()
        except CancelledError:
            raise NotRunning(CLOSED) from None
        except BaseException:
            self.tell(call.drop)  # does nothing when it has ended; else somebody was interrupted
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Let a coroutine run in the loop, and go on."""
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
        """Call a function in the loop, which it may need; wait for what it returns."""

        async def called() -> T:
            return function(*args, **kwargs)

        return self.run(called())

    def tell(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have a function called in the loop before all that is asked of it later; do not wait."""
        doing = partial(function, *args, **kwargs)
        try:
            if self.is_here:
                self.loop.call_soon_threadsafe(doing)
                return
        except RuntimeError:
            pass
        doing()  # the loop has ended, or is another process's: nobody else is there

    def close(self) -> None:
        """End the loop with all that runs in it; harmless when that was done before."""
        if self._process == os.getpid():  # else the lock may be held by a thread that is not here
            with self._lock:
                self._is_open = False
        try:
            self._end()
        except BaseException:  # an interrupt: it may have come before the loop was told
            _tell_over(self.loop, self._over, self._process)
            raise

    @property
    def is_open(self) -> bool:
        """Whether something can be run, here."""
        return self.is_here and self._is_open

    @property
    def is_here(self) -> bool:
        """Whether it is of this process."""
        return self._process == os.getpid()

    def _check(self) -> None:
        if not self.is_here:
            raise NotRunning(FORKED)
        if threading.current_thread() is self._thread:
            raise RuntimeError(OWN_THREAD)


class _Start:
    """What a thread tells of its loop when that runs, to who waits for it."""

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
        """Nobody waits any more: what runs ends, and what does not yet ends when it does."""
        self._is_given_up = True
        if self._told is not None:
            _tell_over(*self._told, os.getpid())


class Call(Generic[T]):
    """A coroutine on its way into the loop, and who waits for it.

    That it is done is told by a lock that nobody else holds: who is interrupted in the locks of a
    concurrent future may leave them locked, and then the loop waits for them for ever.

    It can be dropped before anybody knows whether it has come there: an interrupt may come at any
    moment, also when the loop has been told of it and who waits has not been told by which future.
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
        """What runs in the loop."""
        if self._is_dropped:
            raise asyncio.CancelledError
        self.task = task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        task.add_done_callback(self._done)  # after the future was told
        if self._timeout_s is None:
            return await self._coroutine
        # In here and not around the coroutine: what is dropped before it began is one thing.
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._coroutine
        except TimeoutError as error:
            raise TimedOut(f"not done after {self._timeout_s:g} s") from error

    def drop(self) -> None:
        """End it, or let it never begin."""
        self._is_dropped = True
        if self.task is None:
            self._coroutine.close()
        else:
            self.task.cancel()

    def wait(self, timeout_s: float) -> bool:
        """Wait in the thread that asked; whether it is done."""
        return self._is_done.acquire(timeout=timeout_s)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        self._is_done.release()


def _live(
    start: _Start,
    calls: set[asyncio.Task[Any]],
    ending: Callable[[], Coroutine[Any, Any, None]] | None,
) -> None:
    """The life of the thread. It knows the portal no longer than it takes to start."""

    async def until_over() -> None:
        over = asyncio.Event()
        start.tell(asyncio.get_running_loop(), over)
        await over.wait()
        await _wound_up(calls, ending)

    # At its end the runner cancels what still runs, and so tells all who wait.
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(until_over())


async def _wound_up(
    calls: set[asyncio.Task[Any]], ending: Callable[[], Coroutine[Any, Any, None]] | None
) -> None:
    """End all calls, one that closes among them, and close what nobody has closed.

    A loop that ends with connections open waits for them, and may do so for ever.
    """
    for call in calls:
        call.cancel()
    if calls:
        await asyncio.wait({*calls}, timeout=WIND_UP_S)
    if ending is None:
        return
    closing = asyncio.get_running_loop().create_task(ending())
    await asyncio.sleep(0)  # to have begun
    closing.cancel()
    await asyncio.wait((closing,), timeout=WIND_UP_S)


def _end(
    loop: asyncio.AbstractEventLoop, over: asyncio.Event, thread: threading.Thread, process: int
) -> None:
    is_told = thread.is_alive() and _tell_over(loop, over, process)
    if is_told and threading.current_thread() is not thread:
        thread.join(CLOSE_S)


def _tell_over(loop: asyncio.AbstractEventLoop, over: asyncio.Event, process: int) -> bool:
    """Have a loop of this process end; False when it has ended, or is another one's."""
    if process != os.getpid():
        return False
    try:
        loop.call_soon_threadsafe(over.set)
    except RuntimeError:
        return False  # it was faster
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
