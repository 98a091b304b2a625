"""The sender: sends batches to partition leaders until they are acknowledged.

Invariant: batches of a partition are appended in order. A retried batch is sent alone, and brokers
drop duplicates of an idempotent producer. A batch ends with an acknowledgement, a non-retriable
error or its delivery timeout, whatever happens to connections and leaders. Only a transaction that
cannot be committed fails all its batches.

It has no task of its own: `poke` makes it look once, soon, at what can be sent.
"""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, TypeAlias

from ottla.client.lifecycle.wakeup import Wakeup
from ottla.client.metrics.producer_metrics import ProducerCounts
from ottla.client.network.cluster_view import BrokerView
from ottla.client.network.connections import Connections
from ottla.client.network.metadata import Metadata
from ottla.client.producer.batch_outcomes import (
    BatchOutcome,
    batch_outcome,
    broker_error,
    may_have_appended,
)
from ottla.client.producer.delivery import SenderConfig, produce_request
from ottla.client.producer.identity import ProducerIdentity
from ottla.client.producer.partition_load import PartitionLoad
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.producer_batch import NO_OFFSET, ProducerBatch
from ottla.client.producer.record_accumulator import RecordAccumulator
from ottla.client.producer.stalled_partitions import StalledPartitions
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ZERO_UUID, BrokerId, Uuid
from ottla.protocol.apis import PRODUCE
from ottla.protocol.message import Message
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from ottla.records import NO_TIMESTAMP
from ottla.transport.channel import Channel, TimedOut

_BY_ID: Final = 13  # the first version of Produce with topic ids

Taken: TypeAlias = list[tuple[PartitionQueue, ProducerBatch]]
"""The batches of one request."""


