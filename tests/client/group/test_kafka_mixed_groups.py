"""Mixed groups of Ottla's client and other clients: every partition has exactly one owner.

With every assignor that both clients have, on Ottla and on Apache Kafka, there also in the KIP-848
protocol. Members of both kinds lead, join and leave.
"""

import asyncio
from collections import Counter
from collections.abc import Generator, Sequence
from itertools import count
from typing import TypeAlias

import pytest

from client.group.harness import HarnessMember, all_of, member_factory
from client.group.peers import (
    AIOKAFKA,
    JAVA,
    AiokafkaPeer,
    ConfluentPeer,
    JavaPeers,
    Joins,
    Peer,
)
from client.scenario_runner import run, until
from judges.kafka_broker import KafkaBroker
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.client.admin import Admin
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition

NUMBERS = count()
PARTITIONS = 7
ON_KAFKA_BY_JUDGE = pytest.mark.parametrize(
    "server", [pytest.param("Kafka", marks=pytest.mark.judge), "Ottla"], indirect=True
)


@pytest.fixture(scope="module", params=["Kafka", "Ottla"])
def server(request: pytest.FixtureRequest) -> Generator[KafkaBroker | OttlaBroker]:
    if request.param == "Ottla":
        with ottla_broker() as running:
            yield running
    else:
        yield request.getfixturevalue("shared_kafka").broker


@pytest.fixture(scope="module")
def java(server: KafkaBroker | OttlaBroker) -> Generator[JavaPeers]:
    with JavaPeers(server.bootstrap) as peers:
        yield peers


Server: TypeAlias = KafkaBroker | OttlaBroker


def run_mixed_group(server: Server, joins: Joins, strategy: str) -> None:
    """Run a mixed group; Ottla supports only the classic protocol and refuses the other."""
    if strategy != "consumer" or isinstance(server, KafkaBroker):
        run(mixed_group(server.bootstrap, joins, strategy))
    else:
        run(refused(server.bootstrap))


@pytest.mark.parametrize("strategy", [*JAVA])
def test_mixed_group_with_the_java_client(server: Server, java: JavaPeers, strategy: str) -> None:
    run_mixed_group(server, java.join, strategy)


@ON_KAFKA_BY_JUDGE
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky", "consumer"])
def test_mixed_group_with_confluent_kafka(server: Server, strategy: str) -> None:
    run_mixed_group(server, ConfluentPeer, strategy)


@ON_KAFKA_BY_JUDGE
@pytest.mark.parametrize("strategy", [*AIOKAFKA])
def test_mixed_group_with_aiokafka(server: Server, strategy: str) -> None:
    run_mixed_group(server, AiokafkaPeer, strategy)


async def refused(bootstrap: str) -> None:
    async with member_factory() as make_member:
        one = make_member(bootstrap, ["t"], group_protocol="consumer")
        await until(one.life.done)
        with pytest.raises(RequestError, match=r"group\.protocol=classic") as raised:
            one.life.result()
        assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


async def mixed_group(bootstrap: str, theirs: Joins, strategy: str) -> None:
    """Members of both kinds join and leave, and each of them leads once."""
    number = next(NUMBERS)
    topic, group = f"mixed-{number}", f"mixed-{number}"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(topic, PARTITIONS)
    whole = all_of(topic, PARTITIONS)
    settings: dict[str, object] = {"group_protocol": "consumer"}
    if strategy != "consumer":
        settings = {"partition_assignment_strategy": strategy}
    peers: list[Peer] = []

    async with member_factory() as make_member:

        def our() -> HarnessMember:
            return make_member(
                bootstrap, [topic], group_id=group, metadata_max_age_ms=1000, **settings
            )

        def their() -> Peer:
            peers.append(theirs(bootstrap, group, topic, strategy))
            return peers[-1]

        async def leave(one: HarnessMember | Peer) -> None:
            await one.leave()
            if one in peers:
                peers.remove(one)

        try:
            first = our()
            await balanced([first], whole)
            second = their()
            await balanced([first, second], whole)
            third, fourth = our(), their()
            await balanced([first, second, third, fourth], whole)
            await leave(first)  # it was the leader
            await balanced([second, third, fourth], whole)
            await leave(second)
            await balanced([third, fourth], whole)
            fifth = our()
            await balanced([third, fourth, fifth], whole)
            await leave(third)
            await leave(fifth)
            await balanced([fourth], whole)  # all partitions went to the other client's member
            sixth = our()
            await balanced([fourth, sixth], whole)
            await leave(fourth)
            await balanced([sixth], whole)
            await sixth.leave()
        finally:
            await asyncio.gather(*(one.leave() for one in peers), return_exceptions=True)


async def balanced(
    members: Sequence[HarnessMember | Peer], whole: frozenset[TopicPartition]
) -> None:
    """Wait until every partition has exactly one owner, and the partitions are balanced."""
    least = len(whole) // len(members)

    def is_shared() -> bool:
        found = [one.has for one in members]
        return Counter(partition for has in found for partition in has) == Counter(whole) and all(
            least <= len(has) <= least + 1 for has in found
        )

    await until(is_shared, lambda: f"{[(type(one).__name__, sorted(one.has)) for one in members]}")
