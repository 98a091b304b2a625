"""Brokers that cannot lead what they should, because they lack disk space (rule C6)."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from controller.test_reassignments import Stage, staged
from ottla.cluster.image import PartitionState, Topic
from ottla.cluster.znodes import TopicNode
from ottla.controller.control_update import Failures
from ottla.coordination.errors import BadVersion, CoordinationError
from ottla.ids import NO_BROKER, BrokerId, Uuid


async def create(stage: Stage, name: str, *replicas: int) -> Failures:
    """Create a topic with one partition."""
    assignment = (tuple(map(BrokerId, replicas)),)
    made = Topic(name, Uuid(name.encode() * 16), tuple(map(PartitionState, assignment)))
    async with stage.controller.turn:
        await stage.controller.store.create_topic(name, TopicNode(made.id, assignment), {})
        return await stage.controller.add_topics([made], {})


def leader(stage: Stage, name: str) -> BrokerId:
    state = stage.controller.image.state(name, 0)
    return NO_BROKER if state is None else state.leader


def test_leader_is_replaced_when_two_tasks_handle_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The creation of a topic and the task for such brokers, which was disconnected."""
    monkeypatch.setattr("ottla.controller.controller.STEP_SECONDS", 0.01)

    async def scenario(stage: Stage) -> None:
        stage.brokers[BrokerId(1)].unable = stage.acts.clear
        creation = asyncio.create_task(create(stage, "u", 1, 2))
        await stage.until(lambda: leader(stage, "u") == 2)
        assert not creation.done(), "it waits until broker 2 leads"
        stage.acts.set()
        assert await creation == {}
        assert leader(stage, "u") == 2

    staged(tmp_path, scenario)


def test_leader_is_replaced_after_coordination_has_refused_it(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        refusals = 11  # one more than the controller repeats at once
        seen = 0

        async def refuse() -> None:
            nonlocal seen
            seen += 1
            if seen < refusals:
                stage.session.before_write = refuse
            raise BadVersion("/state")

        def refuse_replacement() -> None:
            stage.session.before_write = refuse

        stage.brokers[BrokerId(1)].unable = refuse_replacement
        with suppress(CoordinationError):  # if the creation itself replaces the leader
            await create(stage, "u", 1, 2)
        await stage.until(lambda: leader(stage, "u") == 2)
        assert seen == refusals

    staged(tmp_path, scenario)
