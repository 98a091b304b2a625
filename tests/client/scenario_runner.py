"""Runs the coroutine of a test with a time limit."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from client.leaks import client_tasks

FAST: dict[str, object] = {
    "retry.backoff.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
}
"""Client settings with short retry pauses."""

AGELESS: dict[str, object] = {"log.retention.ms": -1}
"""Settings of a broker that keeps records of 1970: Kafka deletes them 30 s after it started."""


def run(scenario: Coroutine[Any, Any, None], seconds: float = 90) -> None:
    """Run a scenario to its end, and check that the client left nothing."""

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await scenario
            await asyncio.sleep(0)
            left = client_tasks()
            assert not left, left

    asyncio.run(bounded())


async def until(
    is_true: Callable[[], bool], told: Callable[[], str] = str, seconds: float = 20
) -> None:
    """Wait until a condition is true; fail with the text of `told` after the time limit."""
    try:
        async with asyncio.timeout(seconds):
            while not is_true():
                await asyncio.sleep(seconds / 2000)
    except TimeoutError:
        raise AssertionError(told()) from None
