"""Consumers that read slowly, or not at all, do not delay followers and flushes."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from broker.disks import FaultyDisk
from broker.nodes import RunningBroker, broker, run
from broker.replicas import Replicas
from broker.test_cluster_login import channel_to, login
from broker.test_node import batch, create, fetch_request, produce
from broker.test_replica_fetch import asked, request, values
from ottla.ids import Uuid
from ottla.log.disk import Reader
from ottla.log.files import READ_THREADS
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.transport.channel import Channel
from transport.test_connection_memory import Owner
from transport.test_departures import until

T = TypeVar("T")

BATCH_BYTES = 100_000
BATCHES = 10


class StuckDisk(FaultyDisk):
    """A disk on which the reads of clients block their threads until the test ends."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = 0
        self.free = threading.Event()

    async def reading(self, call: Callable[[], T], reader: Reader) -> T:
        if reader is not Reader.CLIENT:
            return await super().reading(call, reader)

        def wait() -> T:
            self.stuck += 1
            self.free.wait(60)
            return call()

        return await super().reading(wait, reader)


@asynccontextmanager
async def follower(running: RunningBroker) -> AsyncGenerator[Channel]:
    """A connection that has logged in as a broker."""
    channel = await channel_to(running)
    await login(running.parts.cluster_credential)(channel)
    try:
        yield channel
    finally:
        channel.close()


async def fetch(channel: Channel, topic_id: Uuid) -> PartitionData:
    answer = await channel.ask(request(topic_id, [asked(0)]), FetchResponse, 50)
    (one,) = answer.responses[0].partitions
    assert one.error_code == 0
    return one


def test_cold_reads_of_consumers_delay_neither_followers_nor_flushes(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = StuckDisk()
        async with broker(tmp_path, disk=disk) as running, follower(running) as channel:
            client = await running.client()
            topic_id = await create(client, "t", flush_messages="1")
            assert (await produce(client, "t", batch(b"a")))[0] == 0
            Replicas(running)
            disk.cold = True
            consumers = [await running.client() for _ in range(2 * READ_THREADS)]
            message = fetch_request(topic_id, 0)
            reads = [asyncio.create_task(one.ask(message, FetchResponse)) for one in consumers]
            try:
                await until(lambda: disk.stuck == READ_THREADS)
                assert values(await fetch(channel, topic_id)) == [b"a"]
                assert (await produce(client, "t", batch(b"b"), acks=1))[0] == 0
                assert disk.stuck == READ_THREADS, "the consumers still wait"
            finally:
                disk.free.set()
            for answer in await asyncio.gather(*reads):
                assert answer.responses[0].partitions[0].error_code == 0

    run(scenario)


def test_consumers_that_do_not_read_take_no_memory_of_followers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running, follower(running) as channel:
            client = await running.client()
            topic_id = await create(client, "t")
            for _ in range(BATCHES):
                assert (await produce(client, "t", batch(bytes(BATCH_BYTES))))[0] == 0
            Replicas(running)
            memory = running.node.memory
            for pool in (memory.responses, memory.unproven_responses, memory.requests):
                pool.hold(Owner(), pool.limit)
                pool.hold(Owner(), 1)  # one holder may exceed the limit
            consumer = asyncio.create_task(client.ask(fetch_request(topic_id, 0), FetchResponse))
            await until(lambda: memory.unproven_responses.has_waiters)
            found = await fetch(channel, topic_id)
            assert len(found.records or b"") > BATCH_BYTES * (BATCHES - 1)
            assert not consumer.done(), "it waits for memory"
            memory.wake_all()
            consumer.cancel()

    run(scenario)
