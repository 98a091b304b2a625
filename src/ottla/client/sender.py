"""The sender of a producer: batches to the brokers that lead their partitions, until all are there.

Invariant: the batches of a partition are appended in their order. A batch that is sent again goes
alone, and the idempotent producer's brokers drop what they have already. A batch ends with the
broker's word, with an error that does not pass, or with its delivery timeout; nothing is given up
before, whatever happens to connections and leaders.

It has no task of its own: `poke` lets it look once, soon, at what can be sent.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias

from ottla.client.cluster_view import BrokerView
from ottla.client.connections import Connections
from ottla.client.delivery import SenderRules, produce_request
from ottla.client.identity import NOBODY, new_identity
from ottla.client.metadata import Metadata
from ottla.client.outbox import NO_OFFSET, Outbox, PartitionQueue, PendingBatch
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ZERO_UUID, BrokerId, PartitionIndex, TopicPartition, Uuid
from ottla.protocol.apis import PRODUCE
from ottla.protocol.message import Message
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
)
from ottla.records import NO_TIMESTAMP
from ottla.transport.channel import Channel, TimedOut

PARTITION_IN_FLIGHT_MAX: Final = 5
"""A broker remembers so many batches of a producer, and knows those again."""

_BY_ID: Final = 13  # the version of Produce from which topics are named by their ids
_MISSED: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


Taken: TypeAlias = list[tuple[PartitionQueue, PendingBatch]]
"""What one request carries."""


class Sender:
    """Sends what is in an outbox."""

    def __init__(
        self,
        outbox: Outbox,
        metadata: Metadata,
        connections: Connections,
        rules: SenderRules,
        clock: Clock,
        failed: Callable[[PendingBatch], None],
    ) -> None:
        self._outbox = outbox
        self._metadata = metadata
        self._connections = connections
        self._rules = rules
        self._clock = clock
        self._failed = failed  # hears of batches that were given up
        self._loop = asyncio.get_running_loop()
        self._identity = NOBODY
        self._in_flight: dict[BrokerId, int] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}  # connecting, and getting an identity
        self._timer: asyncio.TimerHandle | None = None
        self._is_poked = False
        self._hurried = 0  # who wants nothing to linger
        self._is_closed = False

    # What the producer asks.

    def poke(self) -> None:
        """Something may be ready: look, once this turn of the event loop is over."""
        if not self._is_poked and not self._is_closed:
            self._is_poked = True
            self._loop.call_soon(self._look)

    async def flush(self) -> None:
        """Return when all that is in the outbox now is settled."""
        self._hurried += 1
        self.poke()
        try:
            for batch in self._outbox.unsettled():
                await batch.settled()
        finally:
            self._hurried -= 1

    async def close(self, reason: RequestError) -> None:
        """Give up what is not settled, and send nothing more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for queue in self._outbox.queues.values():
            for batch in [*queue.in_flight, *queue.waiting]:
                self._give_up(queue, batch, reason)

    # Looking.

    def _look(self) -> None:
        self._is_poked = False
        if self._is_closed:
            return
        now_s = self._clock.elapsed_s()
        next_s = inf
        ready: dict[BrokerId, list[PartitionQueue]] = {}
        for queue in self._outbox.queues.values():
            self._expire(queue, now_s)
            if not queue.waiting:
                continue
            due_s = self._due_s(queue)
            if due_s > now_s:
                next_s = min(next_s, due_s)
            elif self._may_send(queue):
                leader = self._metadata.view.leader(*queue.partition)
                if leader is None:
                    self._metadata.want(queue.partition.topic)
                    self._metadata.expire()
                else:
                    ready.setdefault(leader.leader, []).append(queue)
            next_s = min(next_s, queue.waiting[0].began_s + self._rules.delivery_timeout_s)
        if ready and self._has_identity():
            for broker, queues in ready.items():
                self._send_to(self._metadata.view.brokers[broker], queues)
        self._look_again_at(next_s)

    def _look_again_at(self, when_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when_s < inf:
            # The loop's clock and ours may differ, but count the same seconds.
            self._timer = self._loop.call_later(
                max(0.0, when_s - self._clock.elapsed_s()), self.poke
            )

    def _due_s(self, queue: PartitionQueue) -> float:
        """When the first batch of a queue is to leave."""
        batch = queue.waiting[0]
        if batch.tries:
            return batch.not_before_s
        is_full = batch is not queue.open
        if is_full or self._hurried or self._outbox.is_short:
            return 0.0
        return batch.began_s + self._rules.linger_s

    def _may_send(self, queue: PartitionQueue) -> bool:
        """Whether the next batch of a queue can leave without getting before another."""
        on_their_way = queue.in_flight
        if not on_their_way:
            # Of what may have been appended the broker is asked first, under its old number.
            if queue.has_gap and not queue.waiting[0].is_unsure:
                queue.begin_anew()
            return True
        if not self._rules.is_idempotent:
            return self._rules.in_flight_max > 1
        # Of what is sent again nobody knows whether it is there: the next waits for it.
        return (
            len(on_their_way) < PARTITION_IN_FLIGHT_MAX
            and not queue.has_gap
            and not queue.waiting[0].tries
            and not any(batch.tries > 1 for batch in on_their_way)
        )

    def _expire(self, queue: PartitionQueue, now_s: float) -> None:
        limit_s = self._rules.delivery_timeout_s
        while queue.waiting and now_s - queue.waiting[0].began_s >= limit_s:
            batch = queue.waiting[0]
            why = self._metadata.failure or "its partition's leader did not take it"
            self._give_up(
                queue, batch, TimedOut(f"{queue.partition}: not written in {limit_s:g} s: {why}")
            )

    # Sending.

    def _send_to(self, broker: BrokerView, queues: list[PartitionQueue]) -> None:
        channel = self._connections.open_to(broker)
        if channel is None:
            self._start(broker.id, self._connect(broker))
            return
        limit = self._rules.in_flight_max
        left = [*queues]
        while left and self._in_flight.get(broker.id, 0) < limit and not channel.is_full:
            self._send_one(broker.id, channel, left)
            left = [
                one for one in left if one.waiting and self._due_s(one) <= 0 and self._may_send(one)
            ]

    def _send_one(self, broker: BrokerId, channel: Channel, queues: list[PartitionQueue]) -> None:
        """Send the first batches of queues in one request, as many as it takes."""
        taken: Taken = []
        size = 0
        for queue in queues:
            batch = queue.waiting[0]
            if taken and size + batch.builder.size > self._rules.request_bytes_max:
                continue
            queue.take_first(self._identity)
            taken.append((queue, batch))
            size += batch.builder.size
        topics = self._metadata.view.topics
        ids = {queue.partition.topic: topics[queue.partition.topic].id for queue, _ in taken}
        version = channel.version(PRODUCE)
        if version >= _BY_ID and ZERO_UUID in ids.values():
            version = _BY_ID - 1
        request = produce_request((batch for _, batch in taken), ids, self._rules)
        self._in_flight[broker] = self._in_flight.get(broker, 0) + 1
        try:
            if self._rules.acks:
                answer = channel.send(request, self._rules.request_timeout_s, version=version)
                names = {topic_id: topic for topic, topic_id in ids.items()}
                answer.add_done_callback(partial(self._answered, broker, taken, names))
                return
            channel.send_unanswered(request)
        except RequestError as error:
            self._lost(broker, taken, error, unsure=False)
            return
        self._in_flight[broker] -= 1
        for queue, batch in taken:
            self._settle(queue, batch, NO_OFFSET, NO_TIMESTAMP)

    def _answered(
        self,
        broker: BrokerId,
        taken: Taken,
        names: dict[Uuid, str],
        answer: "asyncio.Future[Message]",
    ) -> None:
        error = answer.exception()
        if self._is_closed:
            return
        if error is not None:
            assert isinstance(error, RequestError)
            self._lost(broker, taken, error, unsure=True)
            return
        message = answer.result()
        assert isinstance(message, ProduceResponse)
        self._in_flight[broker] -= 1
        told = {
            TopicPartition(
                topic.name or names.get(topic.topic_id, ""), PartitionIndex(one.index)
            ): one
            for topic in message.responses
            for one in topic.partition_responses
        }
        nodes = [
            BrokerView(BrokerId(one.node_id), one.host, one.port, one.rack)
            for one in message.node_endpoints
        ]
        for queue, batch in taken:
            self._take_word(queue, batch, told.get(queue.partition), nodes)
        self.poke()

    def _take_word(
        self,
        queue: PartitionQueue,
        batch: PendingBatch,
        told: PartitionProduceResponse | None,
        nodes: Iterable[BrokerView],
    ) -> None:
        """Do what the broker's word on a batch asks for."""
        code = ErrorCode.UNKNOWN_SERVER_ERROR if told is None else ErrorCode.of(told.error_code)
        if told is not None and code is ErrorCode.NONE:
            self._settle(queue, batch, told.base_offset, told.log_append_time_ms)
            return
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._settle(queue, batch, NO_OFFSET, NO_TIMESTAMP)
            return
        text = None if told is None else told.error_message
        error = RequestError(code, text and f"{queue.partition}: {text}")
        if code.refresh_metadata:
            leader = None if told is None else told.current_leader
            if leader is not None and leader.leader_id >= 0:
                self._metadata.learn(
                    *queue.partition, leader.leader_id, leader.leader_epoch, *nodes
                )
            else:
                self._metadata.expire()
        if code in _MISSED and batch.sequence >= 0:
            # Behind one that is sent again it is only too early; the first itself is not missed
            # by any, so that the broker's sequence has a gap, or has been forgotten.
            first = min(one.order for one in (*queue.in_flight, *queue.waiting))
            if batch.order == first:
                queue.has_gap, batch.is_unsure = True, False
        elif not code.retriable:
            self._give_up(queue, batch, error)
            return
        self._retry(queue, batch, error)

    def _lost(
        self,
        broker: BrokerId,
        taken: Taken,
        error: RequestError,
        *,
        unsure: bool,
    ) -> None:
        """A request has no answer; whether it was served nobody knows."""
        self._in_flight[broker] -= 1
        self._metadata.expire()
        for queue, batch in taken:
            batch.is_unsure = batch.is_unsure or unsure
            self._retry(queue, batch, error)
        self.poke()

    # Ending.

    def _retry(self, queue: PartitionQueue, batch: PendingBatch, error: RequestError) -> None:
        now_s = self._clock.elapsed_s()
        late = now_s - batch.began_s >= self._rules.delivery_timeout_s
        if late or batch.tries > self._rules.retries:
            self._give_up(queue, batch, error)
            return
        batch.not_before_s = now_s + self._rules.backoff.pause_s(batch.tries)
        queue.put_back(batch)

    def _settle(
        self, queue: PartitionQueue, batch: PendingBatch, base_offset: int, time_ms: int
    ) -> None:
        queue.in_flight.remove(batch)
        batch.settle(base_offset, time_ms)
        self._outbox.settled(batch)

    def _give_up(self, queue: PartitionQueue, batch: PendingBatch, error: RequestError) -> None:
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        else:
            queue.waiting.remove(batch)
            if batch is queue.open:
                queue.open = None
        if batch.sequence >= 0:
            queue.has_gap = True
        batch.fail(error)
        self._outbox.settled(batch)
        self._failed(batch)

    # What takes a while.

    def _start(self, what: object, doing: Coroutine[Any, Any, None]) -> None:
        if what in self._tasks or self._is_closed:
            doing.close()
            return

        def done(_: object) -> None:
            del self._tasks[what]
            self.poke()

        task = self._tasks[what] = self._loop.create_task(doing)
        task.add_done_callback(done)

    async def _connect(self, broker: BrokerView) -> None:
        try:
            await self._connections.to(broker)
        except RequestError:
            self._metadata.expire()

    def _has_identity(self) -> bool:
        if not self._rules.is_idempotent or self._identity != NOBODY:
            return True
        self._start("identity", self._get_identity())
        return False

    async def _get_identity(self) -> None:
        rules = self._rules
        try:
            self._identity = await new_identity(
                self._metadata, self._clock, rules.backoff, rules.request_timeout_s
            )
        except RequestError as error:
            for queue in self._outbox.queues.values():
                for batch in [*queue.waiting]:
                    self._give_up(queue, batch, error)
