"""DescribeTopicPartitions: topics in order of name, with a limit of partitions per page."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from broker.handlers.test_metadata import TOPIC_OPERATIONS, without_brokers
from broker.members import find_coordinator
from broker.nodes import Client, broker, run
from broker.test_node import create
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, BrokerId
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

Place = tuple[str, int]
Page = tuple[dict[str, list[int]], Place | None]


def request(
    *names: str, limit: int = 2000, cursor: Place | None = None
) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


async def page(client: Client, *names: str, limit: int = 2000, cursor: Place | None = None) -> Page:
    """Return the partitions of a page by topic, and the cursor of the next page."""
    asked = request(*names, limit=limit, cursor=cursor)
    answer = await client.ask(asked, DescribeTopicPartitionsResponse)
    result = {
        one.name or "": [partition.partition_index for partition in one.partitions]
        for one in answer.topics
    }
    assert list(result) == sorted(result)
    at = answer.next_cursor
    return result, None if at is None else (at.topic_name, at.partition_index)


def test_topics_are_described(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "offsets.topic.num.partitions=1") as running:
            client = await running.client()
            await find_coordinator(client, "g")
            topic_id = await create(client, "t", 2)
            answer = await client.ask(request(), DescribeTopicPartitionsResponse)
            internal, topic = answer.topics
            assert (internal.name, internal.is_internal) == ("__consumer_offsets", True)
            assert (topic.name, topic.topic_id, topic.is_internal) == ("t", topic_id, False)
            assert topic.topic_authorized_operations == TOPIC_OPERATIONS
            for index, one in enumerate(topic.partitions):
                assert (one.partition_index, one.error_code) == (index, 0)
                assert (one.leader_id, one.leader_epoch) == (1, 0)
                assert (one.replica_nodes, one.isr_nodes, one.offline_replicas) == ((1,), (1,), ())
                assert (one.eligible_leader_replicas, one.last_known_elr) == ((), ())

    run(scenario)


def test_partition_without_a_leader_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            image = running.parts.metadata_cache.image
            (partition,) = image.topics["t"].partitions
            other = replace(partition, replicas=(BrokerId(1), BrokerId(9)))
            for state, offline in (
                (replace(other, leader=BrokerId(9)), (9,)),
                (replace(other, leader=BrokerId(-1)), (9,)),
            ):
                changed = replace(image.topics["t"], partitions=(state,))
                running.parts.metadata_cache.image = image.with_topics([changed])
                answer = await client.ask(request("t"), DescribeTopicPartitionsResponse)
                (one,) = answer.topics[0].partitions
                assert (one.error_code, one.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
                assert one.offline_replicas == offline
            running.parts.metadata_cache.image = without_brokers(image)
            answer = await client.ask(request("t"), DescribeTopicPartitionsResponse)
            (one,) = answer.topics[0].partitions
            assert (one.error_code, one.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, (1,))

    run(scenario)


def test_pages_cover_all_partitions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for name, count in (("b", 3), ("a", 2), ("c", 1)):
                await create(client, name, count)
            expected = {
                1: [{"a": [0]}, {"a": [1]}, {"b": [0]}, {"b": [1]}, {"b": [2]}, {"c": [0]}],
                2: [{"a": [0, 1]}, {"b": [0, 1]}, {"b": [2], "c": [0]}],
                3: [{"a": [0, 1], "b": [0]}, {"b": [1, 2], "c": [0]}],
                4: [{"a": [0, 1], "b": [0, 1]}, {"b": [2], "c": [0]}],
                5: [{"a": [0, 1], "b": [0, 1, 2]}, {"c": [0]}],
                6: [{"a": [0, 1], "b": [0, 1, 2], "c": [0]}],
                7: [{"a": [0, 1], "b": [0, 1, 2], "c": [0]}],
            }
            # A limit below one counts as one.
            expected |= dict.fromkeys((0, -1), expected[1])
            for names in ((), ("c", "b", "a", "b")):
                for limit, pages in expected.items():
                    cursor: Place | None = None
                    for number, known in enumerate(pages, 1):
                        result, cursor = await page(client, *names, limit=limit, cursor=cursor)
                        assert result == known, (names, limit)
                        assert (cursor is None) == (number == len(pages)), (names, limit)

    run(scenario)


def test_broker_limits_the_page_size(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "max.request.partition.size.limit=2") as running:
            client = await running.client()
            await create(client, "t", 3)
            assert await page(client) == ({"t": [0, 1]}, ("t", 2))

    run(scenario)


def test_cursor_may_name_a_deleted_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for name in ("a", "c"):
                await create(client, name, 2)
            everything: Page = ({"c": [0, 1]}, None)
            assert await page(client, cursor=("b", 1)) == everything
            assert await page(client, cursor=("c", 0)) == everything
            assert await page(client, cursor=("d", 0)) == ({}, None)

    run(scenario)


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0), ("z", 0)])
def test_invalid_cursor_is_refused(tmp_path: Path, cursor: Place) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "a")
            asked = request("a", "c", cursor=cursor)
            answer = await client.ask(asked, DescribeTopicPartitionsResponse)
            assert [(one.name, one.error_code) for one in answer.topics] == [
                ("a", ErrorCode.INVALID_REQUEST),
                ("c", ErrorCode.INVALID_REQUEST),
            ]
            assert answer.next_cursor is None
            assert all(one.topic_id == ZERO_UUID for one in answer.topics)

    run(scenario)


def test_missing_topic_does_not_count_towards_the_page(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "b", 2)
            names = ("a", "a/b", "b", "c")
            answer = await client.ask(request(*names, limit=1), DescribeTopicPartitionsResponse)
            missing, wrong, found = answer.topics
            assert (missing.name, missing.error_code) == (
                "a",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            assert (wrong.name, wrong.error_code) == ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION)
            assert (found.name, found.error_code, len(found.partitions)) == ("b", 0, 1)
            for one in (missing, wrong):
                assert (one.topic_id, list(one.partitions)) == (ZERO_UUID, [])
                assert one.topic_authorized_operations == TOPIC_OPERATIONS
            # The missing topic does not count towards the page, and the next page does not start
            # with it.
            assert await page(client, *names, limit=2) == (
                {"a": [], "a/b": [], "b": [0, 1], "c": []},
                None,
            )

    run(scenario)
