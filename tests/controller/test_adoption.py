"""Adoption on a disk that loses unsynced data: all of it, or nothing."""

import asyncio
from random import Random

import pytest

from ottla.clock import SystemClock
from ottla.cluster.adoption import Adoption, AdoptionRefused
from ottla.cluster.znodes import CLUSTER_ID, parse_cluster_id
from ottla.controller.adoption import adopt
from ottla.controller.lease import elect_controller
from ottla.controller.loading import StoredTopic
from ottla.controller.producer_ids import ProducerIds
from ottla.controller.store import ClusterStore
from ottla.coordination.embedded import EmbeddedStore
from ottla.ids import BrokerEpoch, BrokerId, Uuid
from ottla.log.checkpoints import (
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_partition_metadata,
)
from ottla.log.directory import DirectoryRefused
from ottla.log.disk import write_atomically
from ottla.log.names import CLEAN_SHUTDOWN, LEADER_EPOCHS, META_PROPERTIES, PARTITION_METADATA
from ottla.testing.disk import Crashed, Loss, SimulatedDisk

DATA = "/data"
JOURNAL = "journal"
TOPIC_ID = Uuid(b"t" * 16)
NODE = BrokerId(4)


def kafka_disk() -> SimulatedDisk:
    """Return a directory as Kafka leaves it, with a topic of two empty partitions."""
    disk = SimulatedDisk()
    disk.make_directory(DATA)
    texts = {
        META_PROPERTIES: format_meta_properties(MetaProperties("cluster", NODE)),
        CLEAN_SHUTDOWN: format_clean_shutdown(BrokerEpoch(9)),
    }
    for index, epochs in enumerate(("0\n1\n6 0\n", "0\n0\n")):
        disk.make_directory(f"{DATA}/t-{index}")
        texts[f"t-{index}/{PARTITION_METADATA}"] = format_partition_metadata(TOPIC_ID)
        texts[f"t-{index}/{LEADER_EPOCHS}"] = epochs
    for name, text in texts.items():
        write_atomically(disk, f"{DATA}/{name}", text.encode())
    return disk


async def take(disk: SimulatedDisk, *, check_only: bool = False) -> Adoption:
    return await adopt(disk, SystemClock(), [DATA], JOURNAL, check_only=check_only)


async def stored(disk: SimulatedDisk) -> tuple[str, list[StoredTopic], int]:
    """Return what a broker loads: the cluster id, the topics and the next producer id."""
    store = EmbeddedStore.open(disk, f"{DATA}/{JOURNAL}", SystemClock())
    session = await store.connect(lambda state: None)
    lease = await elect_controller(session, NODE, 0)
    assert lease is not None
    topics = await ClusterStore(lease).load_topics()
    cluster_id = parse_cluster_id((await session.get(CLUSTER_ID)).data)
    producer_id = await ProducerIds(session, NODE).take()
    await store.close()
    return cluster_id, topics, producer_id


def check(disk: SimulatedDisk) -> None:
    cluster_id, (topic,), producer_id = asyncio.run(stored(disk))
    assert (cluster_id, producer_id) == ("cluster", 0)
    assert (topic.topic.name, topic.topic.id) == ("t", TOPIC_ID)
    first, second = topic.topic.partitions
    assert (first.replicas, first.leader_epoch) == ((NODE,), 6)
    assert second.leader_epoch == -1
    assert topic.config == {"retention.ms": "-1"}


def test_broker_finds_the_adopted_data() -> None:
    disk = kafka_disk()
    adoption = asyncio.run(take(disk))
    assert (adoption.cluster_id, adoption.node_id) == ("cluster", NODE)
    check(disk)
    with pytest.raises(DirectoryRefused, match="already"):
        asyncio.run(take(disk))


def test_check_only_changes_nothing() -> None:
    disk = kafka_disk()
    before = set(disk.names(DATA))
    asyncio.run(take(disk, check_only=True))
    assert set(disk.names(DATA)) - {".lock"} == before


@pytest.mark.parametrize("loss", list(Loss))
def test_crash_at_any_disk_call_adopts_all_or_nothing(loss: Loss) -> None:
    steps, taken = 0, False
    while not taken:
        disk = kafka_disk()
        disk.crash_at = len(disk.calls) + steps
        try:
            asyncio.run(take(disk))
            taken = True
        except Crashed:
            pass
        disk = disk.after_crash(loss, Random(steps))
        if not disk.exists(f"{DATA}/{JOURNAL}"):
            assert not taken
            asyncio.run(take(disk))
        check(disk)
        steps += 1
    assert steps > 10


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (CLEAN_SHUTDOWN, "was not shut down cleanly"),
        (META_PROPERTIES, "has no cluster.id or node.id"),
    ],
)
def test_incomplete_directory_is_refused(name: str, reason: str) -> None:
    disk = kafka_disk()
    disk.remove(f"{DATA}/{name}")
    with pytest.raises(DirectoryRefused, match=reason):
        asyncio.run(take(disk))


def test_directory_in_use_is_refused() -> None:
    disk = kafka_disk()
    assert disk.lock(f"{DATA}/.lock") is not None
    with pytest.raises(DirectoryRefused, match="in use by another process"):
        asyncio.run(take(disk))


def test_data_of_another_broker_is_refused() -> None:
    disk = kafka_disk()
    with pytest.raises(AdoptionRefused, match="belongs to broker 4, not to broker 5"):
        asyncio.run(
            adopt(disk, SystemClock(), [DATA], JOURNAL, node_id=BrokerId(5), check_only=True)
        )
