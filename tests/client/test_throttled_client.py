"""A broker that throttles the client (KIP-219): the next request to it waits."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.consumer.test_scripted_consumer import Stage
from client.network.test_connections import connections
from client.scenario_runner import FAST, run
from client.scripted_broker import HOST, Answers, ScriptedBroker
from ottla.client.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

PAUSE_MS = 300


def produced(request: ProduceRequest) -> ProduceResponse:
    [topic] = request.topic_data
    result = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
    one = TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=[result]
    )
    return ProduceResponse(responses=[one], throttle_time_ms=PAUSE_MS)


def committed(request: OffsetCommitRequest) -> OffsetCommitResponse:
    [topic] = request.topics
    result = OffsetCommitResponsePartition(partition_index=0, error_code=0)
    one = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[result])
    return OffsetCommitResponse(topics=[one], throttle_time_ms=PAUSE_MS)


def created(request: CreateTopicsRequest) -> CreateTopicsResponse:
    [topic] = request.topics
    result = CreatableTopicResult(name=topic.name, error_code=0, error_message=None)
    return CreateTopicsResponse(topics=[result], throttle_time_ms=PAUSE_MS)


async def produce(settings: dict[str, object]) -> None:
    async with Producer({**settings, "enable.idempotence": False}) as ours:
        for _ in range(2):
            await (await ours.send("t", b"v"))


async def commit(settings: dict[str, object]) -> None:
    async with Consumer({**settings, "group.id": "g"}) as ours:
        for offset in range(2):
            await ours.commit({("t", 0): offset})


async def administer(settings: dict[str, object]) -> None:
    async with Admin(settings) as ours:
        for number in range(2):
            await ours.create_topic(f"t{number}")


@pytest.mark.parametrize(
    ("act", "kind", "answer"),
    [
        (produce, ProduceRequest, produced),
        (commit, OffsetCommitRequest, committed),
        (administer, CreateTopicsRequest, created),
    ],
)
def test_next_request_waits_for_the_throttle(
    act: Callable[[dict[str, object]], Any], kind: type[Message], answer: Callable[[Any], Message]
) -> None:
    told_s: list[float] = []
    came_s: list[float] = []

    def answered(request: Message) -> Message:
        came_s.append(asyncio.get_running_loop().time())
        told_s.append(came_s[-1])
        return answer(request)

    async def scenario() -> None:
        async with Stage().broker() as broker:
            here = Coordinator(
                key="g",
                node_id=1,
                host=HOST,
                port=broker.place.port,
                error_code=0,
                error_message=None,
            )
            found = FindCoordinatorResponse(coordinators=[here])
            broker.answers |= {FindCoordinatorRequest: lambda _: found, kind: answered}
            await act({**FAST, "bootstrap.servers": broker.bootstrap_servers})
            assert broker.count(kind) == 2

    run(scenario())
    assert came_s[1] - told_s[0] > 0.9 * PAUSE_MS / 1000


def test_request_for_any_broker_avoids_a_throttled_one() -> None:
    """Metadata comes from a broker that does not throttle."""

    def resting(_: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(throttle_time_ms=60_000, brokers=(), controller_id=1, topics=())

    async def scenario() -> None:
        answers: Answers = {MetadataRequest: resting}
        async with ScriptedBroker(answers) as one, ScriptedBroker(answers, number=2) as other:
            ours = connections(one.place)
            views = [one.view(), other.view()]
            channels = [await ours.to(view) for view in views]
            first = await ours.any(views)
            await first.ask(MetadataRequest(topics=()), MetadataResponse, 5)
            channels.remove(first)
            assert await ours.any(views) is channels[0]
            await ours.close()

    run(scenario())
