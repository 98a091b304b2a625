"""The metrics of a cluster: leaders, ISRs, replication and the controller, as Kafka counts them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from ottla import Admin, NewTopic, Producer
from ottla.client.admin import ConfigResource, Election
from ottla.testing import Cluster
from ottla.testing.cluster import ClusterBroker

SETTINGS = {
    "ottla.metrics.listener": "127.0.0.1:0",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": 2,
    "replica.fetch.wait.max.ms": 100,
    "replica.lag.time.max.ms": 500,
}
REPLICATED, PAIR = "replicated", "pair"


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


async def scrape(broker: ClusterBroker) -> dict[str, float]:
    """Return the metrics of a broker; the values of all labels are added up."""
    assert broker.metrics_address is not None
    host, _, port = broker.metrics_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    _, _, text = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            name = one.name.removeprefix("ottla_")
            found[name] = found.get(name, 0) + one.value
    return found


async def sums(cluster: Cluster) -> dict[str, float]:
    """Return the sums of the metrics of all running brokers."""
    found: dict[str, float] = {}
    for broker in cluster.brokers:
        if broker.running:
            for name, value in (await scrape(broker)).items():
                found[name] = found.get(name, 0) + value
    return found


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await check():
            await asyncio.sleep(0.01)


async def shows(broker: ClusterBroker, **expected: int) -> None:
    """Wait until a broker shows these values: a busy machine may have slow followers."""
    found: dict[str, float] = {}
    try:
        async with asyncio.timeout(20):
            while {name: found.get(name) for name in expected} != expected:
                found = await scrape(broker)
                await asyncio.sleep(0.01)
    except TimeoutError:
        assert {name: found[name] for name in expected} == expected
        raise


HEALTHY = {
    "under_replicated_partitions": 0,
    "at_min_isr_partitions": 0,
    "under_min_isr_partitions": 0,
    "offline_partitions": 0,
    "offline_replicas": 0,
    "preferred_leader_imbalance_partitions": 0,
    "replica_max_lag_records": 0,
}


def test_metrics_of_a_cluster_follow_its_replicas() -> None:
    async def scenario() -> None:
        async with (
            Cluster(brokers=3, settings=SETTINGS) as cluster,
            Producer[bytes, bytes]({"bootstrap.servers": cluster.bootstrap_servers}) as client,
            Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        ):
            await admin.create_topics([NewTopic(REPLICATED, partitions=3)])
            for number in range(3):
                await client.send(REPLICATED, bytes(100), partition=number)
            await client.flush()
            await cluster.settled()
            await compare_counts(cluster)
            await change_the_number_of_fetchers(cluster, admin)
            await shrink_and_expand(cluster, client)
            await lose_replicas(cluster, admin)

    run(scenario)


async def compare_counts(cluster: Cluster) -> None:
    """All partitions have all replicas, and every byte was replicated twice."""
    for broker in cluster.brokers:
        controllers = int(broker is cluster.controller)
        counts = {"partitions": 3, "leader_partitions": 1, "active_controllers": controllers}
        await shows(broker, **HEALTHY, **counts)

    async def is_replicated() -> bool:
        now = await sums(cluster)
        sent = now["replication_bytes_out_total"]
        received = now["replication_bytes_in_total"]
        return received == sent == 2 * now["topic_bytes_in_total"] > 600

    await until(is_replicated)
    assert (await sums(cluster))["unclean_leader_elections_total"] == 0


async def change_the_number_of_fetchers(cluster: Cluster, admin: Admin) -> None:
    """Change num.replica.fetchers: the brokers divide the partitions that they follow."""
    before = (await sums(cluster))["fetch_sessions"]
    two = {"num.replica.fetchers": "2"}
    await admin.alter_configs({ConfigResource.broker(None): two})

    async def is_divided() -> bool:
        return (await sums(cluster))["fetch_sessions"] > before

    await until(is_divided)


async def shrink_and_expand(cluster: Cluster, client: Producer[bytes, bytes]) -> None:
    """Let one follower be too slow for one leader; the leader reaches the controller."""
    leader, follower = (one for one in cluster.brokers if one is not cluster.controller)
    (led,) = (index for index in range(3) if cluster.leader(REPLICATED, index) is leader)
    before = await scrape(leader)
    with cluster.partition(leader, follower):
        await client.send(REPLICATED, b"x", partition=led)
        await client.flush()  # when the ISR has shrunk
        await shows(leader, under_replicated_partitions=1, at_min_isr_partitions=1)
        page = await scrape(leader)
        assert page["isr_shrinks_total"] > before["isr_shrinks_total"]
        assert page["under_min_isr_partitions"] == 0
    await cluster.settled()
    await shows(leader, under_replicated_partitions=0, at_min_isr_partitions=0)
    assert (await scrape(leader))["isr_expands_total"] > before["isr_expands_total"]


async def lose_replicas(cluster: Cluster, admin: Admin) -> None:
    """Stop two brokers, and let one of them lead without the records of the other."""
    controller = cluster.controller
    assert controller is not None
    first, second = (one for one in cluster.brokers if one is not controller)
    config = {"min.insync.replicas": "1"}
    pair = NewTopic(PAIR, replicas={0: [first.id, second.id]}, config=config)
    await admin.create_topics([pair])
    await cluster.settled()
    await second.stop()
    await first.kill()
    await shows(
        controller,
        leader_partitions=3,
        under_replicated_partitions=3,
        under_min_isr_partitions=3,
        at_min_isr_partitions=0,
        offline_partitions=1,  # nobody leads the pair
        preferred_leader_imbalance_partitions=3,
        unclean_leader_elections_total=0,
    )
    await second.start()
    await admin.elect_leaders(Election.UNCLEAN, [(PAIR, 0)])
    await shows(controller, unclean_leader_elections_total=1, offline_partitions=0)
