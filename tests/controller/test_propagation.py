"""The changes of a request whose client leaves."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.clock import SystemClock
from ottla.controller.propagation import Propagation


def run(scenario: Callable[[Propagation], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario; an error that nobody has retrieved fails it."""
    errors: list[dict[str, Any]] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: errors.append(about))
        async with asyncio.timeout(30):
            await scenario(Propagation(SystemClock(), timeout_s=600.0))
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(bounded())
    assert not errors


async def some_iterations() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_change_that_has_begun_is_carried_out() -> None:
    async def scenario(propagation: Propagation) -> None:
        release, done = asyncio.Event(), False

        async def change() -> None:
            nonlocal done
            propagation.begin()
            await release.wait()
            done = True

        task = asyncio.create_task(propagation.carry_out(change()))
        await some_iterations()
        assert not propagation.has_client_left
        for _ in range(2):  # the client leaves, and then its connection is lost
            task.cancel()
            await some_iterations()
            assert propagation.has_client_left
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done

    run(scenario)


def test_change_that_has_not_begun_is_dropped() -> None:
    async def scenario(propagation: Propagation) -> None:
        is_dropped = False

        async def change() -> None:
            nonlocal is_dropped
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                is_dropped = True
                raise

        task = asyncio.create_task(propagation.carry_out(change()))
        await some_iterations()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_dropped
        assert not propagation.has_client_left

    run(scenario)


def test_failure_after_the_client_has_left_is_ignored() -> None:
    async def scenario(propagation: Propagation) -> None:
        release = asyncio.Event()

        async def change() -> None:
            propagation.begin()
            await release.wait()
            raise ValueError("nobody gets it")

        task = asyncio.create_task(propagation.carry_out(change()))
        await some_iterations()
        task.cancel()
        await some_iterations()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario)


def test_failure_of_a_change_is_raised() -> None:
    async def scenario(propagation: Propagation) -> None:
        async def change() -> None:
            raise ValueError("the change failed")

        with pytest.raises(ValueError, match="the change failed"):
            await propagation.carry_out(change())

    run(scenario)
