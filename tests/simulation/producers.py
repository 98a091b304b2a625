"""Producers with and without an id, which retry a batch until they know its result."""

from collections import defaultdict
from random import Random

from ottla.errors import ErrorCode
from ottla.ids import Uuid
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.testing.simulation import Simulation
from simulation.connection import Gone, Speaker
from simulation.history import History, Kind, Place, Sent

KEYS = 6
ALL, LEADER = -1, 1
BY_ID = 13


class Producer:
    def __init__(
        self,
        world: Simulation,
        history: History,
        name: str,
        kinds: dict[str, Kind],
        *,
        acks: int = ALL,
        idempotent: bool = True,
    ) -> None:
        self.random = Random(f"{world.seed} {name}")
        self.name = name
        self.history = history
        self.speaker = Speaker(world, name)
        self.kinds = kinds
        self.topic_ids: dict[str, Uuid] = {}
        self._world = world
        self._acks = acks
        self._idempotent = idempotent
        self._id = -1
        self._sequences: dict[Place, int] = defaultdict(int)
        self._numbers: dict[Place, int] = defaultdict(int)

    async def run(self, until_s: float) -> None:
        """Produce until the given time; finish batches in progress."""
        while self._world.clock.elapsed_s() < until_s:
            await self.speaker.pause(0.3 * self.random.random())
            kinds = [kind for name, kind in self.kinds.items() if name in self.topic_ids]
            if not kinds:
                continue
            kind = self.random.choice([*kinds, *(one for one in kinds if not one.flushed)])
            await self.produce(kind, self.random.randrange(self.history.counts[kind.name]))

    async def produce(self, kind: Kind, index: int) -> None:
        """Send one batch until it is acknowledged."""
        place = (kind.name, index)
        self.history.partition(kind, index)
        now_ms = self._world.clock.now_ms()
        records: list[Sent] = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            key = f"k{self.random.randrange(KEYS)}".encode()
            records.append(Sent(self.name, self._numbers[place], key, now_ms))
            self._numbers[place] += 1
        while True:
            if self._idempotent and self._id < 0:
                await self._begin()
            data = self._batch(place, records)
            try:
                answer = await self._send(place, data)
            except Gone:
                self._note_repeat(place, records)
                await self.speaker.pause(0.05 + 0.3 * self.random.random())
                continue
            error = ErrorCode(answer.error_code)
            if error is ErrorCode.NONE:
                self._sequences[place] += len(records)
                now_s = self._world.clock.elapsed_s()
                self.history.ack(place, answer.base_offset, records, now_s)
                return
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not kind.flushed:
                self._id = -1  # earlier records are lost: start again
            elif error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                self._note_repeat(place, records)  # it may be in the log but not on the device
                await self.speaker.pause(0.5)
            else:
                self.history.wrong(f"{place}: {self.name} was told {error.name}")
                return

    def _note_repeat(self, place: Place, records: list[Sent]) -> None:
        """Record that a batch without an id was sent again: a duplicate is allowed."""
        if not self._idempotent:
            self.history.repeated |= {(place, record.value) for record in records}

    def forget(self, kind: Kind) -> None:
        """Reset the state of a deleted topic."""
        for place in [one for one in self._sequences if one[0] == kind.name]:
            del self._sequences[place]

    async def _begin(self) -> None:
        while True:
            try:
                answer = await self.speaker.ask(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
                    InitProducerIdResponse,
                )
            except Gone:
                await self.speaker.pause(0.3)
                continue
            if answer.error_code == ErrorCode.NONE:
                break
            await self.speaker.pause(0.3)
        self._id = answer.producer_id
        if self._id in self.history.producer_ids:
            self.history.wrong(f"the producer id {self._id} was given twice")
        self.history.producer_ids.add(self._id)
        self._sequences.clear()

    def _batch(self, place: Place, records: list[Sent]) -> bytes:
        compression = Random(records[0].number).choice((Compression.NONE, Compression.LZ4))
        builder = BatchBuilder(compression=compression)
        for record in records:
            builder.append(record.timestamp_ms, record.key, record.value)
        if not self._idempotent:
            return builder.build()
        return builder.build(
            producer_id=self._id, producer_epoch=0, base_sequence=self._sequences[place]
        )

    async def _send(self, place: Place, data: bytes) -> PartitionProduceResponse:
        version = self.random.choice((9, BY_ID))
        topic_id = self.topic_ids[place[0]]
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=place[0],
                    topic_id=topic_id,
                    partition_data=[PartitionProduceData(index=place[1], records=data)],
                )
            ],
        )
        response = await self.speaker.ask(request, ProduceResponse, version)
        return response.responses[0].partition_responses[0]
