"""Simulated time advances only while all tasks wait."""

import asyncio

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
