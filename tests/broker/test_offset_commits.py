"""Offset commits on a slow device."""

import asyncio
import logging
from pathlib import Path

import pytest

from broker.disks import HeldDisk
from broker.members import SETTINGS, Member, find_coordinator, join, join_request, sync_request
from broker.nodes import Client, broker, run
from broker.test_node import create
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.records.batch import batches
from ottla.records.compression import Compression
from ottla.replication.partition import Partition
from transport.test_departures import until

FLUSHED = "log.flush.interval.messages=1"


async def commit(
    client: Client, offset: int, retention_ms: int | None = None, *, group: str = "g"
) -> int:
    """Commit an offset for partition 0 of "t" as a consumer with manual assignment."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id=group, member_id="", topics=[topic])
    version = 9
    if retention_ms is not None:
        request.retention_time_ms, version = retention_ms, 4
    answer = await client.ask(request, OffsetCommitResponse, version)
    return answer.topics[0].partitions[0].error_code


async def committed(client: Client) -> int:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    answer = await client.ask(request, OffsetFetchResponse, 9)
    return answer.groups[0].topics[0].partitions[0].committed_offset


def test_commit_times_out_on_a_slow_device(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = HeldDisk()
        settings = (
            "offsets.commit.timeout.ms=500",
            "offsets.topic.num.partitions=1",
            "log.flush.interval.messages=1",
        )
        async with broker(tmp_path, *settings, disk=disk) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            assert await commit(client, 3) == 0
            with disk.held():
                assert await commit(client, 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert await committed(client) == 3
            while await committed(client) == 3:
                await asyncio.sleep(0.01)
            # The commit was in the log, so it counts when the device has synced it.
            assert await committed(client) == 5
            assert await commit(client, 6) == 0

    run(scenario)


def test_deletions_time_out_on_a_slow_device(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = HeldDisk()
        settings = (
            "offsets.commit.timeout.ms=500",
            "offsets.topic.num.partitions=1",
            "log.flush.interval.messages=1",
        )
        async with broker(tmp_path, *settings, disk=disk) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            assert await commit(client, 3) == 0
            with disk.held():
                topic = OffsetDeleteRequestTopic(
                    name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
                request = OffsetDeleteRequest(group_id="g", topics=[topic])
                answer = await client.ask(request, OffsetDeleteResponse)
                assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                groups = DeleteGroupsRequest(groups_names=["g"])
                (deleted,) = (await client.ask(groups, DeleteGroupsResponse)).results
                assert deleted.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            while (await client.ask(ListGroupsRequest(), ListGroupsResponse)).groups:
                await asyncio.sleep(0.01)
            while await committed(client) != -1:
                await asyncio.sleep(0.01)

    run(scenario)


@pytest.mark.parametrize("instance", [None, "i"], ids=["dynamic", "static"])
def test_members_time_out_on_a_slow_device(tmp_path: Path, instance: str | None) -> None:
    """Their assignment is not stored in time; they get it when it is."""

    async def scenario() -> None:
        disk = HeldDisk()
        settings = (
            "offsets.commit.timeout.ms=500",
            "offsets.topic.num.partitions=1",
            "group.initial.rebalance.delay.ms=0",
            "log.flush.interval.messages=1",
        )
        async with broker(tmp_path, *settings, disk=disk) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            member = await join(client, instance=instance)
            request = sync_request(member, instance=instance, shares={member.id: b"share"})
            with disk.held():
                for _ in range(2):
                    answer = await client.ask(request, SyncGroupResponse)
                    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                (coordinator,) = running.parts.groups
                [one] = coordinator.groups.ledger.groups["g"].roster
                assert one.sync_token is None  # its session goes on
            answer = await client.ask(request, SyncGroupResponse)
            assert (answer.error_code, answer.assignment) == (0, b"share")
            if instance is None:
                return
            with disk.held():  # now the return of a static member is not stored in time
                again = join_request(instance=instance)
                answer = await client.ask(again, JoinGroupResponse, 9)
                assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            member = await join(client, instance=instance)
            request = sync_request(member, instance=instance, shares={member.id: b"share"})
            assert (await client.ask(request, SyncGroupResponse)).assignment == b"share"

    run(scenario)


@pytest.mark.parametrize("ends", ["stored", "resigned"])
def test_late_response_is_not_due_after_the_append(tmp_path: Path, ends: str) -> None:
    """Otherwise its timer would start again for ever."""

    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, *SETTINGS, FLUSHED, disk=disk) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            member = await join(client)
            request = sync_request(member, shares={member.id: b"share"})
            (coordinator,) = running.parts.groups
            outcomes = coordinator._outcomes  # pyright: ignore[reportPrivateUsage]
            with disk.held():
                synced = asyncio.create_task(client.ask(request, SyncGroupResponse))
                await until(lambda: outcomes)
                (outcome,) = outcomes
                assert outcome.late is not None
                assert not outcome.late.cancelled()
                if ends == "resigned":
                    coordinator.resign()
            await synced
            assert outcome.late.cancelled()

    run(scenario)


def test_members_of_the_next_generation_do_not_get_a_late_response(tmp_path: Path) -> None:
    """They wait for the assignment of their own leader, while an earlier one is not stored."""

    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, *SETTINGS, FLUSHED, disk=disk) as running:
            first, second = await running.client(), await running.client()
            await create(first, "t")
            await find_coordinator(first)
            leader = await join(first)
            (coordinator,) = running.parts.groups
            outcomes = coordinator._outcomes  # pyright: ignore[reportPrivateUsage]
            roster = coordinator.groups.ledger.groups["g"].roster
            with disk.held():
                request = sync_request(leader, shares={leader.id: b"share"})
                synced = asyncio.create_task(first.ask(request, SyncGroupResponse))
                await until(lambda: outcomes)
                earlier = outcomes[0]
                joined = asyncio.create_task(join(second))
                assert (await synced).error_code == ErrorCode.REBALANCE_IN_PROGRESS
                again = await first.ask(join_request(member=leader.id), JoinGroupResponse)
                leader, follower = Member(leader.id, again.generation_id), await joined
                request = sync_request(follower)
                waiting = asyncio.create_task(second.ask(request, SyncGroupResponse))
                await until(lambda: any(one.sync_token for one in roster))
                coordinator._answer_late(earlier)  # pyright: ignore[reportPrivateUsage]
                assert any(one.sync_token for one in roster)
            request = sync_request(leader, shares={follower.id: b"share"})
            assert (await first.ask(request, SyncGroupResponse)).error_code == 0
            assert (await waiting).assignment == b"share"

    run(scenario)


def test_members_wait_longer_for_each_other_than_a_commit_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = (
            "offsets.commit.timeout.ms=50",
            "offsets.topic.num.partitions=1",
            "group.initial.rebalance.delay.ms=500",
        )
        async with broker(tmp_path, *settings) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            await join(client)

    run(scenario)


def test_offsets_topic_uses_its_compression_setting(tmp_path: Path) -> None:
    settings = ("offsets.topic.num.partitions=1", "offsets.load.buffer.size=1")

    async def scenario() -> None:
        async with broker(tmp_path, *settings, "offsets.topic.compression.codec=4") as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            for offset in (1, 2):
                assert await commit(client, offset) == 0
        data = (tmp_path / "data/__consumer_offsets-0/00000000000000000000.log").read_bytes()
        assert [one.header.compression for one in batches(data)] == [Compression.ZSTD] * 2
        async with broker(tmp_path, *settings) as running:
            assert await committed(await running.client()) == 2

    run(scenario)


def test_expired_and_deleted_groups_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.broker.group_coordinator")

    def events() -> list[object]:
        names = ("offsets expired", "group expired", "group deleted")
        return [(one.msg, one.args) for one in caplog.records if one.msg in names]

    async def scenario() -> None:
        async with broker(
            tmp_path, "offsets.topic.num.partitions=1", "offsets.retention.check.interval.ms=20"
        ) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            assert await commit(client, 3, retention_ms=1) == 0
            while len(events()) < 2:
                await asyncio.sleep(0.01)
            assert await commit(client, 4) == 0
            request = DeleteGroupsRequest(groups_names=["g"])
            (deleted,) = (await client.ask(request, DeleteGroupsResponse)).results
            assert deleted.error_code == 0
        assert events() == [
            ("offsets expired", {"group": "g", "partitions": 1}),
            ("group expired", {"group": "g"}),
            ("group deleted", {"group": "g"}),
        ]

    run(scenario)


@pytest.mark.parametrize("fails", [False, True])
def test_slow_commit_does_not_restore_a_deleted_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The commit waits for the device and the deletion does not have to, so its response comes
    later.
    """
    must_flush, asked, device = False, asyncio.Event(), asyncio.Event()

    async def durable(self: Partition, offset: int) -> None:
        if offset:
            asked.set()
            await device.wait()
            if fails:
                raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(Partition, "must_flush", property(lambda self: must_flush))
    monkeypatch.setattr(Partition, "durable", durable)

    async def scenario() -> None:
        nonlocal must_flush
        async with broker(tmp_path, "offsets.topic.num.partitions=1") as running:
            first, second = await running.client(), await running.client()
            await create(first, "t")
            await find_coordinator(first)
            assert await commit(first, 3) == 0
            (coordinator,) = running.parts.groups
            must_flush = True
            late = asyncio.create_task(commit(first, 5))
            await asked.wait()
            must_flush = False
            end = coordinator.partition.log.log_end_offset
            request = DeleteGroupsRequest(groups_names=["g"])
            deleted = asyncio.create_task(second.ask(request, DeleteGroupsResponse))
            while coordinator.partition.log.log_end_offset == end:
                await asyncio.sleep(0.001)
            device.set()
            assert await late == (ErrorCode.NOT_COORDINATOR if fails else 0)
            assert [one.error_code for one in (await deleted).results] == [0]
            assert await committed(first) == -1
            assert not (await first.ask(ListGroupsRequest(), ListGroupsResponse)).groups

    run(scenario)


@pytest.mark.parametrize("place", ["records", "length"])
def test_damaged_commit_does_not_stop_the_broker(tmp_path: Path, place: str) -> None:
    """Commits before and after the damaged one are kept."""

    async def scenario() -> None:
        settings = ("offsets.topic.num.partitions=1",)
        async with broker(tmp_path, *settings) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            for offset in (3, 5, 7):
                assert await commit(client, offset) == 0
        [file] = tmp_path.glob("data/__consumer_offsets-0/*.log")
        raw = bytearray(file.read_bytes())
        _, second, third = list(batches(bytes(raw)))
        start = len(raw) - third.header.size - second.header.size
        if place == "records":
            raw[start + second.header.size - 20] ^= 1
            last = 7
        else:
            raw[start + second.header.size + 11] ^= 0x40  # in the length field of the last record
            last = 5
        file.write_bytes(raw)
        async with broker(tmp_path, *settings) as running:
            client = await running.client()
            await find_coordinator(client)
            assert await committed(client) == last
            assert await commit(client, 9) == 0
            assert await committed(client) == 9

    run(scenario)
