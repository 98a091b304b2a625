"""The event loop of a command.

Invariant: nothing is imported before it is needed. A command with wrong arguments needs no loop,
and a short one not the fastest. By its first wait a command has imported everything and the garbage
collector works again. Until the loop exists, Ctrl-C ends the process at once: an interrupt while it
is created would leave half of it.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ottla.cli import gc_freeze
from ottla.cli.startup_sigint import begin

T = TypeVar("T")


def run_asking(asked: Callable[[], Coroutine[Any, Any, T]], *, is_fast: bool = False) -> T:
    """Run a coroutine; `is_fast` is for commands that move many records."""
    import asyncio
    import logging

    # The client reports through its errors.
    logging.getLogger("ottla").addHandler(logging.NullHandler())
    factory = None
    if is_fast:
        with suppress(ImportError):  # not available on Windows
            import uvloop

            factory = uvloop.new_event_loop

    async def begun() -> T:
        asyncio.get_running_loop().call_soon(gc_freeze.release)
        return await asked()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop()
        begin()
        return runner.run(begun())
