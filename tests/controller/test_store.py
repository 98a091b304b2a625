"""Topics and settings in coordination: stored atomically, and loaded again."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from controller.controllers import Coordinated, coordinated, led_by
from ottla.cluster.image import PartitionChange
from ottla.cluster.znodes import DELETIONS, TOPICS, TopicNode, state_path, topic_config_path
from ottla.controller.lease import ControllerLease
from ottla.controller.loading import StoredTopic, load_broker_configs
from ottla.controller.partition_changes import Conflict
from ottla.controller.store import DELETED_AT_ONCE, ClusterStore
from ottla.coordination.errors import BadVersion, NodeExists
from ottla.coordination.operations import Operation
from ottla.ids import BrokerId, Uuid

ID = Uuid(bytes(range(16)))
ONE, TWO = BrokerId(1), BrokerId(2)
NODE = TopicNode(ID, ((ONE,), (ONE, TWO)))


async def store_elections(store: ClusterStore, elected: Iterable[PartitionChange]) -> None:
    """Raise BadVersion for the first conflict."""
    for one in await store.store_changes([*elected]):
        if isinstance(one, Conflict):
            raise BadVersion(state_path(one.change.topic, one.change.index))


async def loaded(store: ClusterStore) -> StoredTopic:
    (one,) = await store.load_topics()
    return one


def test_new_topic_is_loaded_without_leaders(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        store = ClusterStore(await there.lease())
        assert await store.load_topics() == []
        await store.create_topic("t", NODE, {"retention.ms": "5"})
        topic, config = await loaded(store)
        assert (topic.name, topic.id, config) == ("t", ID, {"retention.ms": "5"})
        assert [one.replicas for one in topic.partitions] == [(ONE,), (ONE, TWO)]
        assert [one.leader for one in topic.partitions] == [-1, -1]
        with pytest.raises(NodeExists):
            await store.create_topic("t", NODE, {})

    coordinated(tmp_path, scenario)


def test_elections_are_stored_with_epoch_and_version(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        store = ClusterStore(await there.lease())
        await store.create_topic("t", NODE, {})
        for epoch in range(3):
            before = (await loaded(store)).topic.partitions[1]
            elected = led_by(ONE, "t", 1, before)
            await store_elections(store, [elected])
            after = (await loaded(store)).topic.partitions[1]
            assert after == elected.after
            assert (after.leader, after.leader_epoch, after.in_sync) == (ONE, epoch, (ONE,))
            assert after.version == epoch

    coordinated(tmp_path, scenario)


def test_election_from_a_stale_state_is_refused(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        store = ClusterStore(await there.lease())
        await store.create_topic("t", NODE, {})
        before = (await loaded(store)).topic.partitions[0]
        first = led_by(ONE, "t", 0, before)
        await store_elections(store, [first])
        await store_elections(store, [led_by(ONE, "t", 0, first.after)])
        with pytest.raises(BadVersion):
            await store_elections(store, [led_by(TWO, "t", 0, first.after)])
        assert (await loaded(store)).topic.partitions[0].leader_epoch == 1

    coordinated(tmp_path, scenario)


def test_grown_topic_keeps_its_leaders(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        store = ClusterStore(await there.lease())
        await store.create_topic("t", NODE, {})
        await store_elections(
            store, [led_by(ONE, "t", 0, (await loaded(store)).topic.partitions[0])]
        )
        await store.grow_topic("t", TopicNode(ID, (*NODE.partitions, (TWO,))))
        partitions = (await loaded(store)).topic.partitions
        assert [one.leader for one in partitions] == [ONE, -1, -1]
        assert partitions[2].replicas == (TWO,)

    coordinated(tmp_path, scenario)


def test_recreated_topic_inherits_nothing(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        store = ClusterStore(lease)
        await store.create_topic("t", NODE, {"retention.ms": "5"})
        await store_elections(
            store, [led_by(ONE, "t", 0, (await loaded(store)).topic.partitions[0])]
        )
        await store.begin_deletions(["t"])
        await store.delete_topics(["t"])
        assert await store.load_topics() == []
        assert await lease.session.exists(topic_config_path("t")) is None
        assert await store.deletions() == ["t"], "its folders may be there"
        await store.end_deletions(["t"])
        assert await store.deletions() == []
        await store.create_topic("t", TopicNode(ID, ((TWO,),)), {})
        topic, config = await loaded(store)
        assert config == {}
        assert topic.partitions[0].leader == -1

    coordinated(tmp_path, scenario)


def test_interrupted_deletion_is_finished_on_load(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        store = ClusterStore(lease)
        await store.create_topic("t", NODE, {"retention.ms": "5"})
        await store.create_topic("u", TopicNode(Uuid(bytes(16)[:-1] + b"1"), ((ONE,),)), {})
        assert len(await store.load_topics()) == 2
        await lease.session.create(f"{DELETIONS}/t")
        assert [one.topic.name for one in await store.load_topics()] == ["u"]
        assert await lease.session.children(TOPICS) == ["u"]
        assert await store.deletions() == ["t"]
        await store.end_deletions(["t"])
        await store.end_deletions(["t"])
        assert await store.deletions() == []

    coordinated(tmp_path, scenario)


def test_interrupted_deletion_spares_a_recreated_topic(
    tmp_path: Path,
) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        store = ClusterStore(lease)
        await store.create_topic("t", NODE, {"retention.ms": "5"})
        await store.load_topics()
        await lease.session.create(f"{DELETIONS}/t")
        await lease.session.delete(f"{TOPICS}/t/partitions")
        await lease.session.delete(f"{TOPICS}/t")  # the deletion is interrupted here
        await store.create_topic("t", NODE, {})
        topic, config = await loaded(store)
        assert (topic.name, config) == ("t", {})
        assert await store.deletions() == []

    coordinated(tmp_path, scenario)


def test_large_topic_is_deleted_in_small_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[int] = []
    change = ControllerLease.change

    async def counted(lease: ControllerLease, operations: Sequence[Operation]) -> None:
        changes.append(len(operations))
        await change(lease, operations)

    async def scenario(there: Coordinated) -> None:
        store = ClusterStore(await there.lease())
        await store.create_topic("t", TopicNode(ID, ((ONE,),) * 205), {})
        partitions = (await loaded(store)).topic.partitions
        await store_elections(
            store,
            [led_by(ONE, "t", index, one) for index, one in enumerate(partitions)],
        )
        monkeypatch.setattr(ControllerLease, "change", counted)
        await store.delete_topics(["t"])
        assert sum(changes) == 2 * 205 + 2
        assert max(changes) <= DELETED_AT_ONCE
        assert await store.load_topics() == []

    coordinated(tmp_path, scenario)


def test_broker_settings_are_stored_per_broker_and_default(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        store = ClusterStore(lease)
        assert await load_broker_configs(lease.session) == {}
        await store.set_broker_config(ONE, {"log.cleaner.threads": "2"})
        await store.set_broker_config(None, {"message.max.bytes": "9"})
        await store.set_broker_config(ONE, {})
        assert await load_broker_configs(lease.session) == {
            ONE: {},
            None: {"message.max.bytes": "9"},
        }
        await store.create_topic("t", NODE, {})
        await store.set_topic_config("t", {"segment.ms": "7"})
        assert (await loaded(store)).config == {"segment.ms": "7"}

    coordinated(tmp_path, scenario)
