"""The examples of the client guide about transactions and logins, run with Apache Kafka."""

from typing import Any

import pytest

from client.scenario_runner import run
from judges.kafka_broker import KafkaBroker
from ottla import Consumer, Producer
from shared_kafka import ANNS_PASSWORD, SharedKafka
from test_client_guide import FOR_KAFKA, names_of


@pytest.fixture
def kafka(shared_kafka: SharedKafka) -> KafkaBroker:
    return shared_kafka.broker


def example(name: str, servers: str) -> Any:
    [block] = [block for block in FOR_KAFKA if f"def {name}(" in block]
    return names_of(block, servers)[name]


async def committed(kafka: KafkaBroker, topic: str, count: int) -> list[bytes | None]:
    settings = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    async with Consumer(settings, bootstrap_servers=kafka.bootstrap) as consumer:
        consumer.assign(*await consumer.partitions(topic))
        records: list[Any] = []
        while len(records) < count:
            records += await consumer.poll()
        return [record.value for record in records]


def test_transactions_of_the_guide_commit(kafka: KafkaBroker) -> None:
    async def scenario() -> None:
        settings = {"transactional.id": "guide", "bootstrap.servers": kafka.bootstrap}
        async with Producer(settings) as producer:
            await example("move", kafka.bootstrap)(producer)
            await example("move_surely", kafka.bootstrap)(producer)
        assert await committed(kafka, "orders", 2) == [b"-1 apple"] * 2
        assert await committed(kafka, "baskets", 1) == [b"+1 apple"]

    run(scenario())


def test_login_of_the_guide_succeeds(kafka: KafkaBroker) -> None:
    async def scenario() -> None:
        secured = example("secured", f"127.0.0.1:{kafka.ports['SASL']}")
        async with secured(ANNS_PASSWORD) as producer:
            assert (await (await producer.send("logged-in", b"v"))).offset == 0
        assert ANNS_PASSWORD not in repr(producer)

    run(scenario())
