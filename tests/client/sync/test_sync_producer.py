"""The sync producer: shared by threads, unhandled errors, and a close that does not hang."""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from client.consumer_scenarios import FROM_START
from client.scenario_runner import FAST
from ottla.client.admin.administrator import Admin as AsyncAdmin
from ottla.client.partitioners import Partitions
from ottla.client.producer.producer import Producer as AsyncProducer
from ottla.client.serializers import LONG, STRING, SerializationFailed
from ottla.client.sync.administrator import Admin
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer
from ottla.client.sync.send_queue import Ack
from ottla.errors import ErrorCode, RequestError
from ottla.testing import ClusterThread
from ottla.transport.channel import Disconnected, TimedOut

_numbers = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterThread]:
    with ClusterThread() as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    return f"sent-{next(_numbers)}"


def producer(cluster: ClusterThread, **arguments: str | int) -> Producer:
    named = {name.replace("_", "."): value for name, value in arguments.items()}
    return Producer({**FAST, "bootstrap.servers": cluster.bootstrap_servers, **named})


def read(cluster: ClusterThread, topic: str, number: int) -> list[bytes | None]:
    """Return the values of a topic with one partition; assert that there are exactly `number`."""
    with Consumer({**FAST, **FROM_START}, bootstrap_servers=cluster.bootstrap_servers) as ours:
        ours.assign((topic, 0))
        assert ours.end_offsets((topic, 0))[ours.partitions(topic)[0]] == number
        values: list[bytes | None] = []
        while len(values) < number:
            values += [record.value for record in ours.poll(20)]
    return values


def test_record_is_written_and_its_offset_is_returned(cluster: ClusterThread, topic: str) -> None:
    with producer(cluster) as ours:
        ack = ours.send(topic, b"v", key=b"k", headers=[("h", b"1")], timestamp_ms=5)
        written = ack.result(20)
        assert (written.topic, written.partition, written.offset) == (topic, 0, 0)
        assert ack.done()
        assert ack.result() == written
        assert ours.send(topic, headers=None).result().offset == 1
        assert ours.partitions(topic) == [0]
        assert ours.metrics().record_send_total == 2
    with Consumer({**FAST, **FROM_START}, bootstrap_servers=cluster.bootstrap_servers) as reader:
        reader.assign((topic, 0))
        record = next(iter(reader))
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"v", 5)
    assert record.headers == (("h", b"1"),)


def test_leaving_the_block_writes_all_records_in_order(cluster: ClusterThread, topic: str) -> None:
    with producer(cluster, linger_ms=1000) as ours:
        for number in range(5000):
            ours.send(topic, b"%d" % number)
    assert read(cluster, topic, 5000) == [b"%d" % number for number in range(5000)]


def test_send_many_follows_earlier_records(cluster: ClusterThread, topic: str) -> None:
    with producer(cluster, batch_size=200) as ours:  # each send often waits, and could be overtaken
        for number in range(1000):
            ours.send(topic, b"%d" % number)
        acks = ours.send_many(topic, [b"%d" % number for number in range(1000, 2000)])
        ours.send(topic, b"2000")
        ours.flush(20)
        assert [ack.result().offset for ack in acks] == [*range(1000, 2000)]
    assert read(cluster, topic, 2001) == [b"%d" % number for number in range(2001)]


def test_send_arrow_follows_earlier_records(cluster: ClusterThread, topic: str) -> None:
    pa: Any = pytest.importorskip("pyarrow")
    rows = pa.record_batch({"v": [b"%d" % number for number in range(100, 200)]})
    with producer(cluster) as ours:
        for number in range(100):
            ours.send(topic, b"%d" % number)
        ack = ours.send_arrow(topic, rows, key=None, value="v")
        ours.send(topic, b"200")
        [written] = ack.result(20)
        with pytest.raises(RequestError, match="nonsense"):
            ours.send_arrow(topic, rows, key="nonsense", value="v")
    assert (written.offset, written.rows) == (100, 100)
    assert ack.done()
    assert ack.result() == [written]  # also after the producer is closed
    assert read(cluster, topic, 201) == [b"%d" % number for number in range(201)]


