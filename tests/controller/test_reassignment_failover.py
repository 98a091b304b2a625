"""A reassignment survives its controllers: each step is made by another one (rule A15)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from controller.controllers import Coordinated, coordinated
from ottla.cluster.election import change_in_sync
from ottla.cluster.image import ClusterImage, PartitionChange, PartitionState, Topic
from ottla.cluster.reassignment import is_reassigning
from ottla.cluster.znodes import TopicNode
from ottla.controller.lease import Resigned, elect_controller
from ottla.controller.partition_changes import Stored
from ottla.controller.plan import Conditions, alter_reassignment, reassignment_steps
from ottla.controller.store import ClusterStore
from ottla.coordination.errors import CoordinationError
from ottla.coordination.session import Session
from ottla.ids import BrokerId, PartitionIndex, TopicPartition, Uuid

ONE, TWO, THREE, FOUR = map(BrokerId, (1, 2, 3, 4))
NAME = TopicPartition("t", PartitionIndex(0))
BEFORE, TARGET = (ONE, TWO), (THREE, TWO, FOUR)
CONDITIONS = Conditions((ONE, TWO, THREE, FOUR), lambda topic: 2)


class Decision(NamedTuple):
    """What a controller decides from the stored state."""

    kind: str
    change: PartitionChange
    delete: tuple[BrokerId, ...] = ()


class Controller:
    """A controller that knows only what it has read when it was elected."""

    def __init__(self, session: Session, store: ClusterStore, image: ClusterImage) -> None:
        self.session = session
        self.store = store
        self.image = image

    @classmethod
    async def elected(cls, there: Coordinated, broker: int) -> "Controller":
        session = await there.session()
        lease = await elect_controller(session, BrokerId(broker), 0)
        assert lease is not None
        store = ClusterStore(lease)
        topics = [one.topic for one in await store.load_topics()]
        return cls(session, store, ClusterImage("c").with_topics(topics))

    @property
    def state(self) -> PartitionState:
        found = self.image.state(*NAME)
        assert found is not None
        return found

    def decide(self) -> Decision | None:
        """Return the next step of the reassignment, or the ISR that the leader proposes."""
        state = self.state
        if not is_reassigning(state):
            outcome = alter_reassignment(self.image, CONDITIONS, NAME, TARGET)
            return None if outcome.change is None else Decision("begin", outcome.change)
        if not set(state.in_sync).issuperset(state.adding):
            joined = tuple(dict.fromkeys((*state.in_sync, *state.adding)))
            after = change_in_sync(state, joined, min_isr=2)
            return Decision("join", PartitionChange(*NAME, state, after))
        (step,) = reassignment_steps(self.image, CONDITIONS, [NAME])
        return Decision(step.kind.name, step.change, step.delete)

    async def store_change(self, change: PartitionChange) -> None:
        (outcome,) = await self.store.store_changes([change])
        assert isinstance(outcome, Stored)


async def created(there: Coordinated) -> None:
    first = await Controller.elected(there, ONE)
    await first.store.create_topic("t", TopicNode(Uuid(bytes(16)), (BEFORE,)), {})
    (topic,) = await first.store.load_topics()
    (new,) = topic.topic.partitions
    await first.store_change(PartitionChange(*NAME, new, new.led_by(ONE, BEFORE)))
    await first.session.close()


def check(state: PartitionState, has_log: set[BrokerId]) -> None:
    assert state.leader in state.in_sync
    assert {*state.in_sync, *state.elr} <= has_log, "only brokers with the records may lead"
    assert len(state.in_sync) >= 2, "enough complete replicas remain"
    assert {*state.in_sync, *state.adding, *state.removing} <= {*state.replicas}


@pytest.mark.parametrize("stores", [False, True], ids=["before the write", "after the write"])
def test_a15_controller_killed_at_each_step(tmp_path: Path, stores: bool) -> None:
    """Each controller dies before or after it stores its decision, and another one goes on."""

    async def scenario(there: Coordinated) -> None:
        await created(there)
        has_log, kinds, number = {*BEFORE}, list[str](), 1
        controller = await Controller.elected(there, number)
        while (decision := controller.decide()) is not None:
            check(controller.state, has_log)
            has_log.difference_update(decision.delete)  # before the final assignment is stored
            if stores:
                await controller.store_change(decision.change)
            await controller.session.close()
            if not stores:
                following = await Controller.elected(there, 100 + number)
                check(following.state, has_log)
                assert following.decide() == decision, "the stored state says what is next"
                with pytest.raises((Resigned, CoordinationError)):
                    await controller.store_change(decision.change)
                await following.store_change(decision.change)
                await following.session.close()
            if decision.kind == "join":
                has_log.update(TARGET)
            kinds.append(decision.kind)
            number += 1
            controller = await Controller.elected(there, number)
        assert kinds == ["begin", "join", "MOVE_LEADER", "SHRINK_ISR", "FINISH"]
        state = controller.state
        assert (state.replicas, state.leader) == (TARGET, THREE)
        assert set(state.in_sync) == {*TARGET}
        assert not is_reassigning(state)
        assert has_log == {*TARGET}, "the removed replica is deleted, and no other"

    coordinated(tmp_path, scenario)


@pytest.mark.parametrize("dead", [(), (THREE,), (ONE,)], ids=["none", "new", "removed"])
def test_a15_removed_replica_is_deleted_last(dead: Sequence[BrokerId]) -> None:
    """On the plan alone: the log of a removed replica exists until the target has taken over."""
    alive = [one for one in (ONE, TWO, THREE, FOUR) if one not in dead]
    conditions = Conditions(alive, lambda topic: 2)
    state = PartitionState(BEFORE).led_by(ONE, BEFORE)
    assert state.version == 0
    image = image_of(state)
    outcome = alter_reassignment(image, conditions, NAME, TARGET)
    if THREE in dead:
        assert outcome.change is None, "a dead broker cannot be added"
        return
    assert outcome.change is not None
    grown = outcome.change.after
    assert (grown.removing, grown.in_sync) == ((ONE,), BEFORE)
    assert reassignment_steps(image_of(grown), conditions, [NAME]) == [], (
        "it waits for the new replicas"
    )
    one = change_in_sync(grown, (*BEFORE, THREE), min_isr=2)
    assert reassignment_steps(image_of(one), conditions, [NAME]) == [], "it waits for all of them"
    one = change_in_sync(one, (*BEFORE, THREE, FOUR), min_isr=2)
    deleted: list[tuple[BrokerId, ...]] = []
    while is_reassigning(one):
        (step,) = reassignment_steps(image_of(one), conditions, [NAME])
        if step.delete:
            assert set(step.delete).isdisjoint({*one.in_sync, *one.elr, one.leader})
        deleted.append(step.delete)
        one = step.change.after
    assert deleted == [(), (), (ONE,)]
    assert (one.replicas, one.leader) == (TARGET, THREE)


def image_of(state: PartitionState) -> ClusterImage:
    topic = Topic("t", Uuid(bytes(16)), (state,))
    return ClusterImage("c").with_topics([topic])
