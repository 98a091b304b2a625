"""The producer: bounded in memory and time, and every loss is reported.

What it does with records is in test_kafka_producer.py, on any broker.
"""

import asyncio
import logging
from typing import Any

import pyarrow
import pytest

from cases import each_case
from client.scenario_runner import FAST, run, until
from ottla.client.admin.administrator import Admin
from ottla.client.partitioners import Partitions, partition_of_key
from ottla.client.producer.producer import RECORD_OVERHEAD_BYTES, Producer
from ottla.errors import ErrorCode, RequestError
from ottla.records.errors import InvalidRecords
from ottla.settings.invalid_settings import InvalidSettings
from ottla.testing import Cluster
from ottla.transport.channel import Disconnected, TimedOut

pa: Any = pyarrow


def producer(cluster: Cluster, **arguments: str | int) -> Producer:
    settings = {**FAST, "bootstrap.servers": cluster.bootstrap_servers}
    named = {name.replace("_", "."): value for name, value in arguments.items()}
    return Producer({**settings, **named})


def test_send_waits_for_memory_up_to_max_block() -> None:
    async def scenario() -> None:
        async with (
            Cluster() as cluster,
            producer(
                cluster, batch_size=1000, buffer_memory=5000, max_block_ms=1500, linger_ms=10_000
            ) as ours,
        ):
            for number in range(100):  # far more than the buffer holds
                await ours.send("t", bytes(400), key=b"%d" % number)
            with (
                cluster.brokers[0].pause(),
                pytest.raises(TimedOut, match=r"buffer\.memory"),
            ):
                await ours.send_many("t", [bytes(400)] * 100)

    run(scenario())


def test_too_large_record_is_refused_at_once() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster, max_request_size=1000) as ours:
            with pytest.raises(RequestError, match=r"max\.request\.size=1000") as refused:
                await ours.send("t", bytes(1000))
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert not refused.value.retriable

    run(scenario())


def test_too_large_record_is_refused_with_an_open_batch() -> None:
    async def scenario() -> None:
        async with (
            Cluster() as cluster,
            producer(cluster, max_request_size=1000, batch_size=100_000, linger_ms=10_000) as ours,
        ):
            sent = [await ours.send("t", b"small") for _ in range(2)]  # the batch stays open
            for key in (None, b"key"):
                with pytest.raises(RequestError, match=r"max\.request\.size=1000") as refused:
                    await ours.send("t", bytes(1000), key=key)
                assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            with pytest.raises(RequestError, match=r"max\.request\.size=1000"):
                await ours.send_many("t", [b"small", bytes(1000)])
            sent += await ours.send_many("t", [bytes(300)] * 10)  # no record is too large by itself
            await ours.flush()
            assert {(await ack).offset for ack in sent} < {*range(20)}
            assert ours.metrics().batch_split_total == 0

    run(scenario())


def test_delivery_timeout_fails_unwritten_records() -> None:
    async def scenario() -> None:
        async with (
            Cluster() as cluster,
            producer(cluster, delivery_timeout_ms=400, request_timeout_ms=300, linger_ms=0) as ours,
        ):
            await (await ours.send("t", b"there"))
            await cluster.brokers[0].stop()
            ack = await ours.send("t", b"not there")
            with pytest.raises(RequestError, match=r"t-0: not written in 0\.4 s"):
                await ack

    run(scenario())


def test_failed_records_that_nobody_awaits_are_reported_once() -> None:
    async def scenario() -> None:
        failed: list[tuple[ErrorCode, int]] = []
        async with Cluster() as cluster:
            ours = producer(cluster, linger_ms=50, delivery_timeout_ms=400, request_timeout_ms=300)
            ours.on_failed = lambda error, count: failed.append((error.code, count))
            async with ours:
                await (await ours.send("t", b"there", partition=0))
                await cluster.brokers[0].stop()
                await ours.send_many("t", [b"lost"] * 3, partition=0)
                await ours.flush()  # does not raise the reported error
        assert failed == [(ErrorCode.REQUEST_TIMED_OUT, 3)]

    run(scenario())


