"""Produce with several replicas: acks=all waits for the high watermark, on both paths."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from broker.handlers.test_produce import errors, request
from broker.nodes import Client, broker, run
from broker.replicas import Replicas
from broker.test_node import batch, create
from ottla.broker import cooperative
from ottla.broker.handlers import produce
from ottla.cluster.image import Address, Broker
from ottla.controller.control_update import ControlUpdate, ReplicaState
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex
from ottla.protocol.apis import PRODUCE
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from transport.test_departures import until

COMPILED, PYTHON = 12, 8
"""Versions that the fast path serves, and does not."""

WIDE = TopicProduceData(
    name="t",
    partition_data=[
        PartitionProduceData(index=0, records=batch(b"x")),
        *(PartitionProduceData(index=9, records=b"") for _ in range(1500)),
    ],
)
"""A large request, with many partitions that do not exist."""

both_paths = pytest.mark.parametrize("version", [COMPILED, PYTHON])


@asynccontextmanager
async def leading(
    tmp_path: Path, *, in_sync_min: int = 1, **config: str
) -> AsyncGenerator[tuple[Replicas, Client]]:
    """A broker that leads a partition with three replicas, and a producer."""
    async with broker(tmp_path) as running:
        client = await running.client()
        await create(client, "t", 1, **config)
        yield Replicas(running, in_sync_min=in_sync_min), client


async def send(
    client: Client, version: int, *, acks: int = -1, timeout_ms: int = 10_000, sequence: int = -1
) -> PartitionProduceResponse:
    how = {} if sequence < 0 else {"producer_id": 7, "sequence": sequence}
    message = request("t", (0, batch(b"x", **how)), acks=acks)
    message.timeout_ms = timeout_ms
    answer = await client.ask(message, ProduceResponse, version)
    (one,) = answer.responses[0].partition_responses
    return one


@both_paths
def test_a8_acks_all_waits_for_every_in_sync_replica(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            counts = replicas.running.parts.request_metrics.of(PRODUCE)
            for number in range(3):
                sent = asyncio.create_task(send(client, version))
                await until(lambda: len(replicas.led.commit_waiters) == 1)
                tasks = len(asyncio.all_tasks())
                replicas.fetch(2)
                await asyncio.sleep(0)
                assert not sent.done()
                assert len(asyncio.all_tasks()) <= tasks  # no task waits for it
                replicas.fetch(3)
                one = await sent
                assert (one.error_code, one.base_offset) == (0, number)
                assert sum(counts.buckets) == number + 1
            assert not replicas.led.commit_waiters

    run(scenario)


@both_paths
def test_a8_acks_1_is_answered_after_the_append(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with leading(tmp_path, in_sync_min=2) as (replicas, client):
            assert (await send(client, version, acks=1)).error_code == 0
            replicas.change(1)
            assert (await send(client, version, acks=1)).error_code == 0
            assert replicas.led.high_watermark == 0

    run(scenario)


@both_paths
def test_a8_replicas_that_are_too_slow_time_out(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            one = await send(client, version, timeout_ms=20)
            assert one.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert one.base_offset == 0, "as in Kafka"
            assert not replicas.led.commit_waiters
            assert replicas.led.log.log_end_offset == 1
            assert errors(replicas.running) == {"REQUEST_TIMED_OUT": 1}

    run(scenario)


@both_paths
def test_a8_isr_that_shrinks_after_the_append(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with leading(tmp_path, in_sync_min=2) as (replicas, client):
            sent = asyncio.create_task(send(client, version))
            await until(lambda: len(replicas.led.commit_waiters) == 1)
            replicas.change(1)
            assert (await sent).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            refused = await send(client, version)
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert replicas.led.log.log_end_offset == 1

    run(scenario)


@both_paths
def test_failed_flush_of_waiting_records_has_its_reason(tmp_path: Path, version: int) -> None:
    """flush.messages became 1 after the append. The fast path left out the reason."""

    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            sent = asyncio.create_task(send(client, version))
            await until(lambda: len(replicas.led.commit_waiters) == 1)
            failure = StorageFailure("the device failed")
            replicas.led.commit_waiters.finish_up_to(Offset(1), failure)
            one = await sent
            assert one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (one.base_offset, one.log_start_offset) == (-1, 0)
            assert one.error_message == replicas.led.storage_error(failure).message
            assert one.error_message

    run(scenario)


@pytest.mark.parametrize("is_ordinary", [True, False], ids=["fast path", "handler"])
@pytest.mark.parametrize("is_alive", [True, False], ids=["alive", "dead"])
def test_a8_demotion_returns_the_new_leader_and_its_address(
    tmp_path: Path, is_ordinary: bool, is_alive: bool
) -> None:
    # The handler serves the first batch of a producer.
    how = {} if is_ordinary else {"producer_id": 7, "sequence": 0}

    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            cache = replicas.running.parts.metadata_cache
            addresses = {"PLAINTEXT": Address("three", 9093), "OTHER": Address("inside", 9094)}
            three = Broker(BrokerId(3), BrokerEpoch(5), addresses, rack="r")
            if is_alive:
                brokers = [*cache.image.brokers.values(), three]
                cache.image = cache.image.with_brokers(brokers, BrokerId(1))
            message = request("t", (0, batch(b"x", **how)))
            sent = asyncio.create_task(client.ask(message, ProduceResponse, COMPILED))
            await until(lambda: len(replicas.led.commit_waiters) == 1)
            moved = replace(replicas.state, leader=BrokerId(3), leader_epoch=LeaderEpoch(9))
            replicas.led.resign(moved, cache.image.brokers.get(BrokerId(3)))
            answer = await sent
            (one,) = answer.responses[0].partition_responses
            assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert one.base_offset == 0, "as in Kafka"
            assert one.current_leader is not None
            assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (3, 9)
            found = [(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints]
            assert found == ([(3, "three", 9093, "r")] if is_alive else [])

    run(scenario)


class DemotedWaiter:
    """Waits for an offset; notes in what state the partition was when the wait ended."""

    offset = 1

    def __init__(self, replicas: Replicas) -> None:
        self._led = replicas.led
        self._manager = replicas.running.parts.replica_manager
        self.ended: list[tuple[bool, bool, int, bool]] = []
        self._led.commit_waiters.add(self)

    def finish(self, failure: Exception | None) -> None:
        name, log = self._led.name, self._led.log
        assert isinstance(failure, RequestError)
        assert failure.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.ended.append(
            (
                name in self._manager.partitions,
                name in self._manager.followers,
                log.log_end_offset,
                log.is_truncating,
            )
        )


def test_a8_waits_end_before_a_demoted_log_can_be_truncated(tmp_path: Path) -> None:
    """Only a follower's log is truncated; its offsets can then acknowledge other records."""

    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            parts = replicas.running.parts
            image = parts.metadata_cache.image
            sent = asyncio.create_task(send(client, COMPILED))
            await until(lambda: len(replicas.led.commit_waiters) == 1)
            waiter = DemotedWaiter(replicas)
            moved = replace(
                replicas.state,
                leader=BrokerId(3),
                leader_epoch=LeaderEpoch(9),
                version=replicas.state.version + 1,
            )
            update = ControlUpdate(
                controller=image.controller,
                controller_epoch=image.controller_epoch,
                broker_epoch=parts.roles.broker_epoch,
                changed=(),
                replicas=[ReplicaState("t", image.topics["t"].id, PartitionIndex(0), moved)],
            )
            assert not await parts.roles.apply(update)
            assert waiter.ended == [(False, False, 1, False)]
            assert (await sent).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert replicas.led.name in parts.replica_manager.followers

    run(scenario)


