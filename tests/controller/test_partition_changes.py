"""Changes of partitions are stored one by one: a conflict does not stop the others (B5, B6)."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.controllers import Coordinated, coordinated
from controller.lossy_session import Loss, LossySession
from ottla.cluster.image import Address, Broker, PartitionChange, PartitionState
from ottla.cluster.registration import NO_BROKER_EPOCH, Registration
from ottla.cluster.znodes import (
    CONTROLLER_EPOCH,
    TopicNode,
    broker_path,
    state_path,
    topic_path,
)
from ottla.controller.lease import Resigned, elect_controller, register
from ottla.controller.partition_changes import BATCHES_IN_FLIGHT, Conflict, Stored
from ottla.controller.store import ClusterStore
from ottla.coordination.operations import REQUEST_BYTES_MAX
from ottla.ids import BrokerId, LeaderEpoch, Uuid

ID = Uuid(bytes(range(16)))
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class Stage:
    """A topic whose partitions have replicas 1, 2 and 3, led by broker 1."""

    def __init__(self, session: LossySession, store: ClusterStore) -> None:
        self.session = session
        self.store = store

    @classmethod
    async def set_up(cls, there: Coordinated, partitions: int = 3) -> "Stage":
        session = LossySession(await there.session())
        lease = await elect_controller(session, ONE, 0)
        assert lease is not None
        stage = cls(session, ClusterStore(lease))
        node = TopicNode(ID, ((ONE, TWO, THREE),) * partitions)
        await stage.store.create_topic("t", node, {})
        changes = [
            PartitionChange("t", index, one, one.led_by(ONE, (ONE, TWO)))
            for index, one in enumerate(await stage.states())
        ]
        outcomes = await stage.store.store_changes(changes)
        assert [type(one) for one in outcomes] == [Stored] * partitions
        session.writes.clear()
        return stage

    async def states(self) -> Sequence[PartitionState]:
        (one,) = await self.store.load_topics()
        return one.topic.partitions

    async def changes(self) -> list[PartitionChange]:
        """Let broker 2 lead all partitions."""
        return [
            PartitionChange("t", index, one, replace(one.led_by(TWO, (TWO,)), elr=(ONE,)))
            for index, one in enumerate(await self.states())
        ]


def test_b5_change_at_a_stale_version_stops_no_other(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there)
        changes = await stage.changes()
        changes[1] = replace(changes[1], before=replace(changes[1].before, version=7))
        first, stale, third = await stage.store.store_changes(changes)
        assert isinstance(first, Stored)
        assert first.state == replace(changes[0].after, version=1)
        assert isinstance(stale, Conflict)
        found = await stage.states()
        assert stale.state == found[1]
        assert stale.state is not None
        assert [one.leader for one in found] == [TWO, ONE, TWO]
        assert isinstance(third, Stored)
        assert third.state == found[2]
        (again,) = await stage.store.store_changes(
            [replace(changes[1], before=stale.state, after=stale.state.led_by(THREE, (THREE,)))]
        )
        assert isinstance(again, Stored)
        assert again.state.version == 1

    coordinated(tmp_path, scenario)


def test_b5_all_conflicts_of_a_batch_need_one_retry(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there, 20)
        changes = await stage.changes()
        for index in range(0, 20, 2):
            await stage.session.set(state_path("t", index), b"{}")  # a change in between
        parsed = b'{"controller_epoch":9,"leader":3,"version":1,"leader_epoch":8,"isr":[3]}'
        for index in range(0, 20, 2):
            await stage.session.set(state_path("t", index), parsed)
        stage.session.writes.clear()
        outcomes = await stage.store.store_changes(changes)
        assert [type(one) for one in outcomes] == [Conflict, Stored] * 10
        assert all(one.state is not None and one.state.version == 2 for one in outcomes[::2])
        assert len(stage.session.writes) == 1

    coordinated(tmp_path, scenario)


def test_b5_change_of_a_deleted_partition_is_a_conflict(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there)
        changes = await stage.changes()
        beyond = PartitionChange("t", 9, changes[0].before, changes[0].after)
        outcomes = await stage.store.store_changes([*changes, beyond])
        assert outcomes[-1] == Conflict(beyond, None)
        assert [type(one) for one in outcomes[:-1]] == [Stored] * 3
        await stage.store.delete_topics(["t"])
        assert await stage.store.store_changes(changes) == [Conflict(one, None) for one in changes]
        moving = [
            replace(one, after=replace(one.after, replicas=(TWO, THREE), removing=()))
            for one in changes
        ]
        assert await stage.store.store_changes(moving) == [Conflict(one, None) for one in moving]

    coordinated(tmp_path, scenario)


def test_b5_new_partition_that_exists_is_a_conflict(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there)
        found = await stage.states()
        new = PartitionState((ONE, TWO, THREE))
        again = PartitionChange("t", 0, new, new.led_by(THREE, (THREE,)))
        assert await stage.store.store_changes([again]) == [Conflict(again, found[0])]
        # The state is missing, and the node above it is there.
        await stage.session.delete(state_path("t", 0))
        (stored,) = await stage.store.store_changes([again])
        assert stored == Stored(again, replace(again.after, version=0))

    coordinated(tmp_path, scenario)


@pytest.mark.parametrize("losses", [[one] for one in Loss] + [[Loss.REQUEST, Loss.RESPONSE]])
def test_b6_lost_changes_are_stored_once(tmp_path: Path, losses: list[Loss]) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there)
        changes = await stage.changes()
        stage.session.losses = [*losses]
        outcomes = await stage.store.store_changes(changes)
        assert outcomes == [Stored(one, one.after) for one in changes]
        assert [one.version for one in await stage.states()] == [1, 1, 1]
        assert len(stage.session.writes) == 1

    coordinated(tmp_path, scenario)


def test_b6_lost_changes_that_are_given_again_are_stored(tmp_path: Path) -> None:
    """Equal content is a success, even if the caller gave up in between."""

    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there)
        changes = await stage.changes()
        for _ in range(2):
            outcomes = await stage.store.store_changes(changes)
            assert outcomes == [Stored(one, one.after) for one in changes]

    coordinated(tmp_path, scenario)


def test_b3_superseded_controller_stores_no_partition(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there)
        changes = await stage.changes()
        before = await stage.states()
        await stage.session.set(CONTROLLER_EPOCH, b"9")
        with pytest.raises(Resigned):
            await stage.store.store_changes(changes)
        assert await stage.states() == before

    coordinated(tmp_path, scenario)


def test_a10_broker_that_registered_again_does_not_join(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there)
        session = await there.session()
        me = Broker(THREE, NO_BROKER_EPOCH, {"PLAINTEXT": Address("h", 1)})
        await register(session, Registration(me, Uuid(b"1" * 16), {}))
        await stage.store.read_registrations()
        first, second, third = await stage.states()
        in_sync = (ONE, TWO, THREE)
        joins = [
            PartitionChange("t", 0, first, replace(first, in_sync=in_sync, version=1)),
            PartitionChange("t", 1, second, replace(second, in_sync=(ONE,), version=1)),
        ]
        assert [type(one) for one in await stage.store.store_changes(joins)] == [Stored, Stored]
        await session.delete(broker_path(THREE))
        await register(session, Registration(me, Uuid(b"2" * 16), {}))
        second = (await stage.states())[1]
        joins = [
            PartitionChange("t", 1, second, replace(second, in_sync=in_sync, version=2)),
            PartitionChange("t", 2, third, replace(third, in_sync=(ONE,), version=1)),
        ]
        refused, stored = await stage.store.store_changes(joins)
        assert refused == Conflict(joins[0], second)
        assert isinstance(stored, Stored)
        await stage.store.read_registrations()
        (joined,) = await stage.store.store_changes(joins[:1])
        assert isinstance(joined, Stored)

    coordinated(tmp_path, scenario)


def test_unknown_fields_survive_every_rewrite(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there)
        session = stage.session

        async def add_field(path: str) -> None:
            data = json.loads((await session.get(path)).data)
            await session.set(path, json.dumps(data | {"later": [5]}).encode())

        await add_field(state_path("t", 0))
        await add_field(topic_path("t"))
        changes = await stage.changes()
        await add_field(state_path("t", 1))  # not loaded yet: a conflict
        outcomes = await stage.store.store_changes(changes)
        assert [type(one) for one in outcomes] == [Stored, Conflict, Stored]
        before = outcomes[1].state
        assert before is not None
        again = PartitionChange("t", 1, before, before.led_by(TWO, (TWO,)))
        moving = PartitionChange(
            "t", 0, changes[0].after, replace(changes[0].after, replicas=(TWO, ONE), version=2)
        )
        outcomes = await stage.store.store_changes([again, moving])
        assert [type(one) for one in outcomes] == [Stored, Stored]
        node = TopicNode(ID, ((TWO, ONE), *((ONE, TWO, THREE),) * 3))
        await stage.store.grow_topic("t", node)
        for path in (state_path("t", 0), state_path("t", 1), topic_path("t")):
            assert json.loads((await session.get(path)).data)["later"] == [5], path
        assert "later" not in json.loads((await session.get(state_path("t", 2))).data)
        assert [one.replicas for one in await stage.states()] == [*node.partitions]

    coordinated(tmp_path, scenario)


def moved(one: PartitionState, index: int) -> PartitionChange:
    after = replace(
        one,
        replicas=(THREE, ONE, TWO),
        adding=(THREE,),
        removing=(TWO,),
        leader_epoch=LeaderEpoch(one.leader_epoch + 1),
        version=one.version + 1,
    )
    return PartitionChange("t", index, one, after)


@pytest.mark.parametrize("losses", [[], [Loss.REQUEST], [Loss.RESPONSE]])
def test_assignment_and_state_change_together(
    tmp_path: Path, losses: Sequence[Loss], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.controller.partition_changes.BATCH_BYTES_MAX", 1000)

    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there, 12)
        states = await stage.states()
        changes = [moved(one, index) for index, one in enumerate(states)]
        stale = replace(states[5], version=4)
        changes[5] = replace(changes[5], before=stale)
        stage.session.losses = [*losses]
        outcomes = await stage.store.store_changes(changes)
        assert [index for index, one in enumerate(outcomes) if isinstance(one, Conflict)] == [5]
        assert len(stage.session.writes) > 2
        found = await stage.states()
        assert found[5] == states[5]
        for index, one in enumerate(found):
            if index != 5:
                assert one == changes[index].after, index
        cluster = await stage.store.load_cluster()
        assert [one.partition for one in cluster.reassignments] == [*range(5), *range(6, 12)]
        # The end of the reassignments.
        ends = [
            PartitionChange(
                "t", index, one, replace(one, replicas=(THREE, ONE), adding=(), removing=())
            )
            for index, one in enumerate(found)
        ]
        await stage.store.store_changes(ends)
        assert (await stage.store.load_cluster()).reassignments == []

    coordinated(tmp_path, scenario)


def test_assignment_decided_on_an_older_one_is_a_conflict(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there)
        first, second, _ = await stage.states()
        changed = TopicNode(ID, ((ONE,), (ONE, TWO, THREE), (ONE, TWO, THREE)))
        await stage.session.set(topic_path("t"), changed.format())
        outcomes = await stage.store.store_changes([moved(first, 0), moved(second, 1)])
        assert isinstance(outcomes[0], Conflict)
        assert outcomes[0].state == replace(first, replicas=(ONE,))
        assert isinstance(outcomes[1], Stored)

    coordinated(tmp_path, scenario)


def test_many_changes_are_stored_in_few_transactions(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        stage = await Stage.set_up(there, 6000)
        outcomes = await stage.store.store_changes(await stage.changes())
        assert all(isinstance(one, Stored) for one in outcomes)
        assert 1 < len(stage.session.writes) <= BATCHES_IN_FLIGHT
        sizes = [
            sum(len(one.path) + len(getattr(one, "data", b"")) for one in write)
            for write in stage.session.writes
        ]
        assert max(sizes) < REQUEST_BYTES_MAX // 2
        assert [one.leader for one in await stage.states()] == [TWO] * 6000

    coordinated(tmp_path, scenario)
