"""The producer: records to topics, in order, once, and not lost without a word.

Invariant: `send` returns when a record is in the outbox, and what becomes of it is told by what it
returned. Leaving the producer's context waits until all records are settled. A record that failed
and about which nobody asked is told of by the next `flush` or by the end: nothing is lost in
silence.

The path of a record: a partition is chosen (`partitioners.py`), it joins a batch (`outbox.py`), the
batch is sent (`sender.py`).
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, Self

from ottla.client.cluster_view import TopicView
from ottla.client.connections import Connections
from ottla.client.metadata import Metadata
from ottla.client.options import connection_rules, metadata_rules, sender_rules
from ottla.client.outbox import Ack, Headers, Outbox, PendingBatch
from ottla.client.partitioners import KeyPartitioner, Partitioner, Partitions
from ottla.client.sender import Sender
from ottla.clock import Clock, SystemClock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.records import Compression
from ottla.settings import compression, producer
from ottla.settings.config import Config
from ottla.settings.producer import PRODUCER
from ottla.settings.resolution import client_config
from ottla.transport.channel import Disconnected, TimedOut
from ottla.transport.network import Connector, TcpNetwork

RECORD_OVERHEAD_BYTES: Final = 61 + 26
"""What a batch's header and the lengths in a record take at most."""

UNHEARD_MAX: Final = 1000
"""So many failures are remembered until somebody asks; the first of them is told anyway."""

NEVER_STARTED: Final = "the producer was not started: use `async with`"


