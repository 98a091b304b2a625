"""Transactions on Kafka, checked with confluent-kafka's read_committed consumer.

With both versions: transaction.version 2, where writing to a partition adds it and each end returns
a new epoch, and 1, where the producer adds partitions first.
"""

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import confluent_kafka
import pyarrow
import pytest

from client.both_brokers import CuttableNetwork, Judge, TargetBroker, judged_on, kafka_target
from client.scenario_runner import FAST, run
from judges.kafka_broker import KafkaBroker
from kafka_java import kafka_broker
from ottla.client.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.producer.producer import Producer
from ottla.client.producer.transaction_state import OutcomeUnknown
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.testing import Cluster
from ottla.transport.channel import TimedOut
from ottla.transport.network import TcpNetwork
from proxy import Detour
from shared_kafka import SharedKafka, explicit_transactions

pa: Any = pyarrow

LATEST = -1


@pytest.fixture(
    scope="module", params=["implicit", pytest.param("explicit", marks=pytest.mark.judge)]
)
def kafka(request: pytest.FixtureRequest, shared_kafka: SharedKafka) -> Generator[KafkaBroker]:
    if request.param == "implicit":
        yield shared_kafka.broker
        return
    with explicit_transactions(shared_kafka.broker):
        yield shared_kafka.broker


@pytest.fixture
def judge(kafka: KafkaBroker) -> Judge:
    """Return a function that runs a scenario against the broker."""
    return judged_on(lambda: kafka_target(kafka))


def producer(
    target: TargetBroker,
    transactional_id: str,
    network: TcpNetwork | None = None,
    **arguments: str | int,
) -> Producer:
    named = {name.replace("_", "."): value for name, value in arguments.items()}
    return Producer(
        {**FAST, **named},
        bootstrap_servers=target.bootstrap,
        transactional_id=transactional_id,
        network=network,
    )


async def end(target: TargetBroker, topic: str, partition: int, *, committed: bool) -> int:
    one = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=topic, partitions=[one])],
    )
    async with target.channel() as channel:
        answer = await channel.ask(request, ListOffsetsResponse, 30)
    return answer.topics[0].partitions[0].offset


