"""What the services have in common: reading, retries after a delay, parking, and no outcome twice.

Invariant: the offset of a record is committed only after everything that its handling has written
is acknowledged. So a service that was killed reads a record again, but never loses one. A record
has one outcome: it is in one of the topics of outcomes, or in the parking topic, and there once. A
service knows the earlier outcomes, because it reads those topics when it starts.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from messaging.topics import (
    CORRELATION_ID,
    DELAYS_S,
    Headers,
    Refused,
    Retry,
    after_failure,
    header,
    parking_topic,
    retry_topic,
)
from ottla import Consumer, Producer, Record

POLL_S: Final = 1.0
BATCH_RECORDS_MAX: Final = 100
"""So many records are handled at the same time."""

Request = Record[bytes, bytes]


@dataclass(slots=True)
class Counts:
    """What a service has done, over all its starts."""

    handled: int = 0
    retried: int = 0
    parked: int = 0
    restarts: int = 0
    settled: int | None = None
    """The records with an outcome, of all runs; None before the first start."""


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """How a service runs."""

    servers: str
    delays_s: Sequence[float] = DELAYS_S
    """The delays before each retry; the record is parked after them."""
    reply_timeout_s: float = 5.0
    counts: Counts = field(default_factory=Counts)


class Service:
    """Reads a topic and its retry topics, and handles each record; run one of each kind.

    Subclasses implement `handle`. `outcomes` are the topics in which its records can end.
    """

    name: str
    topic: str
    outcomes: Sequence[str] = ()
    retries: bool = True

    def __init__(self, config: ServiceConfig) -> None:
        self.settings: Mapping[str, object] = {"bootstrap.servers": config.servers}
        self.counts = config.counts
        self.config = config
        self._delays_s = config.delays_s if self.retries else ()
        self._producer: Producer[bytes, bytes] | None = None
        self._settled: set[str] = set()

    async def run(self) -> None:
        """Handle records until the task is cancelled; raises an OttlaError."""
        async with Producer(self.settings, linger_ms=2) as producer:
            self._producer = producer
            places = [*self.outcomes, parking_topic(self.topic)] if self.outcomes else []
            self._settled = await read_identities(self.settings, places)
            self.counts.settled = len(self._settled)
            async with asyncio.TaskGroup() as tasks:
                await self.prepare(producer, tasks)
                tasks.create_task(self._read(self.topic, 0))
                for attempts, delay_s in enumerate(self._delays_s, start=1):
                    topic = retry_topic(self.topic, attempts)
                    tasks.create_task(self._read(topic, round(delay_s * 1000)))

    async def prepare(self, producer: Producer[bytes, bytes], tasks: asyncio.TaskGroup) -> None:
        """Start what `handle` needs."""

    async def handle(self, record: Request) -> None:
        """Handle a record; raises Retry to try it again later, or Refused to park it."""
        raise NotImplementedError

    async def send(
        self, topic: str, value: bytes | None, *, key: bytes | None, headers: Headers = ()
    ) -> None:
        """Write a record, and wait until it is acknowledged."""
        assert self._producer is not None
        await (await self._producer.send(topic, value, key=key, headers=headers))

    async def settle(
        self, record: Request, topic: str, value: bytes | None, headers: Headers = ()
    ) -> None:
        """Write the outcome of a record as the last thing, unless another copy has one."""
        identity = identity_of(record)
        if identity in self._settled:
            return
        self._settled.add(identity)
        kept = [one for one in headers if one[0] != CORRELATION_ID]
        marked = [(CORRELATION_ID, identity.encode()), *kept]
        await self.send(topic, value, key=record.key, headers=marked)
        self.counts.settled = len(self._settled)

    async def _read(self, topic: str, delay_ms: int) -> None:
        settings = {
            **self.settings,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.records": BATCH_RECORDS_MAX,
        }
        async with Consumer(settings) as consumer:
            consumer.subscribe(topic)
            while True:
                records: list[Request] = await consumer.poll(POLL_S)
                while records:
                    due = await due_records(records, delay_ms)
                    async with asyncio.TaskGroup() as tasks:
                        for record in due:
                            tasks.create_task(self._handle(record))
                    await consumer.commit({one.topic_partition: one.offset + 1 for one in due})
                    records = records[len(due) :]

    async def _handle(self, record: Request) -> None:
        if self.outcomes and identity_of(record) in self._settled:
            return
        try:
            await self.handle(record)
            self.counts.handled += 1
        except (Retry, Refused) as failure:
            move = after_failure(self.topic, record.headers, failure, len(self._delays_s))
            if move.topic == parking_topic(self.topic):
                self.counts.parked += 1
                await self.settle(record, move.topic, record.value, move.headers)
            else:
                self.counts.retried += 1
                await self.send(move.topic, record.value, key=record.key, headers=move.headers)


async def due_records(records: Sequence[Request], delay_ms: int) -> Sequence[Request]:
    """Wait until the first record is due, and return those that are; a delay is from its time."""
    if not delay_ms:
        return records
    wait_ms = records[0].timestamp_ms + delay_ms - _now_ms()
    if wait_ms > 0:
        await asyncio.sleep(wait_ms / 1000)
    due_ms = max(_now_ms() - delay_ms, records[0].timestamp_ms)
    count = next((at for at, one in enumerate(records) if one.timestamp_ms > due_ms), len(records))
    return records[:count]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def identity_of(record: Request) -> str:
    """The correlation id of a record, or else its place in its topic."""
    place = f"{record.topic}/{record.partition}/{record.offset}"
    return header(record.headers, CORRELATION_ID) or place


async def read_identities(settings: Mapping[str, object], topics: Sequence[str]) -> set[str]:
    """Return the correlation ids of all records that are in some topics now."""
    found: set[str] = set()
    async with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        partitions = [one for topic in topics for one in await consumer.partitions(topic)]
        if not partitions:
            return found
        ends = await consumer.end_offsets(*partitions)
        starts = await consumer.beginning_offsets(*partitions)
        unread = {one for one in partitions if starts[one] < ends[one]}
        consumer.assign(*unread)
        while unread:
            for record in await consumer.poll(POLL_S):
                found.add(identity_of(record))
                if record.offset + 1 >= ends[record.topic_partition]:
                    unread.discard(record.topic_partition)
    return found
