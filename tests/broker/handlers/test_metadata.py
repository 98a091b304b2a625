"""Metadata: the requested topics or all of them, with auto-creation where it is allowed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from broker.members import find_coordinator
from broker.nodes import Client, broker, run
from broker.test_node import create
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.cluster.image import ClusterImage
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, BrokerId, Uuid
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

VERSIONS = range(14)
TOPIC_OPERATIONS, CLUSTER_OPERATIONS, NOT_ASKED = 3576, 8096, -(2**31)  # as Kafka answers
STRANGER = Uuid(b"0123456789abcdef")


def without_brokers(image: ClusterImage) -> ClusterImage:
    """Return the image of a cluster without live brokers."""
    return image.with_brokers([], BrokerId(-1))


def named(*names: str | None, topic_id: Uuid = ZERO_UUID) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name, topic_id=topic_id) for name in names]


async def ask(
    client: Client,
    topics: Sequence[MetadataRequestTopic] | None,
    version: int = 13,
    *,
    make: bool = False,
) -> MetadataResponse:
    request = MetadataRequest(topics=topics)
    if version >= 4:
        request.allow_auto_topic_creation = make
    return await client.ask(request, MetadataResponse, version)


async def codes(
    client: Client, *names: str, version: int = 13, make: bool = False
) -> dict[str | None, tuple[int, int]]:
    """Return the error code and partition count of each topic."""
    answer = await ask(client, named(*names), version, make=make)
    return {one.name: (one.error_code, len(one.partitions)) for one in answer.topics}


def test_brokers_and_topics_are_described_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "broker.rack=r1") as running:
            client = await running.client()
            topic_id = await create(client, "t", 2)
            for version in VERSIONS:
                # A request without names returns all topics; version 0 uses an empty list for that.
                everything = await ask(client, None if version else [], version)
                one = await ask(client, named("t"), version)
                for answer in (everything, one):
                    (node,) = answer.brokers
                    assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", running.port)
                    (topic,) = answer.topics
                    assert (topic.error_code, topic.name) == (0, "t")
                    assert not topic.is_internal
                    for index, partition in enumerate(topic.partitions):
                        assert (partition.error_code, partition.partition_index) == (0, index)
                        assert partition.leader_id == 1
                        assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))
                        assert list(partition.offline_replicas) == []
                        if version >= 7:
                            assert partition.leader_epoch == 0
                    if version >= 1:
                        assert (node.rack, answer.controller_id) == ("r1", 1)
                    if version >= 2:
                        assert answer.cluster_id == running.parts.metadata_cache.image.cluster_id
                    if version >= 10:
                        assert topic.topic_id == topic_id
                if version >= 1:
                    assert list((await ask(client, [], version)).topics) == []

    run(scenario)


def test_authorized_operations_are_returned_on_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            for version in VERSIONS[8:]:
                for topics in (None, named("t"), named("nowhere")):
                    for asked in (False, True, False):
                        request = MetadataRequest(
                            topics=topics,
                            allow_auto_topic_creation=False,
                            include_topic_authorized_operations=asked,
                            include_cluster_authorized_operations=asked and version <= 10,
                        )
                        answer = await client.ask(request, MetadataResponse, version)
                        (topic,) = answer.topics
                        result = TOPIC_OPERATIONS if asked else NOT_ASKED
                        assert topic.topic_authorized_operations == result
                        if version <= 10:
                            result = CLUSTER_OPERATIONS if asked else NOT_ASKED
                            assert answer.cluster_authorized_operations == result

    run(scenario)


def test_all_topics_reflects_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "offsets.topic.num.partitions=1") as running:
            client = await running.client()

            async def everything() -> dict[str | None, tuple[int, bool]]:
                answer = await ask(client, None)
                return {one.name: (len(one.partitions), one.is_internal) for one in answer.topics}

            assert await everything() == {}
            await create(client, "t")
            assert await everything() == {"t": (1, False)}
            growth = CreatePartitionsTopic(name="t", count=3, assignments=None)
            request = CreatePartitionsRequest(topics=[growth], timeout_ms=1000, validate_only=False)
            await client.ask(request, CreatePartitionsResponse)
            assert await everything() == {"t": (3, False)}
            await find_coordinator(client, "g")
            assert await everything() == {"t": (3, False), "__consumer_offsets": (1, True)}

    run(scenario)


def test_missing_topic_is_auto_created_when_allowed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "num.partitions=3") as running:
            client = await running.client()
            unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
            assert await codes(client, "t") == {"t": unknown}
            assert await codes(client, "t", "u", make=True) == {"t": (0, 3), "u": (0, 3)}
            invalid = (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)
            assert await codes(client, "a b", make=True) == {"a b": invalid}
            # Before version 4 a request cannot turn auto-creation off.
            assert await codes(client, "v", version=3) == {"v": (0, 3)}
        async with broker(tmp_path, "auto.create.topics.enable=false") as running:
            client = await running.client()
            assert await codes(client, "t", "w", make=True) == {"t": (0, 3), "w": unknown}

    run(scenario)


def test_auto_created_offsets_topic_has_its_own_settings(tmp_path: Path) -> None:
    """With default topic settings, retention would delete committed offsets."""

    async def scenario() -> None:
        async with broker(tmp_path, "num.partitions=3", "log.cleanup.policy=delete") as running:
            client = await running.client()
            result = await codes(client, OFFSETS_TOPIC, make=True)
            assert result == {OFFSETS_TOPIC: (0, 50)}
            rules = running.parts.settings.log_config(OFFSETS_TOPIC)
            assert (rules.compact, rules.delete) == (True, False)
            # The transactions topic has no settings of its own yet, so it is not created.
            name = "__transaction_state"
            unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
            assert await codes(client, name, make=True) == {name: unknown}

    run(scenario)


def test_concurrent_auto_creation_succeeds(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            clients = [await running.client() for _ in range(4)]
            result = await asyncio.gather(*(codes(one, "t", make=True) for one in clients))
            assert result == [{"t": (0, 1)}] * 4

    run(scenario)


def test_failed_auto_creation_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "default.replication.factor=2") as running:
            client = await running.client()
            refused = (ErrorCode.INVALID_REPLICATION_FACTOR, 0)
            assert await codes(client, "t", make=True) == {"t": refused}

    run(scenario)


def test_duplicate_topic_is_described_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            for version in (0, 13):
                answer = await ask(client, named("t", "u", "t"), version)
                assert [one.name for one in answer.topics] == ["t", "u"]

    run(scenario)


def test_topic_is_found_by_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t")

            async def by_id(version: int, *asked: MetadataRequestTopic) -> MetadataResponseTopic:
                (topic,) = (await ask(client, asked, version, make=True)).topics
                return topic

            for version in (12, 13):
                for name in (None, "t", "other"):
                    found = await by_id(version, *named(name, topic_id=known))
                    assert (found.error_code, found.name, found.topic_id) == (0, "t", known)
                    missing = await by_id(version, *named(name, topic_id=STRANGER))
                    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_ID
                    assert (missing.name, missing.topic_id) == (None, STRANGER)
                neither = await by_id(version, *named(None))
                assert neither.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert set(running.parts.metadata_cache.image.topics) == {"t"}

    run(scenario)


@pytest.mark.parametrize("version", [10, 11])
def test_topic_ids_are_refused_in_old_versions(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t")
            for strange in (named("t", topic_id=known), named(None)):
                answer = await ask(client, [*named("t"), *strange], version)
                code = ErrorCode.INVALID_REQUEST
                assert [one.error_code for one in answer.topics] == [code, code]
                assert [one.topic_id for one in answer.topics] == [ZERO_UUID, strange[0].topic_id]
                assert list(answer.brokers) == []

    run(scenario)


def test_partition_without_a_leader_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            image = running.parts.metadata_cache.image
            (partition,) = image.topics["t"].partitions
            other = replace(partition, replicas=(BrokerId(1), BrokerId(9)))
            for leader in (BrokerId(9), BrokerId(-1)):
                state = replace(other, leader=leader)
                changed = replace(image.topics["t"], partitions=(state,))
                running.parts.metadata_cache.image = image.with_topics([changed])
                for topics in (None, named("t")):
                    (one,) = (await ask(client, topics)).topics[0].partitions
                    assert one.error_code == ErrorCode.LEADER_NOT_AVAILABLE
                    assert (one.leader_id, one.offline_replicas) == (-1, (9,))
            running.parts.metadata_cache.image = without_brokers(image)
            answer = await ask(client, named("t"))
            assert (list(answer.brokers), answer.controller_id) == ([], -1)
            (one,) = answer.topics[0].partitions
            assert (one.error_code, one.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, (1,))

    run(scenario)
