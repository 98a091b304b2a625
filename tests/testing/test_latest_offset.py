"""The latest offset that clients see never falls, whoever leads (rule A7)."""

import asyncio
from itertools import count

from broker.test_cluster_requests import client_of
from ottla import Admin, NewTopic
from ottla.errors import ErrorCode
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.replication.partition import LATEST
from ottla.testing import Cluster, ClusterBroker
from sampling import scaled
from testing.test_cluster_disks import TOPIC, producer, run

ELECTIONS = scaled(50)
KEY = TopicPartition(TOPIC, PartitionIndex(0))
HARMLESS = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}


def test_a7_latest_offset_never_falls_over_many_elections() -> None:
    async def scenario() -> None:
        async with (
            Cluster(brokers=3) as cluster,
            Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        ):
            await admin.create_topics([NewTopic(TOPIC, replicas={0: [1, 2, 3]})])
            await cluster.settled()
            seen: list[int] = []
            tasks = [asyncio.ensure_future(write(cluster))]
            tasks += [asyncio.ensure_future(poll(one, seen)) for one in cluster.brokers]
            await elect(cluster, admin)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
            assert seen[-1] > 0

    async def write(cluster: Cluster) -> None:
        async with producer(cluster) as client:
            for number in count():
                await (await client.send(TOPIC, b"%d" % number, partition=0))

    async def poll(broker: ClusterBroker, seen: list[int]) -> None:
        partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
        async with client_of(broker) as client:
            while True:
                at_least = seen[-1] if seen else 0
                answer = await client.ask(
                    ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse
                )
                (one,) = answer.topics[0].partitions
                if one.error_code:
                    assert one.error_code in HARMLESS
                    await asyncio.sleep(0.001)
                else:
                    assert one.offset >= at_least, "it has fallen"
                    if not seen or one.offset > seen[-1]:
                        seen.append(one.offset)

    async def elect(cluster: Cluster, admin: Admin) -> None:
        for number in range(ELECTIONS):
            order = [(number + place) % 3 + 1 for place in range(3)]
            await admin.alter_reassignments({KEY: order})
            await admin.elect_leaders(partitions=[KEY])
            while cluster.leader(TOPIC, 0) is not cluster.broker(order[0]):
                await asyncio.sleep(0.001)

    run(scenario)
