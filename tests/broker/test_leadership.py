"""Becoming leader of many partitions: in batches, and consistent whatever interrupts it."""

import asyncio
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from broker.handlers.test_delete_topics import delete
from broker.members import find_coordinator
from broker.nodes import Client, RunningBroker, broker, run
from broker.test_node import batch, create, fetch, produce
from broker.test_offset_commits import commit
from ottla.broker import replica_roles
from ottla.broker.group_coordinator import GroupCoordinators
from ottla.broker.replica_roles import ReplicaRoles
from ottla.broker.topics import Topics
from ottla.cluster.image import PartitionChange, Topic
from ottla.controller import controller
from ottla.controller.control_update import ControlUpdate
from ottla.controller.partition_changes import Outcome
from ottla.controller.store import ClusterStore
from ottla.errors import DiskFull, ErrorCode, StorageFailure
from ottla.ids import ZERO_UUID, BrokerId, LeaderEpoch, TopicPartition
from ottla.log.files import OsDisk
from ottla.log.loading import HostedLog
from ottla.log.names import PARTITION_METADATA
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse


async def create_wide(client: Client, name: str, partitions: int) -> tuple[int, str | None]:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    answer = await client.ask(
        CreateTopicsRequest(topics=[topic], timeout_ms=1000), CreateTopicsResponse
    )
    return answer.topics[0].error_code, answer.topics[0].error_message


async def leaders(client: Client, name: str) -> list[int]:
    answer = await client.ask(MetadataRequest(topics=None), MetadataResponse)
    (found,) = (one for one in answer.topics if one.name == name)
    return [one.leader_id for one in sorted(found.partitions, key=lambda one: one.partition_index)]


def folders(data: Path, suffix: str = "") -> list[str]:
    return sorted(one.name for one in data.iterdir() if one.is_dir() and one.name.endswith(suffix))


def test_many_partitions_become_leader_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lots: list[int] = []
    store = ClusterStore.store_changes

    async def counted(self: ClusterStore, changes: Sequence[PartitionChange]) -> list[Outcome]:
        lots.append(len(changes))
        return await store(self, changes)

    monkeypatch.setattr(ClusterStore, "store_changes", counted)
    monkeypatch.setattr(controller, "STORED_AT_ONCE", 4)

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await create_wide(client, "wide", 10) == (0, None)
            assert lots == [4, 4, 2]
            assert await leaders(client, "wide") == [1] * 10
            epochs = [
                running.parts.replica_manager.partitions[key].leader_epoch
                for key in running.parts.replica_manager.partitions
            ]
            assert epochs == [0] * 10

    run(scenario)


def test_concurrent_log_creations_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[int] = []
    host = ReplicaRoles._host  # pyright: ignore[reportPrivateUsage]
    now = 0

    async def counted(*args: Any, **kwargs: Any) -> HostedLog:
        nonlocal now
        now += 1
        under_way.append(now)
        try:
            return await host(*args, **kwargs)
        finally:
            now -= 1

    monkeypatch.setattr(ReplicaRoles, "_host", counted)

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            assert await create_wide(await running.client(), "wide", 30) == (0, None)
            assert len(under_way) == 30
            assert max(under_way) == replica_roles.MADE_AT_ONCE

    run(scenario)


def test_new_partition_writes_only_its_metadata(tmp_path: Path) -> None:
    """The epoch is stored with the first flush: each file costs an fsync."""
    writes: list[str] = []

    class Counting(OsDisk):
        def rename(self, old: str, new: str) -> None:
            writes.append(new.rpartition("/")[2])
            super().rename(old, new)

    async def scenario() -> None:
        async with broker(tmp_path, disk=Counting()) as running:
            client = await running.client()
            writes.clear()
            await create(client, "t")
            assert writes == [PARTITION_METADATA]
            (partition,) = running.parts.replica_manager.partitions.values()
            latest = partition.log.epochs.latest
            assert latest is not None
            assert latest.epoch == LeaderEpoch(0)

    run(scenario)


class LimitedDisk(OsDisk):
    """A disk with space for a limited number of partition directories."""

    def __init__(self) -> None:
        super().__init__()
        self.folders = 1 << 30
        self.renames = 1 << 30

    def make_directory(self, path: str) -> None:
        if self.folders <= 0:
            raise DiskFull(f"{path}: make: No space left on device")
        self.folders -= 1
        super().make_directory(path)

    def rename(self, old: str, new: str) -> None:
        if new.endswith("-delete"):
            if self.renames <= 0:
                raise DiskFull(f"{old}: rename: No space left on device")
            self.renames -= 1
        super().rename(old, new)


