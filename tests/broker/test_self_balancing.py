"""A broker joins a cluster on real sockets, and the controller gives it its share."""

from collections import Counter

from broker.test_cluster_metrics import run, sums, until
from ottla import Admin, NewTopic, Producer
from ottla.testing import Cluster

PARTITIONS = 8
RECORD = b"x" * 50_000
SETTINGS = {
    "ottla.metrics.listener": "127.0.0.1:0",
    "ottla.balance.enable": "true",
    "ottla.balance.check.interval.ms": 50,
    "ottla.balance.stable.ms": 200,
    "auto.leader.rebalance.enable": "false",
}


def test_broker_that_joins_gets_its_share() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3, settings=SETTINGS) as cluster:
            joining = next(one for one in cluster.brokers if one is not cluster.controller)
            others = [one.id for one in cluster.brokers if one is not joining]
            await joining.stop()
            config = {"bootstrap.servers": cluster.bootstrap_servers}
            async with Admin(config) as admin, Producer[bytes, bytes](config) as producer:
                replicas = {index: [others[index % 2]] for index in range(PARTITIONS)}
                (await admin.create_topics([NewTopic("t", replicas=replicas)])).or_raise()
                for index in range(PARTITIONS):
                    await (await producer.send("t", RECORD, partition=index))
                await joining.start()

                async def is_balanced() -> bool:
                    (topic,) = (await admin.describe_topics(["t"])).or_raise().values()
                    leaders = Counter(one.leader for one in topic.partitions)
                    moving = await admin.list_reassignments()
                    # The mean is 2.67 of 8 partitions, and 1.2 times that allows three.
                    return not moving and sorted(leaders.values()) == [2, 3, 3]

                await until(is_balanced)
                await until(lambda: is_counted(cluster))

    run(scenario)


async def is_counted(cluster: Cluster) -> bool:
    """Whether the metrics have the two moves, each with one record, and none is in progress."""
    found = await sums(cluster)
    moved = found["balance_moves_total"], found["balance_pending_partitions"]
    return moved == (2, 0) and 100_000 < found["balance_moved_bytes_total"] < 101_000
