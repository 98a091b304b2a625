"""A change is answered when every live broker has applied it, or at the timeout of its request."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.handlers.test_produce import send
from broker.nodes import Client
from broker.test_cluster_requests import client_of, run
from broker.test_node import batch
from ottla.broker import configs
from ottla.cluster.image import PartitionState, Topic
from ottla.controller import controller
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.testing import Cluster, ClusterBroker

TOPIC = "orders"
SOON_MS, LATER_MS = 300, 30_000
TOPIC_CONFIG, BROKER_CONFIG = 2, 4
MIN_ISR = "min.insync.replicas"


async def create(client: Client, timeout_ms: int, *names: str, min_isr: int = 1) -> list[int]:
    """Create topics with a replica on each of three brokers; return the error codes."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=3,
                assignments=(),
                configs=[CreatableTopicConfig(name=MIN_ISR, value=str(min_isr))],
            )
            for name in names
        ],
        timeout_ms=timeout_ms,
    )
    response = await client.ask(request, CreateTopicsResponse)
    return [one.error_code for one in response.topics]


async def grow(client: Client, timeout_ms: int) -> list[int]:
    topic = CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)
    response = await client.ask(request, CreatePartitionsResponse)
    return [one.error_code for one in response.results]


async def delete(client: Client, timeout_ms: int) -> list[int]:
    topic = DeleteTopicState(name=TOPIC, topic_id=ZERO_UUID)
    request = DeleteTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
    response = await client.ask(request, DeleteTopicsResponse)
    return [one.error_code for one in response.responses]


async def set_min_isr(client: Client, minimum: int, resource_type: int, name: str) -> list[int]:
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=MIN_ISR, config_operation=0, value=str(minimum))],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = await client.ask(request, IncrementalAlterConfigsResponse)
    return [one.error_code for one in response.responses]


async def min_isr_at(broker: ClusterBroker) -> str | None:
    """Return min.insync.replicas of the topic as a broker knows it."""
    resource = DescribeConfigsResource(
        resource_type=TOPIC_CONFIG, resource_name=TOPIC, configuration_keys=[MIN_ISR]
    )
    async with client_of(broker) as client:
        response = await client.ask(
            DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse
        )
    return response.results[0].configs[0].value


def topic_at(broker: ClusterBroker, name: str = TOPIC) -> Topic | None:
    return None if broker.image is None else broker.image.topics.get(name)


def partitions_at(broker: ClusterBroker) -> int:
    found = topic_at(broker)
    return 0 if found is None else len(found.partitions)


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():
        await asyncio.sleep(0.005)


