"""Partitions without acknowledgements: what a producer logs, and the reason in its errors."""

import logging
from collections.abc import Callable
from math import inf

import pytest

from client.scenario_runner import run
from client.scripted_broker import ScriptedBroker
from client.scripted_leader import TOPIC, UNSEEN, Leader, Word
from ottla.client.producer.identity import NOBODY
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import ProducerBatch
from ottla.client.producer.stalled_partitions import LOOK_S, STALLED_S, StalledPartitions
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.records import BatchBuilder, Compression
from ottla.transport.failures import TimedOut

STORAGE = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
REPLICAS = RequestError(ErrorCode.NOT_ENOUGH_REPLICAS)


class Watched:
    """Queues that are looked at every second."""

    def __init__(self, partitions: int = 1) -> None:
        self.reason = STORAGE
        self.queues = [
            PartitionQueue(TopicPartition("t", PartitionIndex(index)), lambda batch: None)
            for index in range(partitions)
        ]
        self.stalled = StalledPartitions(lambda queue, batch: self.reason)
        self.now_s = 0.0

    def send(self, index: int = 0) -> ProducerBatch:
        queue = self.queues[index]
        queue.begin(BatchBuilder(1000, Compression.NONE), 1000, self.now_s)
        return queue.take_first(NOBODY)

    def acknowledge(self, batch: ProducerBatch) -> None:
        self.queues[batch.partition.partition].remove(batch)
        batch.settle(0, -1)

    def wait(self, seconds: float, linger_s: float = 0) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(
                end_s, self.stalled.look(self.queues, self.now_s, linger_s), self.now_s + LOOK_S
            )
        self.stalled.look(self.queues, self.now_s, linger_s)


def test_stalled_partition_is_logged_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    batch = watched.send()
    watched.wait(STALLED_S - 1)
    assert caplog.messages == []
    watched.wait(60)
    [logged] = caplog.messages
    assert "t-0: KAFKA_STORAGE_ERROR (56): no space left on device" in logged
    watched.acknowledge(batch)
    watched.wait(60)
    assert caplog.messages[1:] == ["the brokers acknowledge records again"]


def test_no_timer_runs_without_batches() -> None:
    watched = Watched()
    assert watched.stalled.look(watched.queues, 0.0, 0) == LOOK_S
    assert watched.stalled.look(watched.queues, LOOK_S, 0) == inf


def test_another_reason_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(partitions=3)
    for index in range(3):
        watched.send(index)
    watched.wait(10)
    watched.reason = REPLICAS
    watched.wait(10)
    first, second = caplog.messages
    assert "t-0 and 2 other partitions: KAFKA_STORAGE_ERROR" in first
    assert "t-0 and 2 other partitions: NOT_ENOUGH_REPLICAS" in second


def test_slow_partition_is_not_stalled(caplog: pytest.LogCaptureFixture) -> None:
    """The second batch waits long in the queue, but the first one is acknowledged meanwhile."""
    watched = Watched()
    batches = [watched.send() for _ in range(5)]
    for batch in batches:
        watched.wait(STALLED_S - 1)
        watched.acknowledge(batch)
    assert caplog.messages == []


def test_lingering_batch_is_not_stalled(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.queues[0].begin(BatchBuilder(1000, Compression.NONE), 1000, 0.0)
    watched.wait(60, linger_s=100)
    assert caplog.messages == []


def test_failed_batch_is_not_the_end_of_a_stall(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    batch = watched.send()
    watched.wait(10)
    watched.queues[0].remove(batch)
    batch.fail(STORAGE)
    watched.wait(10)
    assert len(caplog.messages) == 1


def producing(word: Callable[[object], Word]) -> RequestError:
    """Return the error of a record that the leader does not accept."""
    leader = Leader(word)
    broker = ScriptedBroker(
        {
            InitProducerIdRequest: lambda _: InitProducerIdResponse(
                throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=0
            )
        }
    )
    leader.join(broker)

    errors: list[RequestError] = []

    async def scenario() -> None:
        async with (
            broker,
            Producer(
                {"delivery.timeout.ms": 400, "request.timeout.ms": 300, "linger.ms": 0},
                bootstrap_servers=broker.bootstrap_servers,
            ) as ours,
        ):
            with pytest.raises(RequestError) as raised:
                await (await ours.send(TOPIC, b""))
        errors.append(raised.value)

    run(scenario())
    return errors[0]


@pytest.mark.parametrize(
    "code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS], ids=lambda one: one.name
)
def test_expired_batch_fails_with_the_answer_of_the_broker(code: ErrorCode) -> None:
    error = producing(lambda _: code)
    assert isinstance(error, TimedOut)
    assert f"{TOPIC}-0: not written in 0.4 s: {code.name} ({code.value}): {code.text}" in str(error)


def test_missing_response_is_named_with_the_broker() -> None:
    error = producing(lambda _: UNSEEN)
    assert "no response from 127.0.0.1:" in str(error)


def test_warning_names_what_the_sender_waits_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.producer.stalled_partitions.STALLED_S", 0.1)
    monkeypatch.setattr("ottla.client.producer.stalled_partitions.LOOK_S", 0.05)
    with caplog.at_level(logging.WARNING):
        producing(lambda _: ErrorCode.NOT_ENOUGH_REPLICAS)
    [logged] = caplog.messages
    assert f"acknowledgements of {TOPIC}-0: NOT_ENOUGH_REPLICAS (19): Fewer replicas" in logged
