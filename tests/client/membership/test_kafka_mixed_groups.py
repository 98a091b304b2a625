"""Our members in one group with others' at a real Kafka: every partition has exactly one owner.

With every assignor that both have, and in the protocol of KIP-848. Members of both kinds lead, join
and leave.
"""

import asyncio
from collections import Counter
from collections.abc import Generator, Sequence
from itertools import count

import pytest

from client.membership.peers import AiokafkaPeer, ConfluentPeer, JavaPeers, Joins, Peer
from client.membership.stage import Guest, all_of, guests, run, until
from judges.kafka_broker import KafkaBroker
from kafka_java import kafka_broker
from ottla.ids import TopicPartition

NUMBERS = count()
PARTITIONS = 7


@pytest.fixture(scope="module")
def kafka() -> Generator[KafkaBroker]:
    settings = {
        "num.partitions": PARTITIONS,
        "auto.create.topics.enable": "true",
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.assignment.interval.ms": 0,
    }
    with kafka_broker(settings) as running:
        yield running


@pytest.fixture(scope="module")
def java(kafka: KafkaBroker) -> Generator[JavaPeers]:
    with JavaPeers(kafka.bootstrap) as peers:
        yield peers


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_with_the_java_client(kafka: KafkaBroker, java: JavaPeers, strategy: str) -> None:
    run(mixed(kafka.bootstrap, java.join, strategy))


def test_with_the_java_client_under_the_new_protocol(kafka: KafkaBroker, java: JavaPeers) -> None:
    run(mixed(kafka.bootstrap, java.join, "consumer"))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky", "consumer"])
def test_with_confluent_kafka(kafka: KafkaBroker, strategy: str) -> None:
    run(mixed(kafka.bootstrap, ConfluentPeer, strategy))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_with_aiokafka(kafka: KafkaBroker, strategy: str) -> None:
    run(mixed(kafka.bootstrap, AiokafkaPeer, strategy))


async def mixed(bootstrap: str, theirs: Joins, strategy: str) -> None:
    """Members of both kinds come and go, each of them leads once."""
    number = next(NUMBERS)
    topic, group = f"topic-{number}", f"group-{number}"
    whole = all_of(topic, PARTITIONS)
    settings: dict[str, object] = {"group_protocol": "consumer"}
    if strategy != "consumer":
        settings = {"partition_assignment_strategy": strategy}
    peers: list[Peer] = []

    async with guests() as guest:

        def our() -> Guest:
            return guest(bootstrap, [topic], group_id=group, metadata_max_age_ms=1000, **settings)

        def their() -> Peer:
            peers.append(theirs(bootstrap, group, topic, strategy))
            return peers[-1]

        async def leave(one: Guest | Peer) -> None:
            await one.leave()
            if one in peers:
                peers.remove(one)

        try:
            first = our()
            await shared([first], whole)
            second = their()
            await shared([first, second], whole)
            third, fourth = our(), their()
            await shared([first, second, third, fourth], whole)
            await leave(first)  # it led
            await shared([second, third, fourth], whole)
            await leave(second)
            await shared([third, fourth], whole)
            fifth = our()
            await shared([third, fourth, fifth], whole)
            await leave(third)
            await leave(fifth)
            await shared([fourth], whole)  # all of it went to a member that is not ours
            sixth = our()
            await shared([fourth, sixth], whole)
            await leave(fourth)
            await shared([sixth], whole)
            await sixth.leave()
        finally:
            await asyncio.gather(*(one.leave() for one in peers), return_exceptions=True)


async def shared(members: Sequence[Guest | Peer], whole: frozenset[TopicPartition]) -> None:
    """Wait until every partition has exactly one owner, and nobody has too many."""
    least = len(whole) // len(members)

    def is_shared() -> bool:
        found = [one.has for one in members]
        return Counter(partition for has in found for partition in has) == Counter(whole) and all(
            least <= len(has) <= least + 1 for has in found
        )

    await until(is_shared, lambda: f"{[(type(one).__name__, sorted(one.has)) for one in members]}")
