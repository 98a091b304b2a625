"""ISR changes on their way to the controller: batches, repetitions, and lost responses."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

import pytest

from log.log_managers import TOPIC_ID, partition
from ottla.errors import ErrorCode
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from ottla.replication.alter_partition import AlterPartitionManager
from ottla.replication.in_sync_replicas import IsrProposal
from ottla.replication.partition import Partition
from ottla.transport.backoff import Backoff
from ottla.transport.failures import Disconnected
from replication.leaders import LAG_S, Leader, replicated, run

M = TypeVar("M", bound=Message)


class Controller:
    """Answers requests as a controller whose responses can get lost."""

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.lost = 0  # so many responses get lost after the change is made
        self.errors: list[ErrorCode] = []  # of the next partitions
        self.request_errors: list[ErrorCode] = []
        self.stored: tuple[int, ...] = (1, 2, 3)
        self.version = 5
        self.held = asyncio.Event()
        self.held.set()

    async def ask(self, message: Message, response_type: type[M], *, timeout_s: float) -> M:
        assert isinstance(message, AlterPartitionRequest)
        self.requests.append(message)
        await self.held.wait()
        if self.request_errors:
            code = self.request_errors.pop(0)
            return cast("M", AlterPartitionResponse(throttle_time_ms=0, error_code=int(code),
                                                    topics=[]))  # fmt: skip
        topics = [
            AlterPartitionResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    self._answer(
                        one.partition_index,
                        one.leader_epoch,
                        tuple(member.broker_id for member in one.new_isr_with_epochs),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        if self.lost:
            self.lost -= 1
            raise Disconnected("broken on purpose")
        return cast("M", AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics))

    def _answer(
        self, index: int, leader_epoch: int, isr: tuple[int, ...]
    ) -> AlterPartitionResponsePartitionData:
        code = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if code is ErrorCode.NONE and self.stored != isr:
            self.stored = isr
            self.version += 1
        return AlterPartitionResponsePartitionData(
            partition_index=index,
            error_code=int(code),
            leader_id=1,
            leader_epoch=leader_epoch,
            isr=self.stored,
            partition_epoch=self.version,
        )


Scenario = Callable[[Leader, Controller, AlterPartitionManager], Coroutine[Any, Any, None]]


def run_with(scenario: Scenario, *in_sync: int) -> None:
    async def program(leader: Leader) -> None:
        controller = Controller()
        manager = AlterPartitionManager(
            controller,
            BrokerId(1),
            lambda: BrokerEpoch(77),
            clock=leader.clock,
            backoff=Backoff(0.1, 1.0, lambda: 0.5),
        )
        leader.propose = manager.propose
        task = asyncio.create_task(manager.run())
        await scenario(leader, controller, manager)
        task.cancel()

    run(program, replicated(*(in_sync or (1, 2, 3))))


async def lag(leader: Leader) -> None:
    """Let broker 3 be too slow."""
    leader.append(acks=1)
    leader.fetch(2)
    await leader.clock.sleep(LAG_S + 1)
    leader.fetch(2)
    leader.led.check_isr(leader.clock.elapsed_s())


def test_proposal_is_sent_with_the_epochs_of_its_members() -> None:
    async def scenario(
        leader: Leader, controller: Controller, manager: AlterPartitionManager
    ) -> None:
        await lag(leader)
        assert len(manager) == 1
        await leader.clock.sleep(0.01)
        (request,) = controller.requests
        assert (request.broker_id, request.broker_epoch) == (1, 77)
        (data,) = request.topics[0].partitions
        members = [(one.broker_id, one.broker_epoch) for one in data.new_isr_with_epochs]
        assert members == [(1, 77), (2, 9)]
        assert (data.leader_epoch, data.partition_epoch) == (2, 5)
        assert (leader.state.in_sync, leader.state.version) == ((1, 2), 6)
        assert (leader.led.high_watermark, len(manager)) == (1, 0)
        counts = manager.counts
        assert (counts.isr_shrinks, counts.isr_expands, counts.isr_failures) == (1, 0, 0)
        leader.fetch(3)
        await leader.clock.sleep(1)
        assert leader.state.in_sync == (1, 2, 3)
        assert (counts.isr_shrinks, counts.isr_expands, counts.isr_failures) == (1, 1, 0)

    run_with(scenario)


def test_a11_lost_reply_is_asked_for_again() -> None:
    async def scenario(
        leader: Leader, controller: Controller, manager: AlterPartitionManager
    ) -> None:
        controller.lost = 3
        await lag(leader)
        await leader.clock.sleep(0.01)
        assert controller.stored == (1, 2)
        assert leader.led.proposed_isr is not None, "its outcome is unknown"
        assert leader.led.high_watermark == 0
        await leader.clock.sleep(5)
        assert len(controller.requests) == 4
        assert len({str(one) for one in controller.requests}) == 1, "the same request"
        assert (leader.state.in_sync, leader.led.high_watermark, len(manager)) == ((1, 2), 1, 0)

    run_with(scenario)


@pytest.mark.parametrize("ends", ["newer metadata", "resignation"])
def test_a11_leader_repeats_no_proposal_that_is_outdated(ends: str) -> None:
    async def scenario(
        leader: Leader, controller: Controller, manager: AlterPartitionManager
    ) -> None:
        controller.lost = 1000
        await lag(leader)
        await leader.clock.sleep(0.05)
        if ends == "resignation":
            leader.led.resign(leader.changed(2, 3, leader=BrokerId(2)))
        else:
            leader.led.update(leader.changed(1, 2))
        sent = len(controller.requests)
        await leader.clock.sleep(10)
        assert (len(controller.requests), len(manager)) == (sent, 0)

    run_with(scenario)


def test_errors_are_repeated_or_passed_on() -> None:
    async def scenario(
        leader: Leader, controller: Controller, manager: AlterPartitionManager
    ) -> None:
        controller.request_errors = [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER]
        controller.errors = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER]
        await lag(leader)
        await leader.clock.sleep(10)
        assert len(controller.requests) == 5
        assert (leader.state.in_sync, len(manager)) == ((1, 2), 0)
        leader.append(acks=1)
        leader.fetch(2)
        controller.errors = [ErrorCode.INELIGIBLE_REPLICA]
        leader.fetch(3)
        await leader.clock.sleep(10)
        assert (len(controller.requests), leader.led.proposed_isr) == (6, None)
        controller.errors = [ErrorCode.INVALID_UPDATE_VERSION]
        leader.fetch(3)
        await leader.clock.sleep(10)
        assert len(controller.requests) == 7
        assert leader.led.proposed_isr is not None, "newer metadata is on its way"
        assert manager.counts.isr_failures == 2

    run_with(scenario)


def test_proposals_share_a_request_while_one_is_in_flight() -> None:
    async def scenario(
        leader: Leader, controller: Controller, manager: AlterPartitionManager
    ) -> None:
        controller.held.clear()
        await lag(leader)
        await leader.clock.sleep(1)
        assert len(controller.requests) == 1
        others = [Other(index) for index in range(3)]
        for one in others:
            manager.propose(cast("Partition", one), one.proposed_isr)
        await leader.clock.sleep(1)
        assert len(controller.requests) == 1, "one at a time"
        controller.held.set()
        await leader.clock.sleep(1)
        assert len(controller.requests) == 2
        indexes = [one.partition_index for one in controller.requests[1].topics[0].partitions]
        assert indexes == [10, 11, 12]
        assert len(manager) == 0
        assert all(one.answers for one in others)

    run_with(scenario)


class Other:
    """Another partition, which has proposed a change."""

    def __init__(self, index: int) -> None:
        self.name, self.topic_id = partition(10 + index), TOPIC_ID
        self.in_sync = None
        epochs = (BrokerEpoch(-1),)
        self.proposed_isr = IsrProposal((BrokerId(1),), epochs, LeaderEpoch(2), 5)
        self.answers: list[object] = []

    def isr_answered(self, outcome: object, proposal: object) -> None:
        assert proposal is self.proposed_isr
        self.answers.append(proposal)
