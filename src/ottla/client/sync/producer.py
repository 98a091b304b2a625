"""The synchronous producer.

Invariant: a record is serialized in the sending thread, which gets serialization errors at once.
Other errors are reported by the result of `send` or by the next `flush`. The producer is
thread-safe; records of each thread keep their order.

A record is serialized here and passed to the event loop (`send_queue.py`); from there it takes the
path of the asynchronous producer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, Self

from ottla.client.arguments import timestamp_of
from ottla.client.key_value import K, V
from ottla.client.lifecycle.shutdown import long_close_logged
from ottla.client.network.tokens import TokenFunction
from ottla.client.partitioners import Choice, Partitioner
from ottla.client.producer.producer import Producer as AsyncProducer
from ottla.client.producer.producer import flushes_after
from ottla.client.producer.producer_batch import Ack as AsyncAck
from ottla.client.producer.record_accumulator import Headers
from ottla.client.producer.row_ack import RowsAck as AsyncRowsAck
from ottla.client.producer.row_ack import WrittenRows
from ottla.client.serializers.serde import (
    Serde,
    Serializer,
    check_parts,
    serialize,
    serializer_of,
)
from ottla.client.sync.portal import Portal
from ottla.client.sync.send_queue import Ack, SendQueue, reached
from ottla.client.sync.sync_facade import SyncFacade, calls, waits
from ottla.client.sync.transaction import Transaction
from ottla.clock import Clock, SystemClock
from ottla.records import QueuedRecord
from ottla.settings import producer
from ottla.transport.failures import NotRunning
from ottla.transport.network import Connector

HANDOVER_BYTES_MAX: Final = 4 << 20
"""Enough for what a thread sends until the loop gets its turn, which takes 5 ms."""

NOT_RUNNING: Final = (
    "the producer is not running",
    "use `with`, which starts it and closes it at the end",
)


class RowsAck:
    """The result of rows: `result()` waits for their offsets or raises the error.

    Invariant: a known result is returned without the loop, which may be closed.
    """

    __slots__ = ("_behind", "_portal")

    def __init__(self, portal: Portal, behind: AsyncRowsAck) -> None:
        self._portal = portal
        self._behind = behind

    def result(self, timeout_s: float | None = None) -> list[WrittenRows]:
        """Wait for the result; raises TimedOut, after which it may be called again."""
        if not self._behind.done:
            return self._portal.run(self._outcome(), timeout_s)
        try:
            self._outcome().send(None)
        except StopIteration as known:
            return known.value
        raise AssertionError("a settled record needs no wait")

    def done(self) -> bool:
        """Whether the result of all rows is known."""
        return self._behind.done

    async def _outcome(self) -> list[WrittenRows]:
        return await self._behind


class _Behind(AsyncProducer[bytes, bytes]):
    """The asynchronous producer, of bytes."""

    # The record that has to wait, and its partition.
    _kept: tuple[QueuedRecord, int | None] | None = None

    @property
    def block_s(self) -> float:
        return self._block_s

    @property
    def memory_bytes(self) -> int:
        return self._config[producer.BUFFER_MEMORY]

    def take_many(self, entries: "deque[Ack | asyncio.Future[None]]") -> int:
        running = self._running
        if running is None or running.transactions is not None:
            return 0
        return running.open_batches.take(entries)

    def take_at_once(self, record: QueuedRecord) -> AsyncAck | None:
        key, value, partition = record.key, record.value, record.partition
        running = self._started()
        if running.transactions is not None:
            running.transactions.check()
        ack, partition = self._add_at_once(
            running, record.topic, key, value, partition, record.headers, record.timestamp
        )
        if ack is None:
            self._kept = (record, partition)
        return ack

    async def take(self, record: QueuedRecord) -> AsyncAck:
        partition = record.partition
        if self._kept is not None and self._kept[0] is record:
            partition = self._kept[1]
        self._kept = None
        return await self._begin_with(
            self._started(),
            record.topic,
            record.key,
            record.value,
            partition,
            record.headers,
            record.timestamp,
        )


class Producer(SyncFacade[_Behind], Generic[K, V]):
    """Writes records; `with` starts it, and closes it when all of them are settled.

    So it does if the block raises, unless it was interrupted: then it closes at once. Keys and
    values are bytes, or what `key_serializer` and `value_serializer` accept.
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

        The partitioner and `token`, which returns OAUTHBEARER tokens, are called in the producer's
        own thread.
        """
        self._key = None if key_serializer is None else serializer_of(key_serializer)
        self._value = None if value_serializer is None else serializer_of(value_serializer)
        clock = clock or SystemClock()
        self._clock = clock
        self._now_ms = clock.now_ms
        behind = _Behind(
            settings,
            key_serializer=None,
            value_serializer=None,
            partitioner=partitioner,
            network=network,
            clock=clock,
            random=random,
            token=token,
            **arguments,
        )
        super().__init__(behind)
        self._handover: SendQueue | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        behind = self._behind
        bytes_max = min(HANDOVER_BYTES_MAX, behind.memory_bytes)
        try:
            self._handover = SendQueue(self._portal, behind, self._clock, bytes_max, behind.block_s)
        except BaseException:  # an interrupt
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        handover = self._handover

        async def ended() -> None:
            # Records sent in transactions are settled with them.
            if handover is None:  # an interrupted close has started to close it
                await self._behind.close()
                return
            try:
                if flushes_after(kind):
                    with long_close_logged(
                        handover.count, handover.wait_s_max, "not sent yet (max.block.ms)"
                    ):
                        await handover.passed()
                await handover.close()
            finally:
                await self._behind.__aexit__(kind, error, None)
            if kind is None:
                handover.raise_unheard()

        self._end(ended)

    def close(self) -> None:
        """Close at once; records that are not settled fail."""
        handover = self._handover

        async def ended() -> None:
            try:
                if handover is not None:
                    await handover.close()
            finally:
                await self._behind.close()

        with suppress(NotRunning):  # another thread has closed it
            self._end(ended)

    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers | None = (),
        timestamp_ms: int | None = None,
    ) -> Ack:
        """Queue a record, waiting for room; the result has its offset or its error.

        Only errors of the value or key itself are raised here. An unwritable topic or a too large
        record is reported by `result()`, or by the next `flush()` if nobody asked.
        """
        handover = self._handover
        if handover is None:
            raise NotRunning(*NOT_RUNNING)
        key_data: Any = key
        value_data: Any = value
        if self._key is not None:
            key_data = serialize(self._key, topic, "key", key)
        if self._value is not None:
            value_data = serialize(self._value, topic, "value", value)
        timestamp_ms = self._now_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
        if headers:  # the producer's thread could only report it later
            check_parts(None, None, headers)
        ack = handover.give_at_once(topic, key_data, value_data, partition, headers, timestamp_ms)
        if ack is not None:
            return ack
        if type(key_data) is not bytes and key_data is not None:
            key_data = _copied(key_data, "key")
        if type(value_data) is not bytes and value_data is not None:
            value_data = _copied(value_data, "value")
        parts = (*headers,) if headers else ()
        return handover.give(
            Ack(handover, topic, key_data, value_data, partition, parts, timestamp_ms)
        )

    def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        *,
        key: K | None = None,
        partition: int | None = None,
    ) -> list[Ack]:
        """Queue many records of one topic with one key; faster than one by one.

        If a value cannot be serialized, nothing is sent. Unlike `send`, it waits until the producer
        has the records and raises errors of the topic.
        """
        handover = self._given()
        key_data: Any = key
        data: list[Any] = [*values]
        if self._key is not None:
            key_data = serialize(self._key, topic, "key", key)
        if (serializer := self._value) is not None:
            data = [serialize(serializer, topic, "value", value) for value in data]

        async def sent() -> list[AsyncAck]:
            await handover.passed()
            return await self._behind.send_many(topic, data, key=key_data, partition=partition)

        return [reached(handover, topic, ack) for ack in self._portal.run(sent())]

    def send_arrow(
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
        """Queue the rows of an Arrow record batch or table, waiting for room.

        The parameters are those of the asynchronous producer. Unlike `send`, it waits until the
        producer has the rows; `result()` waits until the brokers have them.

        Raises RequestError, and sends nothing, if the columns are not valid or a row is too large.
        """
        handover = self._given()

        async def sent() -> AsyncRowsAck:
            await handover.passed()
            return await self._behind.send_arrow(
                topic,
                batch,
                key=key,
                value=value,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
            )

        return RowsAck(self._portal, self._portal.run(sent()))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all records sent so far are settled.

        Raises the first error that nobody has seen; raises TimedOut at the timeout.
        """
        handover = self._given()

        async def flushed() -> None:
            await handover.passed()
            await self._behind.flush()
            handover.raise_unheard()

        self._portal.run(flushed(), timeout_s)

    def transaction(self) -> Transaction:
        """Return a transaction for `with`: its records become visible together or not at all.

        Requires transactional.id. A producer has one transaction at a time; threads that share a
        producer send into the same one.
        """
        handover = self._given()
        return Transaction(self._portal, handover, self._portal.call(self._behind.transaction))

    partitions = waits(AsyncProducer[Any, Any].partitions)
    metrics = calls(AsyncProducer[Any, Any].metrics)
    refresh_metadata = waits(AsyncProducer[Any, Any].refresh_metadata)
    check_size = calls(AsyncProducer[Any, Any].check_size)

    def _end(self, ending: Callable[[], Any]) -> None:
        handover, self._handover = self._handover, None
        if handover is not None and handover.portal.is_here:
            handover.shut()
        self._shut(ending)

    def _given(self) -> SendQueue:
        if self._handover is None:
            raise NotRunning(*NOT_RUNNING)
        return self._handover


def _copied(data: Any, part: str) -> bytes:
    """Copy a bytes-like object, which its owner may change later."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)  # pyright: ignore[reportUnknownArgumentType]
    kind = type(data).__name__
    raise TypeError(f"a {part} must be bytes, not {kind}: give the producer a {part}_serializer")
