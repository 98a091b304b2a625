# pyright: reportPrivateUsage=false
"""A new controller after an outage of coordination, when brokers are not registered yet (B10)."""

import asyncio
from pathlib import Path

from controller.test_reassignments import KEY, Stage, staged
from ottla.errors import ErrorCode
from ottla.ids import BrokerId


async def _outage(stage: Stage) -> None:
    """Let the sessions of brokers 1 and 2, and of the controller, expire."""
    await stage.end_controller()
    for number in (1, 2):
        session = stage.brokers[BrokerId(number)].session
        assert session is not None
        await session.close()


def test_b10_new_controller_spares_brokers_that_answer(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        before = stage.state
        await _outage(stage)
        await stage.start_controller(1, 2)
        assert stage.state == before
        # Clients still find the leader. It cannot change the ISR before it is registered.
        assert {1, 2} <= stage.controller.image.brokers.keys()
        assert await stage.propose(1) is ErrorCode.STALE_BROKER_EPOCH
        for number in (1, 2):
            await stage.start_broker(stage.brokers[BrokerId(number)])
        await stage.until(lambda: {1, 2} <= stage.controller._registered.keys())
        assert stage.state.in_sync == before.in_sync
        assert await stage.propose(1) is ErrorCode.NONE

    staged(tmp_path, scenario)


def test_b10_broker_that_does_not_answer_is_dead(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await _outage(stage)
        await stage.start_controller(1)
        assert (stage.state.leader, stage.state.in_sync) == (1, (1,))

    staged(tmp_path, scenario)


def test_b10_broker_that_does_not_register_in_time_is_dead(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.session_timeout_s = 0.05
        await stage.end_controller()
        session = stage.brokers[BrokerId(1)].session
        assert session is not None
        await session.close()
        await stage.start_controller(1)
        await stage.until(lambda: stage.state.in_sync == (2,))
        assert stage.state.leader == 2
        assert 1 not in stage.controller.image.brokers

    staged(tmp_path, scenario)


def test_b8_disconnected_controller_decides_and_sends_nothing(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        before, four = stage.state, stage.brokers[BrokerId(4)]
        stage.acts.clear()
        session = stage.brokers[BrokerId(1)].session
        assert session is not None
        await session.close()
        # The update of a decision made before waits, too.
        (sent,) = stage.controller._delete_replicas([(four.id, KEY)])
        changed = stage.controller._brokers_changed
        await stage.until(lambda: changed.is_set() or stage.state != before)
        for _ in range(10):
            await asyncio.sleep(0)
        assert stage.state == before
        assert not sent.done()
        assert not four.deletions
        stage.acts.set()
        await stage.until(lambda: 1 not in stage.state.in_sync)
        await sent
        assert four.deletions == 1

    staged(tmp_path, scenario)
