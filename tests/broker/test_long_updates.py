"""A control update of many partitions is applied in time slices."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from broker.nodes import RunningBroker, broker, run
from broker.test_leadership import create_wide
from ottla.broker import cooperative
from ottla.cluster.image import ClusterImage
from ottla.controller.control_update import ControlUpdate, Failures, ReplicaState
from ottla.ids import LeaderEpoch, PartitionIndex
from ottla.log import log_manager
from ottla.log.loading import HostedLog
from ottla.log.log_config import LogConfig

PARTITIONS = 30


@pytest.fixture(autouse=True)
def _pause_after_each_partition(  # pyright: ignore[reportUnusedFunction]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cooperative, "TURN_SECONDS", -1.0)


def unchanged(running: RunningBroker) -> ControlUpdate:
    """An update of the current controller that changes nothing."""
    image = running.parts.metadata_cache.image
    return ControlUpdate(
        controller=image.controller,
        controller_epoch=image.controller_epoch,
        broker_epoch=running.parts.roles.broker_epoch,
        changed=(),
    )


def in_epoch(running: RunningBroker, image: ClusterImage, epoch: int) -> ControlUpdate:
    """The update that has this broker lead all partitions in a leader epoch."""
    topic = image.topics["wide"]
    replicas = [
        ReplicaState(
            "wide",
            topic.id,
            PartitionIndex(index),
            replace(one, leader_epoch=LeaderEpoch(epoch), version=one.version + epoch),
        )
        for index, one in enumerate(topic.partitions)
    ]
    return replace(unchanged(running), replicas=replicas)


def epochs(running: RunningBroker) -> list[int]:
    """The leader epochs of the partitions that this broker leads."""
    return [one.leader_epoch for one in running.parts.replica_manager.partitions.values()]


async def most_at_once(applied: Awaitable[Failures], count: Callable[[], int]) -> int:
    """Apply an update; return by how much the count grew at most in one step of the event loop."""
    work, most, before = asyncio.ensure_future(applied), 0, count()
    while not work.done():
        await asyncio.sleep(0)
        now = count()
        most, before = max(most, now - before), now
    assert not work.result()
    return most


def test_partitions_are_led_in_time_slices(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            assert await create_wide(await running.client(), "wide", PARTITIONS) == (0, None)
            update = in_epoch(running, running.parts.metadata_cache.image, 1)
            applied = running.parts.roles.apply(update)
            assert await most_at_once(applied, lambda: epochs(running).count(1)) == 1
            assert epochs(running) == [1] * PARTITIONS

    run(scenario)


def test_update_does_not_overtake_one_in_slices(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            assert await create_wide(await running.client(), "wide", PARTITIONS) == (0, None)
            roles, image = running.parts.roles, running.parts.metadata_cache.image
            updates = [roles.apply(in_epoch(running, image, epoch)) for epoch in (1, 2)]
            work = asyncio.gather(*updates)
            while not work.done():
                await asyncio.sleep(0)
                assert max(epochs(running)) - min(epochs(running)) <= 1
            assert work.result() == [{}, {}]
            assert epochs(running) == [2] * PARTITIONS

    run(scenario)


def test_configs_are_resolved_once_and_applied_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = 0
    resolve = LogConfig.of

    def counted(*args: object, **kwargs: object) -> LogConfig:
        nonlocal resolved
        resolved += 1
        return resolve(*args, **kwargs)  # pyright: ignore[reportArgumentType]

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            assert await create_wide(await running.client(), "wide", PARTITIONS) == (0, None)
            cache, led = running.parts.metadata_cache, running.parts.replica_manager.partitions
            image = replace(cache.image, version=cache.image.version + 1)

            def configured() -> int:
                count = [one.log.config.retention_ms for one in led.values()].count(77)
                # Clients see the image when the update is complete.
                assert cache.image is not image or count == PARTITIONS
                return count

            monkeypatch.setattr(LogConfig, "of", counted)
            configs = {"wide": {"retention.ms": "77"}}
            update = replace(unchanged(running), topic_configs=configs, image=image)
            assert await most_at_once(running.parts.roles.apply(update), configured) == 1
            assert configured() == PARTITIONS
            assert cache.image is image
            assert resolved <= 2

    run(scenario)


def test_logs_of_a_deleted_topic_are_freed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_manager, "DELETES_PER_ROUND", 4)

    def freed() -> int:
        return -sum(isinstance(one, HostedLog) for one in gc.get_objects())

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            assert await create_wide(await running.client(), "wide", PARTITIONS) == (0, None)
            topic_id = running.parts.metadata_cache.image.topics["wide"].id
            update = replace(unchanged(running), deleted={"wide": topic_id})
            gc.collect()
            gc.disable()
            try:
                before = freed()
                assert await most_at_once(running.parts.roles.apply(update), freed) <= 2 * 4
                assert freed() - before == PARTITIONS
            finally:
                gc.enable()

    run(scenario)
