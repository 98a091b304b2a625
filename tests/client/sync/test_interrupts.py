"""Interrupted reads of a sync consumer: no record is lost or returned twice."""

import signal
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

import pytest

from client.consumer_scenarios import FAST, FROM_START, new_topic
from client.leaks import client_threads, sockets
from ottla.client.sync import portal as portals
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer
from ottla.testing import ClusterThread

# An interrupt in one of Python's own callbacks is reported there and nowhere else.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

COUNT = 300
INTERRUPTS = 50
"""The limit per test; a slow machine would never finish otherwise."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with ClusterThread() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def topic(servers: str) -> str:
    name = new_topic("interrupted")
    with Producer({**FAST, "bootstrap.servers": servers, "batch.size": 500}) as producer:
        producer.send_many(name, [b"%d" % number for number in range(COUNT)], partition=0)
    return name


def consumer(servers: str, **more: object) -> Consumer[bytes, bytes]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    few_at_a_time = {"max.partition.fetch.bytes": 1500}
    settings = {**FAST, **FROM_START, **few_at_a_time, "bootstrap.servers": servers, **named}
    return Consumer(settings)


def polled(ours: Consumer[bytes, bytes]) -> list[int]:
    return [record.offset for record in ours.poll(20, max_records=7)]


def batch(ours: Consumer[bytes, bytes]) -> list[int]:
    return [record.offset for record in next(ours.batches())]


def polled_as_columns(ours: Consumer[bytes, bytes]) -> list[int]:
    return ours.poll_arrow(20)["offset"].to_pylist()


def batch_of_columns(ours: Consumer[bytes, bytes]) -> list[int]:
    return next(ours.arrow())["offset"].to_pylist()


def next_record(ours: Consumer[bytes, bytes]) -> list[int]:
    return [next(iter(ours)).offset]


TAKES: list[Callable[[Consumer[bytes, bytes]], list[int]]] = [
    *(polled, batch, polled_as_columns, batch_of_columns, next_record)
]


def interrupt_when_answered(monkeypatch: pytest.MonkeyPatch) -> list[portals.Call[Any]]:
    """Interrupt the next wait when its result is ready; return the interrupted calls."""
    hit: list[portals.Call[Any]] = []
    wait = portals.Call[Any].wait

    def interrupted(call: portals.Call[Any], timeout_s: float) -> bool:
        assert wait(call, 20)
        monkeypatch.setattr(portals.Call, "wait", wait)
        hit.append(call)
        raise KeyboardInterrupt

    monkeypatch.setattr(portals.Call, "wait", interrupted)
    return hit


@pytest.mark.parametrize("taken", TAKES, ids=lambda one: one.__name__)
def test_records_ready_at_an_interrupt_are_returned_next(
    servers: str,
    topic: str,
    taken: Callable[[Consumer[bytes, bytes]], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with consumer(servers, group_id=new_topic("g"), enable_auto_commit=False) as ours:
        ours.assign((topic, 0))
        first = taken(ours)
        ours.commit()
        hit = interrupt_when_answered(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            taken(ours)
        assert hit[0].task is not None
        assert hit[0].task.result()  # the result was ready and was not returned
        ours.commit()  # it commits none of it
        kept = [*ours.committed((topic, 0)).values()]
        assert [one.offset for one in kept if one is not None] == [len(first)]
        assert ours.position((topic, 0)) == len(first)
        second = taken(ours)
        assert second
        assert first + second == [*range(len(first) + len(second))]


def test_seek_after_an_interrupt_is_used(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consumer(servers) as ours:
        ours.assign((topic, 0))
        assert polled(ours) == [*range(7)]
        interrupt_when_answered(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            polled(ours)
        ours.seek((topic, 0), 100)
        assert polled(ours) == [*range(100, 107)]


def test_interrupt_before_the_request_loses_nothing(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consumer(servers) as ours:
        ours.assign((topic, 0))
        assert polled(ours) == [*range(7)]

        def interrupted(_: object, coroutine: Coroutine[Any, Any, Any]) -> None:
            coroutine.close()
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(portals.Portal, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                polled(ours)
        assert polled(ours) == [*range(7, 14)]


@pytest.mark.parametrize("taken", TAKES, ids=lambda one: one.__name__)
def test_interrupts_lose_and_duplicate_nothing(
    servers: str, topic: str, taken: Callable[[Consumer[bytes, bytes]], list[int]]
) -> None:
    """Real signals, repeatedly, anywhere in the client, once per call."""
    is_reading, interrupts = False, 0

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal is_reading, interrupts
        while frame is not None and is_reading:
            if "ottla/client/sync/consumer.py" in frame.f_code.co_filename:
                is_reading, interrupts = False, interrupts + 1
                raise KeyboardInterrupt
            frame = frame.f_back

    before = sockets()
    found: list[int] = []
    usual = signal.signal(signal.SIGALRM, interrupt)
    with client_threads() as started:
        try:
            with consumer(servers, fetch_max_wait_ms=1) as ours:
                ours.assign((topic, 0))
                while len(found) < COUNT:
                    if interrupts < INTERRUPTS:
                        signal.setitimer(signal.ITIMER_REAL, 0.0001 * (1 + interrupts % 20))
                    is_reading = True
                    try:
                        found += taken(ours)
                    except KeyboardInterrupt:
                        continue
                    finally:
                        is_reading = False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, usual)
        assert not started()
    assert found == [*range(COUNT)]
    assert interrupts
    assert sockets() <= before + 2  # the broker's end of the connection, for a moment
