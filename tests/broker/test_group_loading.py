"""Loading of groups when the broker becomes leader of their partition, and its failures."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from fastcrc.crc32 import iscsi as crc32c

from broker.disks import FaultyDisk
from broker.handlers.test_find_coordinator import find
from broker.members import find_coordinator
from broker.nodes import Client, RunningBroker, broker, run
from broker.test_configs import BROKER_RESOURCE, set_one
from broker.test_node import batch, create, produce
from broker.test_offset_commits import commit, committed
from ottla.broker.group_coordinator import OFFSETS_TOPIC, PartitionCoordinator
from ottla.broker.topics import Topics
from ottla.cluster.image import PartitionState
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.offsets_topic import (
    TYPES,
    ConsumerGroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.records.batch import batches
from ottla.records.builder import BatchBuilder
from ottla.records.validation import ValidationConfig, validate

SETTINGS = ("offsets.topic.num.partitions=1",)
LOAD = PartitionCoordinator.load


async def listed(client: Client) -> tuple[int, list[str]]:
    answer = await client.ask(ListGroupsRequest(), ListGroupsResponse)
    return answer.error_code, [one.group_id for one in answer.groups]


def offsets_partition(running: RunningBroker) -> PartitionState:
    (state,) = running.parts.metadata_cache.image.topics[OFFSETS_TOPIC].partitions
    return state


def test_failed_group_load_fails_only_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.topics.RETRY_SECONDS", 0.01)
    one, two, disk = tmp_path / "one", tmp_path / "two", FaultyDisk()
    settings = (*SETTINGS, f"log.dirs={one},{two}")
    looked: list[str] = []
    unled = Topics.unled

    def look(self: Topics, name: str) -> list[int]:
        looked.append(name)
        return unled(self, name)

    monkeypatch.setattr(Topics, "unled", look)

    async def load(self: PartitionCoordinator) -> None:
        disk.cold, disk.broken = True, frozenset({"read"})
        try:
            await LOAD(self)
        finally:
            disk.cold, disk.broken = False, frozenset()

    async def scenario() -> None:
        async with broker(tmp_path, *settings) as running:
            client = await running.client()
            await create(client, "t")
            assert (one / "t-0").is_dir()
            assert await set_one(client, BROKER_RESOURCE, "1", "cordoned.log.dirs", str(one)) == 0
            await find_coordinator(client)
            assert await commit(client, 5) == 0
        monkeypatch.setattr(PartitionCoordinator, "load", load)
        async with broker(tmp_path, *settings, disk=disk) as running:
            client = await running.client()
            assert await find(client, 0, "g") == [("g", ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)]
            assert await listed(client) == (0, [])
            assert [where.path for where in running.parts.replica_manager.logs.online] == [str(one)]
            assert [key.topic for key in running.parts.replica_manager.partitions] == ["t"]
            assert await produce(client, "t", batch(b"x")) == (0, 0)
            while (before := offsets_partition(running)).in_sync:  # until the broker reports it
                await running.parts.clock.sleep(0.005)
            assert (before.leader, before.elr) == (NO_BROKER, (1,))
            looked.clear()
            while looked.count(OFFSETS_TOPIC) < 3:
                await running.parts.clock.sleep(0.005)
            after = offsets_partition(running)
            assert after == before, "no leader is elected in an offline directory"
        monkeypatch.setattr(PartitionCoordinator, "load", LOAD)
        async with broker(tmp_path, *settings) as running:
            assert await committed(await running.client()) == 5
            assert offsets_partition(running).leader == 1

    run(scenario)


def test_failed_group_load_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.topics.RETRY_SECONDS", 0.01)
    failures = [RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)]

    async def load(self: PartitionCoordinator) -> None:
        if failures:
            raise failures.pop()
        await LOAD(self)

    async def scenario() -> None:
        async with broker(tmp_path, *SETTINGS) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            assert await commit(client, 5) == 0
        monkeypatch.setattr(PartitionCoordinator, "load", load)
        async with broker(tmp_path, *SETTINGS) as running:
            client = await running.client()
            while await find(client, 0, "g") != [("g", 0, 1)]:
                await running.parts.clock.sleep(0.005)
            assert not failures
            assert await listed(client) == (0, ["g"])
            assert await committed(client) == 5

    run(scenario)


def test_unreadable_record_does_not_stop_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The record is of a later release or garbage; the records before and after it are loaded."""
    key = TYPES.encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
    other = TYPES.encode_key(ConsumerGroupMetadataKey(group_id="new"))
    later = b"\x7f\0later"

    async def scenario() -> None:
        async with broker(tmp_path, *SETTINGS) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            assert await commit(client, 5) == 0
            (coordinator,) = running.parts.groups
            builder = BatchBuilder()
            for one in (other, key, b"k"):
                assert builder.append(0, one, later)
            value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=0)
            assert builder.append(0, key, TYPES.encode_value(value, 3))
            data = builder.build()
            rules = ValidationConfig(max_message_bytes=len(data), compacted=True)
            valid = validate(data, rules, now_ms=0, produce_version=12)
            coordinator.partition.append_valid(valid, memoryview(data), now_ms=0, from_client=False)
        caplog.clear()
        async with broker(tmp_path, *SETTINGS) as running:
            assert await committed(await running.client()) == 7
        assert unreadable_ranges(caplog) == [(2, 2), (3, 3)]

    run(scenario)


def test_unreadable_batch_does_not_stop_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, *SETTINGS) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            for offset in (5, 7, 9):
                assert await commit(client, offset) == 0
        [file] = tmp_path.glob("data/__consumer_offsets-0/*.log")
        raw = bytearray(file.read_bytes())
        first, second, _ = batches(bytes(raw))
        start, end = first.header.size, first.header.size + second.header.size
        raw[start + 22] |= 7  # an unknown codec, with a valid checksum
        raw[start + 17 : start + 21] = crc32c(bytes(raw[start + 21 : end])).to_bytes(4, "big")
        file.write_bytes(raw)
        async with broker(tmp_path, *SETTINGS) as running:
            assert await committed(await running.client()) == 9
        assert unreadable_ranges(caplog) == [(1, 1)]

    run(scenario)


def unreadable_ranges(caplog: pytest.LogCaptureFixture) -> list[tuple[object, object]]:
    """Return the offset ranges of commits that the log reports as unreadable."""
    facts = [one.args for one in caplog.records if one.msg == "committed offsets lost"]
    return [(one["from"], one["to"]) for one in facts if isinstance(one, Mapping)]
