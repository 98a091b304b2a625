"""The event loop of a command.

Invariant: nothing is imported before it is needed. A command with wrong arguments needs no loop,
and a short one not the fastest. By its first wait a command has imported everything and the garbage
collector works again. Until the loop exists, Ctrl-C ends the process at once: an interrupt while it
is created would leave half of it. Later, Ctrl-C cancels the command between two callbacks of the
loop: asyncio's own handler cancels in the middle of one, which may just be about to set the result
of the future that is cancelled.
"""

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cli import gc_freeze
from ottla.cli.startup_sigint import begin

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

T = TypeVar("T")


class Interrupt:
    """Cancels a task at the first SIGINT; the second raises KeyboardInterrupt where it arrives."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self.is_requested = False
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None

    def cancels(self, task: "asyncio.Task[Any] | None") -> None:
        """Cancel this task at an interrupt, also at one that has arrived already."""
        self._task = task
        if self.is_requested:
            self._cancel()

    def __call__(self, number: int, frame: "FrameType | None") -> None:
        """Handle the signal."""
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def run_asking(
    asked: Callable[[], Coroutine[Any, Any, T]],
    *,
    is_fast: bool = False,
    report: Callable[[str], object] | None = None,
) -> T:
    """Run a coroutine; `is_fast` is for commands that move many records.

    `report` is called with the warnings of the client: what it waits for. Without it, the client
    reports only through its errors.
    """
    import asyncio
    import logging
    import signal

    logging.getLogger("ottla").addHandler(logging.NullHandler())
    factory = None
    if is_fast:
        with suppress(ImportError):  # not available on Windows
            import uvloop

            factory = uvloop.new_event_loop

    async def begun() -> T:
        interrupt.cancels(asyncio.current_task())
        asyncio.get_running_loop().call_soon(gc_freeze.release)
        return await asked()

    with asyncio.Runner(loop_factory=factory) as runner, _reported(runner.get_loop(), report):
        interrupt = Interrupt(runner.get_loop())
        begin()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
            signal.signal(signal.SIGINT, interrupt)
        try:
            return runner.run(begun())
        except asyncio.CancelledError:
            if interrupt.is_requested:
                raise KeyboardInterrupt from None
            raise
        finally:
            if signal.getsignal(signal.SIGINT) is interrupt:
                signal.signal(signal.SIGINT, signal.default_int_handler)


def _reported(
    loop: "asyncio.AbstractEventLoop", report: Callable[[str], object] | None
) -> AbstractContextManager[object]:
    if report is None:
        return nullcontext()
    from ottla.cli.client_warnings import ClientWarnings

    return ClientWarnings(loop, report)
