"""Interrupted sync calls: no acknowledged record is lost, no call hangs, and threads end."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from client.consumer_scenarios import FAST, FROM_START, new_topic
from client.sync.signal_injection import MOMENTS_S, SOON_S, check_threads_end, interruptions
from ottla.client.sync import send_queue as send_queues
from ottla.client.sync.administrator import Admin
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.portal import LOOK_S, Portal
from ottla.client.sync.producer import Producer
from ottla.client.sync.send_queue import Ack
from ottla.errors import RequestError
from ottla.testing import ClusterThread

# A signal can arrive after a coroutine is created and before it runs, or in Python's own callbacks.
pytestmark = pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited:RuntimeWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterThread]:
    with ClusterThread() as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    with check_threads_end():
        yield


def settings(cluster: ClusterThread, **more: object) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {**FAST, "bootstrap.servers": cluster.bootstrap_servers, **named}


def read(cluster: ClusterThread, topic: str) -> list[int]:
    """Return all numbers in a topic."""
    with Consumer({**settings(cluster), **FROM_START}) as ours:
        ours.assign((topic, 0))
        end = ours.end_offsets((topic, 0)).popitem()[1]
        found: list[int] = []
        while ours.position((topic, 0)) < end:
            found += [int(record.value or b"") for record in ours.poll(5)]
        return found


def acknowledged(acks: dict[int, Ack]) -> list[int]:
    """Return the acknowledged numbers; the others raise, and none hangs."""
    kept: list[int] = []
    for number, ack in acks.items():
        try:
            ack.result(60)
        except RequestError:
            continue
        kept.append(number)
    return kept


def check(cluster: ClusterThread, topic: str, acks: dict[int, Ack]) -> None:
    """Check that acknowledged records are in the topic, in order and without duplicates."""
    kept, there = acknowledged(acks), read(cluster, topic)
    assert there == sorted({*there})
    assert {*kept} <= {*there}


def test_send_waiting_for_memory_can_be_interrupted(cluster: ClusterThread) -> None:
    topic = new_topic("sent")
    small = settings(cluster, buffer_memory=4000, batch_size=1000)
    acks: dict[int, Ack] = {}
    number = 0

    with Producer(small) as ours, interruptions() as interrupted:
        ours.send(topic, b"-1", partition=0).result(20)

        def fill() -> None:
            nonlocal number
            while True:
                number += (
                    1  # an interrupted send may have succeeded, so its number is not used again
                )
                acks[number] = ours.send(topic, b"%d" % number, partition=0)

        for _ in range(3):
            with cluster.brokers[0].pause():
                for _ in range(3):
                    assert interrupted(SOON_S, fill)
            for _ in range(20):
                number += 1
                acks[number] = ours.send(topic, b"%d" % number, partition=0)
        ours.flush()
        assert acknowledged(acks) == [*acks]
        check(cluster, topic, acks)


def test_memory_waits_are_short_enough_to_notice_signals(
    cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that arrives just before a lock wait is noticed when that wait ends."""
    waited: list[float] = []
    wait = send_queues.threading.Condition.wait

    def noted(condition: Any, timeout_s: float | None = None) -> bool:
        if timeout_s is not None:
            waited.append(timeout_s)
        return wait(condition, timeout_s)

    topic = new_topic("overlooked")
    small = settings(cluster, buffer_memory=4000, batch_size=1000, max_block_ms=1200)

    def fill(ours: Producer) -> None:
        while True:
            ours.send(topic, b"0" * 200, partition=0)

    with Producer(small) as ours:
        ours.send(topic, b"-1", partition=0).result(20)
        with cluster.brokers[0].pause():
            monkeypatch.setattr(send_queues.threading.Condition, "wait", noted)
            with pytest.raises(RequestError, match=r"no buffer memory for a record after 1\.2 s"):
                fill(ours)
        monkeypatch.undo()
        assert waited
        assert max(waited) <= LOOK_S
        with suppress(RequestError):  # errors of the sends that waited
            ours.flush()


def test_interrupted_flush_can_be_retried(cluster: ClusterThread) -> None:
    topic = new_topic("flushed")
    with Producer(settings(cluster)) as ours, interruptions() as interrupted:
        acks = {-1: ours.send(topic, b"-1", partition=0)}
        ours.flush()
        with cluster.brokers[0].pause():
            for number in range(100):
                acks[number] = ours.send(topic, b"%d" % number, partition=0)
            for _ in range(3):
                assert interrupted(SOON_S, ours.flush)
        ours.flush()
        assert all(ack.done() for ack in acks.values())
        for number, after_s in enumerate(MOMENTS_S, 100):
            acks[number] = ours.send(topic, b"%d" % number, partition=0)
            interrupted(after_s, ours.flush)
        ours.flush()
        assert acknowledged(acks) == [*acks]
        check(cluster, topic, acks)


