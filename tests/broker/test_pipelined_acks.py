"""Produce requests of one connection while earlier ones wait for their acknowledgement.

Idempotent producers have five requests in flight: they are appended in order while a flush is held,
and each gets its own result, in request order.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from broker.disks import FaultyDisk
from broker.handlers.test_produce import EVERY_MESSAGE, errors, request
from broker.nodes import Client, RunningBroker, broker, run
from broker.test_node import batch, create, fetch_request
from ottla.errors import DiskFull, ErrorCode
from ottla.log.partition_log import PartitionLog
from ottla.protocol.apis import FETCH, PRODUCE
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from transport.test_departures import until

T = TypeVar("T")

VERSION = 12
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class GatedDisk(FaultyDisk):
    """A disk whose calls in threads wait while the test holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.flushing, self.working_on = asyncio.Event(), asyncio.Event()
        self.flushing.set()
        self.working_on.set()
        self.calls = 0  # flushes and the like that began
        self.is_full = False

    async def blocking(self, call: Callable[[], T]) -> T:
        self.calls += 1
        await self.flushing.wait()
        if self.is_full:
            raise DiskFull("no space left on device")
        return await super().blocking(call)

    async def working(self, call: Callable[[], T]) -> T:
        await self.working_on.wait()
        return await super().working(call)


@asynccontextmanager
async def gated(
    tmp_path: Path, *settings: str
) -> AsyncGenerator[tuple[RunningBroker, GatedDisk, Client]]:
    """A broker on a gated disk, and a client; a test that fails does not hold up the shutdown."""
    disk = GatedDisk()
    async with broker(tmp_path, *settings, disk=disk) as running:
        try:
            yield running, disk, await running.client()
        finally:
            disk.flushing.set()
            disk.working_on.set()
            disk.broken, disk.is_full = frozenset(), False


def sequence(number: int) -> ProduceRequest:
    """A Produce request with one record of producer 7."""
    return request("t", (0, batch(b"%d" % number, producer_id=7, sequence=number)))


async def results(client: Client, messages: Sequence[ProduceRequest]) -> list[tuple[int, int]]:
    """Send all requests at once; return error codes and base offsets in the order of arrival."""
    found = await client.ask_all(messages, ProduceResponse, VERSION)
    return [code for one in found for code in codes(one)]


async def answers(client: Client, count: int) -> list[Message]:
    """Return the next responses."""
    found: list[Message] = []
    while len(found) < count:
        found += await client.responses()
    return found


def codes(answer: Message) -> list[tuple[int, int]]:
    """Return the error codes and base offsets of a response."""
    assert isinstance(answer, ProduceResponse)
    parts = (part for topic in answer.responses for part in topic.partition_responses)
    return [(part.error_code, part.base_offset) for part in parts]


def log_of(running: RunningBroker, topic: str = "t") -> PartitionLog:
    return running.parts.replica_manager.leader_partition(topic, 0).log


def test_requests_in_flight_are_appended_while_a_flush_is_held(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path, EVERY_MESSAGE) as (running, disk, client):
            await create(client, "t")
            log, counts = log_of(running), running.parts.request_metrics.of(PRODUCE)
            disk.flushing.clear()
            calls, tasks = disk.calls, len(asyncio.all_tasks())
            waiting = asyncio.create_task(results(client, [sequence(n) for n in range(5)]))
            await until(lambda: log.log_end_offset == 5)
            await until(lambda: disk.calls > calls)
            # This test's task and the flush with its shield: no task for each request.
            assert len(asyncio.all_tasks()) <= tasks + 3
            assert log.recovery_point == 0
            assert not waiting.done()
            assert sum(counts.buckets) == 0  # a request is counted when its response is sent
            disk.flushing.set()
            assert await waiting == [(0, n) for n in range(5)]
            assert log.recovery_point == 5
            assert disk.calls - calls <= 2  # one fsync for all, or a second for those after it
            assert sum(counts.buckets) == 5

    run(scenario)


def test_errors_between_requests_in_flight_keep_their_place(tmp_path: Path) -> None:
    """A gap in the sequence fails at once, but its response waits for those before it."""

    async def scenario() -> None:
        async with gated(tmp_path, EVERY_MESSAGE) as (running, disk, client):
            await create(client, "t")
            log, counts = log_of(running), running.parts.request_metrics.of(PRODUCE)
            disk.flushing.clear()
            numbers = (0, 1, 5, 2, 1, 3)  # 5 leaves a gap, the second 1 is a duplicate
            waiting = asyncio.create_task(results(client, [sequence(n) for n in numbers]))
            await until(lambda: log.log_end_offset == 4)
            await asyncio.sleep(0)
            assert not waiting.done()
            assert sum(counts.buckets) == 0
            disk.flushing.set()
            assert await waiting == [(0, 0), (0, 1), (OUT_OF_ORDER, -1), (0, 2), (0, 1), (0, 3)]
            assert errors(running) == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 1}
            assert sum(counts.buckets) == 6

    run(scenario)


