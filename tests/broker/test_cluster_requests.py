"""What clients of a cluster of three brokers see: elections, leader hints, coordinators."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.handlers.test_produce import request
from broker.nodes import Client
from broker.test_node import batch
from ottla import Admin, Consumer, NewTopic, Producer
from ottla.errors import ErrorCode
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.testing import Cluster, ClusterBroker

TOPIC = "orders"


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


@asynccontextmanager
async def client_of(broker: ClusterBroker) -> AsyncGenerator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


async def create(
    cluster: Cluster, replicas: int = 3, min_isr: int = 1
) -> tuple[ClusterBroker, list[ClusterBroker]]:
    """Create the topic; return its leader and the other brokers."""
    config = {"min.insync.replicas": str(min_isr)}
    async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        await admin.create_topics([NewTopic(TOPIC, 1, replicas, config)])
    await cluster.settled()
    leader = cluster.leader(TOPIC, 0)
    assert leader is not None
    return leader, [one for one in cluster.brokers if one is not leader]


async def elect(broker: ClusterBroker, election: int) -> int:
    """Ask a broker for an election in the topic's partition; return the error code."""
    request = ElectLeadersRequest(
        election_type=election,
        topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])],
    )
    async with client_of(broker) as client:
        response = await client.ask(request, ElectLeadersResponse)
    assert response.error_code == 0
    ((result,),) = [one.partition_result for one in response.replica_election_results]
    assert (result.error_message is None) == (result.error_code == 0)
    return result.error_code


def test_any_broker_elects_the_preferred_leader() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            leader, followers = await create(cluster)
            assert await elect(leader, 0) == ErrorCode.ELECTION_NOT_NEEDED
            await leader.stop()
            await cluster.settled()  # it may have been the controller
            assert await elect(followers[0], 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            assert await elect(followers[0], 1) == ErrorCode.ELECTION_NOT_NEEDED
            await leader.start()
            await cluster.settled()
            assert cluster.leader(TOPIC, 0) is not leader
            (other,) = [one for one in cluster.brokers if one is not cluster.controller][:1]
            assert await elect(other, 0) == ErrorCode.NONE
            await cluster.settled()
            assert cluster.leader(TOPIC, 0) is leader

    run(scenario)


def test_any_broker_reassigns_partitions_and_lists_it() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            leader, (other, third) = await create(cluster, replicas=1)
            asked = [
                ReassignablePartition(partition_index=0, replicas=[leader.id, other.id]),
                ReassignablePartition(partition_index=7, replicas=[other.id]),
            ]
            altered = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=TOPIC, partitions=asked)]
            )
            listed = ListPartitionReassignmentsRequest(topics=None)
            asker = other if cluster.controller is third else third
            async with client_of(asker) as client:
                with cluster.partition(leader, other):  # so that the new replica cannot join
                    response = await client.ask(altered, AlterPartitionReassignmentsResponse)
                    assert response.error_code == 0
                    ((begun, unknown),) = [one.partitions for one in response.responses]
                    assert (begun.error_code, begun.error_message) == (0, None)
                    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    assert unknown.error_message == "Unable to find partition orders:7."
                    found = await client.ask(listed, ListPartitionReassignmentsResponse)
                    ((one,),) = [topic.partitions for topic in found.topics]
                    assert [*one.replicas] == [leader.id, other.id]
                    assert ([*one.adding_replicas], [*one.removing_replicas]) == ([other.id], [])
                await cluster.settled()
                found = await client.ask(listed, ListPartitionReassignmentsResponse)
                assert (found.error_code, [*found.topics]) == (0, [])
            image = third.image
            assert image is not None
            assert image.topics[TOPIC].partitions[0].replicas == (leader.id, other.id)

    run(scenario)


def test_offline_replicas_and_elr_are_described() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            leader, (first, second) = await create(cluster, min_isr=2)
            await first.stop()
            await second.stop()
            await cluster.settled()
            async with client_of(leader) as client:
                request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
                response = await client.ask(request, DescribeTopicPartitionsResponse)
                ((partition,),) = [one.partitions for one in response.topics]
                assert partition.leader_id == leader.id
                assert [*partition.isr_nodes] == [leader.id]
                assert sorted(partition.offline_replicas) == sorted((first.id, second.id))
                # The second one left an ISR of two: it has every committed record.
                assert [*(partition.eligible_leader_replicas or ())] == [second.id]
                asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
                described = await client.ask(asked, DescribeClusterResponse)
                assert [one.broker_id for one in described.brokers] == [leader.id]
                assert described.controller_id == leader.id

    run(scenario)


