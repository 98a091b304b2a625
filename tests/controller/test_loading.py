"""The cluster as a new controller reads it (rule B7)."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.controllers import Coordinated, coordinated
from controller.lossy_session import LossySession
from ottla.cluster.image import Address, Broker
from ottla.cluster.registration import (
    NO_BROKER_EPOCH,
    Registration,
    broker_changes,
    unclean_restarts,
)
from ottla.cluster.znodes import BROKER_IDS, BadNode, TopicNode, counter_path
from ottla.controller.lease import register
from ottla.controller.loading import NodeMemory, load_cluster, read_registrations
from ottla.controller.store import ClusterStore
from ottla.coordination.session import Change, Node, WatchEvent
from ottla.ids import BrokerId, Uuid

ONE, TWO = BrokerId(1), BrokerId(2)


def registration(broker: BrokerId, process: int = 1) -> Registration:
    me = Broker(broker, NO_BROKER_EPOCH, {"PLAINTEXT": Address("h", 9092)})
    return Registration(me, Uuid(bytes([process]) * 16), {"PLAINTEXT": "PLAINTEXT"})


def test_cluster_is_loaded_with_brokers_and_topics(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        store = ClusterStore(lease)
        assert await store.load_cluster() == ({}, {}, [], {}, [], [])
        first = await register(lease.session, registration(ONE))
        second = await register(await there.session(), registration(TWO))
        for number, name in enumerate(("a", "b")):
            node = TopicNode(Uuid(bytes(15) + bytes([number])), ((ONE, TWO), (TWO, ONE)))
            await store.create_topic(name, node, {"retention.ms": "5"} if name == "b" else {})
        await store.set_broker_config(None, {"message.max.bytes": "9"})
        await store.begin_deletions(["a"])
        cluster = await store.load_cluster()
        assert [one.epoch for one in cluster.registrations.values()] == [first, second]
        assert [one.topic.name for one in cluster.topics] == ["a", "b"]
        assert [one.config for one in cluster.topics] == [{}, {"retention.ms": "5"}]
        assert cluster.broker_configs == {None: {"message.max.bytes": "9"}}
        assert cluster.deletions == ["a"]
        assert await load_cluster(await there.session(), NodeMemory()) == cluster

    coordinated(tmp_path, scenario)


def test_topics_are_loaded_with_few_calls(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        store = ClusterStore(lease)
        for number in range(30):
            node = TopicNode(Uuid(bytes(15) + bytes([number])), ((ONE,), (ONE,)))
            await store.create_topic(f"t{number}", node, {})
        session = LossySession(lease.session)
        assert len((await load_cluster(session, NodeMemory())).topics) == 30
        assert session.reads < 12

    coordinated(tmp_path, scenario)


def test_b7_broker_that_bounced_before_the_read_is_seen(tmp_path: Path) -> None:
    """The watch fires once; the registrations tell that the broker died and was born."""

    async def scenario(there: Coordinated) -> None:
        reader = await there.session()
        seen: list[WatchEvent] = []
        sessions = [await there.session() for _ in range(3)]
        await register(sessions[0], registration(ONE))
        await register(sessions[1], registration(TWO))
        before = await read_registrations(reader, seen.append)
        await sessions[0].close()
        await register(sessions[2], registration(ONE, process=2))
        assert seen == [WatchEvent(Change.CHILDREN, BROKER_IDS)]
        after = await read_registrations(reader, seen.append)
        assert broker_changes(before, after) == ((ONE,), (ONE,))
        assert after[ONE].epoch > before[ONE].epoch
        assert len(seen) == 1
        await sessions[1].close()
        assert len(seen) == 2, "the second read has set the watch again"

    coordinated(tmp_path, scenario)


def test_b7_watch_is_set_before_the_read(tmp_path: Path) -> None:
    """A broker that registers after the list of brokers was read fires the watch."""

    async def scenario(there: Coordinated) -> None:
        inner, other = await there.session(), await there.session()
        await register(inner, registration(TWO))

        class Slow(LossySession):
            async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
                await register(other, registration(ONE))
                return await super().get_all(paths)

        seen: list[WatchEvent] = []
        assert [*await read_registrations(Slow(inner), seen.append)] == [TWO]
        assert seen == [WatchEvent(Change.CHILDREN, BROKER_IDS)]

    coordinated(tmp_path, scenario)


def test_registration_without_its_counter_is_refused(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session = await there.session()
        await register(session, registration(ONE))
        await session.set(counter_path(ONE), (await session.get(counter_path(ONE))).data)
        with pytest.raises(BadNode, match="restart that broker"):
            await read_registrations(session)

    coordinated(tmp_path, scenario)


def test_dead_broker_is_unregistered_once(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        store = ClusterStore(await there.lease())
        first, second = await there.session(), await there.session()
        await register(first, registration(TWO))
        dead = (await store.read_registrations())[TWO]
        assert await store.unregister(dead)
        assert await store.read_registrations() == {}
        await register(second, registration(TWO, process=2))
        assert not await store.unregister(dead), "the broker has restarted"
        assert [*await store.read_registrations()] == [TWO]

    coordinated(tmp_path, scenario)


def test_handled_restarts_are_stored(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        store = ClusterStore(await there.lease())
        await register(await there.session(), registration(ONE))
        await register(await there.session(), registration(TWO))
        for _ in range(2):
            cluster = await store.load_cluster()
            unclean = unclean_restarts(cluster.registrations, cluster.handled_restarts)
            some = dict([*unclean.items()][:1])
            await store.store_handled_restarts(some)
        cluster = await store.load_cluster()
        assert [*cluster.handled_restarts] == [ONE, TWO]
        assert unclean_restarts(cluster.registrations, cluster.handled_restarts) == {}

    coordinated(tmp_path, scenario)
