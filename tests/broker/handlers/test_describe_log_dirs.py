"""DescribeLogDirs: the partitions of each log directory, and which directories are online."""

from pathlib import Path

from broker.nodes import Client, broker, run
from broker.test_configs import BROKER_RESOURCE, set_one
from broker.test_node import batch, create, produce
from ottla.errors import ErrorCode, StorageFailure
from ottla.ids import Offset, PartitionIndex, TopicPartition
from ottla.log.disk import Room
from ottla.log.files import OsDisk
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

VERSIONS = range(1, 6)

Asked = tuple[str, list[int]]


async def describe(
    client: Client, *asked: Asked, everything: bool = False, version: int = 5
) -> dict[str, DescribeLogDirsResult]:
    """Return the directories, by the last part of their paths."""
    topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in asked]
    request = DescribeLogDirsRequest(topics=None if everything else topics)
    answer = await client.ask(request, DescribeLogDirsResponse, version)
    assert answer.error_code == 0
    return {Path(one.log_dir).name: one for one in answer.results}


def sizes(directory: DescribeLogDirsResult) -> dict[str, dict[int, int]]:
    for topic in directory.topics:
        assert not any(one.is_future_key for one in topic.partitions)
    return {
        topic.name: {one.partition_index: one.partition_size for one in topic.partitions}
        for topic in directory.topics
    }


def test_partition_sizes_are_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 2)
            await create(client, "other")
            records = batch(b"x")
            await produce(client, "t", records, index=1)
            await produce(client, "t", records, index=1)
            of_t = {0: 0, 1: 2 * len(records)}
            for version in VERSIONS:
                found = (await describe(client, everything=True, version=version))["data"]
                assert found.log_dir == str(tmp_path / "data")
                assert sizes(found) == {"t": of_t, "other": {0: 0}}
                found = (await describe(client, ("t", [1, 5]), ("nowhere", [0]), version=version))[
                    "data"
                ]
                assert (found.error_code, sizes(found)) == (0, {"t": {1: 2 * len(records)}})
                assert sizes((await describe(client, version=version))["data"]) == {}
                if version >= 4:
                    assert 0 < found.usable_bytes <= found.total_bytes

    run(scenario)


def test_size_includes_all_segments(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", segment_bytes="1048576")
            for _ in range(3):
                assert (await produce(client, "t", batch(bytes(600_000))))[0] == 0
            key = TopicPartition("t", PartitionIndex(0))
            assert len(running.parts.replica_manager.logs[key].log.segments) == 3
            found = (await describe(client, ("t", [0])))["data"]
            assert sizes(found)["t"][0] == 3 * len(batch(bytes(600_000)))

    run(scenario)


def test_offset_lag_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            await produce(client, "t", batch(b"x", b"y"))

            async def lag() -> int:
                (topic,) = (await describe(client, ("t", [0])))["data"].topics
                return topic.partitions[0].offset_lag

            partition = running.parts.replica_manager.leader_partition("t", 0)
            assert await lag() == 0
            partition.high_watermark = Offset(5)
            assert await lag() == 3
            partition.high_watermark = Offset(1)
            assert await lag() == 0
            running.parts.replica_manager.partitions.clear()
            assert await lag() == 0

    run(scenario)


def test_partitions_and_cordon_are_reported_per_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        async with broker(tmp_path, f"log.dirs={one},{two}") as running:
            client = await running.client()
            await create(client, "t", 2)
            found = await describe(client, everything=True)
            held = [sizes(each)["t"] for each in found.values()]
            assert sorted([*map(list, held)]) == [[0], [1]]
            assert [each.is_cordoned for each in found.values()] == [False, False]
            for value, expected in ((str(two), [False, True]), ("*", [True, True])):
                assert not await set_one(client, BROKER_RESOURCE, "1", "cordoned.log.dirs", value)
                found = await describe(client)
                assert [each.is_cordoned for each in found.values()] == expected

    run(scenario)


def test_failed_directory_is_reported_with_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, two, blocked = tmp_path / "one", tmp_path / "two", tmp_path / "blocked"
        blocked.write_text("no folder")
        settings = f"log.dirs={one},{two},{blocked}"
        async with broker(tmp_path, settings) as running:
            client = await running.client()
            await create(client, "t", 2)
            logs = running.parts.replica_manager.logs
            failed = next(each for each in logs.directories if each.path == str(one))
            logs.fail(failed, StorageFailure("the disk is gone"))
            for version in VERSIONS:
                found = await describe(client, everything=True, version=version)
                assert {name: each.error_code for name, each in found.items()} == {
                    "one": ErrorCode.KAFKA_STORAGE_ERROR,
                    "two": ErrorCode.NONE,
                    "blocked": ErrorCode.KAFKA_STORAGE_ERROR,
                }
                assert [len(each.topics) for each in found.values()] == [0, 1, 0]

    run(scenario)


def test_device_that_does_not_respond_is_reported(tmp_path: Path) -> None:
    class Mute(OsDisk):
        def room(self, path: str) -> Room:
            raise StorageFailure(f"{path}: statvfs: Input/output error")

    async def scenario() -> None:
        async with broker(tmp_path, disk=Mute()) as running:
            client = await running.client()
            found = (await describe(client, everything=True))["data"]
            assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)
