"""Asks the controller for the ISR changes that leaders propose, with AlterPartition (KIP-497).

Proposals of all partitions share a request, and one request is in flight at a time. A request
without a response is repeated: the controller answers a change that it has made with success. So
the outcome of a proposal is unknown only until it is answered, or until newer metadata ends it
(rule A11).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from ottla.clock import Clock
from ottla.cluster.image import PartitionState
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition, Uuid
from ottla.metrics import ReplicationCounts
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
    PartitionData,
    TopicData,
)
from ottla.replication.in_sync_replicas import IsrProposal
from ottla.replication.partition import Partition
from ottla.transport.backoff import Backoff

_LOG = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

TIMEOUT_SECONDS: Final = 10.0
"""How long a request waits for its response before it is repeated."""

_ANSWERS: Final = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors of a partition that a repetition does not change. Kafka repeats after all others."""


class ControllerCalls(Protocol):
    """Sends requests to the controller."""

    def ask(self, message: Message, response_type: type[M], *, timeout_s: float) -> Awaitable[M]:
        """Return the response; raises RequestError if there is none."""
        ...


class _Pending(NamedTuple):
    partition: Partition
    proposal: IsrProposal


class AlterPartitionManager:
    """The proposals of this broker's leaders that are not answered yet."""

    def __init__(
        self,
        controller: ControllerCalls,
        node_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        *,
        clock: Clock,
        backoff: Backoff,
        counts: ReplicationCounts | None = None,
    ) -> None:
        """A manager; `broker_epoch` returns the epoch of this broker's registration."""
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._backoff = backoff
        self.counts = counts or ReplicationCounts()
        self._pending: dict[TopicPartition, _Pending] = {}
        self._wanted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending)

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send a proposal soon; a partition has one at a time."""
        self._pending[partition.name] = _Pending(partition, proposal)
        self._wanted.set()

    async def run(self) -> None:
        """Send proposals until it is cancelled."""
        failures = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._drop_outdated()
            if not self._pending:
                continue
            failures = 0 if await self._send([*self._pending.values()]) else failures + 1
            if self._pending:
                self._wanted.set()  # some have no answer, or came meanwhile
                await self._clock.sleep(self._backoff.pause_s(failures))

    def _drop_outdated(self) -> None:
        """Drop the proposals that newer metadata has ended."""
        for name, (partition, proposal) in [*self._pending.items()]:
            if partition.proposed_isr is not proposal:
                del self._pending[name]

    async def _send(self, batch: Sequence[_Pending]) -> bool:
        """Send proposals in one request; return whether all were answered."""
        request = self._request(batch)
        try:
            response = await self._controller.ask(
                request, AlterPartitionResponse, timeout_s=TIMEOUT_SECONDS
            )
        except RequestError as error:  # the controller may have made the changes
            _LOG.warning(
                "ISR changes not answered", {"partitions": len(batch), "error": str(error)}
            )
            return False
        if response.error_code:
            code = ErrorCode(response.error_code)
            _LOG.warning("ISR changes refused", {"partitions": len(batch), "error": code.name})
            return False
        answers = {
            (topic.topic_id, one.partition_index): one
            for topic in response.topics
            for one in topic.partitions
        }
        answered = [self._take(one, answers) for one in batch]
        return all(answered)

    def _request(self, batch: Sequence[_Pending]) -> AlterPartitionRequest:
        by_topic: dict[Uuid, list[PartitionData]] = {}
        epoch = self._broker_epoch()
        for partition, proposal in batch:
            data = PartitionData(
                partition_index=partition.name.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(
                        broker_id=member,
                        broker_epoch=epoch if member == self._node_id else member_epoch,
                    )
                    for member, member_epoch in proposal.members
                ],
                partition_epoch=proposal.partition_epoch,
            )
            by_topic.setdefault(partition.topic_id, []).append(data)
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=epoch,
            topics=[
                TopicData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic.items()
            ],
        )

    def _take(
        self,
        sent: _Pending,
        answers: dict[tuple[Uuid, int], AlterPartitionResponsePartitionData],
    ) -> bool:
        """Pass the answer to its partition; False if the proposal has to be sent again."""
        partition, proposal = sent
        answer = answers.get((partition.topic_id, partition.name.partition))
        code = None if answer is None else ErrorCode(answer.error_code)
        if answer is None or (code is not ErrorCode.NONE and code not in _ANSWERS):
            return False
        if self._pending.get(partition.name) is sent:
            del self._pending[partition.name]
        outcome = code if code is not ErrorCode.NONE else _state(partition, answer)
        facts = {"partition": str(partition.name), "isr": [*map(int, proposal.in_sync)]}
        if code is ErrorCode.NONE:
            _LOG.info("ISR changed", facts)
            if proposal.is_expansion:
                self.counts.isr_expands += 1
            else:
                self.counts.isr_shrinks += 1
        else:
            assert code is not None
            _LOG.warning("ISR change refused", facts | {"error": code.name})
            self.counts.isr_failures += 1
        partition.isr_answered(outcome, proposal)
        return True


def _state(
    partition: Partition, answer: AlterPartitionResponsePartitionData
) -> PartitionState | None:
    """The state that the controller stored; None if the partition has one replica by now."""
    if partition.in_sync is None:
        return None
    return replace(
        partition.in_sync.state,
        leader=BrokerId(answer.leader_id),
        leader_epoch=LeaderEpoch(answer.leader_epoch),
        in_sync=tuple(map(BrokerId, answer.isr)),
        version=answer.partition_epoch,
    )
