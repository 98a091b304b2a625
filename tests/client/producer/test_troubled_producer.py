"""The producer over a faulty network: no loss, no duplicates, no reordering, no leaks."""

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from client.scenario_runner import run
from ottla.client.producer.producer import Producer
from ottla.client.producer.record_accumulator import Ack
from ottla.errors import RequestError
from ottla.testing import Cluster
from ottla.transport.failures import Disconnected, TimedOut
from proxy import Detour, Trouble
from sampling import sample

PARTITIONS = 2
FAST = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "linger.ms": 0,
    "batch.size": 2000,
}


async def read(cluster: Cluster) -> list[list[bytes]]:
    """Return the values of each partition, as another client reads them without faults."""
    consumer: Any = AIOKafkaConsumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        ones = [TopicPartition("t", index) for index in range(PARTITIONS)]
        ends = await consumer.end_offsets(ones)
        found: dict[TopicPartition, list[bytes]] = {one: [] for one in ones}
        while any(len(found[one]) < ends[one] for one in ones):
            for one, records in (await consumer.getmany(timeout_ms=1000)).items():
                found[one] += [record.value for record in records]
        return [found[one] for one in ones]
    finally:
        await consumer.stop()


def producer(cluster: Cluster, detour: Detour, **settings: object) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    return Producer({**FAST, **servers, **named}, network=detour)


