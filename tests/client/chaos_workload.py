"""Workloads: a producer and a consumer group that run while brokers are killed.

Each workload produces numbers to its own topic and reads them in a group of two members, which
commits what it has processed. One member fails on demand, while it holds records, and a new member
replaces it. At the end another client reads the topic, and `judge` raises on an acknowledged record
that is missing, a duplicate, a record out of order, one that the group skipped, or a lost commit.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import confluent_kafka

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.record import Record
from ottla.client.group.commits import CommitFailed
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Written
from ottla.client.sync.consumer import Consumer as SyncConsumer
from ottla.client.sync.producer import Producer as SyncProducer

PARTITIONS = 6
MEMBERS = 2
PACE_S = 0.02
PATIENT = {"delivery.timeout.ms": 600_000, "max.block.ms": 300_000}
"""Timeouts within which a cluster recovers on a busy machine."""

END_S = 240.0


class Failing(Exception):
    """A member failed before it processed its records."""


class Workload(ABC):
    """A workload; runs from `live` until `over` is set and every produced record is processed."""

    def __init__(
        self,
        servers: str,
        topic: str,
        protocol: str,
        group: str | None = None,
        *,
        session_ms: int,
    ) -> None:
        self.topic = topic
        self.group = group or topic
        self.over = threading.Event()
        self.is_abandoned = False
        self.written: list[Written] | None = (
            None  # where each number was written, once all are acknowledged
        )
        self.sent = 0
        self.processed = 0  # records, including those processed again
        self.kept = 0  # successful commits
        self.refused: list[CommitFailed] = []
        self.passed_over: list[str] = []
        self.failures = 0  # failures of the member that fails on demand
        self.is_failing = False  # a member is to fail at its next records
        self._ends = [0] * PARTITIONS  # next offset after the processed records
        self._lock = threading.Lock()
        self._deadline_s = time.monotonic() + 3600
        self._writing = {**PATIENT, "bootstrap.servers": servers}
        self._reading: dict[str, object] = {
            "bootstrap.servers": servers,
            "group.id": self.group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            self._reading["session.timeout.ms"] = session_ms

    async def live(self) -> None:
        """Produce and consume until the workload is over."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.write())
            for number in range(MEMBERS):
                tasks.create_task(self.read(fails=number == 0))

    def end(self) -> None:
        """Stop producing; consumers process what is left, up to a deadline."""
        self._deadline_s = time.monotonic() + END_S
        self.over.set()

    def fail(self) -> None:
        """Make a member fail at its next records."""
        self.is_failing = True

    def abandon(self) -> None:
        """Stop as soon as possible, because another workload failed."""
        self.is_abandoned = True
        self.over.set()

    @abstractmethod
    async def write(self) -> None:
        """Produce numbers."""

    @abstractmethod
    async def read(self, *, fails: bool) -> None:
        """Consume as a member of the group; after a failure, continue as a new member."""

    def process(self, records: Sequence[Record[bytes, bytes]], *, fails: bool) -> None:
        """Process the records of a member."""
        if fails and records and self.is_failing:
            self.is_failing = False
            self.failures += 1
            raise Failing
        with self._lock:
            self.processed += len(records)
            for record in records:
                end = self._ends[record.partition]
                if record.offset > end:
                    self.passed_over.append(f"{record.partition}: {end} to {record.offset}")
                self._ends[record.partition] = max(end, record.offset + 1)

    @property
    def total(self) -> int:
        """Return how many records were processed, each counted once."""
        return sum(self._ends)

    def goes_on(self) -> bool:
        """Return whether records are left to process."""
        assert time.monotonic() < self._deadline_s, f"{self.topic}: {self._ends}, {self.written}"
        unread = self.written is None or self.total < self.sent
        return unread and not self.is_abandoned

    def judge(self, found: Sequence[Sequence[int]], kept: Sequence[int]) -> None:
        """Raise on errors; `found` has each partition's numbers, `kept` the group's offsets."""
        assert self.failures > 0, "no member failed"
        assert self.written is not None
        assert len(self.written) == self.sent > 0, "records without an end"
        for partition, numbers in enumerate(found):
            wanted = [*range(partition, self.sent, PARTITIONS)]
            assert numbers == wanted, f"in {partition}: {_differences(wanted, numbers)}"
        for number, where in enumerate(self.written):
            # For a duplicate batch, a broker may no longer know the offset.
            right = where.offset < 0 or found[where.partition][where.offset] == number
            assert right, f"{number} is not at {where}"
        assert self.passed_over == [], f"passed over: {self.passed_over}"
        ends = [len(numbers) for numbers in found]
        assert self._ends == ends, f"processed until {self._ends} of {ends}"
        assert [*kept] == ends, f"kept {kept} of {ends}"


