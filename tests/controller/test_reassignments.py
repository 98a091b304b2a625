"""The controller carries out reassignments, also when it dies at any step (rule A15)."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from controller.controllers import Coordinated, coordinated
from controller.lossy_session import Loss, LossySession
from ottla.clock import SystemClock
from ottla.cluster.image import Address, Broker, PartitionState, Topic
from ottla.cluster.reassignment import is_reassigning
from ottla.cluster.registration import Registration
from ottla.cluster.znodes import TopicNode
from ottla.controller.control_update import ControlUpdate, Failures, ReplicaState
from ottla.controller.controller import Apply, Controller, ControllerConfig
from ottla.controller.lease import elect_controller, register
from ottla.controller.store import ClusterStore
from ottla.coordination.operations import Operation
from ottla.coordination.session import Result, Session
from ottla.errors import ErrorCode, RequestError
from ottla.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
    Uuid,
)
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)

T = TypeVar("T")

TOPIC_ID = Uuid(bytes(range(16)))
KEY = TopicPartition("t", PartitionIndex(0))
CONTROLLER = BrokerId(9)  # it has no replicas
WAIT_S = 20.0


class Died(Exception):
    """The controller died before it answered."""


class MortalSession(LossySession):
    """A session whose process dies at a write, before or after the write has arrived."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.dies: tuple[int, Loss] | None = None  # the number of the write, and what is lost
        self.died = asyncio.Event()

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.dies is not None:
            number, loss = self.dies
            if not number:
                if loss is Loss.RESPONSE and not self.died.is_set():
                    await super().multi(operations)
                self.died.set()
                await asyncio.Event().wait()
            self.dies = number - 1, loss
        return await super().multi(operations)


class FakeBroker:
    """A broker with at most one replica: whether it has a log, and whether the log is complete."""

    def __init__(self, number: int) -> None:
        self.id = BrokerId(number)
        self.epoch = BrokerEpoch(-1)
        self.session: Session | None = None
        self.state: PartitionState | None = None
        self.has_log = self.is_complete = False
        self.deletions = 0
        self.unable: Callable[[], None] | None = None  # if it cannot lead: called when it should
        self.answers = asyncio.Event()
        self.answers.set()
        self._controller_epoch = ControllerEpoch(-1)

    async def apply(self, update: ControlUpdate) -> Failures:
        await self.answers.wait()
        if update.controller_epoch < self._controller_epoch:
            raise RequestError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self._controller_epoch = update.controller_epoch
        if update.stopped:
            self.deletions += 1
            self._drop()
        if update.is_full and not update.replicas:
            self._drop()  # as a stray
        failures: dict[TopicPartition, RequestError] = {}
        for one in update.replicas:
            self.state, self.has_log = one.state, True
            if self.unable is not None and one.state.leader == self.id:
                self.unable()
                failures[one.partition] = RequestError(ErrorCode.KAFKA_STORAGE_ERROR)
        return failures

    def _drop(self) -> None:
        self.state, self.has_log, self.is_complete = None, False, False