def test_partially_led_topic_is_reported_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.topics.RETRY_SECONDS", 0.05)

    async def scenario() -> None:
        async with broker(tmp_path, disk=(disk := LimitedDisk())) as running:
            client = await running.client()
            disk.folders = 3
            code, why = await create_wide(client, "t", 5)
            # A retry would get the error that the topic already exists.
            assert code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert not ErrorCode.UNKNOWN_SERVER_ERROR.retriable
            assert "topic t exists, but 2 of 5 partitions have no leader yet" in str(why)
            assert "No space left" in str(why)
            assert sorted(await leaders(client, "t")) == [-1, -1, 1, 1, 1]
            disk.folders = 1 << 30
            while -1 in await leaders(client, "t"):
                await asyncio.sleep(0.02)
            assert await produce(client, "t", batch(b"x")) == (0, 0)

    run(scenario)


def test_controller_that_resigned_elects_missing_leaders_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.broker.topics.RETRY_SECONDS", 0.05)
    resigned: list[controller.Controller] = []

    async def resign_first(self: Topics, name: str) -> None:
        if not resigned:
            resigned.append(self.controller)
            await self.resign()

    async def scenario() -> None:
        async with broker(tmp_path, disk=(disk := LimitedDisk())) as running:
            client, topics = await running.client(), running.parts.topics
            disk.folders = 0
            await create_wide(client, "t", 1)
            await create_wide(client, "u", 1)
            with monkeypatch.context() as patch:
                patch.setattr(Topics, "_lead_rest", resign_first)
                while not resigned or topics.is_controller:
                    await asyncio.sleep(0.005)
            resigned[0].on_resigned()  # it is elected again
            while not topics.is_controller:
                await asyncio.sleep(0.005)
            async with topics.controller.turn:  # it has tried to elect leaders
                pass
            assert [await leaders(client, name) for name in "tu"] == [[-1], [-1]]
            disk.folders = 1 << 30
            while [-1] in [await leaders(client, name) for name in "tu"]:
                assert "background task failed" not in caplog.messages
                await asyncio.sleep(0.02)

    run(scenario)


def test_creation_of_many_partitions_does_not_delay_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "STORED_AT_ONCE", 2)
    store = ClusterStore.store_changes

    async def scenario() -> None:
        async with broker(tmp_path) as running:

            async def stored(
                self: ClusterStore, changes: Sequence[PartitionChange]
            ) -> list[Outcome]:
                outcomes = await store(self, changes)
                running.parts.shutdown.begun = True
                return outcomes

            monkeypatch.setattr(ClusterStore, "store_changes", stored)
            first, second = await running.client(), await running.client()
            begun = asyncio.ensure_future(create_wide(first, "t", 5))
            while not running.parts.shutdown.begun:
                await asyncio.sleep(0)
            late = await create_wide(second, "u", 1)
            assert late == (ErrorCode.NOT_CONTROLLER, "the broker is stopping")
            code, why = await begun
            assert code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert "topic t exists, but 3 of 5 partitions have no leader yet" in str(why)
            assert "the broker is stopping" in str(why)
        assert len([one for one in folders(tmp_path / "data") if one[:2] == "t-"]) == 2
        monkeypatch.undo()
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await leaders(client, "t") == [1] * 5
            assert [*running.parts.metadata_cache.image.topics] == ["t"]

    run(scenario)


def test_topic_may_be_deleted_while_its_creation_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_topics = controller.Controller.add_topics

    async def deleted_meanwhile(
        self: controller.Controller, topics: Collection[Topic], *rest: Any
    ) -> Any:
        failures = await add_topics(self, topics, *rest)
        self.image = self.image.without_topics([topic.name for topic in topics])
        return failures

    async def scenario() -> None:
        monkeypatch.setattr(controller.Controller, "add_topics", deleted_meanwhile)
        async with broker(tmp_path) as running:
            assert await create_wide(await running.client(), "t", 3) == (0, None)

    run(scenario)