class Sender:
    """Sends the batches of a record accumulator."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        connections: Connections,
        producer_identity: ProducerIdentity,
        rules: SenderConfig,
        clock: Clock,
        load: PartitionLoad | None,
        failed: Callable[[ProducerBatch], None],
    ) -> None:
        self.counts = ProducerCounts()
        self._accumulator = accumulator
        self._metadata = metadata
        self._connections = connections
        self._producer_identity = producer_identity
        self._rules = rules
        self._clock = clock
        self._load = load  # None if no partitioner listens
        self._failed = failed  # called for batches that failed
        self._in_flight: dict[BrokerId, int] = {}
        self._stalled = StalledPartitions(self._obstacle)
        self._hurried = 0  # number of callers that want no linger
        self._lookout = Wakeup(self._look, clock)
        self.poke: Final = self._lookout.poke

    # Calls of the producer.

    async def flush(self) -> None:
        """Wait until everything in the record accumulator now is settled."""
        self._hurried += 1
        self.poke()
        try:
            for batch in self._accumulator.unsettled():
                await batch.settled()
        finally:
            self._hurried -= 1

    async def close(self, reason: RequestError) -> None:
        """Fail what is not settled and stop sending."""
        self._accumulator.close(reason)
        await self._lookout.close()
        for queue in self._accumulator.queues.values():
            for batch in [*queue.in_flight, *queue.waiting]:
                self._give_up(queue, batch, reason)

    # Scheduling.

    def _look(self) -> float:
        if self._producer_identity.failure is not None:
            self._give_up_waiting(self._producer_identity.failure)
        now_s = self._clock.elapsed_s()
        linger_s = self._linger_s()
        next_s, lacking = inf, False
        ready: dict[BrokerId, list[PartitionQueue]] = {}
        for queue in self._accumulator.queues.values():
            if not queue.waiting:
                continue
            self._expire(queue, now_s)
            if not queue.waiting or self._producer_identity.failure is not None:
                continue
            next_s = min(next_s, queue.waiting[0].began_s + self._rules.delivery_timeout_s)
            due_s = queue.due_s(linger_s)
            if due_s > now_s:
                next_s = min(next_s, due_s)
                continue
            leader = self._metadata.view.leader(*queue.partition)
            if leader is None:
                self._metadata.want(queue.partition.topic)
                self._metadata.expire()
                continue
            queues = ready.setdefault(leader.leader, [])
            if queue.may_send(self._rules):
                if self._producer_identity.admit(queue.partition, queue.spent):
                    queues.append(queue)
                else:
                    lacking = True
        if lacking:
            self._lookout.start("producer id", self._obtain)
        for broker, queues in ready.items():
            takes = self._send_to(self._metadata.view.brokers[broker], queues)
            if self._load is not None:
                self._load.asked(broker, now_s, takes=takes)
        if self._load is not None:
            self._load.look(self._accumulator.queues, self._metadata.view)
        return min(next_s, self._stalled.look(self._accumulator.queues.values(), now_s, linger_s))

    def _linger_s(self) -> float:
        """The linger time; 0 when a caller waits for a batch."""
        return -inf if self._hurried or self._accumulator.waiting_calls else self._rules.linger_s

    def _expire(self, queue: PartitionQueue, now_s: float) -> None:
        limit_s = self._rules.delivery_timeout_s
        while queue.waiting and now_s - queue.waiting[0].began_s >= limit_s:
            batch = queue.waiting[0]
            why = f"not written in {limit_s:g} s: {self._obstacle(queue, batch)}"
            self._give_up(queue, batch, TimedOut(f"{queue.partition}: {why}"))

    def _obstacle(self, queue: PartitionQueue, batch: ProducerBatch) -> RequestError:
        """Return why a batch is not acknowledged yet, as far as known."""
        view, partition = self._metadata.view, queue.partition
        if self._metadata.failure is not None:
            return self._metadata.failure
        leader = view.leader(*partition)
        if leader is None:
            topic = view.topics.get(partition.topic)
            if topic is None or not topic.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return RequestError(code, "the topic does not exist")
            return RequestError(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader")
        broker = view.brokers[leader.leader]
        refusal = self._connections.failure_of(broker) or batch.refusal
        if refusal is None and batch.sequence < 0:
            refusal = self._producer_identity.refusal
        if refusal is None:
            return TimedOut(f"no response from the leader, {broker}")
        why = refusal.message and refusal.message.removeprefix(f"{partition}: ")
        return RequestError(refusal.code, why)

    # Sending.

    def _send_to(self, broker: BrokerView, queues: list[PartitionQueue]) -> bool:
        """Send what is ready for a broker; returns whether it accepts anything now."""
        channel = self._connections.open_to(broker)
        if channel is None:
            self._lookout.start(broker.id, partial(self._connect, broker))
            return False
        takes = False
        left: list[PartitionQueue] = queues
        while self._in_flight.get(broker.id, 0) < self._rules.in_flight_max and not channel.is_full:
            takes = True
            if not left:
                break
            self._send_one(broker.id, channel, left)
            left = [
                one
                for one in left
                if one.waiting and one.due_s(self._linger_s()) <= 0 and one.may_send(self._rules)
            ]
        return takes

    def _send_one(self, broker: BrokerId, channel: Channel, queues: list[PartitionQueue]) -> None:
        """Send the first batches of queues in one request, as many as fit."""
        taken: Taken = []
        size = records = 0
        ids: dict[str, Uuid] = {}
        topics = self._metadata.view.topics
        now_s = self._clock.elapsed_s()
        for queue in queues:
            batch = queue.waiting[0]
            if taken and size + batch.builder.size > self._rules.request_bytes_max:
                continue
            queue.take_first(self._producer_identity.identity)
            taken.append((queue, batch))
            size += batch.builder.size
            records += batch.builder.count
            topic = queue.partition.topic
            ids[topic] = topics[topic].id
            if batch.tries == 1:
                self.counts.queue_ms.add((now_s - batch.began_s) * 1000)
            else:
                self.counts.retries += batch.builder.count
        self._in_flight[broker] = self._in_flight.get(broker, 0) + 1
        self.counts.in_flight += 1
        self.counts.request_records.add(records)
        try:
            version = min(channel.version(PRODUCE), self._producer_identity.produce_version_max)
            if version >= _BY_ID and ZERO_UUID in ids.values():
                version = _BY_ID - 1
            request = produce_request(
                (batch for _, batch in taken),
                ids,
                self._rules,
                self._producer_identity.transactional_id,
            )
            if self._rules.acks:
                hear = partial(self._answered, broker, taken, ids, now_s)
                channel.post(request, self._rules.request_timeout_s, hear, version=version)
                return
            channel.send_unanswered(request)
        except RequestError as error:
            self._lost(broker, taken, error, unsure=False)
            return
        self._request_ended(broker, now_s)
        for queue, batch in taken:
            self._settle(queue, batch, NO_OFFSET, NO_TIMESTAMP)

    def _answered(
        self,
        broker: BrokerId,
        taken: Taken,
        ids: dict[str, Uuid],
        sent_s: float,
        message: Message | RequestError,
    ) -> None:
        if self._lookout.is_closed:
            return
        if isinstance(message, RequestError):
            self._lost(broker, taken, message, unsure=True)
            return
        assert isinstance(message, ProduceResponse)
        self._request_ended(broker, sent_s)
        # By topic id in version 13 or later, otherwise by name.
        told: dict[tuple[Uuid | str, int], PartitionProduceResponse] = {}
        for topic in message.responses:
            name = topic.name or topic.topic_id
            for one in topic.partition_responses:
                told[name, one.index] = one
        for queue, batch in taken:
            topic_name, index = queue.partition
            word = told.get((ids[topic_name], index)) or told.get((topic_name, index))
            if word is not None and not word.error_code:
                self._settle(queue, batch, word.base_offset, word.log_append_time_ms)
            else:
                self._refused(queue, batch, word, message)
        self.poke()

    def _refused(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        told: PartitionProduceResponse | None,
        message: ProduceResponse,
    ) -> None:
        """Handle the broker's error for a batch, or a response without a result for it."""
        code = ErrorCode.UNKNOWN_SERVER_ERROR if told is None else ErrorCode.of(told.error_code)
        error = broker_error(code, batch, told)
        batch.is_unsure = batch.is_unsure or may_have_appended(code, told)
        if code.refresh_metadata:
            leader = None if told is None else told.current_leader
            if leader is not None and leader.leader_id >= 0:
                nodes = [
                    BrokerView(BrokerId(one.node_id), one.host, one.port, one.rack)
                    for one in message.node_endpoints
                ]
                self._metadata.learn(
                    *queue.partition, leader.leader_id, leader.leader_epoch, *nodes
                )
            else:
                self._metadata.expire()
        first, transactional = queue.is_first(batch), self._rules.is_transactional
        match batch_outcome(code, batch, is_first=first, transactional=transactional):
            case BatchOutcome.HAD_ALREADY:
                self._settle(queue, batch, NO_OFFSET, NO_TIMESTAMP)
            case BatchOutcome.AGAIN:
                self._retry(queue, batch, error)
            case BatchOutcome.AGAIN_ANEW:
                queue.has_gap, batch.is_unsure = True, False
                self._retry(queue, batch, error)
            case BatchOutcome.SPLIT:
                self.counts.splits += 1
                queue.split(batch)
            case BatchOutcome.NEVER:
                self._give_up(queue, batch, error)

    def _lost(self, broker: BrokerId, taken: Taken, error: RequestError, *, unsure: bool) -> None:
        """Handle a request without a response: it may have been executed."""
        self._request_ended(broker, None)
        self._metadata.expire()
        for queue, batch in taken:
            batch.is_unsure = batch.is_unsure or unsure
            if error.retriable:
                self._retry(queue, batch, error)
            else:
                self._give_up(queue, batch, error)
        self.poke()

    def _request_ended(self, broker: BrokerId, sent_s: float | None) -> None:
        self._in_flight[broker] -= 1
        self.counts.in_flight -= 1
        if sent_s is not None:
            self.counts.latency_ms.add((self._clock.elapsed_s() - sent_s) * 1000)

    # Closing.

    def _retry(self, queue: PartitionQueue, batch: ProducerBatch, error: RequestError) -> None:
        now_s = self._clock.elapsed_s()
        late = now_s - batch.began_s >= self._rules.delivery_timeout_s
        if late or batch.tries > self._rules.retries:
            self._give_up(queue, batch, error)
            return
        batch.refusal = error
        batch.not_before_s = now_s + self._rules.backoff.pause_s(batch.tries)
        queue.put_back(batch)

    def _settle(
        self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, time_ms: int
    ) -> None:
        queue.remove(batch)
        queue.is_known = True
        batch.settle(base_offset, time_ms)
        self._accumulator.release(batch)
        self.counts.records += batch.builder.count
        self.counts.batch_bytes.add(batch.builder.size)

    def _give_up(self, queue: PartitionQueue, batch: ProducerBatch, error: RequestError) -> None:
        queue.remove(batch)
        if batch.sequence >= 0:
            queue.has_gap = True
        batch.fail(error)
        self._accumulator.release(batch)
        self.counts.errors += batch.builder.count
        self._producer_identity.lost(error, numbered=batch.sequence >= 0)
        self._failed(batch)

    def _give_up_waiting(self, error: RequestError) -> None:
        for queue in self._accumulator.queues.values():
            for batch in [*queue.waiting]:
                self._give_up(queue, batch, error)

    # Longer work.

    async def _connect(self, broker: BrokerView) -> None:
        try:
            await self._connections.to(broker)
        except RequestError:
            self._metadata.expire()

    async def _obtain(self) -> None:
        try:
            await self._producer_identity.obtain()
        except RequestError as error:
            self._give_up_waiting(error)