def test_interrupted_admin_call_can_be_retried(
    cluster: ClusterThread,
) -> None:
    with Admin(settings(cluster)) as ours, interruptions() as interrupted:
        name = new_topic("administered")
        ours.create_topic(name)
        with cluster.brokers[0].pause():
            for call in (ours.list_topics, ours.list_groups, ours.describe_cluster):
                assert interrupted(SOON_S, call)
        for after_s in MOMENTS_S:
            interrupted(after_s, ours.list_topics)
        assert name in ours.list_topics()


def test_interrupted_commit_can_be_retried(cluster: ClusterThread) -> None:
    topic, group = new_topic("committed"), new_topic("g")
    with Producer(settings(cluster)) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(100)], partition=0)
    ours: Consumer[bytes, bytes] = Consumer(
        {**settings(cluster, group_id=group, enable_auto_commit=False), **FROM_START}
    )

    def kept() -> int | None:
        found = ours.committed((topic, 0)).popitem()[1]
        return None if found is None else found.offset

    with ours, interruptions() as interrupted:
        ours.assign((topic, 0))
        for after_s in MOMENTS_S:
            before = ours.position((topic, 0))
            taken = ours.poll(20, max_records=1)
            interrupted(after_s, ours.commit)
            assert kept() in (before or None, before, before + len(taken))
            ours.commit()
            assert kept() == ours.position((topic, 0)) == before + len(taken)
        with cluster.brokers[0].pause():
            assert interrupted(SOON_S, ours.commit)
        ours.commit()
        assert kept() == len(MOMENTS_S)


# Closing.


def end(client: Any) -> Callable[[], None]:
    return lambda: client.__exit__(None, None, None)


@pytest.mark.parametrize("paused", [True, False], ids=["silent", "at-any-moment"])
def test_producer_close_can_be_interrupted(cluster: ClusterThread, paused: bool) -> None:
    topic = new_topic("ended")
    acks: dict[int, Ack] = {}
    with interruptions() as interrupted:
        for number, after_s in enumerate([SOON_S] * 3 if paused else MOMENTS_S):
            ours = Producer(settings(cluster))
            ours.__enter__()
            for index in range(number * 10, number * 10 + 10):
                acks[index] = ours.send(topic, b"%d" % index, partition=0)
                if index % 10 == 0:
                    acks[index].result(20)
            if paused:
                with cluster.brokers[0].pause():
                    late = 1000 + number
                    acks[late] = ours.send(topic, b"%d" % late, partition=0)
                    assert interrupted(after_s, end(ours))
                    ours.close()
                    ours.close()
            else:
                interrupted(after_s, end(ours) if number % 2 else ours.close)
                ours.close()
                end(ours)()
            with pytest.raises(RequestError):
                ours.send(topic, b"late")
    kept, there = acknowledged(acks), read(cluster, topic)
    assert len(there) == len({*there})
    assert {*kept} <= {*there}


@pytest.mark.parametrize("paused", [True, False], ids=["silent", "at-any-moment"])
def test_consumer_close_can_be_interrupted(cluster: ClusterThread, paused: bool) -> None:
    topic = new_topic("ended")
    with Producer(settings(cluster)) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(100)], partition=0)
    with interruptions() as interrupted:
        for after_s in [SOON_S] * 2 if paused else MOMENTS_S:
            group = new_topic("g")
            rules = {**settings(cluster, group_id=group, enable_auto_commit=False), **FROM_START}
            ours: Consumer[bytes, bytes] = Consumer(rules, topic)
            ours.__enter__()
            assert len(ours.poll(20, max_records=7)) == 7
            ours.commit()
            if paused:
                with cluster.brokers[0].pause():
                    assert interrupted(after_s, ours.close)
            else:
                interrupted(after_s, ours.close)
            ours.close()
            end(ours)()
            with pytest.raises(RequestError):
                ours.poll()
            with Consumer(rules) as other:
                assert [one and one.offset for one in other.committed((topic, 0)).values()] == [7]


def test_admin_close_can_be_interrupted(cluster: ClusterThread) -> None:
    with interruptions() as interrupted:
        for after_s in MOMENTS_S:
            ours = Admin(settings(cluster))
            ours.__enter__()
            ours.list_topics()
            interrupted(after_s / 5, ours.close)
            ours.close()
            end(ours)()
            with pytest.raises(RequestError):
                ours.list_topics()


def test_interrupted_start_leaves_nothing(cluster: ClusterThread) -> None:
    with interruptions() as interrupted:
        for after_s in MOMENTS_S:
            for client in (Admin, Producer, Consumer):
                ours: Any = client(settings(cluster))
                interrupted(after_s / 10, ours.__enter__)
                ours.close()


def test_close_interrupted_at_its_last_step_can_be_retried(
    cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another object may still hold the thread, as the Ack of a record does."""
    with check_threads_end():
        ours = Producer(settings(cluster))
        ours.__enter__()
        ack = ours.send(new_topic("kept"), b"0")

        def interrupted(_: Portal) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Portal, "close", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ours.close()
        ours.close()
    with pytest.raises(RequestError):
        ack.result()
