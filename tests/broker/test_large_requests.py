"""Requests with very many elements: same responses, and other clients are served meanwhile."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from broker.nodes import Client, RunningBroker, broker, closed, run
from broker.test_node import batch, create, produce
from ottla.broker import cooperative
from ottla.broker.handlers import fetch as fetch_handler
from ottla.broker.handlers import offset_commit, offset_delete, offset_fetch
from ottla.broker.handlers import produce as produce_handler
from ottla.broker.large_requests import LargeRequests
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID
from ottla.protocol.conversation import ClientConversation, Request, Response, ServerConversation
from ottla.protocol.conversation import LargeRequest as Wide
from ottla.protocol.message import Api, Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.transport import connection as connection_module
from ottla.transport.connection import Connection, DeferredResponse

NAMES = ("t", "other", "none", "!")
INDEXES = (0, 1, 2, 1, 99)  # one partition is listed twice, one does not exist


def fetch_request(count: int, **how: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=how.get("wait_ms", 0),
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=index % 3, fetch_offset=0, partition_max_bytes=1 << 20)
                    for index in range(count)
                ],
            )
        ],
    )


def produce_request(count: int, acks: int = -1) -> ProduceRequest:
    records = batch(b"x")
    data = [PartitionProduceData(index=index % 3, records=records) for index in range(count)]
    topics = [TopicProduceData(name="t", partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def metadata_request(count: int) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=f"t{number}") for number in range(count)],
        allow_auto_topic_creation=False,
    )


def requests() -> Iterator[tuple[Message, int]]:
    """Yield requests of every kind, with elements that fail among others that succeed."""
    yield produce_request(7), 9
    bad = produce_request(5)
    bad.topic_data[0].partition_data[2].index = 99
    bad.topic_data = [*bad.topic_data, TopicProduceData(name="none", partition_data=[])]
    yield bad, 9
    yield fetch_request(5), 11
    asked = [MetadataRequestTopic(name=name) for name in (*NAMES, "t")]
    yield MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9
    yield MetadataRequest(topics=[MetadataRequestTopic(name="made")]), 9
    positions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in INDEXES]
    topics = [ListOffsetsTopic(name=name, partitions=positions) for name in NAMES]
    yield ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), 7
    yield FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"]), 4
    commits = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_metadata=None
        )
        for index in INDEXES
    ]
    committed = [OffsetCommitRequestTopic(name=name, partitions=commits) for name in NAMES]
    yield OffsetCommitRequest(group_id="g", member_id="", topics=committed), 8
    yield OffsetCommitRequest(group_id="g", member_id="", topics=[]), 8
    yield OffsetCommitRequest(group_id="g", member_id="", topics=committed[2:]), 8
    fetched = [OffsetFetchRequestTopics(name=name, partition_indexes=INDEXES) for name in NAMES]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=fetched) for name in ("g", "h")]
    yield OffsetFetchRequest(groups=groups), 8
    deleted = [OffsetDeleteRequestPartition(partition_index=index) for index in INDEXES]
    gone = [OffsetDeleteRequestTopic(name=name, partitions=deleted) for name in NAMES]
    yield OffsetDeleteRequest(group_id="g", topics=gone), 0
    yield OffsetDeleteRequest(group_id="nobody", topics=[]), 0
    yield OffsetFetchRequest(groups=groups), 8
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
        for name in NAMES
    ]
    yield DescribeConfigsRequest(resources=resources, include_documentation=True), 4
    ends = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in INDEXES]
    asked_ends = [OffsetForLeaderTopic(topic=name, partitions=ends) for name in NAMES]
    yield OffsetForLeaderEpochRequest(topics=asked_ends), 4
    yield DescribeGroupsRequest(groups=["g", "nobody"]), 5
    yield DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in NAMES]), 0
    yield (
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in NAMES],
            timeout_ms=1000,
        ),
        6,
    )


def no_objects(api: Api) -> int:
    return 0


@pytest.fixture
def everything_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every request as large, and yield to the event loop after each element."""
    monkeypatch.setattr(connection_module, "objects_at_once", no_objects)
    monkeypatch.setattr(fetch_handler, "OBJECTS_AT_ONCE", 0)
    monkeypatch.setattr(cooperative, "TURN_SECONDS", -1.0)
    for module in (produce_handler, offset_commit, offset_fetch, offset_delete):
        monkeypatch.setattr(module, "PIECE", 1)


def all_responses(folder: Path) -> list[Message]:
    found: list[Message] = []

    async def scenario() -> None:
        async with broker(folder) as running:
            client = await running.client()
            for name in ("t", "other"):
                await create(client, name, 3)
            for message, version in requests():
                api = message.API
                assert api is not None
                found.append(await client.ask(message, api.response, version))
            found.append(await client.ask(fetch_request(0), FetchResponse, 11))

    run(scenario)
    return found


