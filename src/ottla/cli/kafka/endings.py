"""How those of Kafka's tools end that run until somebody ends them.

Invariant: a signal lets what runs end in order, with what it says at its end, and the exit code
tells which it was: 130 for SIGINT, 143 for SIGTERM, as with Java.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Do it to its end, or until a signal ends it; the exit code."""
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