def test_threads_share_a_producer_and_keep_their_order(cluster: ClusterThread, topic: str) -> None:
    acks: dict[int, list[Ack]] = {}
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with producer(cluster, batch_size=500) as ours:

            def send(thread: int) -> None:
                acks[thread] = [ours.send(topic, b"%d %d" % (thread, n)) for n in range(500)]
                assert acks[thread][-1].result(30).offset >= 499

            threads = [threading.Thread(target=send, args=(one,)) for one in range(6)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
    finally:
        sys.setswitchinterval(before)
    values = read(cluster, topic, 3000)
    for thread in range(6):
        mine = [value for value in values if value and value.startswith(b"%d " % thread)]
        assert mine == [b"%d %d" % (thread, number) for number in range(500)]
        for number, ack in enumerate(acks[thread]):
            assert values[ack.result().offset] == b"%d %d" % (thread, number)


def test_serialization_error_is_raised_at_once(cluster: ClusterThread, topic: str) -> None:
    def here(topic: str, value: str) -> bytes:
        assert threading.current_thread() is threading.main_thread()
        return STRING.serialize(topic, value) or b""

    servers = cluster.bootstrap_servers
    typed = Producer(bootstrap_servers=servers, key_serializer=here, value_serializer=LONG)
    with typed as ours:
        with pytest.raises(SerializationFailed, match="the value"):
            ours.send(topic, "five")  # pyright: ignore[reportArgumentType]
        with pytest.raises(SerializationFailed):
            ours.send_many(topic, [1, "five"])  # pyright: ignore[reportArgumentType]
        assert ours.send(topic, 5, key="k").result(20).offset == 0
    with producer(cluster) as plain, pytest.raises(TypeError, match="value_serializer"):
        plain.send(topic, "text")  # pyright: ignore[reportArgumentType]


def test_buffer_may_change_after_send(cluster: ClusterThread, topic: str) -> None:
    with producer(cluster) as ours:
        changing = bytearray(b"before")
        headers = [("h", b"1")]
        ack = ours.send(topic, changing, headers=headers)  # pyright: ignore[reportArgumentType]
        changing[:] = b"after!"
        headers.clear()
        ack.result(20)
    assert read(cluster, topic, 1) == [b"before"]


def test_refused_record_fails_its_ack(cluster: ClusterThread, topic: str) -> None:
    with producer(cluster, max_request_size=1000) as ours:
        ack = ours.send(topic, bytes(1000))
        with pytest.raises(RequestError, match=r"max\.request\.size=1000"):
            ack.result(20)
        with pytest.raises(RequestError, match=r"max\.request\.size=1000") as refused:
            ack.result(20)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert ack.done()
        ours.flush(20)  # the error was already reported
        assert ours.send(topic, b"small").result(20).offset == 0


def test_unhandled_failure_is_raised(cluster: ClusterThread, topic: str) -> None:
    with producer(cluster, max_request_size=1000) as ours:
        ours.send(topic, bytes(1000))
        with pytest.raises(RequestError, match=r"max\.request\.size"):
            ours.flush(20)
        ours.flush(20)

    def leave() -> None:
        with producer(cluster, max_request_size=1000) as ours:
            ours.send(topic, bytes(1000))

    with pytest.raises(RequestError, match=r"max\.request\.size"):
        leave()


def test_send_waits_for_memory_up_to_max_block(cluster: ClusterThread, topic: str) -> None:
    small = producer(
        cluster, batch_size=1000, buffer_memory=5000, max_block_ms=1500, linger_ms=10_000
    )
    small.__enter__()
    for number in range(100):  # far more than the buffer holds
        small.send(topic, bytes(400), key=b"%d" % number)
    small.flush(20)

    def send_more() -> None:
        for _ in range(100):
            small.send(topic, bytes(400))

    with cluster.brokers[0].pause(), pytest.raises(TimedOut, match=r"buffer\.memory"):
        send_more()
    small.close()


def test_close_without_a_broker_times_out() -> None:
    with ClusterThread() as cluster:
        gone = cluster.bootstrap_servers
    acks: list[Ack] = []

    def send() -> None:
        with Producer(FAST, bootstrap_servers=gone, max_block_ms=300) as ours:
            acks.extend(ours.send("t", b"v") for _ in range(1000))
            with pytest.raises(Disconnected, match="ottla dev"):
                acks[0].result()

    before_s = time.monotonic()
    with pytest.raises(Disconnected, match="ottla dev"):
        send()
    assert time.monotonic() - before_s < 10
    assert all(ack.done() for ack in acks)


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_failed_block_flushes_and_an_interrupted_one_does_not(
    cluster: ClusterThread, topic: str, kind: type[BaseException]
) -> None:
    acks: list[Ack] = []

    def fail() -> None:
        with producer(cluster, linger_ms=100_000) as ours:
            acks.extend(ours.send(topic, b"v") for _ in range(3))
            raise kind

    with pytest.raises(kind):
        fail()
    if kind is ZeroDivisionError:
        assert [ack.result().offset for ack in acks] == [0, 1, 2]
        return
    for ack in acks:
        with pytest.raises(Disconnected, match="closed"):
            ack.result(5)


def test_long_close_of_a_failed_block_is_logged(
    cluster: ClusterThread,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.client.lifecycle.shutdown.SILENT_CLOSE_S", 0.0)

    def fail() -> None:
        with producer(cluster, max_block_ms=1000) as ours:
            ours.send(topic, b"v", partition=0).result(20)
            ours.send(topic, b"v", partition=7).result(0.1)

    with caplog.at_level(logging.WARNING), pytest.raises(TimedOut):
        fail()
    expected = "closing: waits up to 1 s for 1 record that is not sent yet (max.block.ms)"
    assert expected in caplog.messages


def test_wrong_timeouts_of_a_producer_are_refused(cluster: ClusterThread, topic: str) -> None:
    given: Any = "3"
    with producer(cluster) as ours:
        ack = ours.send(topic, b"v")
        ack.result()
        with pytest.raises(TypeError, match="timeout_s must be a number of seconds, not '3'"):
            ours.flush(given)
        with pytest.raises(TypeError, match="timeout_s must be a number of seconds, not '3'"):
            ours.refresh_metadata(timeout_s=given)

        async def flushed() -> None:
            await ours._behind.flush(given)  # pyright: ignore[reportPrivateUsage]

        with pytest.raises(TypeError, match="timeout_s must be a number of seconds, not '3'"):
            ours._portal.run(flushed())  # pyright: ignore[reportPrivateUsage]


def test_closed_producer_raises(cluster: ClusterThread, topic: str) -> None:
    ours = producer(cluster)
    with pytest.raises(Disconnected, match="use `with`"):
        ours.send(topic)
    with ours:
        ours.send(topic)
    ours.close()
    for late in (ours.flush, ours.transaction, ours.metrics, lambda: ours.send(topic)):
        with pytest.raises(Disconnected, match="use `with`"):
            late()
    with pytest.raises(Disconnected, match="use `with`"):
        ours.send_many(topic, [])


@pytest.mark.parametrize(("front", "behind"), [(Producer, AsyncProducer), (Admin, AsyncAdmin)])
def test_two_threads_may_close_at_once(
    cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch, front: Any, behind: Any
) -> None:
    """The event loop ends with the second close, while the first one runs in it."""
    first, real, errors = threading.Event(), behind.close, list[Exception]()

    async def close(self: Any) -> None:
        await real(self)
        if not first.is_set():
            first.set()
            await asyncio.Event().wait()  # until the event loop ends

    monkeypatch.setattr(behind, "close", close)
    ours = front({"bootstrap.servers": cluster.bootstrap_servers}).__enter__()

    def closed() -> None:
        try:
            ours.close()
        except Exception as error:
            errors.append(error)

    other = threading.Thread(target=closed)
    other.start()
    assert first.wait(20)
    closed()
    other.join(20)
    assert not other.is_alive()
    assert errors == []


def test_transactions_need_a_transactional_id(cluster: ClusterThread) -> None:
    with producer(cluster) as ours, pytest.raises(RequestError, match=r"transactional\.id"):
        ours.transaction()


def test_producer_is_usable_after_an_interrupt(cluster: ClusterThread, topic: str) -> None:
    with producer(cluster, linger_ms=100_000) as ours:
        ack = ours.send(topic, b"v")
        interrupting = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            ack.result(60)
        interrupting.join()
        ours.flush(20)
        assert ack.result().offset == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_does_not_affect_the_parent(cluster: ClusterThread, topic: str) -> None:
    with producer(cluster, linger_ms=100_000) as ours:
        ack = ours.send(topic, b"v")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ours.flush(5)
            except Disconnected:
                code = 0
            finally:
                ours.close()
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        ours.flush(20)
        assert ack.result().offset == 0


def test_partitioner_is_called_once_per_record(cluster: ClusterThread, topic: str) -> None:
    called: list[bytes | None] = []

    def choose(_: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        called.append(value)
        return len(called) % partitions.count

    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic(topic, 2)
    values = [b"%d" % number + bytes(100) for number in range(200)]
    settings = {**FAST, "bootstrap.servers": cluster.bootstrap_servers, "batch.size": 500}
    with Producer(settings, partitioner=choose) as ours:
        ours.partitions(topic)  # its metadata are known, so that no choice is repeated
        acks = [ours.send(topic, value) for value in values]
        assert {ack.result(20).partition for ack in acks} == {0, 1}
        for ack in (ours.send(topic, b"alone") for _ in range(3)):
            ack.result(20)
    assert called == [*values, b"alone", b"alone", b"alone"]