class Stage:
    """Three brokers, of which one can be cut off from the controller."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        found = cluster.controller
        assert found is not None
        self.controller = found
        self.cut_off, self.other = (one for one in cluster.brokers if one is not found)

    async def waits_for_the_last_broker(
        self,
        change: Callable[[Client, int], Coroutine[Any, Any, list[int]]],
        is_applied: Callable[[ClusterBroker], bool],
    ) -> None:
        """Check that a change is answered when the broker that was cut off has applied it."""
        async with client_of(self.controller) as client:
            trouble = self.cluster.partition(self.controller, self.cut_off)
            task = asyncio.create_task(change(client, LATER_MS))
            await until(lambda: is_applied(self.controller) and is_applied(self.other))
            trouble.end()
            assert await task == [ErrorCode.NONE]
            assert is_applied(self.cut_off)
            await self.cluster.settled()

    async def times_out(
        self,
        change: Callable[[Client, int], Coroutine[Any, Any, list[int]]],
        is_applied: Callable[[ClusterBroker], bool],
    ) -> None:
        """Check that a change is answered at the timeout, and applied later."""
        async with client_of(self.controller) as client:
            with self.cluster.partition(self.controller, self.cut_off):
                codes = await change(client, SOON_MS)
                assert {*codes} == {ErrorCode.REQUEST_TIMED_OUT}
                await until(lambda: is_applied(self.other))
                assert not is_applied(self.cut_off)
            await until(lambda: is_applied(self.cut_off))
            await self.cluster.settled()


def staged(scenario: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with Cluster(brokers=3) as cluster:
            await cluster.settled()
            await scenario(Stage(cluster))

    run(whole)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "STEP_SECONDS", 0.05)


def test_changes_wait_for_the_last_live_broker() -> None:
    async def scenario(stage: Stage) -> None:
        def create_it(client: Client, timeout_ms: int) -> Coroutine[Any, Any, list[int]]:
            return create(client, timeout_ms, TOPIC)

        await stage.waits_for_the_last_broker(create_it, lambda one: topic_at(one) is not None)
        await stage.waits_for_the_last_broker(grow, lambda one: partitions_at(one) == 2)
        await stage.waits_for_the_last_broker(delete, lambda one: topic_at(one) is None)

    staged(scenario)


def test_changes_are_answered_at_the_timeout() -> None:
    async def scenario(stage: Stage) -> None:
        def create_some(client: Client, timeout_ms: int) -> Coroutine[Any, Any, list[int]]:
            return create(client, timeout_ms, TOPIC, "second", "third")

        await stage.times_out(
            create_some,
            lambda one: None not in [topic_at(one, name) for name in (TOPIC, "second", "third")],
        )
        await stage.times_out(grow, lambda one: partitions_at(one) == 2)
        await stage.times_out(delete, lambda one: topic_at(one) is None)

    staged(scenario)


def test_forwarded_changes_are_answered_at_the_timeout() -> None:
    """Other requests from the broker that forwards do not wait for the change."""

    async def scenario(stage: Stage) -> None:
        async with client_of(stage.other) as client, client_of(stage.other) as second:
            with stage.cluster.partition(stage.controller, stage.cut_off):
                task = asyncio.create_task(create(client, LATER_MS, TOPIC))
                await until(lambda: topic_at(stage.other) is not None)
                assert await create(second, SOON_MS, "second") == [ErrorCode.REQUEST_TIMED_OUT]
                assert not task.done()
            assert await task == [ErrorCode.NONE]

    staged(scenario)


def test_change_does_not_wait_for_a_broker_that_dies() -> None:
    async def scenario(stage: Stage) -> None:
        async with client_of(stage.controller) as client:
            with stage.cluster.partition(stage.controller, stage.cut_off):
                task = asyncio.create_task(create(client, LATER_MS, TOPIC))
                await until(lambda: topic_at(stage.other) is not None)
                await stage.cut_off.kill()
                assert await task == [ErrorCode.NONE]

    staged(scenario)


def test_config_change_waits_for_the_last_live_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        async with client_of(stage.controller) as client:
            await create(client, LATER_MS, TOPIC)
            for kind, name in ((TOPIC_CONFIG, TOPIC), (BROKER_CONFIG, "")):
                trouble = stage.cluster.partition(stage.controller, stage.cut_off)
                monkeypatch.setattr(configs, "TIMEOUT_MS", SOON_MS)
                assert await set_min_isr(client, 2, kind, name) == [ErrorCode.REQUEST_TIMED_OUT]
                if kind == TOPIC_CONFIG:
                    while await min_isr_at(stage.other) != "2":
                        await asyncio.sleep(0.005)
                    assert await min_isr_at(stage.cut_off) == "1"
                monkeypatch.setattr(configs, "TIMEOUT_MS", LATER_MS)
                task = asyncio.create_task(set_min_isr(client, 3, kind, name))
                trouble.end()
                assert await task == [ErrorCode.NONE]
                assert await min_isr_at(stage.cut_off) == "3"

    staged(scenario)


def test_auto_creation_does_not_wait_for_a_broker_that_is_cut_off() -> None:
    async def scenario(stage: Stage) -> None:
        async with client_of(stage.controller) as client:
            with stage.cluster.partition(stage.controller, stage.cut_off):
                async with asyncio.timeout(controller.APPLY_SECONDS / 2):
                    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
                    metadata = await client.ask(asked, MetadataResponse)
            assert [one.error_code for one in metadata.topics] == [ErrorCode.NONE]

    staged(scenario)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC_CONFIG, TOPIC), (BROKER_CONFIG, "")])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_a14_minimum_that_changes_during_a_failover_takes_effect(
    monkeypatch: pytest.MonkeyPatch, kind: int, name: str, before: int, after: int
) -> None:
    """The controller stores another minimum, and dies before it can tell the leader.

    The leader becomes the controller. It decides by the new minimum from the start: a lower one
    leaves no replica in the ELR, because leaders may acknowledge records alone.
    """
    monkeypatch.setattr(configs, "TIMEOUT_MS", SOON_MS)

    async def scenario() -> None:
        own = {} if kind == TOPIC_CONFIG else {MIN_ISR: before}
        async with Cluster(brokers=2, settings=own) as cluster:
            await cluster.settled()
            first = cluster.controller
            assert first is not None
            (leader,) = (one for one in cluster.brokers if one is not first)
            async with client_of(first) as client:
                topic = CreatableTopic(
                    name=TOPIC,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(
                            partition_index=0, broker_ids=[leader.id, first.id]
                        )
                    ],
                    configs=[CreatableTopicConfig(name=MIN_ISR, value=str(before))]
                    if kind == TOPIC_CONFIG
                    else [],
                )
                request = CreateTopicsRequest(topics=[topic], timeout_ms=LATER_MS)
                created = await client.ask(request, CreateTopicsResponse)
                assert [one.error_code for one in created.topics] == [0]
                await cluster.settled()
                cluster.partition(first, leader)
                codes = await set_min_isr(client, after, kind, name)
                assert codes == [ErrorCode.REQUEST_TIMED_OUT]
            assert await min_isr_at(leader) == str(before)
            await first.kill()
            await until(
                lambda: cluster.controller is leader and state_at(leader).in_sync == (leader.id,)
            )
            assert state_at(leader).elr == (() if after == 1 else (first.id,))
            assert await min_isr_at(leader) == str(after)
            async with client_of(leader) as client:
                code = (await send(client, TOPIC, batch(b"a"), 9)).error_code
                assert code == (0 if after == 1 else ErrorCode.NOT_ENOUGH_REPLICAS)

    def state_at(broker: ClusterBroker) -> PartitionState:
        found = topic_at(broker)
        assert found is not None
        return found.partitions[0]

    run(scenario)