def test_metadata_is_requested_from_a_broker_or_fails() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster) as ours:
            view = await ours.refresh_metadata()
            assert len(view.brokers) == 1
            await cluster.brokers[0].stop()
            with pytest.raises(RequestError):
                await ours.refresh_metadata(timeout_s=0.2)

    run(scenario())


def test_size_check_refuses_what_send_refuses() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster, max_request_size=1000) as ours:
            fits = 1000 - RECORD_OVERHEAD_BYTES
            ours.check_size(fits)
            await (await ours.send("t", bytes(fits)))
            with pytest.raises(RequestError, match=r"max\.request\.size=1000"):
                ours.check_size(fits + 1)
            with pytest.raises(RequestError, match=r"max\.request\.size=1000"):
                await ours.send("t", bytes(fits + 1))

    run(scenario())


def test_send_without_a_broker_times_out_with_a_hint() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            gone = cluster.bootstrap_servers
        async with Producer(FAST, bootstrap_servers=gone, max_block_ms=200) as ours:
            with pytest.raises(Disconnected, match="ottla dev"):
                await ours.send("t", b"v")

    run(scenario())


def test_records_sent_before_a_block_fails_are_written() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            ours = producer(cluster, linger_ms=100_000)
            await ours.__aenter__()
            ack = await ours.send("t", b"v")
            await ours.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
            assert (await ack).offset == 0
            with pytest.raises(Disconnected, match="async with"):
                await ours.send("t", b"v")

    run(scenario())


def test_unwritten_records_are_noted_on_the_block_exception() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            ours = producer(cluster, linger_ms=0, delivery_timeout_ms=400, request_timeout_ms=300)
            await ours.__aenter__()
            await (await ours.send("t", b"there", partition=0))
            await cluster.brokers[0].stop()
            await ours.send("t", b"v", partition=0)
            failure = ZeroDivisionError()
            await ours.__aexit__(ZeroDivisionError, failure, None)
            [note] = failure.__notes__
            assert note.startswith("some of the records that were sent before were not written: ")

    run(scenario())


def test_long_close_of_a_failed_block_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.lifecycle.shutdown.SILENT_CLOSE_S", 0.0)

    async def scenario() -> None:
        async with Cluster() as cluster:
            ours = producer(cluster, linger_ms=0, delivery_timeout_ms=400, request_timeout_ms=300)
            await ours.__aenter__()
            await (await ours.send("t", b"there", partition=0))
            await cluster.brokers[0].stop()
            for _ in range(2):
                await ours.send("t", b"v", partition=0)
            await ours.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    state = "not acknowledged (delivery.timeout.ms)"
    assert f"closing: waits up to 0.4 s for 2 records that are {state}" in caplog.messages


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
def test_interrupted_block_does_not_wait_for_the_buffer(kind: type[BaseException]) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            ours = producer(cluster, linger_ms=100_000)
            await ours.__aenter__()
            ack = await ours.send("t", b"v")
            await ours.__aexit__(kind, kind(), None)
            with pytest.raises(Disconnected, match="closed before this record was written"):
                await ack

    run(scenario())


@pytest.mark.parametrize("topic", [5, b"t", None])
def test_topic_of_another_type_is_refused(topic: Any) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster) as ours:
            with pytest.raises(TypeError, match="a topic name must be a str"):
                await ours.send(topic, b"v")
            with pytest.raises(TypeError, match="a topic name must be a str"):
                await ours.partitions(topic)
            assert (await (await ours.send("t", b"v"))).offset == 0

    run(scenario())


@pytest.mark.parametrize("topic", ["", "\ud800", "größe"])
def test_invalid_topic_name_is_refused_at_once(topic: str) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster) as ours:
            with pytest.raises(RequestError, match="invalid topic name") as refused:
                await ours.send(topic, b"v")
            assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert (await (await ours.send("t", b"v"))).offset == 0

    run(scenario())