async def committed(target: TargetBroker, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return what another client reads when no transaction is open."""
    while await end(target, topic, partition, committed=True) < (
        await end(target, topic, partition, committed=False)
    ):
        await asyncio.sleep(0.02)
    return await asyncio.to_thread(read, target.bootstrap, topic, partition)


def read(
    bootstrap: str, topic: str, partition: int, isolation: str = "read_committed"
) -> list[bytes | None]:
    """Return all values up to the last stable offset, as another client reads them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        values: list[bytes | None] = []
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is None:
                values.append(message.value())
                continue
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            return values
    finally:
        consumer.close()


def offset_of(bootstrap: str, group: str, topic: str) -> confluent_kafka.TopicPartition:
    """Return the committed offset that another client finds."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        [found] = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], 30)
        return found
    finally:
        consumer.close()


def test_committed_records_become_visible_together(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(2)
        async with producer(target, "commits", batch_size=100) as ours:
            for number in range(5):
                async with ours.transaction():
                    for partition in (0, 1):
                        values = [b"%d-%d" % (number, n) for n in range(20)]
                        await ours.send_many(topic, values, partition=partition)
                    await ours.flush()
                    seen = await asyncio.to_thread(read, target.bootstrap, topic, 0)
                    assert not any(value and value.startswith(b"%d-" % number) for value in seen)
            expected = [b"%d-%d" % (number, n) for number in range(5) for n in range(20)]
            assert await committed(target, topic, 0) == expected
            assert await committed(target, topic, 1) == expected

    judge(scenario)


def test_exception_aborts_and_the_next_transaction_commits(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target, "aborts", batch_size=100) as ours:

            async def fail(number: int) -> None:
                async with ours.transaction():
                    acks = await ours.send_many(topic, [b"never"] * 100)
                    if number % 2:
                        await acks[0]
                    if number < 2:
                        await ours.flush()
                    raise ZeroDivisionError

            for number in range(4):
                with pytest.raises(ZeroDivisionError):
                    await fail(number)
                async with ours.transaction():
                    await ours.send(topic, b"%d" % number)
            async with ours.transaction() as transaction:
                await ours.send(topic, b"never")
                await transaction.abort()
                await transaction.abort()  # there is nothing left to do
                with pytest.raises(RequestError, match="no transaction"):
                    await ours.send(topic, b"never")
        assert await committed(target, topic) == [b"0", b"1", b"2", b"3"]

    judge(scenario)


def test_empty_transaction_ends(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target, "empty") as ours:
            async with ours.transaction():
                pass
            with pytest.raises(ZeroDivisionError):
                async with ours.transaction():
                    raise ZeroDivisionError
            async with ours.transaction():
                await ours.send(topic, b"v")
        assert await committed(target, topic) == [b"v"]

    judge(scenario)


def test_failed_record_fails_its_transaction(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(settings={"max.message.bytes": 1000})
        async with producer(target, "loses", batch_size=0) as ours:

            async def unseen() -> None:
                async with ours.transaction():
                    await ours.send(topic, b"never")
                    await ours.send(topic, bytes(2000))
                    await ours.send(topic, b"never")

            async def passed_over() -> None:
                async with ours.transaction():
                    with pytest.raises(RequestError):
                        await (await ours.send(topic, bytes(2000)))
                    with pytest.raises(RequestError):
                        await ours.send(topic, b"never")  # the transaction can only be aborted

            for number in range(3):
                for fail in (unseen, passed_over):
                    with pytest.raises(RequestError) as failed:
                        await fail()
                    assert failed.value.code is ErrorCode.MESSAGE_TOO_LARGE
                async with ours.transaction():
                    await ours.send(topic, b"%d" % number)
        assert await committed(target, topic) == [b"0", b"1", b"2"]

    judge(scenario)


def test_too_large_batch_is_split_inside_a_transaction(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(settings={"max.message.bytes": 1000})
        values = [b"%d" % n * 50 for n in range(200)]
        async with producer(target, "splits", batch_size=8000) as ours:
            async with ours.transaction():
                await ours.send_many(topic, [*values])
            assert ours.metrics().batch_split_total > 0
            async with ours.transaction():
                await ours.send(topic, b"last")
        assert await committed(target, topic) == [*values, b"last"]

    judge(scenario)


def test_crashed_producer_is_aborted_by_its_successor(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        crashing = await producer(target, "crashes").__aenter__()
        async with crashing.transaction():
            await crashing.send(topic, b"there")
        await crashing.transaction().__aenter__()
        await (await crashing.send(topic, b"never"))
        await crashing.close()  # as when a process dies: the coordinator is not told
        assert await asyncio.to_thread(read, target.bootstrap, topic, 0) == [b"there"]
        assert (
            len(await asyncio.to_thread(read, target.bootstrap, topic, 0, "read_uncommitted")) == 2
        )
        async with producer(target, "crashes") as ours, ours.transaction():
            await ours.send(topic, b"next")
        assert await committed(target, topic) == [b"there", b"next"]

    judge(scenario)


@pytest.mark.parametrize("writes", [True, False])
def test_zombie_producer_is_fenced(judge: Judge, writes: bool) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target, f"fenced-{writes}") as old:

            async def overtaken() -> None:
                async with old.transaction():
                    await (await old.send(topic, b"never"))
                    async with producer(target, f"fenced-{writes}") as new, new.transaction():
                        await new.send(topic, b"new")
                    if writes:
                        await (await old.send(topic, b"never"))

            with pytest.raises(RequestError, match="another producer took over") as fenced:
                await overtaken()
            assert fenced.value.code is ErrorCode.PRODUCER_FENCED
            assert not fenced.value.retriable
            for _ in range(2):
                with pytest.raises(RequestError) as again:
                    async with old.transaction():
                        pass
                assert again.value.code is ErrorCode.PRODUCER_FENCED
            with pytest.raises(RequestError) as sent:
                await old.send(topic, b"never")
            assert sent.value.code is ErrorCode.PRODUCER_FENCED
        assert await committed(target, topic) == [b"new"]

    judge(scenario)


def test_expired_transaction_is_not_committed(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target, "slow", transaction_timeout_ms=300) as ours:

            async def dawdle() -> None:
                async with ours.transaction():
                    await (await ours.send(topic, b"never"))
                    while await end(target, topic, 0, committed=True) < 2:
                        await asyncio.sleep(0.05)

            for _ in range(2):
                with pytest.raises(RequestError, match=r"transaction\.timeout\.ms"):
                    await dawdle()
        assert await committed(target, topic) == []

    judge(scenario)


def test_consumer_waits_for_offsets_of_an_open_transaction(judge: Judge) -> None:
    """Otherwise it would process the input of the transaction again, in either isolation level."""

    async def scenario(target: TargetBroker) -> None:
        source = await target.topic()
        group = f"group-of-{source}"
        place = TopicPartition(source, PartitionIndex(0))
        settings: dict[str, object] = {"bootstrap.servers": target.bootstrap, "group.id": group}
        async with producer(target, f"reads-{source}") as ours, Consumer(settings) as next_one:
            async with ours.transaction() as transaction:
                await transaction.send_offsets({place: 5}, group)
                with pytest.raises(TimedOut, match="not known"):
                    await next_one.committed(place, timeout_s=1)
            kept = (await next_one.committed(place))[place]
            assert kept is not None
            assert kept.offset == 5

    judge(scenario)


def test_offsets_are_committed_with_the_transaction(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        source, topic = await target.topic(), await target.topic()
        group = f"group-of-{topic}"
        place = TopicPartition(source, PartitionIndex(0))

        async def found() -> confluent_kafka.TopicPartition:
            return await asyncio.to_thread(offset_of, target.bootstrap, group, source)

        async def abort(ours: Producer) -> None:
            async with ours.transaction() as transaction:
                await transaction.send_offsets({place: 9}, group)
                raise ZeroDivisionError

        async def commit_for_another(ours: Producer) -> None:
            async with ours.transaction() as transaction:
                await ours.send(topic, b"never")
                member = GroupMember(group, generation=3, member_id="a stranger")
                await transaction.send_offsets({place: 11}, member)

        async with producer(target, f"reads-{topic}") as ours:
            async with ours.transaction() as transaction:
                await ours.send(topic, b"1")
                await transaction.send_offsets({place: 5}, group)
            assert (await found()).offset == 5
            with pytest.raises(ZeroDivisionError):
                await abort(ours)
            assert (await found()).offset == 5
            async with ours.transaction() as transaction:  # only offsets
                noted = OffsetAndMetadata(7, "a note", 0)
                await transaction.send_offsets({place: noted}, GroupMember(group))
                await transaction.send_offsets({}, group)
            assert ((await found()).offset, (await found()).metadata) == (7, "a note")
            with pytest.raises(RequestError) as refused:
                await commit_for_another(ours)
            assert refused.value.code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
            )
            async with ours.transaction() as transaction:
                await ours.send(topic, b"2")
                await transaction.send_offsets({place: 8}, group)
            assert (await found()).offset == 8
        assert await committed(target, topic) == [b"1", b"2"]

    judge(scenario)


@pytest.mark.judge
def test_transaction_survives_a_broker_restart(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target, "restarts", batch_size=200) as ours:
            async with ours.transaction():
                await ours.send_many(topic, [b"before"] * 100)
                await ours.flush()
                await target.stop()
                sending = asyncio.create_task(ours.send_many(topic, [b"after"] * 100))
                await target.start()
                await sending
            async with ours.transaction():
                await ours.send(topic, b"next")
                await ours.flush()
                await target.stop()
                starting = asyncio.create_task(target.start())
            await starting
        assert await committed(target, topic) == [b"before"] * 100 + [b"after"] * 100 + [b"next"]

    judge(scenario)


def test_lost_responses_do_not_change_a_transaction(judge: Judge) -> None:
    """Connections are cut with requests in flight, at each step of a transaction."""

    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        network = CuttableNetwork()
        expected: list[bytes | None] = []

        async def cut() -> None:
            while True:
                await asyncio.sleep(0.01)
                network.cut()

        async with producer(target, "cut", network=network, batch_size=200, linger_ms=0) as ours:
            cutting = asyncio.create_task(cut())
            for number in range(15):
                values: list[bytes | None] = [b"%d-%d" % (number, n) for n in range(100)]
                try:
                    async with ours.transaction():
                        for value in values:
                            await ours.send(topic, value)  # pyright: ignore[reportArgumentType]
                            await asyncio.sleep(0.0005)
                        if number % 3 == 0:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue
                expected += values
            cutting.cancel()
        assert await committed(target, topic) == expected

    judge(scenario)


def test_send_needs_an_open_transaction(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target, "careless") as ours:
            with pytest.raises(RequestError, match=r"producer\.transaction") as refused:
                await ours.send(topic, b"v")
            assert refused.value.code is ErrorCode.INVALID_TXN_STATE
            with pytest.raises(RequestError, match="one at a time"):
                async with ours.transaction(), ours.transaction():
                    pass
            async with ours.transaction() as first:
                await ours.send(topic, b"v")
            with pytest.raises(RequestError, match="ended before"):
                await first.send_offsets({}, "group")
        async with Producer(bootstrap_servers=target.bootstrap) as plain:
            with pytest.raises(RequestError, match=r"require the setting transactional\.id"):
                plain.transaction()
        assert await committed(target, topic) == [b"v"]

    judge(scenario)


def test_send_that_waits_for_memory_fails_when_it_ends(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target, "waits", batch_size=1000, buffer_memory=1000) as ours:
            async with ours.transaction():
                await ours.send(topic, bytes(800))
                late = asyncio.create_task(ours.send(topic, bytes(801)))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            with pytest.raises(RequestError, match="ended before this record was sent"):
                await late
            assert ours.metrics().buffer_available_bytes == 1000
            async with ours.transaction():
                await ours.send(topic, b"next")
        assert await committed(target, topic) == [bytes(800), b"next"]

    judge(scenario)


def test_cancelled_block_is_aborted(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target, "cancelled") as ours:

            async def run_late() -> None:
                async with asyncio.timeout(0.5), ours.transaction():
                    await (await ours.send(topic, b"never"))
                    await asyncio.sleep(60)

            with pytest.raises(TimeoutError):
                await run_late()
            async with ours.transaction():
                await ours.send(topic, b"next")
        assert await committed(target, topic) == [b"next"]

    judge(scenario)


def test_broker_without_transactions_fails_the_start() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            ours = Producer(
                bootstrap_servers=cluster.bootstrap_servers,
                transactional_id="id",
                max_block_ms=5000,
            )
            with pytest.raises(RequestError) as refused:
                async with ours:
                    raise AssertionError
            assert not refused.value.retriable

    run(scenario())


def test_rows_of_a_table_are_committed_together(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(2)
        numbers = pa.table({"value": [str(number) for number in range(1, 501)]})
        async with producer(target, "columns", batch_size=500) as ours:
            with pytest.raises(RequestError, match="no transaction is open"):
                await ours.send_arrow(topic, numbers, key=None)
            with suppress(ZeroDivisionError):
                async with ours.transaction():
                    await ours.send_arrow(topic, numbers, key=None, partition=0)
                    raise ZeroDivisionError
            async with ours.transaction():
                for partition in range(2):
                    await ours.send(topic, b"0", partition=partition)
                    await ours.send_arrow(topic, numbers, key=None, partition=partition)
        for partition in range(2):
            found = await committed(target, topic, partition)
            assert found == [b"%d" % number for number in range(501)]

    judge(scenario)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_end_with_a_lost_response_is_retried_once(judge: Judge, commit: bool) -> None:
    """The broker receives the request and responds; the responses are lost."""

    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with Detour() as detour:
            rules = {"max.block.ms": 4000, "request.timeout.ms": 1000, "delivery.timeout.ms": 9000}
            ours = producer(target, f"mute-{commit}", detour, **rules)
            async with ours:
                transaction = ours.transaction()
                await transaction.__aenter__()
                await (await ours.send(topic, b"first"))
                end = transaction.commit if commit else transaction.abort
                detour.trouble.is_mute = True
                with pytest.raises(OutcomeUnknown, match="it is unknown whether"):
                    await end()
                with pytest.raises(RequestError, match="it is unknown"):
                    await ours.transaction().__aenter__()
                # The broker processed the first request long ago.
                assert await committed(target, topic) == [b"first"] * commit
                detour.trouble.is_mute = False
                detour.trouble.reset()
                await end()
                with suppress(ZeroDivisionError):
                    async with ours.transaction():
                        await ours.send(topic, b"never")
                        raise ZeroDivisionError
                async with ours.transaction():
                    await ours.send(topic, b"next")
        assert await committed(target, topic) == [b"first"] * commit + [b"next"]

    judge(scenario)


@pytest.mark.judge
def test_expired_transactional_id_costs_one_transaction() -> None:
    """The broker expires idle transactional ids; the producer continues with a new identity."""

    async def scenario() -> None:
        async with kafka_target(kafka) as target:
            topic = await target.topic()
            async with producer(target, "forgotten") as ours:
                async with ours.transaction():
                    await ours.send(topic, b"first")
                async with Admin(bootstrap_servers=target.bootstrap) as admin:
                    while (await admin.list_transactions()).found:
                        await asyncio.sleep(0.1)
                with pytest.raises(RequestError) as forgotten:
                    async with ours.transaction():
                        await (await ours.send(topic, b"lost"))
                assert forgotten.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
                async with ours.transaction():
                    await ours.send(topic, b"next")
            assert await committed(target, topic) == [b"first", b"next"]

    settings = {
        "transactional.id.expiration.ms": 500,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
    }
    with kafka_broker(settings, keeps_ports=True) as kafka:
        run(scenario(), 120)
