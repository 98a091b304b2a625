"""Simulated time advances only while all tasks wait."""

import asyncio
from contextvars import copy_context

import pytest

from ottla.testing.clock import START_MS, SimulatedClock, Stuck, simulated


def test_time_advances_to_the_next_timer() -> None:
    seen: list[tuple[float, int]] = []

    async def program(clock: SimulatedClock) -> None:
        async def wait(seconds: float) -> None:
            await clock.sleep(seconds)
            seen.append((seconds, clock.now_ms() - START_MS))

        async with asyncio.TaskGroup() as group:
            for seconds in (3600, 0.5, 1):
                group.create_task(wait(seconds))
        assert clock.elapsed_s() == 3600
        clock.jump_ms = -10_000
        assert clock.now_ms() == START_MS + 3_590_000

    simulated(program)
    assert seen == [(0.5, 500), (1, 1000), (3600, 3_600_000)]


def test_loop_timeouts_use_simulated_time() -> None:
    async def program(clock: SimulatedClock) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await clock.sleep(3600)
        assert clock.elapsed_s() == 60

    simulated(program)


def test_deadlock_raises_stuck() -> None:
    async def program(clock: SimulatedClock) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        simulated(program)


def test_time_passes_for_code_that_waits_for_less_than_a_clock_shows() -> None:
    async def program(clock: SimulatedClock) -> None:
        await clock.sleep(1e6)
        began_s = clock.elapsed_s()
        while clock.elapsed_s() == began_s:
            await clock.sleep(1e-12)

    simulated(program)


def test_callbacks_that_are_held_back_run_later_in_their_order() -> None:
    async def program(clock: SimulatedClock) -> None:
        loop, held, seen = asyncio.get_running_loop(), copy_context(), list[str]()
        loop.call_soon(seen.append, "first", context=held)
        loop.call_later(1, seen.append, "second", context=held)
        clock.hold_back(lambda context: context is held)
        loop.call_soon(seen.append, "other")
        await clock.sleep(2)
        assert seen == ["other"]
        clock.hold_back(None)
        await clock.sleep(1)
        assert seen == ["other", "first", "second"]

    simulated(program)


def test_check_gets_the_contexts_of_all_callbacks_that_have_run() -> None:
    async def program(clock: SimulatedClock) -> None:
        loop, context, checked = asyncio.get_running_loop(), copy_context(), list[bool]()
        clock.check_each_step(
            lambda contexts: checked.append(any(one is context for one in contexts))
        )
        loop.call_soon(checked.clear, context=context)
        await asyncio.sleep(0)
        loop.call_soon(print, context=context).cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert checked == [True, False]

    simulated(program)
