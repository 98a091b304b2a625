"""Signals of those Kafka tools that run until they are stopped.

Invariant: a signal cancels the tool, which closes its client and prints its last output. The exit
code is that of Java: 130 for SIGINT, 143 for SIGTERM.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine until it ends or a signal cancels it; returns the exit code."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not came:
            raise
        return 128 + came[0]