def test_demotion_in_an_old_version_has_no_leader(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            for version in (PYTHON, 9):  # the second on the fast path
                sent = asyncio.create_task(send(client, version))
                await until(lambda: len(replicas.led.commit_waiters) == 1)
                replicas.led.resign(replace(replicas.state, leader=BrokerId(3)))
                one = await sent
                assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert one.current_leader is None

    run(scenario)


@both_paths
def test_d1_duplicate_waits_with_its_original(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            again = await replicas.running.client()
            sent = asyncio.create_task(send(client, version, sequence=0))
            await until(lambda: len(replicas.led.commit_waiters) == 1)
            duplicate = asyncio.create_task(send(again, version, sequence=0))
            await until(lambda: len(replicas.led.commit_waiters) == 2)
            assert replicas.led.log.log_end_offset == 1
            replicas.fetch(2, 3)
            for one in (await sent, await duplicate):
                assert (one.error_code, one.base_offset) == (0, 0)
            late = await send(again, version, sequence=0)
            assert (late.error_code, late.base_offset) == (0, 0)

    run(scenario)


@both_paths
def test_requests_behind_a_waiting_one_are_appended_and_answered_in_order(
    tmp_path: Path, version: int
) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            messages = [request("t", (0, batch(b"%d" % n)), acks=-1 if n < 4 else 1)
                        for n in range(5)]  # fmt: skip
            sent = asyncio.create_task(client.ask_all(messages, ProduceResponse, version))
            await until(lambda: replicas.led.log.log_end_offset == 5)
            replicas.fetch(2, 3, offset=2)
            await asyncio.sleep(0.01)
            assert not sent.done(), "the last one waits for its turn"
            replicas.fetch(2, 3)
            found = [one.responses[0].partition_responses[0] for one in await sent]
            assert [(one.error_code, one.base_offset) for one in found] == [
                (0, n) for n in range(5)
            ]

    run(scenario)


@both_paths
def test_lost_connection_leaves_no_waiter(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            await client.send_only(request("t", (0, batch(b"x"))), version)
            await until(lambda: len(replicas.led.commit_waiters) == 1)
            (connection,) = replicas.running.node.listeners[0].connections
            connection.abort()
            await until(lambda: not replicas.led.commit_waiters)

    run(scenario)


@pytest.mark.parametrize("is_appending", [True, False])
def test_large_produce_of_a_lost_connection_leaves_no_waiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_appending: bool
) -> None:
    monkeypatch.setattr(cooperative, "TURN_SECONDS", -1.0)  # a pause after each partition
    monkeypatch.setattr(produce, "PIECE", 1)

    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            before = asyncio.all_tasks()
            message = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[WIDE])
            await client.send_only(message, COMPILED)
            log, waiters = replicas.led.log, replicas.led.commit_waiters
            while not (log.log_end_offset if is_appending else waiters):
                await asyncio.sleep(0)
            assert bool(waiters) != is_appending
            (connection,) = replicas.running.node.listeners[0].connections
            connection.abort()
            await until(lambda: asyncio.all_tasks() <= before)
            assert log.log_end_offset == 1
            assert not waiters

    run(scenario)


def test_flush_and_replicas_are_both_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path, flush_messages="1") as (replicas, client):
            led = replicas.led
            sent = asyncio.create_task(send(client, COMPILED))
            await until(lambda: led.log.recovery_point == 1)
            await asyncio.sleep(0.01)
            assert not sent.done()
            replicas.fetch(2, 3)
            assert (await sent).error_code == 0
            assert (await send(client, COMPILED, acks=1)).error_code == 0
            assert led.log.recovery_point == 2

    run(scenario)


def test_wide_request_waits_for_its_replicas(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client):
            for timeout_ms, code in (
                (10_000, ErrorCode.NONE),
                (20, ErrorCode.REQUEST_TIMED_OUT),
                (10_000, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ):
                message = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[WIDE])
                asked = client.ask(message, ProduceResponse, COMPILED)
                sent = asyncio.create_task(asked)
                await until(lambda: len(replicas.led.commit_waiters) == 1)
                if code is ErrorCode.NONE:
                    replicas.fetch(2, 3)
                elif code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    replicas.led.resign(replicas.state)
                answer = await sent
                assert answer.responses[0].partition_responses[0].error_code == code
                assert not replicas.led.commit_waiters

    run(scenario)