def test_large_request_gets_the_same_response(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    narrow = all_responses(tmp_path / "narrow")
    request.getfixturevalue("everything_is_wide")
    wide = all_responses(tmp_path / "wide")
    assert [_without_ids(one) for one in wide] == [_without_ids(one) for one in narrow]


def _without_ids(answer: Message) -> str:
    """Return the response as text, without ids and ports, which differ between brokers."""
    if isinstance(answer, FetchResponse):
        for topic in answer.responses:
            for one in topic.partitions:
                one.records = bytes(one.records or b"")
    return re.sub(r"Uuid[.\w]*\([^)]*\)|port=\d+|cluster_id='[^']*'", "?", repr(answer))


async def served_meanwhile(running: RunningBroker, message: Message, version: int) -> int:
    """Return how many requests of another client are answered during this one."""
    slow, other = await running.client(), await running.client()
    api = message.API
    assert api is not None
    waiting = asyncio.create_task(slow.ask(message, api.response, version))
    count = 0
    while not waiting.done():
        await other.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        count += 1
    await waiting
    return count


WIDE: Sequence[Callable[[], tuple[Message, int]]] = (
    lambda: (fetch_request(20_000), 11),
    lambda: (produce_request(10_000), 9),
    lambda: (metadata_request(30_000), 9),
)


@pytest.mark.parametrize("request_of", WIDE, ids=["fetch", "produce", "metadata"])
def test_other_clients_are_served_during_a_large_request(
    tmp_path: Path, request_of: Callable[[], tuple[Message, int]]
) -> None:
    async def scenario() -> None:
        message, version = request_of()
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 3)
            # Each takes some hundred milliseconds; without yielding, at most three others are
            # answered.
            assert await served_meanwhile(running, message, version) > 15

    run(scenario)


@pytest.mark.usefixtures("everything_is_wide")
def test_append_during_a_large_fetch_is_not_missed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            reader, writer = await running.client(), await running.client()
            await create(writer, "t", 3)
            for offset in range(10):
                asked = fetch_request(30, wait_ms=60_000)
                for one in asked.topics[0].partitions:
                    one.fetch_offset = offset if one.partition == 0 else 0
                waiting = asyncio.create_task(reader.ask(asked, FetchResponse, 11))
                for _ in range(4 * offset):  # at a different moment each time
                    await asyncio.sleep(0)
                assert await produce(writer, "t", batch(b"x")) == (0, offset)
                async with asyncio.timeout(10):
                    found = (await waiting).responses[0].partitions
                assert any(one.records for one in found if one.partition_index == 0)

    run(scenario)


@pytest.mark.usefixtures("everything_is_wide")
def test_topic_deleted_during_a_large_produce_is_unknown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client, other = await running.client(), await running.client()
            await create(client, "t", 3)
            logs = [one.log for one in running.parts.replica_manager.partitions.values()]
            waiting = asyncio.create_task(client.ask(produce_request(3000), ProduceResponse, 9))
            await wait_until(lambda: sum(log.log_end_offset for log in logs) > 0)
            await running.parts.topics.delete("t")
            codes = [one.error_code for one in (await waiting).responses[0].partition_responses]
            appended = codes.index(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            assert 0 < appended < 3000
            assert set(codes[:appended]) == {0}
            assert set(codes[appended:]) == {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
            assert await other.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)

    run(scenario)


def test_acks_0_is_appended_after_the_client_disconnects(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client, other = await running.client(), await running.client()
            await create(other, "t", 3)
            await client.send(produce_request(3000, acks=0), 9)
            await client.close()
            logs = [one.log for one in running.parts.replica_manager.partitions.values()]
            await wait_until(lambda: sum(log.log_end_offset for log in logs) == 3000)

    run(scenario)


async def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def test_malformed_large_request_closes_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            message = metadata_request(2000)
            assert message.topics is not None
            frame = b"".join(ClientConversation("test").send(message, 8)[1])
            name = b"t1999"
            broken = frame.replace(name, b"\xff" * len(name))
            good = b"".join(ClientConversation("test").send(ApiVersionsRequest(), 0)[1])
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(good + broken + good)
            assert len(await reader.read(1 << 20)) > 4  # the request before it is answered
            assert await closed(reader)
            (listener,) = running.node.listeners
            assert dict(listener.closed) == {"violation": 1}
            assert await client.ask(metadata_request(1), MetadataResponse, 8)
            writer.close()

    run(scenario)


def test_large_requests_are_handled_one_at_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            going: list[Request] = []
            most = 0

            async def slow(request: Request) -> Response:
                nonlocal most
                assert isinstance(request.message, MetadataRequest)  # the request was decoded
                going.append(request)
                most = max(most, len(going))
                await asyncio.sleep(0.01)
                going.remove(request)
                return [b"answer"]

            def handle(request: Request, by: Connection) -> DeferredResponse:
                return DeferredResponse(slow(request))

            wide = LargeRequests(
                disk=running.parts.replica_manager.logs.disk,
                request_metrics=running.parts.request_metrics,
                errors=lambda request, answer: (),
            )
            server = ServerConversation(objects_at_once=lambda api: 0)
            frame = b"".join(ClientConversation("test").send(metadata_request(2), 8)[1])
            wanted = [one for one in server.receive(frame * 5) if isinstance(one, Wide)]
            assert len(wanted) == 5
            by = next(iter(running.node.listeners[0].connections), None) or await connected(running)
            await asyncio.gather(*(wide.answer(one, by, handle) for one in wanted))
            assert most == 1

    run(scenario)


async def connected(running: RunningBroker) -> Connection:
    client: Client = await running.client()
    await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    return next(iter(running.node.listeners[0].connections))
