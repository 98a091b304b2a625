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

from client.both_brokers import Judge, TargetBroker, judged_on, kafka_target
from client.consumer.test_troubled_consumer import TROUBLES, Making
from client.producer.test_kafka_transactions import committed, offset_of
from client.scenario_runner import FAST, until
from client.sync.signal_injection import MOMENTS_S, check_threads_end, interruptions
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
    return judged_on(lambda: kafka_target(shared_kafka.broker))


@pytest.fixture(
    scope="module", params=["implicit", pytest.param("explicit", marks=pytest.mark.judge)]
)
def either(request: pytest.FixtureRequest, shared_kafka: SharedKafka) -> Generator[Judge]:
    """With implicitly added partitions and groups, or with explicitly added ones."""
    judge = judged_on(lambda: kafka_target(shared_kafka.broker))
    if request.param == "implicit":
        yield judge
        return
    with explicit_transactions(shared_kafka.broker):
        yield judge


async def is_cut_in_the_middle_of_a_request(way: Trouble) -> None:
    chance = random.Random(8)
    way.reset_after = lambda: chance.randrange(60, 2500)
    way.reset()
    await asyncio.sleep(1)
    way.reset_after = None
    way.reset()


WAYS: list[Making] = [*TROUBLES, is_cut_in_the_middle_of_a_request]


# Groups.


async def write(target: TargetBroker, topic: str, start: int) -> None:
    async with Producer(bootstrap_servers=target.bootstrap) as ours:
        for partition in range(PARTITIONS):
            values = [b"%d" % number for number in range(start, start + COUNT)]
            await ours.send_many(topic, values, partition=partition)


class Reading:
    """A member over a faulty network, and the records it has read."""

    def __init__(self, target: TargetBroker, topic: str, detour: Detour) -> None:
        settings = {
            **PATIENT,
            "bootstrap.servers": target.bootstrap,
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
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(PARTITIONS)
        await write(target, topic, 0)
        async with Detour() as detour:
            first, second = (Reading(target, topic, detour) for _ in range(2))
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
                    await write(target, topic, COUNT)
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

    async def check(self, target: TargetBroker) -> None:
        """Check that everything committed is read once and in order, and nothing else."""
        assert await committed(target, self.topic) == self.expected
        kept = await asyncio.to_thread(offset_of, target.bootstrap, self.group, self.topic)
        assert kept.offset == self.last


def producer(target: TargetBroker, name: str, network: Connector | None = None) -> Producer:
    rules = {"delivery.timeout.ms": 20_000, "max.block.ms": 5000, "linger.ms": 0, "batch.size": 200}
    named = {"bootstrap.servers": target.bootstrap, "transactional.id": name}
    return Producer({**PATIENT, **rules, **named}, network=network)


async def end_with_retries(ending: Any) -> None:
    """End a transaction, with as many attempts as it takes."""
    while True:
        with suppress(OutcomeUnknown):
            await ending()
            return


@pytest.mark.parametrize("trouble", WAYS, ids=lambda one: one.__name__)
def test_transaction_over_a_bad_network_is_atomic(either: Judge, trouble: Making) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        ledger = Ledger(topic)
        async with Detour() as detour, producer(target, f"id-of-{topic}", detour) as ours:
            making = asyncio.create_task(trouble(detour.trouble))
            for number in itertools.count(1):
                transaction = ours.transaction()
                await transaction.__aenter__()
                try:
                    values = await ledger.write(ours, transaction, number)
                except RequestError:  # it timed out: try again
                    await end_with_retries(transaction.abort)
                    continue
                if number % 3:
                    await end_with_retries(transaction.commit)
                    ledger.expected += values
                    ledger.last = number
                else:
                    await end_with_retries(transaction.abort)
                if making.done() and number >= TRANSACTIONS:
                    break
            await making
        await ledger.check(target)

    either(scenario)


def test_cancelled_commit_counts_once_or_not_at_all(either: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        ledger = Ledger(topic)
        cancelled = 0
        async with producer(target, f"id-of-{topic}") as ours:
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
        await ledger.check(target)

    either(scenario)


@pytest.mark.parametrize("cancels", ["sends", "offsets"])
def test_cancelled_call_does_not_affect_other_transactions(either: Judge, cancels: str) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        ledger = Ledger(topic)
        async with producer(target, f"id-of-{topic}") as ours:
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
        await ledger.check(target)

    either(scenario)


def test_interrupted_commit_counts_once_or_not_at_all(either: Judge) -> None:
    made: list[str] = []
    expected: list[bytes] = []
    hits = 0

    async def make(target: TargetBroker) -> None:
        made.extend([target.bootstrap, await target.topic()])

    either(make)
    servers, topic = made
    settings = {**PATIENT, "bootstrap.servers": servers, "transactional.id": f"id-of-{topic}"}
    with check_threads_end(), SyncProducer(settings) as ours, interruptions() as interrupted:
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

    async def check(target: TargetBroker) -> None:
        assert await committed(target, topic) == expected

    either(check)