def test_added_partition_is_found() -> None:
    async def scenario() -> None:
        async with (
            Cluster(settings={"num.partitions": 2}) as cluster,
            producer(cluster) as ours,
            Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        ):
            await (await ours.send("t", b"v"))
            # As with Kafka's producer, the partition may be created while `send` waits.
            waiting = asyncio.create_task(ours.send("t", b"v", partition=2))
            before = await ours.refresh_metadata()
            await ours.refresh_metadata()
            assert len(before.topics["t"].partitions) == 2
            assert not waiting.done()
            await admin.create_partitions({"t": 4})
            assert (await (await waiting)).partition == 2
            table = pa.table({"value": ["a"], "at": [3]})
            rows = await ours.send_arrow("t", table, key=None, partition="at")
            assert [one.partition for one in await rows] == [3]

    run(scenario())


def test_missing_partition_is_refused_after_max_block_ms(
    caplog: pytest.LogCaptureFixture,
) -> None:
    absent = 'nothing was sent: topic "t" has 2 partitions: partition {} does not exist'

    async def scenario() -> None:
        async with (
            Cluster(settings={"num.partitions": 2}) as cluster,
            producer(cluster, max_block_ms=1000) as ours,
        ):
            await (await ours.send("t", b"v"))
            with pytest.raises(RequestError, match=absent.format(2)) as refused:
                await ours.send("t", b"v", partition=2)
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert str(refused.value).endswith(", and did not appear in 1 s (max.block.ms)")
            assert caplog.messages == [f"{absent.format(2).partition(': ')[2]}; waiting for it"]
            with pytest.raises(RequestError, match=absent.format(-1)):
                await ours.send("t", b"v", partition=-1)
            for wrong in ("0", 1.5):
                with pytest.raises(TypeError, match="a partition number must be an integer"):
                    await ours.send("t", b"v", partition=wrong)  # pyright: ignore[reportArgumentType]

    run(scenario())


def test_keys_follow_an_added_partition_while_batches_are_open() -> None:
    async def scenario() -> None:
        async with (
            Cluster() as cluster,
            Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
            producer(cluster, linger_ms=60_000) as ours,
        ):
            keys = [b"key %d" % number for number in range(30)]
            await admin.create_topic("t", 2)
            first = [await ours.send("t", b"v", key=key) for key in keys * 2]
            await admin.create_partitions({"t": 5})
            assert len((await ours.refresh_metadata()).topics["t"].partitions) == 5
            second = [await ours.send("t", b"v", key=key) for key in keys * 2]
            await ours.flush()
            for count, acks in ((2, first), (5, second)):
                places = [(await ack).partition for ack in acks]
                assert places == [partition_of_key(key, count) for key in keys * 2]

    run(scenario())


def test_partitioner_is_called_once_per_record() -> None:
    called: list[bytes | None] = []

    def choose(_: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        called.append(value)
        return len(called) % partitions.count

    async def scenario() -> None:
        async with Cluster(settings={"num.partitions": 2}) as cluster:
            settings = {**FAST, "bootstrap.servers": cluster.bootstrap_servers, "batch.size": 500}
            async with Producer(settings, partitioner=choose) as ours:
                await ours.partitions("t")
                values = [b"%d" % number + bytes(100) for number in range(100)]
                acks = [await ours.send("t", value) for value in values]
                assert {(await ack).partition for ack in acks} == {0, 1}
                for _ in range(3):
                    await (await ours.send("t", b"alone"))
                assert called == [*values, b"alone", b"alone", b"alone"]

    run(scenario())


def test_record_larger_than_the_buffer_is_refused() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster, buffer_memory=10_000) as ours:
            with pytest.raises(RequestError, match=r"exceeds buffer\.memory=10000") as refused:
                await ours.send("t", bytes(10_001))
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            await (await ours.send("t", bytes(9000)))  # batches are not larger than the buffer

    run(scenario())


def test_timestamp_out_of_range_is_refused() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster) as ours:
            with pytest.raises(ValueError, match=r"timestamp_ms must be from 0 to \d+, not -5"):
                await ours.send("t", b"v", timestamp_ms=-5)
            with pytest.raises(ValueError, match=f"must be from 0 to {(1 << 63) - 1}, not"):
                await ours.send("t", b"v", timestamp_ms=1 << 63)
            await (await ours.send("t", b"v", timestamp_ms=0))

    run(scenario())


def test_invalid_partitioner_is_refused() -> None:
    partitioner: Any = "murmur2"
    with pytest.raises(TypeError, match="not 'murmur2'"):
        Producer(bootstrap_servers="localhost:9092", partitioner=partitioner)


