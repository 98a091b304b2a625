"""DeleteTopics: by name or by id, with a result per topic."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.members import group_broker
from broker.nodes import Client, broker, run
from broker.test_node import batch, create, produce
from ottla.cluster.image import Topic
from ottla.cluster.topic_creation import AskedTopic
from ottla.controller.lease import ControllerLease
from ottla.coordination.operations import Operation
from ottla.errors import DiskFull, ErrorCode, RequestError
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

UNKNOWN_ID = Uuid(b"0123456789abcdef")


async def delete(client: Client, *asked: tuple[str | None, Uuid], version: int = 6) -> list[int]:
    topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in asked]
    request = DeleteTopicsRequest(topics=topics, timeout_ms=1000)
    if version < 6:
        names = [name for name, _ in asked if name is not None]
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
    answer = await client.ask(request, DeleteTopicsResponse, version)
    return [one.error_code for one in answer.responses]


def test_topics_are_deleted_by_name_and_by_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            ids = {name: await create(client, name) for name in ("a", "b", "c", "d")}
            assert await delete(client, ("a", ZERO_UUID), (None, ids["b"])) == [0, 0]
            assert await delete(client, ("c", ZERO_UUID), version=5) == [0]
            gone = [(await produce(client, name, batch(b"x")))[0] for name in ("a", "b", "c")]
            assert gone == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
            assert await produce(client, "d", batch(b"x")) == (0, 0)

    run(scenario)


def test_errors_are_reported_per_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "a")
            await create(client, "b")
            assert await delete(
                client,
                ("nowhere", ZERO_UUID),
                (None, UNKNOWN_ID),
                (None, ZERO_UUID),
                ("b", ZERO_UUID),
            ) == [
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_ID,
                ErrorCode.INVALID_REQUEST,
                0,
            ]
            # A topic that is listed twice, also once by name and once by id, is refused and not
            # deleted.
            twice = [ErrorCode.INVALID_REQUEST]
            assert await delete(client, ("a", ZERO_UUID), (None, topic_id)) == twice
            assert await delete(client, ("a", ZERO_UUID), ("a", ZERO_UUID)) == twice
            assert await produce(client, "a", batch(b"x")) == (0, 0)

    run(scenario)


def test_disabled_deletion_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "delete.topic.enable=false") as running:
            client = await running.client()
            await create(client, "a")
            assert await delete(client, ("a", ZERO_UUID)) == [ErrorCode.TOPIC_DELETION_DISABLED]
            assert await produce(client, "a", batch(b"x")) == (0, 0)

    run(scenario)


def test_recreated_topic_is_empty(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            first = await create(client, "a", retention_ms="5")
            await produce(client, "a", batch(b"x", b"y"))
            await delete(client, ("a", ZERO_UUID))
            assert await create(client, "a") != first
            assert await produce(client, "a", batch(b"z")) == (0, 0)
            assert await delete(client, (None, first)) == [ErrorCode.UNKNOWN_TOPIC_ID]

    run(scenario)


def test_old_topic_id_does_not_delete_a_recreated_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            old = await create(client, "t")
            topics = running.parts.topics
            # The calls run one after the other, and the last one looked the topic up by its old id.
            _, made, refused = await asyncio.gather(
                topics.delete("t"),
                topics.create(AskedTopic("t"), {}),
                topics.delete("t", old),
                return_exceptions=True,
            )
            assert isinstance(made, Topic)
            assert isinstance(refused, RequestError)
            assert refused.code is ErrorCode.UNKNOWN_TOPIC_ID
            assert running.parts.metadata_cache.image.topics["t"].id == made.id != old
            assert await delete(client, (None, made.id), (None, old)) == [
                0,
                ErrorCode.UNKNOWN_TOPIC_ID,
            ]

    run(scenario)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_deletion_holds_although_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    """Otherwise the next start would delete records that were acknowledged after the deletion."""

    async def full(lease: ControllerLease, operations: Sequence[Operation]) -> None:
        raise DiskFull("No space left on device")

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            old = await create(client, "t", 2)
            await produce(client, "t", batch(b"old"))
            with monkeypatch.context() as patch:
                patch.setattr(ControllerLease, "change_all", full)
                assert await delete(client, ("t", ZERO_UUID)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
            code, _ = await produce(client, "t", batch(b"x"))
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_made_again:
                assert await create(client, "t") != old
                assert await produce(client, "t", batch(b"new")) == (0, 0)
        async with broker(tmp_path) as running:
            assert [*running.parts.metadata_cache.image.topics] == (["t"] if is_made_again else [])
            if is_made_again:
                assert running.parts.replica_manager.leader_partition("t", 0).high_watermark == 1

    run(scenario)


def test_internal_topics_cannot_be_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            topic_id = running.parts.metadata_cache.image.topics["__consumer_offsets"].id
            for asked in (("__consumer_offsets", ZERO_UUID), (None, topic_id)):
                assert await delete(client, asked) == [ErrorCode.INVALID_REQUEST]
            assert await create(client, "__transaction_state", 50)
            assert await delete(client, ("__transaction_state", ZERO_UUID), version=5) == [
                ErrorCode.INVALID_REQUEST
            ]
            assert {"__consumer_offsets", "__transaction_state"} <= {
                *running.parts.metadata_cache.image.topics
            }

    run(scenario)