@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_interrupted_deletion_finishes_at_the_next_start(tmp_path: Path, renamed: int) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, disk=(disk := LimitedDisk())) as running:
            client = await running.client()
            assert await create_wide(client, "t", 3) == (0, None)
            await create(client, "other")
            disk.renames = renamed
            assert await delete(client, ("t", ZERO_UUID)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
            assert await delete(client, ("t", ZERO_UUID)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            stored = running.parts.topics.controller.store
            assert await stored.deletions() == ["t"]
            assert [one.topic.name for one in (await stored.load_cluster()).topics] == ["other"]
        assert len([one for one in folders(tmp_path / "data") if one[:2] == "t-"]) == 3
        async with broker(tmp_path) as running:
            assert [str(one.partition) for one in running.parts.replica_manager.logs] == ["other-0"]
            left = {one for one in folders(tmp_path / "data") if one[:2] == "t-"}
            assert all(one.endswith("-delete") for one in left)
            client = await running.client()
            assert await create_wide(client, "t", 3) == (0, None)
            assert await produce(client, "t", batch(b"new")) == (0, 0)
        assert not folders(tmp_path / "data", "-stray")
        async with broker(tmp_path) as running:  # the deletion is no longer recorded
            assert len(running.parts.replica_manager.partitions) == 4

    run(scenario)


@pytest.mark.parametrize("has_files", [True, False])
def test_interrupted_deletion_removes_committed_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_files: bool
) -> None:
    settings = ("offsets.topic.num.partitions=1",)

    async def cut_short(self: ReplicaRoles, keys: Sequence[TopicPartition]) -> None:
        if not has_files:
            await running.parts.replica_manager.logs.delete(keys)
        raise StorageFailure("the broker ends here")

    def ends_here(self: GroupCoordinators, names: Collection[str]) -> None:
        raise EOFError("and here the next one")

    def offsets() -> dict[TopicPartition, int]:
        found = running.parts.groups.of("g").groups.ledger.offsets.of("g")
        return {key: one.offset for key, one in found.items()}

    async def scenario() -> None:
        nonlocal running
        async with broker(tmp_path, *settings) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            assert await commit(client, 5) == 0
            assert list(offsets().values()) == [5]
            with monkeypatch.context() as patch:
                patch.setattr(ReplicaRoles, "_drop", cut_short)
                assert await delete(client, ("t", ZERO_UUID)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        with monkeypatch.context() as patch:
            patch.setattr(GroupCoordinators, "forget_topics", ends_here)
            with pytest.raises(EOFError):
                await broker(tmp_path, *settings).__aenter__()
        for _ in range(2):
            async with broker(tmp_path, *settings) as running:
                assert offsets() == {}
                assert "t" not in [
                    one.partition.topic for one in running.parts.replica_manager.logs
                ]

    running: RunningBroker
    run(scenario)


def test_topic_is_recreated_after_an_interrupted_deletion(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, disk=(disk := LimitedDisk())) as running:
            client = await running.client()
            await create(client, "t")
            await produce(client, "t", batch(b"old"))
            disk.renames = 0
            assert await delete(client, ("t", ZERO_UUID)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
            disk.renames = 1 << 30
            topic_id = await create(client, "t")
            assert await produce(client, "t", batch(b"new")) == (0, 0)
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await fetch(client, topic_id) == [b"new"]

    run(scenario)


def test_new_topic_does_not_use_a_stray_folder(tmp_path: Path) -> None:
    async def scenario() -> None:
        data = tmp_path / "data"
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            await produce(client, "t", batch(b"somebody's"))
        shutil.copytree(data / "t-0", data / "u-0")
        (data / "u-0" / PARTITION_METADATA).unlink()
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "u")
            assert await fetch(client, topic_id) == []
            assert await produce(client, "u", batch(b"ours")) == (0, 0)
            assert len(folders(data, "-stray")) == 1, "a stray directory is left to the operator"

    run(scenario)


def test_folder_without_a_topic_id_is_adopted(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "data" / "t-0" / PARTITION_METADATA
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t")
            await produce(client, "t", batch(b"kept"))
        before = file.read_text()
        file.unlink()
        async with broker(tmp_path) as running:
            assert await fetch(await running.client(), topic_id) == [b"kept"]
            assert file.read_text() == before

    run(scenario)


def test_b12_strays_wait_for_all_replicas_and_the_image(tmp_path: Path) -> None:
    """A broker that hears of a topic's absence otherwise may hear only half of the truth."""

    async def scenario() -> None:
        data = tmp_path / "data"
        async with broker(tmp_path) as running:
            await create(await running.client(), "t")
            roles, image = running.parts.roles, running.parts.metadata_cache.image
            me = image.brokers[BrokerId(1)]
            both = image.with_brokers([me, replace(me, id=BrokerId(2))], me.id)
            image = both.without_topics(["t"])
            update = ControlUpdate(
                controller=me.id,
                controller_epoch=image.controller_epoch,
                broker_epoch=roles.broker_epoch,
            )
            await roles.apply(replace(update, image=both))  # its controller knows all of it
            await roles.apply(replace(update, image=image, changed=["t"]))
            await roles.apply(replace(update, image=image))
            await roles.apply(replace(update, is_full=True))
            await roles.apply(replace(update, image=image, changed=["t"]))
            assert not folders(data, "-stray")
            await roles.apply(replace(update, image=image))
            assert len(folders(data, "-stray")) == 1

    run(scenario)
