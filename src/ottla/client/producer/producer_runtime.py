"""The parts of a running producer: record accumulator, sender, connections and metadata.

Invariant: after `close` there is no task and no connection, and every record is settled.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.client.loop_affinity import LoopAffinity
from ottla.client.network.config import metadata_config
from ottla.client.network.connections import ConnectionConfig, Connections
from ottla.client.network.coordinators import Coordinators
from ottla.client.network.metadata import Metadata
from ottla.client.partitioners import Partitioner
from ottla.client.producer.config import accumulator_config, sender_config, transaction_config
from ottla.client.producer.delivery import SenderConfig
from ottla.client.producer.identity import IdempotentIdentity, NoProducerIdentity, ProducerIdentity
from ottla.client.producer.partition_chooser import PartitionChooser
from ottla.client.producer.partition_load import PartitionLoad
from ottla.client.producer.producer_batch import Ack, ProducerBatch
from ottla.client.producer.record_accumulator import AccumulatorCallbacks, RecordAccumulator
from ottla.client.producer.sender import Sender
from ottla.client.producer.transactions import Transactions
from ottla.clock import Clock
from ottla.ids import TopicPartition
from ottla.records import OpenBatches
from ottla.settings import producer
from ottla.settings.config import Config
from ottla.transport.channel import Disconnected
from ottla.transport.network import Connector

TURN_BATCHES_MIN: Final = 4
TURN_BATCHES_MAX: Final = 12
"""The limits of the number of batches that are filled before the event loop gets its turn."""

TURN_BYTES: Final = 1 << 20
"""The bytes encoded in a turn, as the accumulator counts them: one to five milliseconds."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a client takes from outside."""

    network: Connector
    clock: Clock
    random: Callable[[], float]


class ProducerRuntime:
    """The parts of a running producer."""

    def __init__(
        self,
        config: Config,
        connecting: ConnectionConfig,
        world: Environment,
        partitioner: Partitioner,
        failed: Callable[[ProducerBatch], None],
    ) -> None:
        self.home = LoopAffinity("producer")
        clock, random = world.clock, world.random
        self.connections = Connections(connecting, world.network, clock, random)
        self.metadata = Metadata(
            self.connections, metadata_config(config, random), clock, self._metadata_changed
        )
        self.routes = PartitionChooser(self.metadata, partitioner)
        # `send` appends to them with one call instead of calling the partitioner.
        self.open_batches: OpenBatches[Ack] = OpenBatches(Ack, self.routes.hashes_keys)

        def closed(batch: ProducerBatch) -> None:
            self.open_batches.discard(*batch.partition)
            partitioner.batch_closed(*batch.partition, batch.builder.size)

        rules = sender_config(config, random)
        self.accumulator = RecordAccumulator(
            accumulator_config(config), clock.elapsed_s, AccumulatorCallbacks(self._poke, closed)
        )
        self.transactions: Transactions | None = None
        if (transactional := transaction_config(config, random)) is not None:
            coordinators = Coordinators(
                self.metadata, self.connections, clock, rules.backoff, rules.request_timeout_s
            )
            self.transactions = Transactions(transactional, coordinators, clock, self._renumber)
        self.sender = Sender(
            self.accumulator,
            self.metadata,
            self.connections,
            self.transactions or self._producer_identity(rules, clock),
            rules,
            clock,
            _load(config, partitioner),
            failed,
        )
        self._asking = asyncio.get_running_loop().create_task(self.metadata.run())

    def keep_open(self, where: TopicPartition, key: bytes | None, partition: int | None) -> None:
        """Append the next records like this one to the open batch that it joined."""
        batch = self.accumulator.queues[where].open
        if batch is not None:
            sticky = partition is None and self.routes.is_sticky(key)
            count = self.routes.count(where.topic)
            self.open_batches.add(*where, count, batch.builder, batch, sticky)

    def turn_is_over(self, topic: str) -> bool:
        """Whether a caller that fills batches without a pause should yield to the sender now.

        While the brokers are busy, it fills two batches of each partition first: a request with a
        batch of each partition costs little more than one with a single batch.
        """
        accumulator, batches = self.accumulator, 1
        if self.sender.counts.in_flight:
            batches = min(max(2 * self.routes.count(topic), TURN_BATCHES_MIN), TURN_BATCHES_MAX)
        return accumulator.filled >= batches or accumulator.encoded >= TURN_BYTES

    async def end_turn(self) -> None:
        """Give the event loop its turn, in which the sender sends full batches."""
        self.accumulator.filled = self.accumulator.encoded = 0
        await asyncio.sleep(0)

    def _metadata_changed(self) -> None:
        self.open_batches.clear()  # keys may go to other partitions now
        self.sender.poke()

    def _poke(self) -> None:
        self.sender.poke()

    def _renumber(self) -> None:
        for queue in self.accumulator.queues.values():
            queue.forget_identity()

    def _producer_identity(self, rules: SenderConfig, clock: Clock) -> ProducerIdentity:
        if rules.is_idempotent:
            return IdempotentIdentity(self.metadata, clock, rules.backoff, rules.request_timeout_s)
        return NoProducerIdentity()

    async def close(self) -> None:
        """Close at once; records that are not settled fail."""
        if self.transactions is not None:
            self.transactions.close()
        await self.sender.close(
            Disconnected("the producer was closed before this record was written")
        )
        self._asking.cancel()
        with suppress(asyncio.CancelledError):
            await self._asking
        await self.connections.close()


def _load(config: Config, partitioner: Partitioner) -> PartitionLoad | None:
    if not config[producer.PARTITIONER_ADAPTIVE_PARTITIONING_ENABLE]:
        return None
    timeout_s = config[producer.PARTITIONER_AVAILABILITY_TIMEOUT_MS] / 1000
    return PartitionLoad(partitioner, timeout_s)
