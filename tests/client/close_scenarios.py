"""Subscriptions that end at any moment, on any broker and in both group protocols."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from client.consumer_scenarios import ours_partition, take, write
from client.rebalance_scenarios import PARTITIONS, Worker, member, share, write_to_all
from client.scenario_runner import until
from ottla.client.consumer.consumer import Consumer
from ottla.client.group.interfaces import Rebalance
from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.transport.channel import Disconnected

Leaving: TypeAlias = Callable[[str, str, dict[str, object]], Coroutine[Any, Any, None]]
"""Arguments: bootstrap servers, a topic of its own, settings."""


class Ledger:
    """Records a consumer's callbacks and checks that they do not overlap or repeat a partition."""

    def __init__(self, slowly_s: float = 0.0) -> None:
        self.have: set[TopicPartition] = set()
        self.told = 0
        self.wrong: list[str] = []
        self._slowly_s = slowly_s
        self._is_inside = False

    async def came(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        await self._inside()
        if partitions & self.have:
            self.wrong.append(f"{partitions} came twice")
        self.have |= partitions

    async def went(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        await self._inside()
        if not partitions <= self.have:
            self.wrong.append(f"{partitions} went twice")
        self.have -= partitions

    async def _inside(self) -> None:
        self.told += 1
        if self._is_inside:
            self.wrong.append("two at once")
        self._is_inside = True
        await asyncio.sleep(self._slowly_s)
        self._is_inside = False

    def subscribe(self, ours: Consumer[Any, Any], topic: str) -> None:
        ours.subscribe(topic, on_assigned=self.came, on_revoked=self.went)


async def subscription_ends_and_begins_at_any_moment(
    servers: str, topic: str, settings: dict[str, object]
) -> None:
    await write_to_all(servers, topic, 5)
    ledger = Ledger(0.003)
    async with member(servers, topic, **settings) as ours:
        for number in range(16):
            ledger.subscribe(ours, topic)
            if number % 4 == 3:
                await until(lambda: len(ours.assignment) == PARTITIONS)
            else:
                await asyncio.sleep(number * 0.007)
            ends = [asyncio.create_task(ours.unsubscribe()) for _ in range(1 + number % 2)]
            await asyncio.sleep(0)
            if number % 3 == 1:
                ledger.subscribe(ours, topic)  # before it has left the group
            elif number % 3 == 2:
                ends[0].cancel()  # it leaves nevertheless
            await asyncio.gather(*ends, return_exceptions=True)
        await ours.unsubscribe()
        assert ours.assignment == frozenset()
        assert ledger.have == set()
        ledger.subscribe(ours, topic)
        await until(lambda: len(ledger.have) == PARTITIONS)
        await write_to_all(servers, topic, 1, start=5)
        await take(ours, 1)
    assert ledger.have == set()
    assert ledger.wrong == []
    # The group has no member left that would keep a partition.
    worker = Worker(member(servers, topic, **settings), topic)
    try:
        await until(lambda: share([worker]))
    finally:
        await worker.stop()


async def consumer_is_closed_while_its_callback_runs(
    servers: str, topic: str, settings: dict[str, object]
) -> None:
    await write(servers, topic, 1)
    ledger = Ledger(0.2)
    async with member(servers, topic, **settings) as ours:
        ledger.subscribe(ours, topic)
        await until(lambda: ledger.told == 1)
    assert ledger.told == 2
    assert ledger.wrong == []
    assert ledger.have == set()


async def callback_cannot_end_its_own_consumer(
    servers: str, topic: str, settings: dict[str, object]
) -> None:
    await write(servers, topic, 1)
    async with member(servers, topic, **settings) as ours:

        async def ends(came: frozenset[TopicPartition], why: Rebalance) -> None:
            with pytest.raises(RuntimeError, match="callback must not unsubscribe"):
                await ours.close()
            await ours.unsubscribe()

        ours.subscribe(topic, on_assigned=ends)
        with pytest.raises(RequestError, match="RuntimeError: a rebalance callback must not"):
            await take(ours, 1)
        assert len(await take(ours, 1)) == 1
        await ours.unsubscribe()


async def waiting_poll_raises_when_closed(
    servers: str, topic: str, settings: dict[str, object]
) -> None:
    async with member(servers, topic, **settings) as ours:
        ours.subscribe(topic)
        waiting = asyncio.create_task(take(ours, 1))
        await asyncio.sleep(0.05)
        await ours.close()
        with pytest.raises(Disconnected, match="closed"):
            await waiting


async def close_with_records_in_hand_does_not_delay_others(
    servers: str, topic: str, settings: dict[str, object]
) -> None:
    """Another member waits for the partitions; records in hand count as done at the close."""
    await write_to_all(servers, topic, 10)
    async with member(servers, topic, **settings) as ours:
        ours.subscribe(topic)
        taken = await ours.poll(20, max_records=1)
        where = (topic, taken[0].partition)
        worker = Worker(member(servers, topic, **settings), topic)
        try:
            # The records in hand have to be given up, unless the broker revokes from the other
            # member.
            await until(lambda: where in ours.paused or bool(worker.partitions))
            await ours.close()
            await until(lambda: share([worker]))
            await until(lambda: len(worker.seen) >= 10 * PARTITIONS - 1)
            assert (where[1], 0) not in worker.seen
            found = (await worker.ours.committed(where))[ours_partition(where)]
            assert found is not None
            assert found.offset >= 1
        finally:
            await worker.stop()


LEAVING: list[Leaving] = [
    subscription_ends_and_begins_at_any_moment,
    consumer_is_closed_while_its_callback_runs,
    callback_cannot_end_its_own_consumer,
    waiting_poll_raises_when_closed,
    close_with_records_in_hand_does_not_delay_others,
]
