"""Damaged records in a cluster of three: the other replicas have them (rule C4)."""

import asyncio

import pytest

from ottla import Admin, Consumer, TopicPartition
from ottla.broker import damage_repair
from ottla.errors import ErrorCode, RequestError
from ottla.records.batch import batches
from ottla.testing import Cluster
from testing.test_cluster_disks import TOPIC, create, leader, producer, run, send

VALUES = [b"%d" % number * 100 for number in range(10)]


@pytest.fixture(autouse=True)
def frequent_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_repair, "PAUSE_SECONDS", 0.05)


async def consumed(cluster: Cluster) -> list[bytes | None]:
    given = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    async with Consumer(given) as consumer:
        consumer.assign(TopicPartition(TOPIC, 0))
        found: list[bytes | None] = []
        while len(found) < len(VALUES):
            found += [record.value for record in await consumer.poll(1.0)]
    return found


@pytest.mark.parametrize("damaged", [[3], [0, 1, 9]])
def test_c4_leader_repairs_damaged_records_from_its_followers(damaged: list[int]) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await create(cluster)
            for value in VALUES:
                await send(client, value)
            await cluster.settled()
            broker = leader(cluster)
            await broker.stop()
            file = broker.directories[0] / f"{TOPIC}-0" / f"{0:020}.log"
            valid = file.read_bytes()
            data, position = bytearray(valid), 0
            for number, batch in enumerate(batches(valid)):
                if number in damaged:
                    data[position + 8] ^= 0x40  # the length: the next batch is not found
                    data[position + batch.header.size - 1] ^= 1
                position += batch.header.size
            file.write_bytes(data)
            await broker.start()
            await cluster.settled()
            async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                await admin.elect_leaders(partitions=[TopicPartition(TOPIC, 0)])
            assert leader(cluster) is broker
            while True:
                try:
                    assert await consumed(cluster) == VALUES
                    break
                except RequestError as error:  # the damaged records are refused meanwhile
                    if error.code is not ErrorCode.CORRUPT_MESSAGE:
                        raise
                await asyncio.sleep(0.05)
            assert file.read_bytes() == valid

    run(scenario)
