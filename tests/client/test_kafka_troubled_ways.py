"""KIP-848 groups and transactions on Kafka, over a network that is slow, cut, mute or reset.

No record is lost, a transaction is atomic, and a group has all of its partitions after the faults.
Ends of transactions are also cancelled and interrupted at any moment.
"""

import asyncio
import itertools
import random
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest

from client.both_brokers import Ground, Judge, judged_on, kafka_ground
from client.consumer.test_troubled_consumer import TROUBLES, Making
from client.producer.test_kafka_transactions import committed, offset_of
from client.scenario_runner import FAST, until
from client.sync.signal_injection import MOMENTS_S, all_threads_end, interruptions
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.client.producer.transaction import Transaction
from ottla.client.producer.transaction_state import OutcomeUnknown
from ottla.client.sync.producer import Producer as SyncProducer
from ottla.errors import RequestError
from ottla.transport.network import Connector
from proxy import Detour, Trouble
from shared_kafka import SharedKafka, explicit_transactions

PARTITIONS = 4
COUNT = 100
TRANSACTIONS = 12
RECORDS = 10

PATIENT: dict[str, object] = {
    **FAST,
    "retry.backoff.max.ms": 100,
    "request.timeout.ms": 1000,
}


@pytest.fixture
def judge(shared_kafka: SharedKafka) -> Judge:
    return judged_on(lambda: kafka_ground(shared_kafka.broker))


@pytest.fixture(
    scope="module", params=["implicit", pytest.param("explicit", marks=pytest.mark.judge)]
)
def either(request: pytest.FixtureRequest, shared_kafka: SharedKafka) -> Generator[Judge]:
    """With implicitly added partitions and groups, or with explicitly added ones."""
    judge = judged_on(lambda: kafka_ground(shared_kafka.broker))
    if request.param == "implicit":
        yield judge
        return
    with explicit_transactions(shared_kafka.broker):
        yield judge


async def is_cut_in_the_midst_of_a_request(way: Trouble) -> None:
    chance = random.Random(8)
    way.reset_after = lambda: chance.randrange(60, 2500)
    way.reset()
    await asyncio.sleep(1)
    way.reset_after = None
    way.reset()


WAYS: list[Making] = [*TROUBLES, is_cut_in_the_midst_of_a_request]


# Groups.


async def write(ground: Ground, topic: str, start: int) -> None:
    async with Producer(bootstrap_servers=ground.bootstrap) as ours:
        for partition in range(PARTITIONS):
            values = [b"%d" % number for number in range(start, start + COUNT)]
            await ours.send_many(topic, values, partition=partition)


class Reading:
    """A member over a faulty network, and the records it has read."""

    def __init__(self, ground: Ground, topic: str, detour: Detour) -> None:
        settings = {
            **PATIENT,
            "bootstrap.servers": ground.bootstrap,
            "group.id": f"group-of-{topic}",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 50,
            "fetch.max.wait.ms": 20,
            "max.poll.records": 20,
        }
        self.ours: Consumer[bytes, bytes] = Consumer(settings, topic, network=detour)
        self.seen: list[tuple[int, int]] = []

    async def read(self) -> None:
        while True:
            for record in await self.ours.poll(0.05):
                self.seen.append((record.partition, int(record.value or b"")))

    def has(self) -> set[int]:
        return {one.partition for one in self.ours.assignment}


@pytest.mark.parametrize("trouble", WAYS, ids=lambda one: one.__name__)
def test_group_over_a_bad_network_reads_every_record(judge: Judge, trouble: Making) -> None:
    async def scenario(ground: Ground) -> None:
        topic = await ground.topic(PARTITIONS)
        await write(ground, topic, 0)
        async with Detour() as detour:
            first, second = (Reading(ground, topic, detour) for _ in range(2))
            wanted = {(place, number) for place in range(PARTITIONS) for number in range(2 * COUNT)}

            def shared() -> bool:
                return sorted([*first.has(), *second.has()]) == [*range(PARTITIONS)]

            def told() -> str:
                left = wanted - {*first.seen, *second.seen}
                return f"{first.has()} {second.has()}, {len(left)} are missing"

            async with first.ours:
                reading = [asyncio.create_task(first.read())]
                await until(lambda: bool(first.seen))
                making = asyncio.create_task(trouble(detour.trouble))
                async with second.ours:
                    reading.append(asyncio.create_task(second.read()))
                    await write(ground, topic, COUNT)
                    await until(lambda: {*first.seen, *second.seen} >= wanted, told, 60)
                    await making
                    await until(lambda: shared() and bool(second.has()), told, 60)
                    reading.pop().cancel()
                await until(lambda: len(first.has()) == PARTITIONS, told, 60)
                await first.ours.commit(timeout_s=30)
                ones = [(topic, index) for index in range(PARTITIONS)]
                kept = await first.ours.committed(*ones, timeout_s=30)
                assert {one.offset for one in kept.values() if one} == {2 * COUNT}
                reading.pop().cancel()

    judge(scenario)


# Transactions.