def test_send_many_and_flush() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster, linger_ms=100_000) as ours:
            acknowledged = await ours.send_many("t", [b"a", None, b"c"])
            await ours.flush(10)
            assert [(await ack).offset for ack in acknowledged] == [0, 1, 2]
            await ours.send("t", b"d")
            with cluster.brokers[0].pause(), pytest.raises(TimedOut, match=r"in 0\.1 s"):
                await ours.flush(0.1)

    run(scenario())


def test_settings_are_validated_first() -> None:
    with pytest.raises(InvalidSettings, match=r"linger\.ms"):
        Producer({"bootstrap.servers": "localhost", "linger.ms": "soon"})
    with pytest.raises(InvalidSettings, match=r"did you mean linger\.ms"):
        Producer(bootstrap_servers="localhost", lingerr_ms=5)
    with pytest.raises(InvalidSettings, match=r"bootstrap\.servers"):
        Producer()


KEYLESS = "a compacted topic needs a key in every record"


def test_rejected_record_has_the_reason_of_the_broker() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster, linger_ms=10_000) as ours:
            async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                await admin.create_topic("t", config={"cleanup.policy": "compact"})
            acks = [await ours.send("t", b"v", key=key) for key in (b"k", None, b"k", None)]
            await asyncio.wait([asyncio.ensure_future(ours.flush())])
            for index, ack in enumerate(acks):
                with pytest.raises(InvalidRecords) as refused:
                    await ack
                assert refused.value.code is ErrorCode.INVALID_RECORD
                told = str(refused.value)
                if index % 2:
                    assert f"t-0: record {index} of the batch: {KEYLESS}" in told
                    assert refused.value.record_errors == ((index, KEYLESS),)
                else:  # the other records of the batch were valid
                    assert (
                        f"t-0: the batch has invalid records: record 1: {KEYLESS}; record 3" in told
                    )
                    assert refused.value.record_errors == ((1, KEYLESS), (3, KEYLESS))

    run(scenario())


def test_flush_reports_the_reason_of_rejected_records() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster) as ours:
            async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                await admin.create_topic("t", config={"cleanup.policy": "compact"})
            await ours.send("t", b"v")
            with pytest.raises(InvalidRecords, match=KEYLESS):
                await ours.flush()
            rows = await ours.send_arrow("t", pa.record_batch({"value": [b"v"]}), key=None)
            with pytest.raises(RequestError, match=KEYLESS):
                await rows

    run(scenario())


def test_refused_name_of_a_new_topic_has_the_reason() -> None:
    async def scenario() -> None:
        settings = {"ottla.topic.name.policy": "{name}.{name},{name}_x"}
        async with Cluster(settings=settings) as cluster, producer(cluster) as ours:
            await (await ours.send("a.x", b"v"))
            for name, reason in (
                ("a_x", "'a_x' collides with existing topic: a.x"),
                ("b", "does not match ottla.topic.name.policy: {name}.{name}, {name}_x"),
            ):
                with pytest.raises(RequestError) as refused:
                    await ours.send(name, b"v")
                assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
                assert reason in str(refused.value)

    run(scenario())


@each_case(("partitions", "batches"), [(1, 4), (3, 6), (100, 12)])
def test_sender_gets_its_turn_after_some_batches(partitions: int, batches: int) -> None:
    """The broker does not read, so there is a request in flight all the time."""

    async def scenario() -> None:
        async with (
            Cluster(settings={"num.partitions": partitions}) as cluster,
            producer(cluster, batch_size=100) as ours,
        ):
            await (await ours.send("t", bytes(90)))
            with cluster.brokers[0].pause():
                await ours.send("t", bytes(90))
                await until(lambda: ours.metrics().requests_in_flight == 1)
                turns, ended = 0, False

                def turn() -> None:
                    nonlocal turns
                    turns += 1
                    if not ended:
                        loop.call_soon(turn)

                loop = asyncio.get_running_loop()
                loop.call_soon(turn)
                for _ in range(10 * batches):  # each fills a batch
                    await ours.send("t", bytes(90))
                ended = True
                assert turns in (9, 10)
            await ours.flush()

    run(scenario())