def test_other_broker_returns_the_leader_and_its_address() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            leader, (other, _) = await create(cluster, replicas=1)
            image = other.image
            assert image is not None
            topic_id = image.topics[TOPIC].id
            expected = [(leader.id, "127.0.0.1", leader.port)]
            async with client_of(other) as client:
                data = PartitionProduceData(index=0, records=b"not looked at")
                produce = ProduceRequest(
                    acks=-1,
                    timeout_ms=1000,
                    topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])],
                )
                produced = await client.ask(produce, ProduceResponse)
                ((refused,),) = [one.partition_responses for one in produced.responses]
                assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert refused.current_leader is not None
                assert refused.current_leader.leader_id == leader.id
                found = [(one.node_id, one.host, one.port) for one in produced.node_endpoints]
                assert found == expected
                asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
                fetch = FetchRequest(
                    max_wait_ms=0,
                    min_bytes=1,
                    topics=[FetchTopic(topic_id=topic_id, partitions=[asked])],
                )
                fetched = await client.ask(fetch, FetchResponse)
                ((absent,),) = [one.partitions for one in fetched.responses]
                assert absent.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert absent.current_leader is not None
                assert absent.current_leader.leader_id == leader.id
                found = [(one.node_id, one.host, one.port) for one in fetched.node_endpoints]
                assert found == expected

    run(scenario)


def test_a14_controller_without_a_replica_knows_the_minimum_of_a_topic() -> None:
    """With another minimum than the leader, it would elect a replica without all records."""

    async def scenario() -> None:
        async with Cluster(brokers=3, settings={"min.insync.replicas": 2}) as cluster:
            controller = cluster.controller
            leader, follower = (one for one in cluster.brokers if one is not controller)
            async with Admin({"bootstrap.servers": leader.address}) as admin:
                replicas, config = {0: [leader.id, follower.id]}, {"min.insync.replicas": "1"}
                await admin.create_topics([NewTopic(TOPIC, replicas=replicas, config=config)])
            await cluster.settled()
            await follower.stop()
            assert controller is not None
            image = controller.image
            assert image is not None
            state = image.state(TOPIC, 0)
            assert state is not None
            assert ([*state.in_sync], state.elr) == ([leader.id], ())

    run(scenario)


def test_demoted_leader_returns_the_new_leader_to_waiting_producers() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            preferred, leader = (one for one in cluster.brokers if one is not cluster.controller)
            async with Admin({"bootstrap.servers": leader.address}) as admin:
                replicas = {0: [preferred.id, leader.id]}
                await admin.create_topics([NewTopic(TOPIC, replicas=replicas)])
            await preferred.stop()
            await preferred.start()
            await cluster.settled()
            assert cluster.leader(TOPIC, 0) is leader
            with cluster.partition(leader, preferred):
                async with client_of(leader) as client:
                    message = request(TOPIC, (0, batch(b"x")), acks=-1)
                    message.timeout_ms = 60_000
                    asked = client.ask(message, ProduceResponse, 12)
                    sent = asyncio.create_task(asked)
                    await until_appended(leader)
                    assert await elect(leader, 0) == ErrorCode.NONE
                    produced = await sent
            ((refused,),) = [one.partition_responses for one in produced.responses]
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert refused.current_leader is not None
            assert refused.current_leader.leader_id == preferred.id
            found = [(one.node_id, one.host, one.port) for one in produced.node_endpoints]
            assert found == [(preferred.id, "127.0.0.1", preferred.port)]

    run(scenario)


async def until_appended(leader: ClusterBroker) -> None:
    """Wait until the leader has a record of the topic in its log."""
    (log,) = leader.data.glob(f"*/{TOPIC}-0/*.log")
    while not log.stat().st_size:
        await asyncio.sleep(0.005)


async def coordinator(broker: ClusterBroker) -> FindCoordinatorResponse:
    async with client_of(broker) as client:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"])
        return await client.ask(request, FindCoordinatorResponse)


def test_any_broker_creates_the_offsets_topic() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            other = next(one for one in cluster.brokers if one is not cluster.controller)
            (found,) = (await coordinator(other)).coordinators
            assert found.error_code == 0
            leader = cluster.leader("__consumer_offsets", 0)
            assert leader is not None
            assert found.node_id == leader.id

    run(scenario)