class Ledger:
    """The expected values, according to the outcomes of the transactions."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.group = f"group-of-{topic}"
        self.expected: list[bytes] = []
        self.last = 0

    async def write(self, ours: Producer, transaction: Transaction, number: int) -> list[bytes]:
        values = [b"%d-%d" % (number, index) for index in range(RECORDS)]
        for value in values:
            await ours.send(self.topic, value, partition=0)
        await transaction.send_offsets({(self.topic, 0): number}, self.group)
        return values

    async def check(self, ground: Ground) -> None:
        """Check that everything committed is read once and in order, and nothing else."""
        assert await committed(ground, self.topic) == self.expected
        kept = await asyncio.to_thread(offset_of, ground.bootstrap, self.group, self.topic)
        assert kept.offset == self.last


def producer(ground: Ground, name: str, network: Connector | None = None) -> Producer:
    rules = {"delivery.timeout.ms": 20_000, "max.block.ms": 5000, "linger.ms": 0, "batch.size": 200}
    named = {"bootstrap.servers": ground.bootstrap, "transactional.id": name}
    return Producer({**PATIENT, **rules, **named}, network=network)


async def surely(ending: Any) -> None:
    """End a transaction, with as many attempts as it takes."""
    while True:
        with suppress(OutcomeUnknown):
            await ending()
            return


@pytest.mark.parametrize("trouble", WAYS, ids=lambda one: one.__name__)
def test_transaction_over_a_bad_network_is_atomic(either: Judge, trouble: Making) -> None:
    async def scenario(ground: Ground) -> None:
        topic = await ground.topic()
        ledger = Ledger(topic)
        async with Detour() as detour, producer(ground, f"id-of-{topic}", detour) as ours:
            making = asyncio.create_task(trouble(detour.trouble))
            for number in itertools.count(1):
                transaction = ours.transaction()
                await transaction.__aenter__()
                try:
                    values = await ledger.write(ours, transaction, number)
                except RequestError:  # it timed out: try again
                    await surely(transaction.abort)
                    continue
                if number % 3:
                    await surely(transaction.commit)
                    ledger.expected += values
                    ledger.last = number
                else:
                    await surely(transaction.abort)
                if making.done() and number >= TRANSACTIONS:
                    break
            await making
        await ledger.check(ground)

    either(scenario)


def test_cancelled_commit_counts_once_or_not_at_all(either: Judge) -> None:
    async def scenario(ground: Ground) -> None:
        topic = await ground.topic()
        ledger = Ledger(topic)
        cancelled = 0
        async with producer(ground, f"id-of-{topic}") as ours:
            for number in range(1, 40):
                transaction = ours.transaction()
                await transaction.__aenter__()
                values = await ledger.write(ours, transaction, number)
                doing = asyncio.create_task(transaction.commit())
                await asyncio.sleep(0.0005 * (number % 20))
                doing.cancel()
                with suppress(asyncio.CancelledError):
                    await doing
                cancelled += doing.cancelled()
                with suppress(RequestError):  # it was aborted: not all records were written
                    await transaction.commit()
                    ledger.expected += values
                    ledger.last = number
        assert cancelled
        assert ledger.expected
        await ledger.check(ground)

    either(scenario)


@pytest.mark.parametrize("cancels", ["sends", "offsets"])
def test_what_is_cancelled_in_a_transaction_costs_no_other(either: Judge, cancels: str) -> None:
    async def scenario(ground: Ground) -> None:
        topic = await ground.topic()
        ledger = Ledger(topic)
        async with producer(ground, f"id-of-{topic}") as ours:
            for number in range(1, 20):
                transaction = ours.transaction()
                await transaction.__aenter__()
                if cancels == "sends":
                    doing = asyncio.create_task(ledger.write(ours, transaction, number + 99))
                else:
                    offsets = {(topic, 0): 1_000_000}
                    doing = asyncio.create_task(transaction.send_offsets(offsets, ledger.group))
                await asyncio.sleep(0.0003 * number)
                doing.cancel()
                with suppress(asyncio.CancelledError):
                    await doing
                await transaction.abort()
                async with ours.transaction() as following:
                    ledger.expected += await ledger.write(ours, following, number)
                    ledger.last = number
        await ledger.check(ground)

    either(scenario)


def test_an_interrupted_commit_counts_once_or_not_at_all(either: Judge) -> None:
    made: list[str] = []
    expected: list[bytes] = []
    hits = 0

    async def make(ground: Ground) -> None:
        made.extend([ground.bootstrap, await ground.topic()])

    either(make)
    servers, topic = made
    settings = {**PATIENT, "bootstrap.servers": servers, "transactional.id": f"id-of-{topic}"}
    with all_threads_end(), SyncProducer(settings) as ours, interruptions() as interrupted:
        for number, after_s in enumerate(MOMENTS_S):
            values = [b"%d-%d" % (number, index) for index in range(RECORDS)]
            with ours.transaction() as transaction:
                for value in values:
                    ours.send(topic, value, partition=0)
                hits += interrupted(3 * after_s, transaction.commit)
                with suppress(RequestError):  # it was aborted: not all records were written
                    transaction.commit()
                    expected += values
    assert hits
    assert expected

    async def check(ground: Ground) -> None:
        assert await committed(ground, topic) == expected

    either(check)