async def numbered(ours: Producer, count: int, *, pause_s: float = 0.0) -> list[Ack]:
    """Send numbers to the partitions in turn."""
    acks: list[Ack] = []
    for number in range(count):
        value = b"%d" % (number // PARTITIONS)
        acks.append(await ours.send("t", value, partition=number % PARTITIONS))
        if pause_s:
            await asyncio.sleep(pause_s)
    return acks


def whole(count: int) -> list[list[bytes]]:
    """Return what `numbered` writes if nothing is lost, duplicated or reordered."""
    return [
        [b"%d" % number for number in range(len(range(index, count, PARTITIONS)))]
        for index in range(PARTITIONS)
    ]


def through(
    trouble: Callable[[Trouble], Coroutine[Any, Any, None]],
    count: int,
    *,
    pause_s: float = 0.0,
    **settings: object,
) -> None:
    """Send through a fault until all is acknowledged, and check the result."""

    async def scenario() -> None:
        async with Cluster(settings={"num.partitions": PARTITIONS}) as cluster, Detour() as detour:
            async with producer(cluster, detour, **settings) as ours:
                await ours.partitions("t")
                making = asyncio.create_task(trouble(detour.trouble))
                acks = await numbered(ours, count, pause_s=pause_s)
                await making
                await ours.flush(40)
            offsets = [(await ack).offset for ack in acks]
            assert offsets == [number // PARTITIONS for number in range(count)]
            assert await read(cluster) == whole(count)

    run(scenario())


def test_network_that_sends_byte_by_byte() -> None:
    async def trouble(way: Trouble) -> None:
        way.chunk_bytes = 1

    through(trouble, 400)


def test_slow_network() -> None:
    async def trouble(way: Trouble) -> None:
        way.chunk_bytes, way.pause_s = 256, 0.002

    through(trouble, 2000)


def test_repeated_connection_resets() -> None:
    async def trouble(way: Trouble) -> None:
        for _ in range(30):
            await asyncio.sleep(0.04)
            way.reset()
        assert way.resets >= 5

    through(trouble, 3000, pause_s=0.0005)


@pytest.mark.parametrize("seed", sample(range(6), 2), ids=lambda seed: f"seed-{seed}")
def test_connection_resets_in_the_middle_of_a_request(seed: int) -> None:
    chance = random.Random(seed)

    async def trouble(way: Trouble) -> None:
        way.reset_after = lambda: chance.randrange(100, 20_000)
        way.reset()
        await asyncio.sleep(1.5)
        assert way.resets >= 2
        way.reset_after = None

    through(trouble, 3000, pause_s=0.0003)


async def lose_answers(way: Trouble) -> None:
    for _ in range(5):
        await asyncio.sleep(0.1)
        way.is_mute = True
        await asyncio.sleep(0.1)
        way.reset()
        way.is_mute = False


def test_responses_lost_with_their_connection() -> None:
    """Records that were written and not acknowledged are sent again, and are there once."""
    through(lose_answers, 2000, pause_s=0.0005)


def test_faults_cause_duplicates_without_idempotence() -> None:
    """A producer without idempotence writes duplicates, so the faults above are effective."""
    with pytest.raises(AssertionError):
        through(lose_answers, 2000, pause_s=0.0005, enable_idempotence=False)


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["late", "never"])
def test_half_open_connection_is_closed_at_request_timeout(is_forgotten: bool) -> None:
    async def trouble(way: Trouble) -> None:
        await asyncio.sleep(0.1)
        way.freeze()
        await asyncio.sleep(1)
        if is_forgotten:
            way.forget_frozen()
        way.thaw()

    through(trouble, 2000, pause_s=0.0005, request_timeout_ms=300)


def test_broker_that_is_down_for_a_while() -> None:
    async def trouble(way: Trouble) -> None:
        await asyncio.sleep(0.1)
        way.is_refusing = True
        assert way.reset()
        await asyncio.sleep(4)
        way.is_refusing = False

    through(trouble, 2000, pause_s=0.0003)


def test_full_buffer_blocks_senders_and_loses_nothing() -> None:
    async def trouble(way: Trouble) -> None:
        way.freeze()
        await asyncio.sleep(1)
        way.thaw()

    through(trouble, 4000, buffer_memory=4 * 2000, batch_size=2000)


def test_full_buffer_raises_and_keeps_its_records() -> None:
    async def scenario() -> None:
        async with Cluster(settings={"num.partitions": PARTITIONS}) as cluster, Detour() as detour:
            settings = {"buffer_memory": 4000, "batch_size": 1000, "max_block_ms": 1500}
            async with producer(cluster, detour, **settings) as ours:
                await ours.partitions("t")
                await (await ours.send("t", b"first", partition=0))
                detour.trouble.freeze()
                taken = [b"first"]

                async def fill() -> None:
                    while len(taken) < 1000:
                        value = b"%d" % len(taken)
                        await ours.send("t", value, partition=0)
                        taken.append(value)

                with pytest.raises(TimedOut):
                    await fill()
                detour.trouble.thaw()
                await ours.flush(20)
            assert (await read(cluster))[0] == taken

    run(scenario())


def test_expired_records_fail_and_later_ones_keep_their_order() -> None:
    async def scenario() -> None:
        async with Cluster(settings={"num.partitions": PARTITIONS}) as cluster, Detour() as detour:
            settings = {"request_timeout_ms": 200, "delivery_timeout_ms": 400}
            async with producer(cluster, detour, **settings) as ours:
                await ours.partitions("t")
                kept = await numbered(ours, 100)
                await ours.flush(10)
                detour.trouble.freeze()
                late = await numbered(ours, 100)
                for ack in late:
                    with pytest.raises(RequestError):
                        await ack
                detour.trouble.forget_frozen()
                detour.trouble.thaw()
                detour.trouble.reset()
                kept += await numbered(ours, 100)
                await ours.flush(20)
            offsets = [[(await ack).offset for ack in kept[index::2]] for index in range(2)]
            for index, found in enumerate(await read(cluster)):
                assert offsets[index] == sorted({*offsets[index]})
                values = [b"%d" % number for number in range(50)] * 2
                assert [found[offset] for offset in offsets[index]] == values

    run(scenario())


# Leaks.


def sockets() -> int:
    """Return the number of open sockets of this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.01)


async def freeze(way: Trouble) -> None:
    way.freeze()


async def refuse(way: Trouble) -> None:
    way.is_refusing = True
    way.reset()


async def reset(way: Trouble) -> None:
    way.reset()


async def no_fault(_: Trouble) -> None:
    pass


@pytest.mark.parametrize("trouble", [no_fault, freeze, refuse, reset], ids=lambda one: one.__name__)
def test_cancellation_and_close_leave_no_tasks_or_sockets(
    trouble: Callable[[Trouble], Coroutine[Any, Any, None]],
) -> None:
    async def scenario() -> None:
        async with Cluster(settings={"num.partitions": PARTITIONS}) as cluster, Detour() as detour:
            await create_topic(cluster)
            tasks, open_sockets = len(asyncio.all_tasks()), sockets()
            for _ in range(3):
                ours = producer(cluster, detour, buffer_memory=8000)
                async with ours:
                    await (await ours.send("t", b"before", partition=0))
                    await trouble(detour.trouble)
                    doing: list[asyncio.Task[Any]] = [
                        asyncio.create_task(send_and_wait(ours, number)) for number in range(300)
                    ]
                    doing.append(asyncio.create_task(ours.flush()))
                    doing.append(asyncio.create_task(ours.partitions("another")))
                    await asyncio.sleep(0.05)
                    for task in doing[::2]:
                        task.cancel()
                    await asyncio.sleep(0.01)
                    await ours.close()
                    ended = await asyncio.wait_for(
                        asyncio.gather(*doing, return_exceptions=True), 10
                    )
                    unexpected = [
                        one
                        for one in ended
                        if isinstance(one, BaseException)
                        and not isinstance(one, (asyncio.CancelledError, RequestError))
                    ]
                    assert not unexpected
                    with pytest.raises(Disconnected):
                        await ours.send("t", b"after")
                detour.trouble.is_refusing = False
                detour.trouble.thaw()
                await wait_until(lambda: not detour.trouble.open_lines)
                # The proxy stays: one listener per broker.
                await wait_until(lambda: len(asyncio.all_tasks()) <= tasks)
                await wait_until(lambda: sockets() <= open_sockets + 1)

    run(scenario())


async def send_and_wait(ours: Producer, number: int) -> None:
    await (await ours.send("t", b"%d" % number, partition=number % PARTITIONS))


async def create_topic(cluster: Cluster) -> None:
    """Create the topic first, so that its creation is not counted."""
    async with Producer({**FAST, "bootstrap.servers": cluster.bootstrap_servers}) as ours:
        await ours.partitions("t")
    await asyncio.sleep(0.05)


def test_close_fails_waiting_calls() -> None:
    async def scenario() -> None:
        async with (
            Cluster(settings={"num.partitions": PARTITIONS}) as cluster,
            Detour() as detour,
            producer(cluster, detour, buffer_memory=4000) as ours,
        ):
            await (await ours.send("t", b"before", partition=0))
            detour.trouble.freeze()
            waiting = [asyncio.create_task(send_and_wait(ours, number)) for number in range(1000)]
            waiting.append(asyncio.create_task(for_topic(ours, "another")))
            await asyncio.sleep(0.1)
            flushing = asyncio.create_task(ours.flush())
            await asyncio.sleep(0)
            assert not any(task.done() for task in (*waiting, flushing))
            await ours.close()
            _, late = await asyncio.wait((*waiting, flushing), timeout=5)
            assert not late
            assert {type(task.exception()) for task in waiting} == {Disconnected}
            assert flushing.exception() is None or isinstance(flushing.exception(), Disconnected)

    run(scenario())


async def for_topic(ours: Producer, topic: str) -> None:
    await ours.partitions(topic)
