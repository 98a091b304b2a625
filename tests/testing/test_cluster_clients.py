"""confluent-kafka and aiokafka with acks=all and idempotence, while brokers are killed."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import aiokafka
import confluent_kafka
import pytest

from ottla import NewTopic
from ottla.sync import Admin
from ottla.testing import ClusterThread, ThreadBroker

TOPIC: Final = "orders"
BATCH: Final = 20  # records between two looks at the clock

CONFLUENT: Any = confluent_kafka  # no type hints
AIOKAFKA: Any = aiokafka

Produce = Callable[[str, threading.Event], int]
"""Produces numbers in order until the event is set; returns how many."""


def by_confluent(servers: str, is_over: threading.Event) -> int:
    config = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1}
    producer = CONFLUENT.Producer(config)
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    sent = 0
    while not is_over.is_set():
        for _ in range(BATCH):
            producer.produce(TOPIC, b"%d" % sent, partition=0, on_delivery=delivered)
            sent += 1
        producer.poll(0.01)
    assert producer.flush(30) == 0
    assert not failures
    return sent


def by_aiokafka(servers: str, is_over: threading.Event) -> int:
    async def produce() -> int:
        producer = AIOKAFKA.AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, acks="all", retry_backoff_ms=50
        )
        sent, pending = 0, list[Any]()
        async with producer:
            while not is_over.is_set():
                for _ in range(BATCH):
                    pending.append(await producer.send(TOPIC, b"%d" % sent, partition=0))
                    sent += 1
                await asyncio.sleep(0.01)
            await asyncio.gather(*pending)
        return sent

    return asyncio.run(produce())


def leader(cluster: ClusterThread) -> ThreadBroker:
    found = cluster.leader(TOPIC, 0)
    assert found is not None
    return found


def follower(cluster: ClusterThread) -> ThreadBroker:
    busy = (cluster.leader(TOPIC, 0), cluster.controller)
    return next(one for one in cluster.brokers if one not in busy)


def controller(cluster: ClusterThread) -> ThreadBroker:
    found = cluster.controller
    assert found is not None
    return found


def all_values(cluster: ClusterThread) -> list[int]:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"}
    consumer = CONFLUENT.Consumer(config | {"enable.partition.eof": True})
    consumer.assign([CONFLUENT.TopicPartition(TOPIC, 0, 0)])
    found: list[int] = []
    while True:
        message = consumer.poll(10)
        assert message is not None, "no answer in 10 s"
        if message.error() is None:
            found.append(int(message.value()))
        elif message.error().code() == CONFLUENT.KafkaError._PARTITION_EOF:
            consumer.close()
            return found


@pytest.mark.parametrize("produce", [by_confluent, by_aiokafka])
def test_killed_brokers_lose_duplicate_and_reorder_nothing(produce: Produce) -> None:
    with ClusterThread(brokers=3) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 3)])
        cluster.settled()
        is_over = threading.Event()
        sent: list[int] = []
        producing = threading.Thread(
            target=lambda: sent.append(produce(cluster.bootstrap_servers, is_over))
        )
        producing.start()
        try:
            for choose in (leader, follower, controller):
                victim = choose(cluster)
                led = cluster.leader(TOPIC, 0) is victim
                victim.kill()
                while led and cluster.leader(TOPIC, 0) in (victim, None):
                    time.sleep(0.01)
                victim.start()
                cluster.settled()
        finally:
            is_over.set()
            producing.join()
        assert sent, "the producer failed"
        assert all_values(cluster) == [*range(sent[0])]