def _differences(wanted: Sequence[int], found: Sequence[int]) -> str:
    counted = Counter(found)
    lost = [one for one in wanted if one not in counted]
    twice = [one for one, times in counted.items() if times > 1]
    late = [two for one, two in pairwise(found) if two < one]
    return f"lost {lost}, twice {twice}, out of order {late}"


class AsyncWorkload(Workload):
    async def write(self) -> None:
        async with Producer(self._writing) as ours:
            acks: list[Any] = []
            while not self.over.is_set():
                for partition in range(PARTITIONS):
                    acks.append(await ours.send(self.topic, b"%d" % self.sent, partition=partition))
                    self.sent += 1
                await asyncio.sleep(PACE_S)
            self.written = [await ack for ack in acks]

    async def read(self, *, fails: bool) -> None:
        while self.goes_on():
            with suppress(Failing):
                await self._read(fails=fails)

    async def _read(self, *, fails: bool) -> None:
        async with Consumer(self._reading, self.topic) as ours:
            while self.goes_on():
                records = await ours.poll(0.2)
                try:
                    async with ours.committing():
                        self.process(records, fails=fails)
                    self.kept += bool(records)
                except CommitFailed as failed:
                    self.refused.append(failed)


class SyncWorkload(Workload):
    async def write(self) -> None:
        await self._in_thread(self._write)

    async def read(self, *, fails: bool) -> None:
        while self.goes_on():
            with suppress(Failing):
                await self._in_thread(partial(self._read, fails=fails))

    async def _in_thread(self, doing: Callable[[], None]) -> None:
        # The event loop's own threads are few, and others need them.
        with ThreadPoolExecutor(1) as threads:
            begun = asyncio.get_running_loop().run_in_executor(threads, doing)
            try:
                await asyncio.shield(begun)
            except asyncio.CancelledError:
                self.abandon()
                await asyncio.wait([begun])
                raise

    def _write(self) -> None:
        with SyncProducer(self._writing) as ours:
            acks: list[Any] = []
            while not self.over.wait(PACE_S):
                for partition in range(PARTITIONS):
                    acks.append(ours.send(self.topic, b"%d" % self.sent, partition=partition))
                    self.sent += 1
            if self.is_abandoned:
                ours.close()
            self.written = [ack.result() for ack in acks]

    def _read(self, *, fails: bool) -> None:
        with SyncConsumer(self._reading, self.topic) as ours:
            while self.goes_on():
                records = ours.poll(0.2)
                try:
                    with ours.committing():
                        self.process(records, fails=fails)
                    self.kept += bool(records)
                except CommitFailed as failed:
                    self.refused.append(failed)


def values(
    servers: str, topic: str, partitions: int, isolation: str = "read_uncommitted"
) -> list[list[bytes]]:
    """Return the values of each partition up to its end, as confluent-kafka reads them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    try:
        ones = [confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)]
        consumer.assign(ones)
        found: list[list[bytes]] = [[] for _ in ones]
        left = {*range(partitions)}
        while left:
            message = consumer.poll(60)
            assert message is not None
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is None:
                found[partition].append(message.value() or b"")
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                left.discard(partition)
            else:
                assert error.retriable(), error
        return found
    finally:
        consumer.close()