def test_offsets_topic_needs_enough_brokers(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        settings = {"offsets.topic.replication.factor": 3}
        async with Cluster(brokers=2, settings=settings) as cluster:
            for _ in range(2):
                for broker in cluster.brokers:
                    (found,) = (await coordinator(broker)).coordinators
                    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                    assert "offsets.topic.replication.factor" in (found.error_message or "")
                    image = broker.image
                    assert image is not None
                    assert not image.topics

    with caplog.at_level(logging.WARNING, "ottla.broker.topics"):
        run(scenario)
    warned = [one for one in caplog.records if one.message == "offsets topic not created"]
    assert len(warned) == 2  # one for each broker
    assert all("offsets.topic.replication.factor=3" in str(one.args) for one in warned)


def test_f6_group_survives_its_coordinator_without_a_rebalance() -> None:
    async def scenario() -> None:
        rebalances = 0

        def count(*about: object) -> None:
            nonlocal rebalances
            rebalances += 1

        async with Cluster(brokers=3) as cluster:
            await create(cluster)
            config = {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
            }
            servers = {"bootstrap.servers": cluster.bootstrap_servers}
            producer = Producer[bytes, bytes](servers)
            consumer = Consumer[bytes, bytes](config)
            async with producer, consumer:
                await producer.send(TOPIC, b"0")
                await producer.flush()
                consumer.subscribe(TOPIC, on_assigned=count, on_revoked=count)
                while not await consumer.poll(1):
                    pass
                await consumer.commit()
                await cluster.settled()
                assert rebalances == 1
                dead = cluster.leader("__consumer_offsets", 0)
                assert dead is not None
                await dead.kill()
                await producer.send(TOPIC, b"1")
                await producer.flush()
                while not await consumer.poll(1):
                    pass
                await consumer.commit()  # F7: the new coordinator has the member and the offset
                assert rebalances == 1
                await dead.start()
                await cluster.settled()
            # The group is empty now; another member continues after the committed records.
            async with Producer[bytes, bytes](servers) as last:
                await last.send(TOPIC, b"2")
            async with Consumer[bytes, bytes](config) as second:
                second.subscribe(TOPIC)
                while not (records := await second.poll(1)):
                    pass
                assert [one.value for one in records] == [b"2"]

    run(scenario)


def test_group_goes_on_when_its_coordinator_leads_in_a_new_epoch() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            await create(cluster)
            config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"}
            async with Consumer[bytes, bytes](config) as consumer:
                consumer.subscribe(TOPIC)
                while not consumer.assignment:
                    await consumer.poll(0.1)
                await cluster.settled()
                leader = cluster.leader("__consumer_offsets", 0)
                epoch = offsets_epoch(leader)
                # The ISR shrinks, and the leader stays.
                other = next(
                    one for one in cluster.brokers if one not in (leader, cluster.controller)
                )
                await other.kill()
                async with asyncio.timeout(20):
                    while offsets_epoch(leader) == epoch:
                        await asyncio.sleep(0.01)
                assert cluster.leader("__consumer_offsets", 0) is leader
                async with asyncio.timeout(20):
                    await consumer.commit({TopicPartition(TOPIC, PartitionIndex(0)): 0})

    run(scenario)


def test_waiting_commit_is_answered_when_its_coordinator_moves() -> None:
    """A commit that is not replicated when another broker is elected."""

    async def elect_first(admin: Admin, *replicas: int) -> None:
        """Reorder the replicas of the offsets topic, and let the first lead."""
        offsets = ("__consumer_offsets", 0)
        (await admin.alter_reassignments({offsets: replicas})).or_raise()
        await admin.elect_leaders(partitions=[offsets])

    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            await create(cluster)
            await coordinator(cluster.brokers[0])
            await cluster.settled()
            first = cluster.controller
            assert first is not None
            second, third = (one for one in cluster.brokers if one is not first)
            topic = OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=7, committed_metadata=None
                    )
                ],
            )
            commit = OffsetCommitRequest(group_id="readers", member_id="", topics=[topic])
            async with (
                Admin({"bootstrap.servers": first.address}) as admin,
                client_of(first) as client,
            ):
                await elect_first(admin, first.id, second.id, third.id)
                await cluster.settled()
                assert cluster.leader("__consumer_offsets", 0) is first
                with cluster.partition(first, second), cluster.partition(first, third):
                    commits = asyncio.create_task(client.ask(commit, OffsetCommitResponse, 9))
                    moves = asyncio.create_task(elect_first(admin, second.id, third.id, first.id))
                    response = await commits
                    ((answer,),) = [one.partitions for one in response.topics]
                    assert answer.error_code == ErrorCode.NOT_COORDINATOR
                await moves

    run(scenario)


def offsets_epoch(leader: ClusterBroker | None) -> int:
    image = None if leader is None else leader.image
    state = None if image is None else image.state("__consumer_offsets", 0)
    assert state is not None
    return state.leader_epoch


async def set_config(client: Client, broker: int, value: str) -> int:
    change = AlterableConfig(name="message.max.bytes", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=str(broker), configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = await client.ask(request, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


async def configs(client: Client, broker: int) -> tuple[int, dict[str, str | None]]:
    resource = DescribeConfigsResource(
        resource_type=4, resource_name=str(broker), configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])
    (result,) = (await client.ask(request, DescribeConfigsResponse)).results
    return result.error_code, {one.name: one.value for one in result.configs}


def test_configs_of_any_broker_through_any_broker() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            for asked in cluster.brokers:
                async with client_of(asked) as client:
                    for broker in cluster.brokers:
                        value = str(1_000_000 + 10 * asked.id + broker.id)
                        assert await set_config(client, broker.id, value) == 0
                        code, found = await configs(client, broker.id)
                        assert (code, found["message.max.bytes"]) == (0, value)
                        # Only that broker knows its own properties file.
                        assert str(broker.port) in (found["listeners"] or "")
                    assert await set_config(client, 9, "1") == ErrorCode.INVALID_REQUEST
                    assert (await configs(client, 9))[0] == ErrorCode.INVALID_REQUEST

    run(scenario)
