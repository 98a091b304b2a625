"""The simulated device: how its calls end."""

import asyncio
from random import Random

import pytest

from ottla.errors import StorageFailure
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.device import SimulatedDevice


@pytest.mark.parametrize("fails", [False, True])
def test_cancelled_call_completes_and_raises_the_cancellation(fails: bool) -> None:
    calls: list[bool] = []

    def call() -> None:
        calls.append(fails)
        if fails:
            raise StorageFailure("injected failure")

    async def scenario(clock: SimulatedClock) -> bool:
        task = asyncio.create_task(SimulatedDevice(clock, Random(1)).blocking(call))
        await clock.sleep(0)  # now it waits for the device
        assert not calls
        task.cancel()
        await asyncio.wait((task,))
        return task.cancelled()

    assert simulated(scenario)
    assert calls == [fails]
