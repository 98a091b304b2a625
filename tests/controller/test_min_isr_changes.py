"""Another min.insync.replicas: the ELR is right while some leaders use the old minimum (A14)."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from controller.test_reassignments import Stage, staged
from ottla.ids import BrokerId

LEADER = BrokerId(1)


async def blocked(stage: Stage, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
    """Start a change of the controller that waits for the leader, which does not answer."""
    stage.brokers[LEADER].answers.clear()
    task = asyncio.create_task(work)
    await stage.until(lambda: not stage.controller.turn.locked())
    return task


async def change(stage: Stage, minimum: int) -> None:
    """Change the minimum of the topic, as Topics does."""
    controller = stage.controller
    async with controller.turn:
        minima = await controller.set_min_isr({"t": minimum})
        stage.min_isr = minimum  # the controller's own broker applies it first
        await controller.set_configs(topic_configs={"t": {}}, minima=minima)


def test_a14_shrink_before_a_lower_minimum_fills_no_elr(tmp_path: Path) -> None:
    """The leader acknowledges records alone as soon as it has the lower minimum."""

    async def scenario(stage: Stage) -> None:
        task = await blocked(stage, change(stage, 1))
        assert stage.min_isr == 2, "the change waits before it is applied"
        await stage.propose(1)
        assert (stage.state.in_sync, stage.state.elr) == ((1,), ())
        stage.brokers[LEADER].answers.set()
        await task
        assert stage.state.elr == ()

    staged(tmp_path, scenario, min_isr=2)


def test_a14_shrink_during_a_higher_minimum_fills_no_elr(tmp_path: Path) -> None:
    """The leader acknowledges records alone until it has the higher minimum."""

    async def scenario(stage: Stage) -> None:
        controller = stage.controller
        async with controller.turn:
            minima = await controller.set_min_isr({"t": 2})

        async def apply() -> None:
            async with controller.turn:
                await controller.set_configs(topic_configs={"t": {}}, minima=minima)

        stage.min_isr = 2
        task = await blocked(stage, apply())
        await stage.propose(1)
        assert (stage.state.in_sync, stage.state.elr) == ((1,), ())
        stage.brokers[LEADER].answers.set()
        await task
        await stage.propose(1, 2)
        await stage.propose(1)
        assert stage.state.elr == (2,), "all leaders have the higher minimum now"

    staged(tmp_path, scenario, min_isr=1)
