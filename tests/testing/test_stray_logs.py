"""Topics that are deleted and created again while a broker is down (rule B12)."""

import shutil
from pathlib import Path

import pytest

from ottla import Admin, Consumer
from ottla.log.directory import DirectoryRefused
from ottla.testing import Cluster
from ottla.testing.cluster import ClusterBroker
from testing.test_cluster_disks import TOPIC, create, producer, run, send, state, until


def logs(broker: ClusterBroker) -> list[str]:
    """The directories of the topic on a broker; what is unique in a name is left out."""
    names = [one.name for one in broker.directories[0].iterdir() if one.name.startswith(TOPIC)]
    return sorted(name.partition(".")[0] + ("-stray" * name.endswith("-stray")) for name in names)


async def delete(cluster: Cluster) -> None:
    async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        await admin.delete_topics([TOPIC])


def test_b12_deleted_topic_does_not_return_with_a_broker() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await create(cluster)
            await send(client, b"old")
            down = next(one for one in cluster.brokers if one is not cluster.controller)
            await down.stop()
            await delete(cluster)  # completes without the broker
            assert logs(down) == ["orders-0"]
            await down.start()
            await cluster.settled()
            assert down.image is not None
            assert TOPIC not in down.image.topics
            await until(lambda: logs(down) == ["orders-0-stray"])

    run(scenario)


def test_b12_recreated_topic_keeps_its_log_apart() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await create(cluster)
            await send(client, b"old")
            down = next(one for one in cluster.brokers if one is not cluster.controller)
            await down.stop()
            await delete(cluster)
            await create(cluster, replicas=2)
            async with producer(cluster) as again:
                await send(again, b"new")
            await down.start()
            await cluster.settled()
            expected = ["orders-0-stray"]
            if down.id in state(cluster).replicas:
                expected.insert(0, "orders-0")
            await until(lambda: logs(down) == expected)
            async with Consumer(
                {
                    "bootstrap.servers": cluster.bootstrap_servers,
                    "auto.offset.reset": "earliest",
                    "group.id": "readers",
                }
            ) as consumer:
                consumer.subscribe(TOPIC)
                found: list[bytes | None] = []
                while not found:
                    found += [record.value for record in await consumer.poll(1)]
            assert found == [b"new"]

    run(scenario)


def test_b12_wiped_coordination_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3, data=tmp_path) as cluster, producer(cluster) as client:
            await create(cluster)
            await send(client, b"kept")
        shutil.rmtree(tmp_path / "coordination")
        with pytest.raises(DirectoryRefused, match="belongs to cluster"):
            async with Cluster(brokers=3, data=tmp_path):
                pass
        for number in (1, 2, 3):
            assert (tmp_path / f"broker-{number}" / "logs" / "orders-0").is_dir()

    run(scenario)