class Stage:
    """A partition on fake brokers, with real coordination."""

    def __init__(self, there: Coordinated, *, min_isr: int = 1) -> None:
        self._there = there
        self.brokers = {BrokerId(number): FakeBroker(number) for number in (1, 2, 3, 4)}
        self.min_isr = min_isr
        self.session_timeout_s = 9.0
        self.acts = asyncio.Event()  # whether the controller is connected to coordination
        self.acts.set()

    async def set_up(self, *replicas: int) -> None:
        for one in self.brokers.values():
            await self.start_broker(one)
        await self.start_controller()
        made = Topic("t", TOPIC_ID, (PartitionState(tuple(map(BrokerId, replicas))),))
        rows = tuple(one.replicas for one in made.partitions)
        async with self.controller.turn:
            await self.controller.store.create_topic("t", TopicNode(TOPIC_ID, rows), {})
            await self.controller.add_topics([made], {})
        for number in replicas:
            self.brokers[BrokerId(number)].is_complete = True

    async def start_broker(self, one: FakeBroker) -> None:
        one.session = await self._there.session()
        me = self._broker(one)
        incarnation = Uuid(bytes([one.id] * 16))
        one.epoch = await register(one.session, Registration(me, incarnation, {}))

    def _broker(self, one: FakeBroker) -> Broker:
        return Broker(one.id, one.epoch, {"PLAINTEXT": Address("h", 1)})

    async def stop_broker(self, one: FakeBroker) -> None:
        assert one.session is not None
        await one.session.close()
        await self.until(lambda: one.id not in self.controller.image.brokers)

    async def start_controller(self, *answering: int) -> None:
        """Elect a controller, which these brokers answer although they may not be registered."""
        self.session = MortalSession(await self._there.session())
        lease = await elect_controller(self.session, CONTROLLER, 0)
        assert lease is not None

        def connect(broker: Broker) -> Apply:
            return self.brokers[broker.id].apply

        self.controller = Controller(
            node_id=CONTROLLER,
            clock=SystemClock(),
            store=ClusterStore(lease),
            epoch=lease.epoch,
            cluster_id="c",
            config=ControllerConfig(
                min_isr=lambda _: self.min_isr,
                unclean=lambda _: False,
                session_timeout_s=self.session_timeout_s,
            ),
            connect=connect,
            latest_epoch=lambda _: LeaderEpoch(-1),
            create_logs=self._create_logs,
            refusal=lambda: None,
            on_resigned=lambda: None,
            acts=self.acts,
        )
        found = await self.controller.load()
        async with self.controller.turn:
            brokers = [self.brokers[BrokerId(one)] for one in answering]
            answers = {one.id: self._broker(one) for one in brokers}
            await self.controller.start(found, is_first=False, answering=answers)

    async def _create_logs(
        self, epoch: ControllerEpoch, replicas: Sequence[ReplicaState]
    ) -> Failures:
        raise AssertionError("the controller has no replicas")

    async def end_controller(self) -> None:
        """End the controller as a kill does: it does nothing more, and its session expires."""
        await self.controller.close()
        await self.session.close()

    async def next_controller(self) -> None:
        await self.end_controller()
        await self.start_controller()

    @property
    def state(self) -> PartitionState:
        found = self.controller.image.state(*KEY)
        assert found is not None
        return found

    async def while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a call to the controller; raises Died."""
        task, died = asyncio.create_task(work), asyncio.create_task(self.session.died.wait())
        await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait((task,))
        raise Died

    async def until(self, is_true: Callable[[], bool]) -> None:
        async def waits() -> None:
            async with asyncio.timeout(WAIT_S):
                while not is_true():
                    self.check()
                    await asyncio.sleep(0.001)

        await self.while_alive(waits())
        self.check()

    def check(self) -> None:
        """Check that each broker that may lead has all records."""
        state = self.state
        for broker in {*state.in_sync, *state.elr}:
            assert self.brokers[broker].is_complete, state
        assert state.leader in state.in_sync

    async def reassign(self, *target: int, cancels: bool = False) -> ErrorCode:
        async def asked() -> ErrorCode:
            async with self.controller.turn:
                wanted = None if cancels else target
                outcomes = await self.controller.alter_reassignments({KEY: wanted})
            return outcomes[KEY].error

        return await self.while_alive(asked())

    async def propose(self, *in_sync: int) -> ErrorCode:
        """Let the leader propose an ISR."""

        async def answered() -> ErrorCode:
            async with self.controller.turn:
                request = self._proposal(in_sync)
                response = await self.controller.alter_partition(request)
            if response.error_code:
                return ErrorCode(response.error_code)
            return ErrorCode(response.topics[0].partitions[0].error_code)

        return await self.while_alive(answered())

    def _proposal(self, in_sync: Sequence[int]) -> AlterPartitionRequest:
        state = self.state
        members = [
            BrokerState(broker_id=one, broker_epoch=self.brokers[BrokerId(one)].epoch)
            for one in in_sync
        ]
        asked = PartitionData(
            partition_index=0,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=members,
            partition_epoch=state.version,
        )
        return AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=self.brokers[state.leader].epoch,
            topics=[TopicData(topic_id=TOPIC_ID, partitions=[asked])],
        )

    async def join(self, number: int) -> ErrorCode:
        """Let a replica catch up and join the ISR."""
        one = self.brokers[BrokerId(number)]
        await self.until(lambda: one.has_log)
        one.is_complete = True
        return await self.propose(*self.state.in_sync, number)

    async def finish(self, *target: int) -> None:
        """Wait until the reassignment is complete, and only its target has logs."""
        await self.until(lambda: self.state.replicas == target and not is_reassigning(self.state))
        await self.until(
            lambda: [one.id for one in self.brokers.values() if one.has_log] == sorted(target)
        )
        assert [*self.controller.reassigning] == []
        (stored,) = await self.controller.store.load_topics()
        assert stored.topic.partitions[0] == self.state
        assert set(self.state.in_sync) <= set(target)


def staged(
    folder: Path, scenario: Callable[[Stage], Coroutine[Any, Any, None]], *, min_isr: int = 1
) -> None:
    async def whole(there: Coordinated) -> None:
        stage = Stage(there, min_isr=min_isr)
        await stage.set_up(1, 2)
        try:
            await scenario(stage)
        finally:
            await stage.end_controller()

    coordinated(folder, whole)


def test_a15_partition_moves_to_other_brokers(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.reassign(3, 4) is ErrorCode.NONE
        assert [*stage.controller.reassigning] == [KEY]
        assert stage.state.replicas == (3, 4, 1, 2)
        assert await stage.join(3) is ErrorCode.NONE
        assert stage.state.leader == 1
        assert await stage.join(4) is ErrorCode.NONE
        await stage.finish(3, 4)
        assert (stage.state.leader, stage.state.in_sync) == (3, (3, 4))

    staged(tmp_path, scenario)


def test_a15_reassignment_survives_the_death_of_the_controller_at_every_step(
    tmp_path: Path,
) -> None:
    async def moved(stage: Stage) -> None:
        """Move the partition; if a controller dies, ask the next one again."""
        while stage.state.replicas != (3, 4):
            try:
                if not is_reassigning(stage.state):
                    await stage.reassign(3, 4)
                for number in (3, 4):
                    if number not in stage.state.in_sync:
                        await stage.join(number)
                await stage.until(lambda: not is_reassigning(stage.state))
            except Died:
                await stage.next_controller()
        await stage.finish(3, 4)

    writes: list[int] = []

    async def undisturbed(stage: Stage) -> None:
        stage.session.writes.clear()
        await moved(stage)
        writes.append(len(stage.session.writes))

    staged(tmp_path / "undisturbed", undisturbed)
    assert writes == [6]  # it begins, two replicas join, and three steps
    for number in range(writes[0]):
        for loss in Loss:

            async def disturbed(stage: Stage) -> None:
                stage.session.dies = number, loss  # noqa: B023
                first = stage.session
                await moved(stage)
                assert first.died.is_set(), number  # noqa: B023

            staged(tmp_path / f"{number}-{loss.name}", disturbed)


def test_a15_next_controller_deletes_replicas_that_the_last_one_did_not(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.reassign(1, 3)
        removed = stage.brokers[BrokerId(2)]
        removed.answers.clear()
        await stage.join(3)
        await stage.until(lambda: stage.state.in_sync == (1, 3))
        assert stage.state.removing == (2,)  # the final assignment waits for the deletion
        await stage.next_controller()
        assert removed.deletions == 0
        removed.answers.set()
        await stage.finish(1, 3)
        assert removed.deletions == 1

    staged(tmp_path, scenario)


def test_a15_replica_that_may_be_deleted_does_not_join(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.reassign(2, 3)
        removed = stage.brokers[BrokerId(1)]
        await stage.until(lambda: removed.state is not None and removed.state.removing == (1,))
        removed.answers.clear()
        await stage.join(3)
        await stage.until(lambda: stage.state.in_sync == (2, 3))
        # The target is too small now, so the replica that leaves could return.
        assert await stage.propose(2) is ErrorCode.NONE
        assert await stage.propose(2, 1) is ErrorCode.INELIGIBLE_REPLICA
        # The next controller does not know what the last one has sent.
        await stage.next_controller()
        assert await stage.propose(2, 1) is ErrorCode.INELIGIBLE_REPLICA
        removed.answers.set()
        async with asyncio.timeout(WAIT_S):
            while await stage.propose(2, 1) is ErrorCode.INELIGIBLE_REPLICA:
                await asyncio.sleep(0.001)
        assert stage.state.in_sync == (2, 1)
        assert await stage.propose(2, 1, 3) is ErrorCode.NONE
        await stage.finish(2, 3)

    staged(tmp_path, scenario, min_isr=2)


def test_a15_dead_broker_does_not_stop_a_reassignment(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        removed, added = stage.brokers[BrokerId(2)], stage.brokers[BrokerId(4)]
        await stage.reassign(1, 4)
        await stage.stop_broker(added)
        await stage.stop_broker(removed)
        assert await stage.propose(1, 4) is ErrorCode.INELIGIBLE_REPLICA
        await stage.start_broker(added)
        await stage.until(lambda: added.id in stage.controller.image.brokers)
        await stage.join(4)
        await stage.until(lambda: not is_reassigning(stage.state))
        assert removed.has_log
        await stage.start_broker(removed)
        await stage.finish(1, 4)

    staged(tmp_path, scenario)


def test_a15_cancelled_reassignment_deletes_the_added_replicas(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.reassign(cancels=True) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        await stage.reassign(3, 4)
        await stage.join(3)
        assert await stage.reassign(cancels=True) is ErrorCode.NONE
        await stage.finish(1, 2)
        assert stage.state.in_sync == (1, 2)

    staged(tmp_path, scenario)


def test_a15_replication_factor_grows_and_shrinks(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.reassign(1, 2, 3)
        await stage.join(3)
        await stage.finish(1, 2, 3)
        await stage.reassign(2)
        await stage.finish(2)
        assert stage.state.leader == 2

    staged(tmp_path, scenario)


def test_a15_reassignment_waits_for_a_lower_minimum(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.propose(1)
        await stage.reassign(2, 3)
        await stage.join(3)
        assert is_reassigning(stage.state)
        stage.min_isr = 1
        async with stage.controller.turn:
            await stage.controller.set_configs(topic_configs={"t": {}})
        await stage.finish(2, 3)

    staged(tmp_path, scenario, min_isr=2)
