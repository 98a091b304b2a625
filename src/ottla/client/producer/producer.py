"""The producer: writes records in order, exactly once per partition, and reports every failure.

Invariant: `send` returns when a record is in the record accumulator; its result has the offset or
the error. Leaving the context waits until all records are settled. An error that nobody has seen is
raised by the next `flush` or at the end.

A record is serialized (`serializers/`), assigned to a partition (`partitioners.py`,
`partition_chooser.py`), added to a batch (`record_accumulator.py`), and the batch is sent
(`sender.py`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any, Final, Generic, Self

from ottla.client.arguments import seconds_of, timestamp_of
from ottla.client.columns.arrow import RowColumns
from ottla.client.key_value import K, V
from ottla.client.lifecycle.shutdown import end_all, long_close_logged
from ottla.client.loop_affinity import AsyncWith, not_running, runs_already
from ottla.client.metrics.producer_metrics import ProducerMetrics
from ottla.client.network.cluster_view import ClusterView
from ottla.client.network.config import connection_config
from ottla.client.network.tokens import TokenFunction
from ottla.client.partitioners import Choice, KeyPartitioner, Partitioner, partitioner_of
from ottla.client.producer.arrow_send import ArrowSend
from ottla.client.producer.producer_batch import Ack, ProducerBatch
from ottla.client.producer.producer_runtime import Environment, ProducerRuntime
from ottla.client.producer.record_accumulator import Headers
from ottla.client.producer.row_ack import RowsAck
from ottla.client.producer.transaction import Transaction
from ottla.client.serializers.serde import (
    Serde,
    Serializer,
    check_parts,
    serialize,
    serializer_of,
)
from ottla.clock import Clock, SystemClock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.records import HEADER_SIZE, RECORD_OVERHEAD_MAX
from ottla.settings import producer
from ottla.settings.config_parser import client_config
from ottla.settings.derived import delivery_timeout_ms
from ottla.settings.producer import PRODUCER
from ottla.transport.channel import TimedOut
from ottla.transport.network import Connector, TcpNetwork

RECORD_OVERHEAD_BYTES: Final = HEADER_SIZE + RECORD_OVERHEAD_MAX
"""The maximum size of a batch header and the lengths in a record."""

UNHEARD_MAX: Final = 1000
"""The number of unseen errors that are remembered; the first of them is always kept."""


def flushes_after(kind: type[BaseException] | None) -> bool:
    """Whether to wait for sent records: not after an interrupt or a cancellation."""
    return kind is None or issubclass(kind, Exception)


class Producer(AsyncWith, Generic[K, V]):
    """Writes records; `async with` starts it, and closes it when all of them are settled.

    So it does if the block raises, unless it was cancelled or interrupted: then it closes at once.
    Keys and values are bytes, or what `key_serializer` and `value_serializer` accept.
    """

    on_failed: Callable[[RequestError, int], object] | None = None
    """Called when a batch fails whose results nobody awaits: its error and number of records.

    `flush` and the end of the block then do not raise that error. Not called in transactions.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: Serde[K] | Serializer[K] | None = None,
        value_serializer: Serde[V] | Serializer[V] | None = None,
        partitioner: Partitioner | Choice | None = None,
        network: Connector | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        token: TokenFunction | None = None,
        **arguments: object,
    ) -> None:
        """Take settings by Kafka's names, as `{"linger.ms": 5}` or as `linger_ms=5`.

        `token` returns OAUTHBEARER tokens.
        """
        self._config = config = client_config(PRODUCER, settings, **arguments)
        self._key = None if key_serializer is None else serializer_of(key_serializer)
        self._value = None if value_serializer is None else serializer_of(value_serializer)
        self._clock = clock or SystemClock()
        self._now_ms = self._clock.now_ms
        self._world = Environment(network or TcpNetwork(), self._clock, random or Random().random)
        self._connection_rules = connection_config(
            config, self._world.random, token=token, clock=self._clock
        )
        self._block_s = config[producer.MAX_BLOCK_MS] / 1000
        self._record_bytes_max = config[producer.MAX_REQUEST_SIZE]
        self._running: ProducerRuntime | None = None
        self._given_up: list[ProducerBatch] = []  # failed batches whose result nobody awaited
        self._partitioner: Partitioner = (
            KeyPartitioner(
                config[producer.BATCH_SIZE],
                self._world.random,
                ignore_keys=config[producer.PARTITIONER_IGNORE_KEYS],
                adaptive=config[producer.PARTITIONER_ADAPTIVE_PARTITIONING_ENABLE],
            )
            if partitioner is None
            else partitioner_of(partitioner)
        )

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise runs_already("producer")
        self._running = ProducerRuntime(
            self._config,
            self._connection_rules,
            self._world,
            self._partitioner,
            self._note_failed,
        )
        if (transactions := self._running.transactions) is not None:
            try:
                await transactions.start()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        # Records sent in transactions are settled with them.
        running = self._running
        try:
            if running is not None and running.transactions is None and flushes_after(kind):
                with nullcontext() if kind is None else self._long_close_logged(running):
                    await self.flush()
        except RequestError as lost:
            if error is None:
                raise
            error.add_note(f"some of the records that were sent before were not written: {lost}")
        finally:
            await self.close()

    async def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers | None = (),
        timestamp_ms: int | None = None,
    ) -> Ack:
        """Add a record to the buffer, waiting for room; await the result for its offset.

        Raises RequestError if the topic cannot be written to or the record is too large.
        """
        running = self._running
        if running is None:
            raise not_running("producer")
        if running.transactions is not None:
            running.transactions.check()
        # Without serializers they are bytes; the batch refuses other types.
        key_data: Any = key
        value_data: Any = value
        if self._key is not None:
            key_data = serialize(self._key, topic, "key", key)
        if self._value is not None:
            value_data = serialize(self._value, topic, "value", value)
        timestamp_ms = self._now_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
        try:
            ack = running.open_batches.append(
                topic, timestamp_ms, key_data, value_data, partition, headers
            )
        except (TypeError, AttributeError):
            check_parts(key_data, value_data, headers or ())  # its error names the part
            raise
        if ack is not None:
            return ack
        if headers is None:
            headers = ()
        ack, partition = self._add_at_once(
            running, topic, key_data, value_data, partition, headers, timestamp_ms
        )
        if ack is not None:
            return ack
        return await self._begin_with(
            running, topic, key_data, value_data, partition, headers, timestamp_ms
        )

    async def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        *,
        key: K | None = None,
        partition: int | None = None,
    ) -> list[Ack]:
        """Add many records of one topic with one key to the buffer; faster than one by one.

        If a value cannot be serialized, nothing is sent.
        """
        running = self._started()
        if running.transactions is not None:
            running.transactions.check()
        key_data: Any = key
        data: list[Any] = [*values]
        if self._key is not None:
            key_data = serialize(self._key, topic, "key", key)
        if (serializer := self._value) is not None:
            data = [serialize(serializer, topic, "value", value) for value in data]
        acks: list[Ack] = []
        while len(acks) < len(data):
            value, now_ms = data[len(acks)], self._clock.now_ms()
            where = running.routes.find(topic, key_data, value, partition)
            if where is not None:
                if running.routes.is_steady(partition):
                    acks += running.accumulator.extend(where, now_ms, key_data, data, len(acks))
                    if len(acks) == len(data):
                        break
                    value = data[len(acks)]
                ack = running.accumulator.add(where, now_ms, key_data, value, ())
                if ack is not None:
                    acks.append(ack)
                    continue
            kept = running.routes.kept(where, partition)
            acks.append(await self._begin_with(running, topic, key_data, value, kept, (), now_ms))
        return acks

    async def send_arrow(
        self,
        topic: str,
        batch: Any,
        *,
        key: str | None = "key",
        value: str | None = "value",
        headers: str | None = None,
        timestamp: str | None = None,
        partition: int | str | None = None,
    ) -> RowsAck:
        """Add the rows of an Arrow record batch or table to the buffer, waiting for room.

        The result covers all rows: `WrittenRows(topic, partition, offset, rows)` per partition, or
        RowsNotWritten. `key`, `value`, `headers` and `timestamp` name columns; None means no keys,
        null values, no headers, the current time. Keys and values are bytes or strings and are sent
        without serializers. Headers are lists of structs of key and value, or maps. `partition` is
        a number or names a column of numbers. Without it rows are partitioned by key, and rows
        without a key stay together per batch, as the partitioner decides. An own partitioner is
        called for each row, which is slow.

        Raises RequestError, and sends nothing, if the columns are not valid or a row is too large.
        """
        sending = ArrowSend(
            self._started(), self._clock, topic, self._block_s, self._record_bytes_max
        )
        return await sending.send(batch, RowColumns(key, value, headers, timestamp), partition)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all records sent so far are settled.

        Raises the first error that nobody has seen; raises TimedOut at the timeout.
        """
        running = self._started()
        limit_s = None if timeout_s is None else seconds_of(timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                await running.sender.flush()
        except TimeoutError as error:
            raise TimedOut(f"flush did not finish in {timeout_s:g} s") from error
        if running.transactions is not None and running.transactions.failure is not None:
            raise running.transactions.failure
        given_up, self._given_up = self._given_up, []
        for batch in given_up:
            if batch.failure is not None and not batch.awaited:
                raise batch.failure

    def transaction(self) -> Transaction:
        """Return a transaction for `async with`: its records become visible together or not at all.

        Requires transactional.id. A producer has one transaction at a time.
        """
        running = self._started()
        if running.transactions is None:
            raise RequestError(
                ErrorCode.INVALID_TXN_STATE, "transactions require the setting transactional.id"
            )
        return Transaction(running.transactions, running.sender.flush)

    async def close(self) -> None:
        """Close at once; records that are not settled fail."""
        running, self._running = self._running, None
        if running is not None:
            await end_all(running.close())

    async def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        choices = await self._started().routes.choices(topic, self._block_s)
        return [*range(choices.count)]

    async def refresh_metadata(self, *, timeout_s: float | None = None) -> ClusterView:
        """Request metadata now; raises RequestError without a response, after max.block.ms."""
        limit_s = self._block_s if timeout_s is None else seconds_of(timeout_s)
        return await self._started().metadata.refreshed(limit_s)

    def check_size(self, value_bytes: int) -> None:
        """Raise RequestError if `send` would refuse a value of this size: see max.request.size."""
        size = RECORD_OVERHEAD_BYTES + value_bytes
        if size > self._record_bytes_max:
            raise self._too_large(size)

    def metrics(self) -> ProducerMetrics:
        """Return the metrics."""
        running = self._started()
        accumulator = running.accumulator
        return running.sender.counts.snapshot(
            memory=accumulator.rules.memory_bytes,
            memory_left=accumulator.memory_left,
            waiting=accumulator.waiting_calls,
        )

    def _long_close_logged(self, running: ProducerRuntime) -> AbstractContextManager[None]:
        def count() -> int:
            return sum(batch.builder.count for batch in running.accumulator.unsettled())

        timeout_s = delivery_timeout_ms(self._config) / 1000
        return long_close_logged(count, timeout_s, "not acknowledged (delivery.timeout.ms)")

    def _started(self) -> ProducerRuntime:
        if self._running is None:
            raise not_running("producer")
        self._running.home.check()
        return self._running

    def _add_at_once(
        self,
        running: ProducerRuntime,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> tuple[Ack | None, int | None]:
        """Add a record; the first result is None if that has to wait.

        The second one is the partition to pass to `_begin_with` then.
        """
        routes, accumulator = running.routes, running.accumulator
        where = routes.find(topic, key, value, partition)
        if where is not None and accumulator.has_open(where):
            ack = accumulator.add(where, timestamp_ms, key, value, headers)
            if ack is not None:
                running.keep_open(where, key, partition)
                return ack, partition
            # The batch is full, so it may be in another partition than chosen before.
            partition = routes.kept(where, partition)
            where = routes.find(topic, key, value, partition)
        if where is None:
            return None, partition
        ack = self._begin_at_once(running, where, key, value, headers, timestamp_ms)
        if ack is not None and accumulator.filled:  # the next records follow without a pause
            running.keep_open(where, key, partition)
        return ack, routes.kept(where, partition)

    def _begin_at_once(
        self,
        running: ProducerRuntime,
        where: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> Ack | None:
        """Open a batch for a record of a partition that has none; None if that has to wait."""
        accumulator = running.accumulator
        if running.transactions is not None or accumulator.has_open(where):
            return None
        if accumulator.filled and running.turn_is_over(where.topic):
            return None
        running.home.check()
        memory = accumulator.reserve_at_once(self._size(key, value, headers))
        if memory is None:
            return None
        running.metadata.want(where.topic)
        accumulator.begin(where, memory)
        return accumulator.add(where, timestamp_ms, key, value, headers)

    async def _begin_with(
        self,
        running: ProducerRuntime,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> Ack:
        """Add a record for which there is no open batch with room, or no known topic."""
        running.home.check()
        size = self._size(key, value, headers)
        deadline_s = self._clock.elapsed_s() + self._block_s
        transactions = running.transactions
        number = None if transactions is None else transactions.check()
        if running.accumulator.filled and running.turn_is_over(topic):
            await running.end_turn()
        while True:
            # It opens a batch, which may be in another partition than chosen before.
            left_s = max(0.0, deadline_s - self._clock.elapsed_s())
            where = await running.routes.found(topic, key, value, partition, left_s)
            partition = running.routes.kept(where, partition)
            if transactions is not None:
                transactions.check(number)
            ack = running.accumulator.add(where, timestamp_ms, key, value, headers)
            if ack is not None:
                return ack
            left_s = max(0.0, deadline_s - self._clock.elapsed_s())
            memory = await running.accumulator.reserve(size, left_s)
            try:
                if transactions is not None:
                    transactions.check(number)
            except RequestError:
                running.accumulator.give_back(memory)
                raise
            running.accumulator.begin(where, memory)
            ack = running.accumulator.add(where, timestamp_ms, key, value, headers)
            if ack is not None:
                return ack

    def _size(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """Return the maximum size of a record in a batch of its own; raises TypeError."""
        check_parts(key, value, headers)
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        if headers:
            size += sum(10 + 4 * len(name) + len(text or b"") for name, text in headers)
        if size > self._record_bytes_max:
            raise self._too_large(size)
        return size

    def _too_large(self, size: int) -> RequestError:
        return RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record of {size} bytes exceeds max.request.size={self._record_bytes_max}: raise "
            "max.request.size of the producer, and max.message.bytes of the topic",
        )

    def _note_failed(self, batch: ProducerBatch) -> None:
        running = self._running
        if running is not None and running.transactions is not None:
            return  # the end of the transaction reports it
        if batch.awaited:
            return
        if self.on_failed is None:
            if len(self._given_up) < UNHEARD_MAX:
                self._given_up.append(batch)
        elif batch.failure is not None:
            self.on_failed(batch.failure, batch.builder.count)
