"""The event loop in which a command asks a cluster.

Invariant: nothing is imported before it is needed. A command that says what is wrong with its
arguments needs no loop, and one that asks a few questions not the fastest. When a command first
waits for somebody it has what it needs, and the collector works again. Until there is a loop Ctrl-C
ends the process at once: an interrupt in the midst of making one would leave half of it behind.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ottla.cli import gc_freeze
from ottla.cli.early_interrupt import begin

T = TypeVar("T")


def run_asking(asked: Callable[[], Coroutine[Any, Any, T]], *, is_fast: bool = False) -> T:
    """Run it to its end; `is_fast` is for one that moves many records."""
    import asyncio
    import logging

    # What the client has to say is said by its errors.
    logging.getLogger("ottla").addHandler(logging.NullHandler())
    factory = None
    if is_fast:
        with suppress(ImportError):  # there is none for Windows
            import uvloop

            factory = uvloop.new_event_loop

    async def begun() -> T:
        asyncio.get_running_loop().call_soon(gc_freeze.release)
        return await asked()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop()
        begin()
        return runner.run(begun())
