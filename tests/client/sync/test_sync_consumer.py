"""The sync consumer: the scenarios of the async one, and the effects of threads."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from client import consumer_scenarios, rebalance_scenarios
from client.consumer_scenarios import ANYWHERE, FROM_START, Scenario, new_topic
from client.leaks import client_threads
from client.rebalance_scenarios import SOON, TOGETHER
from client.scenario_runner import FAST, run
from client.sync.async_facade import DrivenConsumer
from ottla.client.consumer.record import Record
from ottla.client.group.interfaces import Rebalance
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer
from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.testing import Cluster, ClusterThread
from ottla.transport.channel import Disconnected

# In that scenario a task is cancelled; the sync equivalent is an interrupt, see test_portal.py.
SYNC = [
    one
    for one in (*ANYWHERE, *TOGETHER)
    if one is not consumer_scenarios.cancelled_poll_leaves_nothing
]


@pytest.mark.parametrize("scenario", SYNC, ids=lambda scenario: scenario.__name__)
def test_consumer_scenarios_hold_for_the_sync_consumer(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_scenarios, "Consumer", DrivenConsumer)
    monkeypatch.setattr(rebalance_scenarios, "Consumer", DrivenConsumer)

    async def with_a_broker() -> None:
        with ThreadPoolExecutor(32) as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            async with Cluster(settings={"num.partitions": 3}) as cluster:
                await scenario(cluster.bootstrap_servers, new_topic("t"))

    with client_threads() as started:
        run(with_a_broker())
        assert not started()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with ClusterThread() as cluster:
        yield cluster.bootstrap_servers


def written(servers: str, count: int, batch_size: int = 16_384) -> str:
    topic = new_topic("sync")
    settings = {**FAST, "bootstrap.servers": servers, "batch.size": batch_size}
    with Producer(settings) as producer:
        producer.send_many(topic, [b"%d" % n for n in range(count)])
    return topic


def member(servers: str, topic: str, *, commits: bool = True) -> Consumer[bytes, bytes]:
    settings = {**FAST, **FROM_START, **SOON, "bootstrap.servers": servers, "group.id": topic}
    return Consumer(settings, topic, enable_auto_commit=commits)


def committed(servers: str, topic: str) -> int | None:
    with Consumer(FAST, bootstrap_servers=servers, group_id=topic) as other:
        kept = other.committed((topic, 0))[key(topic)]
    return None if kept is None else kept.offset


def key(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)  # pyright: ignore[reportArgumentType]


def test_break_commits_up_to_the_record_in_hand(servers: str) -> None:
    topic = written(servers, 1000)
    with member(servers, topic) as ours:
        for record in ours:
            if record.offset == 41:
                assert ours.position((topic, 0)) == 42
                break
        assert ours.position((topic, 0)) == 42
    assert committed(servers, topic) == 42


def test_commit_in_a_loop_includes_the_returned_records(servers: str) -> None:
    topic = written(servers, 1000)
    with member(servers, topic, commits=False) as ours:
        for record in ours:
            if record.offset == 10:
                ours.commit()
            if record.offset == 20:
                break
    assert committed(servers, topic) == 11


def test_failed_block_does_not_commit_the_record_in_hand(servers: str) -> None:
    topic = written(servers, 1000)

    def fail_at_57() -> None:
        with member(servers, topic) as ours:
            for record in ours:
                if record.offset == 57:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at_57()
    assert committed(servers, topic) == 57


def test_read_methods_can_alternate(servers: str) -> None:
    topic = written(servers, 3000, batch_size=1000)
    with member(servers, topic) as ours:
        found: list[int] = []
        for record in ours:
            found.append(record.offset)
            if len(found) % 7 == 0:
                found += [one.offset for one in ours.poll(0.5, max_records=5)]
            if len(found) >= 3000:
                break
        assert found == [*range(3000)]


def test_callbacks_may_commit_and_seek(servers: str) -> None:
    topic = written(servers, 100)
    threads: list[str] = []
    revoked: list[int] = []
    with member(servers, topic, commits=False) as ours:

        def came(partitions: frozenset[TopicPartition], why: Rebalance) -> None:
            threads.append(threading.current_thread().name)
            ours.seek((topic, 0), 90)
            assert ours.position((topic, 0)) == 90

        def went(partitions: frozenset[TopicPartition], why: Rebalance) -> None:
            ours.commit()
            revoked.append(ours.position((topic, 0)))

        ours.subscribe(topic, on_assigned=came, on_revoked=went)
        assert next(iter(ours)).offset == 90
        ours.unsubscribe()
    assert threads == ["ottla rebalance"]
    assert revoked == [91]
    assert committed(servers, topic) == 91


def test_failed_callback_is_raised_with_its_cause(servers: str) -> None:
    topic = written(servers, 1)
    with member(servers, topic) as ours:

        def fails(came: frozenset[TopicPartition], why: Rebalance) -> None:
            raise ZeroDivisionError

        ours.subscribe(topic, on_assigned=fails)
        with pytest.raises(RequestError, match="ZeroDivisionError") as caught:
            ours.poll(20)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_callback_cannot_end_its_own_consumer(servers: str) -> None:
    topic = written(servers, 1)
    refused: list[str] = []
    with member(servers, topic) as ours:

        def ends(came: frozenset[TopicPartition], why: Rebalance) -> None:
            for end in (ours.unsubscribe, ours.close):
                with pytest.raises(RuntimeError, match="callback must not unsubscribe") as caught:
                    end()
                refused.append(str(caught.value))

        ours.subscribe(topic, on_assigned=ends)
        assert len(ours.poll(20)) == 1
    assert len(refused) == 2


def test_callback_may_change_the_subscription(servers: str) -> None:
    first, second = written(servers, 1), written(servers, 1)
    with member(servers, first) as ours:
        ours.subscribe(first, on_assigned=lambda came, why: ours.subscribe(second))
        while second not in {one.topic for one in ours.poll()}:
            pass
        assert {one.topic for one in ours.assignment} == {second}


def test_seek_of_another_thread_applies_in_a_running_loop(servers: str) -> None:
    topic = written(servers, 2000)
    with Consumer({**FAST, **FROM_START}, bootstrap_servers=servers) as ours:
        ours.assign((topic, 0))
        found: list[int] = []
        for record in ours:
            found.append(record.offset)
            if len(found) == 5:
                other = threading.Thread(target=ours.seek, args=((topic, 0), 1990))
                other.start()
                other.join()
            if record.offset == 1999:
                break
        assert found == [0, 1, 2, 3, 4, *range(1990, 2000)]
        assert ours.position((topic, 0)) == 2000


def test_close_wakes_a_waiting_reader(servers: str) -> None:
    topic = new_topic("empty")
    ours = Consumer(FAST, bootstrap_servers=servers)
    heard: list[BaseException] = []
    with ours:
        ours.assign((topic, 0))

        def read() -> None:
            try:
                next(iter(ours))
            except Disconnected as error:
                heard.append(error)

        reading = threading.Thread(target=read)
        reading.start()
    reading.join(10)
    assert not reading.is_alive()
    assert len(heard) == 1
    with pytest.raises(Disconnected, match="use `with`"):
        ours.poll()


def test_deserializer_cannot_block_on_its_own_consumer(servers: str) -> None:
    topic = written(servers, 1)
    told: list[str] = []

    def nosy(topic: str, data: bytes) -> bytes:
        try:
            ours.position((topic, 0))
        except RuntimeError as error:
            told.append(str(error))
        return data

    with Consumer(
        {**FAST, **FROM_START}, bootstrap_servers=servers, value_deserializer=nosy
    ) as ours:
        ours.assign((topic, 0))
        [record] = ours.poll(20)
        assert isinstance(record, Record)
    assert "own thread" in told[0]
