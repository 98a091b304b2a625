"""Consumers and admin clients over a faulty network: every record once and in order, commits hold,
and no call exceeds its timeout.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from client.consumer_scenarios import FAST, FROM_START, write
from client.leaks import client_tasks
from ottla.client.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.errors import RequestError
from ottla.testing import Cluster
from ottla.transport.failures import Disconnected, TimedOut
from proxy import Detour, Trouble

PARTITIONS = 2
COUNT = 300
"""Records in each partition when the faults start; as many again are written during them."""

SETTINGS: dict[str, object] = {
    **FAST,
    **FROM_START,
    "retry.backoff.max.ms": 100,
    "max.partition.fetch.bytes": 2000,
    "fetch.max.wait.ms": 20,
    "max.poll.records": 20,
    "request.timeout.ms": 1000,
    "heartbeat.interval.ms": 50,
    "session.timeout.ms": 6000,
    "max.poll.interval.ms": 6000,
    "auto.commit.interval.ms": 20,
}

Making: TypeAlias = Callable[[Trouble], Coroutine[Any, Any, None]]


class Place:
    """A broker behind a faulty network."""

    def __init__(self, cluster: Cluster, detour: Detour) -> None:
        self.cluster = cluster
        self.detour = detour
        self.way = detour.trouble

    def consumer(
        self, *topics: str, straight: bool = False, **more: object
    ) -> Consumer[bytes, bytes]:
        named = {name.replace("_", "."): value for name, value in more.items()}
        servers = {"bootstrap.servers": self.cluster.bootstrap_servers}
        network = None if straight else self.detour
        return Consumer({**SETTINGS, **servers, **named}, *topics, network=network)

    def admin(self, **more: object) -> Admin:
        named = {name.replace("_", "."): value for name, value in more.items()}
        servers = {"bootstrap.servers": self.cluster.bootstrap_servers}
        return Admin({**FAST, **servers, **named}, network=self.detour)

    async def write(self, start: int) -> None:
        """Write numbers to all partitions, over a network without faults."""
        for partition in range(PARTITIONS):
            servers = self.cluster.bootstrap_servers
            await write(servers, "t", COUNT, partition=partition, start=start)


@asynccontextmanager
async def place() -> AsyncGenerator[Place]:
    async with (
        asyncio.timeout(150),
        Cluster(settings={"num.partitions": PARTITIONS}) as cluster,
        Detour() as detour,
    ):
        there = Place(cluster, detour)
        await there.write(0)
        yield there
        left = client_tasks()
        assert not left, left


class Read:
    """The records read from each partition, in order of arrival."""

    def __init__(self) -> None:
        self.values: list[list[int]] = [[] for _ in range(PARTITIONS)]

    async def read(self, ours: Consumer[bytes, bytes], until: Callable[[], bool]) -> None:
        while not until():
            await self.once(ours)
            await asyncio.sleep(0.001)

    async def once(self, ours: Consumer[bytes, bytes]) -> None:
        for record in await ours.poll(0.05):
            self.values[record.partition].append(int(record.value or b""))

    def has(self, count: int) -> bool:
        return all(len({*values}) >= count for values in self.values)


WHOLE = [[*range(2 * COUNT)] for _ in range(PARTITIONS)]


# Network faults.


async def sends_byte_by_byte(way: Trouble) -> None:
    way.chunk_bytes = 7


async def is_slow(way: Trouble) -> None:
    way.chunk_bytes, way.pause_s = 512, 0.003
    await asyncio.sleep(1)
    way.chunk_bytes, way.pause_s = 1 << 16, 0.0


async def is_reset_repeatedly(way: Trouble) -> None:
    for _ in range(15):
        await asyncio.sleep(0.06)
        way.reset()


async def is_cut_in_the_middle_of_a_response(way: Trouble) -> None:
    chance = random.Random(7)
    way.cut_answers_after = lambda: chance.randrange(100, 6000)
    way.reset()
    await asyncio.sleep(1)
    assert way.resets
    way.cut_answers_after = None


async def is_half_open_and_recovers(way: Trouble) -> None:
    way.freeze()
    await asyncio.sleep(1.5)
    way.thaw()


async def is_half_open_forever(way: Trouble) -> None:
    way.freeze()
    await asyncio.sleep(1.5)
    way.forget_frozen()
    way.thaw()


async def accepts_and_never_answers(way: Trouble) -> None:
    way.is_mute = True
    way.reset()
    await asyncio.sleep(1.5)
    way.is_mute = False


async def is_refused(way: Trouble) -> None:
    way.is_refusing = True
    way.reset()
    await asyncio.sleep(1)
    way.is_refusing = False


TROUBLES: list[Making] = [
    sends_byte_by_byte,
    is_slow,
    is_reset_repeatedly,
    is_cut_in_the_middle_of_a_response,
    is_half_open_and_recovers,
    is_half_open_forever,
    accepts_and_never_answers,
    is_refused,
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: one.__name__)
def test_assigned_consumer_reads_everything_once_and_in_order(trouble: Making) -> None:
    async def scenario() -> None:
        async with place() as there, there.consumer() as ours:
            ours.assign(*(("t", index) for index in range(PARTITIONS)))
            read = Read()
            await read.read(ours, lambda: read.has(10))
            making = asyncio.create_task(trouble(there.way))
            await there.write(COUNT)
            await read.read(ours, lambda: making.done() and read.has(2 * COUNT))
            await making
            assert read.values == WHOLE

    asyncio.run(scenario())


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: one.__name__)
def test_member_reads_everything_once_and_its_commits_hold(trouble: Making) -> None:
    """Once, while its session lasts: the faults are shorter than that."""

    async def scenario() -> None:
        async with place() as there:
            async with there.consumer("t", group_id="g") as ours:
                read = Read()
                await read.read(ours, lambda: read.has(10))
                making = asyncio.create_task(trouble(there.way))
                await there.write(COUNT)
                await read.read(ours, lambda: making.done() and read.has(2 * COUNT))
                await making
                assert read.values == WHOLE
                await ours.commit(timeout_s=30)
            there.way.chunk_bytes = 1 << 16
            async with there.consumer("t", group_id="g") as ours:
                ones = [("t", index) for index in range(PARTITIONS)]
                kept = await ours.committed(*ones)
                assert [one.offset for one in kept.values() if one] == [2 * COUNT] * PARTITIONS

    asyncio.run(scenario())


def test_consumers_survive_a_broker_restart() -> None:
    async def scenario() -> None:
        async with place() as there:
            read, group = Read(), Read()
            async with (
                there.consumer(straight=True) as ours,
                there.consumer(
                    "t", straight=True, group_id="g", session_timeout_ms=30_000
                ) as member,
            ):
                ours.assign(*(("t", index) for index in range(PARTITIONS)))
                await read.read(ours, lambda: read.has(10))
                await group.read(member, lambda: group.has(10))
                await member.commit(timeout_s=20)
                broker = there.cluster.brokers[0]
                for end in (broker.stop, broker.kill):
                    await end()
                    await read.once(ours)
                    await group.once(member)
                    await broker.start()
                await there.write(COUNT)
                await read.read(ours, lambda: read.has(2 * COUNT))
                await group.read(member, lambda: group.has(2 * COUNT))
                assert read.values == WHOLE
                for values in group.values:  # in order; a new session may read some again
                    assert sorted({*values}) == [*range(2 * COUNT)]
                await member.commit(timeout_s=20)

    asyncio.run(scenario())


# No call exceeds its timeout.


@pytest.mark.parametrize("trouble", ["frozen", "mute", "refused"])
def test_calls_end_within_their_timeout(trouble: str) -> None:
    async def scenario() -> None:
        async with place() as there:
            async with (
                there.consumer("t", group_id="g") as member,
                there.consumer(group_id="h") as ours,
                there.admin() as admin,
            ):
                assert await member.poll(20)
                await admin.describe_topics("t")
                if trouble == "frozen":
                    there.way.freeze()
                elif trouble == "mute":
                    there.way.is_mute = True
                    there.way.reset()
                else:
                    there.way.is_refusing = True
                    there.way.reset()
                calls: list[Coroutine[Any, Any, Any]] = [
                    member.commit({("t", 0): 1}, timeout_s=0.5),
                    member.committed(("t", 0), timeout_s=0.5),
                    ours.end_offsets(("t", 0), timeout_s=0.5),
                    ours.offsets_for_times({("t", 0): 5}, timeout_s=0.5),
                    admin.list_groups(timeout_s=0.5),
                    admin.describe_cluster(timeout_s=0.5),
                    admin.describe_topics("t", timeout_s=0.5),
                ]
                async with asyncio.timeout(20):  # for a busy machine; the calls take 0.5 s each
                    ended = await asyncio.gather(*calls, return_exceptions=True)
                for one in ended:
                    assert isinstance(one, (RequestError, Disconnected, TimedOut)), ended
                    assert str(one)
                there.way.thaw()
                there.way.is_mute = there.way.is_refusing = False
                there.way.reset()
                await admin.describe_topics("t", timeout_s=30)
            assert not client_tasks()

    asyncio.run(scenario())


# Full buffers.


def test_full_buffer_raises_and_recovers() -> None:
    async def scenario() -> None:
        async with place() as there:
            servers = there.cluster.bootstrap_servers
            settings: dict[str, object] = {
                **FAST,
                "bootstrap.servers": servers,
                "buffer.memory": 4000,
                "batch.size": 1000,
                "max.block.ms": 300,
            }
            async with Producer(settings) as ours:
                acks = [await ours.send("u", b"0", partition=0)]
                await acks[0]
                await there.cluster.brokers[0].stop()

                async def fill() -> None:
                    while len(acks) < 1000:
                        acks.append(await ours.send("u", b"%d" % len(acks), partition=0))

                for _ in range(2):
                    with pytest.raises(TimedOut, match=r"no buffer memory .* raise buffer\.memory"):
                        await fill()
                assert not any(ack.done for ack in acks[1:])
                held = len(acks)
                await there.cluster.brokers[0].start()
                await ours.flush(60)
                acks.append(await ours.send("u", b"%d" % held, partition=0))
                await ours.flush(60)
                assert [(await ack).offset for ack in acks] == [*range(held + 1)]
            found: list[int] = []
            async with there.consumer() as reader:
                reader.assign(("u", 0))
                while len(found) < held + 1:
                    found += [int(one.value or b"") for one in await reader.poll(5)]
                assert not await reader.poll(0.1)
            assert found == [*range(held + 1)]

    asyncio.run(scenario())
