"""The cluster of a single broker is copied into another store."""

from pathlib import Path

import pytest

from controller.controllers import Coordinated, coordinated
from ottla.clock import SystemClock
from ottla.cluster.image import Address, Broker
from ottla.cluster.registration import NO_BROKER_EPOCH, Registration
from ottla.cluster.znodes import (
    CLUSTER_ID,
    CONTROLLER_EPOCH,
    REGISTRATIONS,
    TopicNode,
    format_cluster_id,
    state_path,
    topic_config_path,
    topic_path,
)
from ottla.controller.lease import elect_controller, register
from ottla.controller.transfer import MARK, copy_cluster
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.errors import NoNode
from ottla.coordination.session import Session
from ottla.errors import OttlaError
from ottla.ids import BrokerId, Uuid
from ottla.testing.disk import SimulatedDisk

TOPIC = topic_path("orders")
NODES = {
    TOPIC: TopicNode(Uuid(b"t" * 16), ((BrokerId(1),),)).format(),
    f"{TOPIC}/partitions": b"",
    f"{TOPIC}/partitions/0": b"",
    state_path("orders", 0): b"state",
    topic_config_path("orders"): b"config",
}


async def filled(there: Coordinated) -> Session:
    """Return a session of a store with a topic, a broker and a controller."""
    session = await there.session()
    for path, data in NODES.items():
        await session.create(path, data)
    await session.create(CLUSTER_ID, format_cluster_id("abc"))
    me = BrokerId(1)
    broker = Broker(me, NO_BROKER_EPOCH, {"PLAINTEXT": Address("a", 1)}, None, None)
    await register(session, Registration(broker, Uuid(b"i" * 16), {}))
    assert await elect_controller(session, me, 0)
    return session


async def empty() -> Session:
    store = EmbeddedStore.open(SimulatedDisk(), "/data/coordination", SystemClock())
    return await store.connect(lambda state: None)


def test_topics_settings_and_ids_are_copied(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        source, target = await filled(there), await empty()
        assert await copy_cluster(source, target) == ("abc", {"orders": 1})
        for path, data in NODES.items():
            assert (await target.get(path)).data == data
        assert (await target.get(CLUSTER_ID)).data == format_cluster_id("abc")
        assert (await target.get(CONTROLLER_EPOCH)).data == b"1"
        assert await target.children(REGISTRATIONS) == []
        assert await target.children("/brokers/ids") == []
        assert await target.exists("/controller") is None
        assert await target.exists(MARK) is None
        assert await copy_cluster(source, target) == ("abc", {"orders": 1})  # nobody has used it
        await target.create(f"{REGISTRATIONS}/1")
        with pytest.raises(OttlaError, match="brokers use the cluster abc"):
            await copy_cluster(source, target)

    coordinated(tmp_path, scenario)


def test_interrupted_copy_is_repeated(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        source, target = await filled(there), await empty()
        await target.create("/ottla")
        await target.create(MARK, b"abc")
        await target.create("/brokers", b"old")
        assert (await copy_cluster(source, target)).replication_factors == {"orders": 1}
        assert (await target.get(TOPIC)).data == NODES[TOPIC]
        assert (await target.get("/brokers")).data == b""

    coordinated(tmp_path, scenario)


def test_path_with_other_content_is_refused(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        source, target = await filled(there), await empty()
        await target.create("/brokers")
        with pytest.raises(OttlaError, match="is not empty"):
            await copy_cluster(source, target)
        await target.create("/cluster")
        await target.create(CLUSTER_ID, format_cluster_id("xyz"))
        with pytest.raises(OttlaError, match="holds the cluster xyz"):
            await copy_cluster(source, target)
        with pytest.raises(NoNode):
            await target.get(TOPIC)
        with pytest.raises(OttlaError, match="has never started"):
            await copy_cluster(await empty(), target)

    coordinated(tmp_path, scenario)
