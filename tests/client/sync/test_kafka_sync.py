"""The sync clients against Apache Kafka: groups, transactions and administration."""

from itertools import count

import pytest

from client.consumer_scenarios import FROM_START
from client.scenario_runner import FAST
from ottla.client.admin import NewTopic
from ottla.client.sync.administrator import Admin
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from shared_kafka import SharedKafka

_numbers = count()


@pytest.fixture
def servers(shared_kafka: SharedKafka) -> str:
    return shared_kafka.bootstrap


@pytest.fixture
def topic(servers: str) -> str:
    name = f"sync-{next(_numbers)}"
    with Admin(FAST, bootstrap_servers=servers) as admin:
        admin.create_topic(name, partitions=1)
    return name


def transactional(servers: str, topic: str) -> Producer:
    return Producer(
        FAST, bootstrap_servers=servers, transactional_id=f"of {topic}", max_request_size=50_000
    )


def committed_values(servers: str, topic: str, number: int) -> list[bytes | None]:
    settings = {**FAST, **FROM_START, "isolation.level": "read_committed"}
    with Consumer(settings, bootstrap_servers=servers) as ours:
        ours.assign((topic, 0))
        values: list[bytes | None] = []
        while len(values) < number:
            values += [record.value for record in ours.poll(20)]
        assert ours.poll(0.2) == []
    return values


def test_group_reads_what_a_producer_writes(servers: str, topic: str) -> None:
    values = [b"%d" % number for number in range(3000)]
    with Producer(FAST, bootstrap_servers=servers) as producer:
        for value in values:
            producer.send(topic, value)
    found: list[bytes | None] = []
    for stop in (1234, 3000):  # the second consumer resumes where the first one ended
        settings = {**FAST, **FROM_START, "bootstrap.servers": servers, "group.id": topic}
        with Consumer(settings, topic) as ours:
            for record in ours:
                found.append(record.value)
                if len(found) == stop:
                    break
    assert found == values


def fail(ours: Producer, topic: str) -> None:
    with ours.transaction():
        ours.send(topic, b"aborted")
        raise ZeroDivisionError


def test_transaction_is_atomic(servers: str, topic: str) -> None:
    with transactional(servers, topic) as ours:
        with ours.transaction():
            for number in range(500):
                ours.send(topic, b"%d" % number)
        with pytest.raises(ZeroDivisionError):
            fail(ours, topic)
        with ours.transaction() as given_up:
            ours.send(topic, b"aborted")
            given_up.abort()
        with ours.transaction():
            ours.send(topic, b"last")
    assert committed_values(servers, topic, 501) == [*(b"%d" % n for n in range(500)), b"last"]


def test_failed_record_aborts_its_transaction(servers: str, topic: str) -> None:
    with transactional(servers, topic) as ours:

        def one_is_too_large() -> None:
            with ours.transaction():
                ours.send(topic, b"aborted")
                ours.send(topic, bytes(100_000))

        with pytest.raises(RequestError) as caught:
            one_is_too_large()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with ours.transaction():
            ours.send(topic, b"last")
        outside = ours.send(topic, b"outside")
        with pytest.raises(RequestError, match="transaction"):
            outside.result(20)
    assert committed_values(servers, topic, 1) == [b"last"]


def test_offsets_are_committed_with_the_transaction(servers: str, topic: str) -> None:
    where = TopicPartition(topic, PartitionIndex(0))
    with transactional(servers, topic) as ours, ours.transaction() as transaction:
        ours.send(topic, b"v")
        transaction.send_offsets({where: 7}, f"group of {topic}")
    with Consumer(FAST, bootstrap_servers=servers, group_id=f"group of {topic}") as reader:
        kept = reader.committed((topic, 0))[where]
    assert kept is not None
    assert kept.offset == 7


def test_admin_calls_are_answered(servers: str, topic: str) -> None:
    with Admin(FAST, bootstrap_servers=servers) as admin:
        assert topic in admin.list_topics()
        refused = admin.create_topics([NewTopic(topic, 1), NewTopic(f"{topic}-b", 2)])
        assert set(refused.failed) == {topic}
        assert set(refused.succeeded) == {f"{topic}-b"}