class Producer:
    """Writes records; `async with` starts it, and ends it when all of them are settled."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        partitioner: Partitioner | None = None,
        network: Connector | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
        **arguments: object,
    ) -> None:
        """Take settings by Kafka's names, as `{"linger.ms": 5}`, or as `linger_ms=5`."""
        self._config = config = client_config(PRODUCER, settings, **arguments)
        self._network = network or TcpNetwork()
        self._clock = clock or SystemClock()
        self._chance = chance or random.random
        self._block_s = config[producer.MAX_BLOCK_MS] / 1000
        self._record_bytes_max = config[producer.MAX_REQUEST_SIZE]
        self._running: _Running | None = None
        self._given_up: list[PendingBatch] = []  # about which nobody asked, when they were
        self._partitioner: Partitioner = partitioner or KeyPartitioner(
            config[producer.BATCH_SIZE],
            self._chance,
            ignore_keys=config[producer.PARTITIONER_IGNORE_KEYS],
            adaptive=config[producer.PARTITIONER_ADAPTIVE_PARTITIONING_ENABLE],
        )
        self._choices: dict[str, tuple[TopicView, Partitions]] = {}

    async def __aenter__(self) -> Self:
        assert self._running is None, "a producer is started once"
        self._running = _Running(
            self._config,
            self._network,
            self._clock,
            self._chance,
            self._note_failed,
            self._note_closed,
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                await self.flush()
            finally:
                await self.close()
        else:
            await self.close()

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Ack:
        """Put a record into the outbox, waiting for room; await what is returned to know its fate.

        RequestError when the topic cannot be written to, or the record is too large.
        """
        running = self._started()
        if timestamp_ms is None:
            timestamp_ms = self._clock.now_ms()
        outbox = running.outbox
        where = self._partition(running, topic, key, value, partition)
        if where is None:
            await running.metadata.topic(topic, self._block_s)
            where = self._chosen(running, topic, key, value, partition)
        ack = outbox.add(where, timestamp_ms, key, value, headers)
        if ack is not None:
            return ack
        size = self._size(key, value, headers)
        deadline_s = self._clock.elapsed_s() + self._block_s
        while ack is None:
            # It is the first of a batch, and that may be elsewhere.
            where = self._chosen(running, topic, key, value, partition)
            ack = outbox.add(where, timestamp_ms, key, value, headers)
            if ack is None:
                await outbox.begin(where, size, max(0.0, deadline_s - self._clock.elapsed_s()))
                ack = outbox.add(where, timestamp_ms, key, value, headers)
        return ack

    async def send_many(
        self, topic: str, values: Iterable[bytes | None], *, key: bytes | None = None
    ) -> list[Ack]:
        """Put many records of one topic into the outbox."""
        return [await self.send(topic, value, key=key) for value in values]

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all records sent so far are settled.

        Raises the first failure about which nobody asked; TimedOut when it takes too long.
        """
        running = self._started()
        try:
            async with asyncio.timeout(timeout_s):
                await running.sender.flush()
        except TimeoutError as error:
            raise TimedOut(f"records are not settled after {timeout_s:g} s") from error
        given_up, self._given_up = self._given_up, []
        for batch in given_up:
            if batch.failure is not None and not batch.awaited:
                raise batch.failure

    async def close(self) -> None:
        """End at once: what is not settled fails."""
        running, self._running = self._running, None
        if running is not None:
            await running.close()

    async def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        known = await self._started().metadata.topic(topic, self._block_s)
        return sorted(known.partitions)

    def _started(self) -> "_Running":
        if self._running is None:
            raise Disconnected(NEVER_STARTED)
        return self._running

    def _partition(
        self,
        running: "_Running",
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
    ) -> TopicPartition | None:
        """Where a record goes; None while its topic is not known."""
        known = running.metadata.want(topic)
        if known is None or not known.partitions:
            return None
        if partition is None:
            choices = self._choices.get(topic)
            if choices is None or choices[0] is not known:
                led = (one.index for one in known.partitions.values() if one.leader >= 0)
                made = Partitions(len(known.partitions), tuple(sorted(led)))
                choices = self._choices[topic] = (known, made)
            partition = self._partitioner.choose(topic, key, value, choices[1])
        elif partition not in known.partitions:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic} has partitions 0 to {len(known.partitions) - 1}, not {partition}",
            )
        return TopicPartition(topic, PartitionIndex(partition))

    def _chosen(
        self,
        running: "_Running",
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
    ) -> TopicPartition:
        where = self._partition(running, topic, key, value, partition)
        if where is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is gone")
        return where

    def _size(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """What a record takes at most in a batch of its own."""
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        size += sum(10 + 4 * len(name) + len(text or b"") for name, text in headers)
        if size > self._record_bytes_max:
            raise RequestError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes is more than max.request.size={self._record_bytes_max}",
            )
        return size

    def _note_closed(self, batch: PendingBatch) -> None:
        self._partitioner.batch_closed(*batch.partition, batch.builder.size)

    def _note_failed(self, batch: PendingBatch) -> None:
        if not batch.awaited and len(self._given_up) < UNHEARD_MAX:
            self._given_up.append(batch)


class _Running:
    """The parts of a producer that runs."""

    def __init__(
        self,
        config: Config,
        network: Connector,
        clock: Clock,
        chance: Callable[[], float],
        failed: Callable[[PendingBatch], None],
        closed: Callable[[PendingBatch], None],
    ) -> None:
        self.connections = Connections(connection_rules(config, chance), network, clock, chance)
        self.metadata = Metadata(
            self.connections, metadata_rules(config, chance), clock, self._poke
        )
        self.outbox = Outbox(
            batch_bytes=config[producer.BATCH_SIZE],
            memory_bytes=config[producer.BUFFER_MEMORY],
            compression=Compression[config[producer.COMPRESSION_TYPE].upper()],
            level=_level(config),
            elapsed_s=clock.elapsed_s,
            filled=self._poke,
            closed=closed,
        )
        self.sender = Sender(
            self.outbox,
            self.metadata,
            self.connections,
            sender_rules(config, chance),
            clock,
            failed,
        )
        self._asking = asyncio.get_running_loop().create_task(self.metadata.run())

    def _poke(self) -> None:
        self.sender.poke()

    async def close(self) -> None:
        await self.sender.close(Disconnected("the producer was closed before this was written"))
        self._asking.cancel()
        with suppress(asyncio.CancelledError):
            await self._asking
        await self.connections.close()


def _level(config: Config) -> int | None:
    """The level of the codec that is used, if it was given."""
    for setting in compression.LEVELS:
        _, codec, _ = setting.name.split(".")
        if codec == config[producer.COMPRESSION_TYPE] and config.is_set(setting):
            return config[setting]
    return None