def test_failed_flush_fails_all_requests_in_flight(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path, EVERY_MESSAGE) as (running, disk, client):
            await create(client, "t")
            log = log_of(running)
            disk.flushing.clear()
            disk.broken = frozenset(("sync",))
            waiting = asyncio.create_task(results(client, [sequence(n) for n in range(5)]))
            await until(lambda: log.log_end_offset == 5)
            disk.flushing.set()
            assert await waiting == [(STORAGE_ERROR, -1)] * 5
            disk.broken = frozenset()
            # The connection is as before; the directory is offline.
            assert await results(client, [sequence(5)]) == [(STORAGE_ERROR, -1)]

    run(scenario)


def test_requests_failed_by_a_full_disk_are_duplicates_later(tmp_path: Path) -> None:
    """They are in the log, so the producer's retries are acknowledged with their offsets."""

    async def scenario() -> None:
        async with gated(tmp_path, EVERY_MESSAGE) as (running, disk, client):
            await create(client, "t")
            log, calls = log_of(running), disk.calls
            disk.flushing.clear()
            disk.is_full = True
            waiting = asyncio.create_task(results(client, [sequence(n) for n in range(3)]))
            await until(lambda: log.log_end_offset == 3 and disk.calls > calls)
            disk.flushing.set()
            assert await waiting == [(STORAGE_ERROR, -1)] * 3
            disk.is_full = False
            again = [sequence(n) for n in range(4)]
            assert await results(client, again) == [(0, 0), (0, 1), (0, 2), (0, 3)]
            assert log.recovery_point == 4

    run(scenario)


def test_mixed_acks_are_answered_in_request_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path) as (running, disk, client):
            await create(client, "safe", flush_messages="1")
            await create(client, "lax")
            safe, lax = log_of(running, "safe"), log_of(running, "lax")
            disk.flushing.clear()
            calls = disk.calls
            await client.send_only(request("lax", (0, batch(b"x")), acks=1), VERSION)  # offset 0
            asked = [
                request("safe", (0, batch(b"x")), acks=-1),
                request("lax", (0, batch(b"x")), acks=-1),
                request("safe", (0, batch(b"x")), acks=1),
                request("lax", (0, batch(b"x")), acks=1),
                request("lax", (0, batch(b"x")), acks=7),
            ]
            for one in asked[:2]:
                await client.send_only(one, VERSION)
            await client.send(request("safe", (0, batch(b"x")), acks=0), VERSION)
            for one in asked[2:]:
                await client.send_only(one, VERSION)
            await until(lambda: (safe.log_end_offset, lax.log_end_offset) == (3, 3))
            await until(lambda: disk.calls > calls)
            disk.flushing.set()
            assert [code for one in await answers(client, 6) for code in codes(one)] == [
                (0, 0),
                (0, 0),
                (0, 1),
                (0, 2),
                (0, 2),
                (ErrorCode.INVALID_REQUIRED_ACKS, -1),
            ]

    run(scenario)


def test_fetch_waits_for_the_acks_before_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path, EVERY_MESSAGE) as (running, disk, client):
            other = await running.client()
            topic_id = await create(client, "t")
            log, calls = log_of(running), disk.calls
            disk.flushing.clear()
            await client.send_only(sequence(0), VERSION)
            asked = fetch_request(topic_id, 0)
            await client.send_only(asked, FETCH.advertised.high)
            fetching = asyncio.create_task(answers(client, 2))
            await until(lambda: log.log_end_offset == 1 and disk.calls > calls)
            await other.ask(asked, FetchResponse)  # other connections are served
            assert not fetching.done()
            disk.flushing.set()
            assert [type(one) for one in await fetching] == [ProduceResponse, FetchResponse]

    run(scenario)


def test_slow_batch_holds_up_the_appends_behind_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = (EVERY_MESSAGE, "compression.type=gzip")
        async with gated(tmp_path, *settings) as (running, disk, client):
            await create(client, "t")
            log = log_of(running)
            disk.flushing.clear()
            disk.working_on.clear()
            slow = request("t", (0, batch(bytes(200_000), producer_id=7, sequence=1)))
            asked = [sequence(0), slow, sequence(2), sequence(3)]
            waiting = asyncio.create_task(results(client, asked))
            await until(lambda: log.log_end_offset == 1)
            for _ in range(10):  # an append out of order would happen now
                await asyncio.sleep(0.001)
            assert log.log_end_offset == 1
            disk.working_on.set()
            await until(lambda: log.log_end_offset == 4)  # while the flush is still held
            assert log.recovery_point == 0
            disk.flushing.set()
            assert await waiting == [(0, 0), (0, 1), (0, 2), (0, 3)]
            assert sum(running.parts.request_metrics.of(PRODUCE).buckets) == 4

    run(scenario)


def test_records_of_a_client_that_left_are_flushed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gated(tmp_path, EVERY_MESSAGE) as (running, disk, client):
            other = await running.client()
            await create(client, "t")
            log = log_of(running)
            disk.flushing.clear()
            for number in range(3):
                await client.send_only(sequence(number), VERSION)
            await until(lambda: log.log_end_offset == 3)
            await client.close()
            disk.flushing.set()
            await until(lambda: log.recovery_point == 3)
            (listener,) = running.node.listeners
            await until(lambda: len(listener.connections) == 1)
            assert await results(other, [sequence(2), sequence(3)]) == [(0, 2), (0, 3)]

    run(scenario)
