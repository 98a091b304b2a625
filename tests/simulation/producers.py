"""Producers with and without an id, which retry batches until they know their results.

A producer with an id has up to five batches in flight, as Kafka's has.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
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
IN_FLIGHT_MAX = 5
ALL, LEADER = -1, 1
BY_ID = 13


@dataclass
class Batch:
    """A batch that is not acknowledged yet."""

    records: list[Sent]
    sequence: int = -1
    may_be_stored: bool = False  # it was sent before, and not acknowledged


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
            index = self.random.randrange(self.history.counts[kind.name])
            in_flight = self.random.choice((1, 1, IN_FLIGHT_MAX)) if self._idempotent else 1
            await self.produce(kind, index, in_flight)

    async def produce(self, kind: Kind, index: int, in_flight: int = 1) -> None:
        """Send batches, all of them in flight at once, until each is acknowledged."""
        place = (kind.name, index)
        self.history.partition(kind, index)
        waiting = [Batch(self._new_records(place)) for _ in range(in_flight)]
        if self._id >= 0:
            self._number(place, waiting)
        while True:
            if self._idempotent and self._id < 0:
                await self._begin()
                self._number(place, waiting)
            answers = await self._send(place, waiting)
            is_broken = len(answers) < len(waiting)
            waiting = self._not_acknowledged(kind, place, waiting, answers)
            if not waiting:
                return
            if self._id >= 0 or not self._idempotent:
                pause_s = 0.05 + 0.3 * self.random.random() if is_broken else 0.5
                await self.speaker.pause(pause_s)

    def _new_records(self, place: Place) -> list[Sent]:
        now_ms = self._world.clock.now_ms()
        records: list[Sent] = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            key = f"k{self.random.randrange(KEYS)}".encode()
            records.append(Sent(self.name, self._numbers[place], key, now_ms))
            self._numbers[place] += 1
        return records

    def _number(self, place: Place, batches: Sequence[Batch]) -> None:
        """Give each batch its sequence number."""
        for batch in batches:
            batch.sequence = self._sequences[place]
            self._sequences[place] += len(batch.records)

    def _not_acknowledged(
        self,
        kind: Kind,
        place: Place,
        sent: Sequence[Batch],
        answers: Sequence[PartitionProduceResponse],
    ) -> list[Batch]:
        """Return the batches to send again, in their order.

        As in Kafka, a broker that restarts knows only the last batch of a producer. An older one
        that was in flight with it is out of sequence then, and stays without an acknowledgement.
        """
        again: list[Batch] = []
        forgotten: list[Batch] = []
        for batch, answer in zip(sent, answers, strict=False):
            error = ErrorCode(answer.error_code)
            if error is ErrorCode.NONE:
                forgotten.clear()
            elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and again:
                again.append(batch)  # the one before it is missing
            elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.may_be_stored:
                forgotten.append(batch)
            elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not kind.flushed:
                self._id = -1  # earlier records are lost: start again
                again.append(batch)
            elif error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                self._note_repeat(place, batch)  # it may be in the log, not on the device
                again.append(batch)
            else:
                self.history.wrong(f"{place}: {self.name} was told {error.name}")
        for batch in sent[len(answers) :]:
            self._note_repeat(place, batch)
            again.append(batch)
        if forgotten and len(answers) == len(sent):
            if kind.flushed:
                self.history.wrong(f"{place}: {self.name} lost its place at {forgotten[0]}")
                return again
            self._id = -1  # earlier records are lost: start again
        return [*forgotten, *again]

    def _note_repeat(self, place: Place, batch: Batch) -> None:
        """Record that a batch is sent again: without an id, a duplicate is allowed."""
        batch.may_be_stored = True
        if not self._idempotent:
            self.history.repeated |= {(place, record.value) for record in batch.records}

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

    def _encoded(self, batch: Batch) -> bytes:
        records = batch.records
        compression = Random(records[0].number).choice((Compression.NONE, Compression.LZ4))
        builder = BatchBuilder(compression=compression)
        for record in records:
            builder.append(record.timestamp_ms, record.key, record.value)
        if not self._idempotent:
            return builder.build()
        return builder.build(producer_id=self._id, producer_epoch=0, base_sequence=batch.sequence)

    async def _send(self, place: Place, batches: Sequence[Batch]) -> list[PartitionProduceResponse]:
        """Send each batch in a request; return the responses until the connection broke.

        An acknowledgement is noted when it arrives: a power failure may come before the next one.
        """
        version = self.random.choice((9, BY_ID))
        topic_id = self.topic_ids[place[0]]
        requests = [
            ProduceRequest(
                acks=self._acks,
                timeout_ms=5000,
                topic_data=[
                    TopicProduceData(
                        name=place[0],
                        topic_id=topic_id,
                        partition_data=[
                            PartitionProduceData(index=place[1], records=self._encoded(batch))
                        ],
                    )
                ],
            )
            for batch in batches
        ]

        def note(number: int, response: ProduceResponse) -> None:
            one, now_s = _only(response), self._world.clock.elapsed_s()
            if one.error_code == ErrorCode.NONE:
                self.history.ack(place, one.base_offset, batches[number].records, now_s)

        responses = await self.speaker.ask_all(requests, ProduceResponse, version, on_arrival=note)
        return [_only(one) for one in responses]


def _only(response: ProduceResponse) -> PartitionProduceResponse:
    return response.responses[0].partition_responses[0]
