"""CreatePartitions: the partition count can grow and never shrink."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.members import find_coordinator
from broker.nodes import Client, broker, run
from broker.test_node import batch, create, produce
from broker.test_offset_commits import commit, committed
from ottla.cluster.topic_creation import AskedTopic
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

Asked = tuple[str, int, Sequence[Sequence[int]] | None]


async def create_partitions(
    client: Client, *asked: Asked, validate_only: bool = False
) -> dict[str, int]:
    topics = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if rows is None
            else [CreatePartitionsAssignment(broker_ids=row) for row in rows],
        )
        for name, count, rows in asked
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
    answer = await client.ask(request, CreatePartitionsResponse)
    return {one.name: one.error_code for one in answer.results}


def test_added_partitions_keep_existing_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            assert await produce(client, "t", batch(b"x")) == (0, 0)
            assert await create_partitions(client, ("t", 3, None), validate_only=True) == {"t": 0}
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await produce(client, "t", batch(b"x"), index=2))[0] == missing
            assert await create_partitions(client, ("t", 3, [[1], [1]])) == {"t": 0}
            assert await produce(client, "t", batch(b"x"), index=2) == (0, 0)
            assert await produce(client, "t", batch(b"x")) == (0, 1)
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await produce(client, "t", batch(b"x"), index=2) == (0, 1)

    run(scenario)


def test_invalid_topics_are_refused_and_others_grow(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for name in "abcd":
                await create(client, name, 2)
            assert await create_partitions(
                client, ("a", 1, None), ("b", 2, None), ("c", 3, [[9]]), ("d", 3, None),
                ("nowhere", 3, None),
            ) == {
                "a": ErrorCode.INVALID_PARTITIONS,
                "b": ErrorCode.INVALID_PARTITIONS,
                "c": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "d": 0,
                "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }  # fmt: skip
            twice = await create_partitions(client, ("a", 3, None), ("a", 4, None))
            assert twice == {"a": ErrorCode.INVALID_REQUEST}
            wrong = await create_partitions(client, ("a", 3, [[1], [1]]))
            assert wrong == {"a": ErrorCode.INVALID_REPLICA_ASSIGNMENT}

    run(scenario)


def test_internal_topics_cannot_grow(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path, "offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=2"
        ) as running:
            client = await running.client()
            await create(client, "t")
            await find_coordinator(client)
            assert await commit(client, 5) == 0
            asked = ("__consumer_offsets", 4, None)
            for validate_only in (True, False):
                result = await create_partitions(client, asked, validate_only=validate_only)
                assert result == {"__consumer_offsets": ErrorCode.INVALID_PARTITIONS}
            assert await committed(client) == 5
            await create(client, "__transaction_state", 2)
            result = await create_partitions(client, ("__transaction_state", 3, None))
            assert result == {"__transaction_state": ErrorCode.INVALID_PARTITIONS}

    run(scenario)


def test_limit_holds_when_the_change_is_made(tmp_path: Path) -> None:
    """The check of the request does not see a topic that another request creates meanwhile."""

    async def scenario() -> None:
        async with broker(tmp_path, "ottla.partitions.max=20000") as running:
            await create(await running.client(), "a", 1)
            topics = running.parts.topics
            for change in (
                topics.grow("a", 2**31 - 1, None),
                topics.grow("a", 10_002, None, validate_only=True),
                topics.create(AskedTopic("b", 2**31 - 1), {}),
            ):
                with pytest.raises(RequestError) as refused:
                    await change
                assert refused.value.code is ErrorCode.POLICY_VIOLATION
            await topics.grow("a", 10_001, None, validate_only=True)

    run(scenario)
