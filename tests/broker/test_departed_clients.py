"""Clients that disconnect while their request waits."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from broker.handlers.test_create_topics import topic
from broker.handlers.test_fetch import FetchSpec, request
from broker.members import group_broker, join_request
from broker.nodes import RunningBroker, broker, run
from broker.test_compression import LONG, HeldDisk, compressed
from broker.test_node import batch, create
from ottla.broker import cooperative
from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.handlers.delete_records import _answer  # pyright: ignore[reportPrivateUsage]
from ottla.broker.node import _dispatch_when  # pyright: ignore[reportPrivateUsage]
from ottla.broker.shutdown import Shutdown
from ottla.clock import SystemClock
from ottla.errors import ErrorCode
from ottla.groups.events import DeleteGroups
from ottla.groups.types import RequestToken
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.conversation import OBJECTS_AT_ONCE, Request, Response
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.replication.partition import Partition
from ottla.transport.connection import Connection, ConnectionConfig, DeferredResponse
from ottla.transport.pending_acks import PendingAck
from transport.test_departures import is_delay_over
from transport.test_listener import Service, echo, heartbeat

FOREVER_MS = 2**31 - 1
CLIENTS = 20


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds; `run` limits the wait."""
    while not holds():
        await asyncio.sleep(0.001)


def connections_of(running: RunningBroker) -> list[Connection]:
    return [one for listener in running.node.listeners for one in listener.connections]


def connections(running: RunningBroker) -> int:
    return len(connections_of(running))


def test_fetches_of_departed_clients_leave_the_purgatory(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            await create(await running.client(), "t", 1)
            partition = running.parts.replica_manager.partitions[
                TopicPartition("t", PartitionIndex(0))
            ]
            clients = [await running.client() for _ in range(CLIENTS)]
            for client in clients:
                await client.send_only(request(FetchSpec("t"), wait_ms=FOREVER_MS), 12)
            await until(lambda: len(partition.waiting) == CLIENTS)
            for client in clients:
                await client.close()
            await until(lambda: not partition.waiting)
            await until(lambda: connections(running) == 1)

    run(scenario)


def test_fetches_that_fill_the_socket_end_although_the_clients_end_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.transport.connection.BEHIND_SECONDS", 0.1)
    fetch = request(FetchSpec("t"), wait_ms=FOREVER_MS)

    async def scenario() -> None:
        async with broker(tmp_path, "socket.receive.buffer.bytes=16384") as running:
            await create(await running.client(), "t", 1)
            partition = running.parts.replica_manager.partitions[
                TopicPartition("t", PartitionIndex(0))
            ]
            client = await running.client()
            leaving = asyncio.gather(*(client.send_only(fetch, 12) for _ in range(10_000)))
            await until(lambda: len(partition.waiting) == 1)
            await until(lambda: connections(running) == 1)
            assert not partition.waiting
            leaving.cancel()
            await client.close()

    run(scenario)


def test_new_members_that_disconnect_leave_the_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path, "group.initial.rebalance.delay.ms=60000") as running:
            clients = [await running.client() for _ in range(CLIENTS)]
            for client in clients:
                reply = await client.ask(join_request(), JoinGroupResponse, 4)
                await client.send_only(join_request(member=reply.member_id), 4)
            (coordinator,) = running.parts.groups
            groups = coordinator.groups.ledger.groups
            await until(lambda: "g" in groups and len(groups["g"].roster) == CLIENTS)
            for client in clients[1:]:
                await client.close()
            await until(lambda: len(groups["g"].roster) == 1)
            await clients[0].close()
            await until(lambda: "g" not in groups or not len(groups["g"].roster))
            await until(lambda: connections(running) == 1)

    run(scenario)


def test_group_requests_of_a_departed_client_are_all_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooperative, "TURN_SECONDS", -1.0)  # a pause after each of them

    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            applied: list[int] = []

            def deletion(number: int, token: RequestToken) -> DeleteGroups:
                applied.append(number)
                return DeleteGroups(token, ("g",))

            requests = [("g", partial(deletion, number)) for number in range(5)]
            turns = CooperativeScheduler(SystemClock(), Shutdown()).new_loop()
            task = asyncio.create_task(running.parts.groups.submit_all(requests, turns))
            while not applied:
                await asyncio.sleep(0)
            assert len(applied) < 5
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert applied == [0, 1, 2, 3, 4]
            (coordinator,) = running.parts.groups
            # Nobody waits for the responses, and nothing keeps them.
            asked = coordinator._asked  # pyright: ignore[reportPrivateUsage]
            await until(lambda: not asked)

    run(scenario)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("acks", [0, 1])
def test_slow_batches_of_a_departed_client_are_all_appended(
    tmp_path: Path, acks: int, *, is_large: bool
) -> None:
    missing = range(2, OBJECTS_AT_ONCE + 2) if is_large else ()
    data = [
        *(PartitionProduceData(index=one, records=compressed(bytes(LONG))) for one in range(2)),
        *(PartitionProduceData(index=one, records=batch(b"v")) for one in missing),
    ]
    topics = [TopicProduceData(name="t", partition_data=data)]
    produce = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)

    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, disk=disk) as running:
            client = await running.client()
            await create(await running.client(), "t", 2)
            with disk.holding():
                await client.send(produce, 12)
                await disk.asked.wait()
                await client.close()
                await until(lambda: any(map(is_delay_over, connections_of(running))))
                await asyncio.sleep(0.01)
            ends = [running.parts.replica_manager.leader_partition("t", one) for one in range(2)]
            await until(lambda: all(one.log.log_end_offset == 1 for one in ends))
            await until(lambda: connections(running) == 1)

    run(scenario)


async def five_partitions(running: RunningBroker) -> list[Partition]:
    """The partitions of a new topic, with one record each."""
    client = await running.client()
    await create(client, "t", 5)
    data = [PartitionProduceData(index=one, records=batch(b"v")) for one in range(5)]
    topics = [TopicProduceData(name="t", partition_data=data)]
    produce = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    await client.ask(produce, ProduceResponse, 12)
    return [running.parts.replica_manager.leader_partition("t", one) for one in range(5)]


def delete_all() -> DeleteRecordsRequest:
    parts = [DeleteRecordsPartition(partition_index=one, offset=-1) for one in range(5)]
    topics = [DeleteRecordsTopic(name="t", partitions=parts)]
    return DeleteRecordsRequest(topics=topics, timeout_ms=FOREVER_MS)


def deletion(running: RunningBroker, shutdown: Shutdown) -> asyncio.Task[Response]:
    """The task that deletes the records of the five partitions, one after the other."""
    manager, scheduler = (
        running.parts.replica_manager,
        CooperativeScheduler(SystemClock(), shutdown),
    )
    return asyncio.create_task(_answer(delete_all(), manager, scheduler, shutdown))


async def has_begun(partition: Partition) -> None:
    """Return in the turn of the event loop in which the deletion has begun, before the next one."""
    while not partition.log.log_start_offset:
        await asyncio.sleep(0)


def test_deletion_of_records_ends_with_the_partition_that_it_has_begun(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            partitions = await five_partitions(running)
            task = deletion(running, Shutdown())
            await has_begun(partitions[0])
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [one.log.log_start_offset for one in partitions] == [1, 0, 0, 0, 0]
            stored = (tmp_path / "data" / "log-start-offset-checkpoint").read_text()
            assert "t 0 1" in stored.splitlines()

    run(scenario)


def test_stopping_broker_begins_no_deletion_of_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            partitions, shutdown = await five_partitions(running), Shutdown()
            task = deletion(running, shutdown)
            await has_begun(partitions[0])
            shutdown.begun = True
            response = await task
            assert isinstance(response, DeleteRecordsResponse)
            (answer,) = response.topics
            refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            found = [(one.error_code, one.low_watermark) for one in answer.partitions]
            assert found == [(ErrorCode.NONE, 1), *[refused] * 4]
            assert [one.log.log_start_offset for one in partitions] == [1, 0, 0, 0, 0]

    run(scenario)


def test_changes_of_a_departed_client_are_finished(tmp_path: Path) -> None:
    """As in Kafka, a client may send a change and close without reading the response."""
    names = [f"t{number}" for number in range(20)]

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topics = [topic(name, 2) for name in names]
            await client.send_only(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
            await client.close()
            await until(lambda: connections(running) == 0)
            assert sorted(running.parts.metadata_cache.image.topics) == sorted(names)

    run(scenario)


def test_requests_on_a_starting_broker_end_with_the_client() -> None:
    async def scenario() -> None:
        never = asyncio.Event()
        waiting = partial(_dispatch_when, never, never, echo)
        async with Service(waiting, ConnectionConfig(departed_ms=20)).running() as service:
            client = await service.client()
            client.send(heartbeat(11), heartbeat(12))
            await until(lambda: service.listener.connections)
            client.writer.close()
            await until(lambda: not service.listener.connections)

    run(scenario)


class AckLater:
    """A dispatcher: the test acknowledges each request, which is served in one of three ways."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.acks: list[PendingAck] = []
        self.cancelled = 0
        self.responses: list[Response | None] = []

    def __call__(self, request: Request, connection: Connection) -> DeferredResponse | PendingAck:
        response = echo(request, connection)
        assert isinstance(response, Message)
        ack = PendingAck(response, 0)
        ack.on_cancel = self._cancel

        async def append() -> None:
            self.acks.append(ack)

        async def respond() -> Response | None:
            self.acks.append(ack)
            return await ack.completed()

        if self.way == "acknowledged":
            ack.on_response = self.responses.append
            self.acks.append(ack)
            return ack
        if self.way == "appended later":
            return DeferredResponse(append(), self.responses.append, ack)
        return DeferredResponse(respond(), self.responses.append)

    def _cancel(self) -> None:
        self.cancelled += 1


@pytest.mark.parametrize("way", ["acknowledged", "appended later", "deferred"])
@pytest.mark.parametrize("stays", [False, True])
def test_request_that_waited_for_the_start_ends_with_its_client(way: str, *, stays: bool) -> None:
    async def scenario() -> None:
        released, informed, later = asyncio.Event(), asyncio.Event(), AckLater(way)
        waiting = partial(_dispatch_when, released, informed, later)
        async with Service(waiting, ConnectionConfig(departed_ms=20)).running() as service:
            client = await service.client()
            client.send(heartbeat(11))
            await until(lambda: not all(one.is_idle for one in service.listener.connections))
            informed.set()
            released.set()
            await until(lambda: later.acks)
            (ack,) = later.acks
            if stays:
                ack.complete()
                assert await client.answers(1) == [11]
                assert len(later.responses) == 1  # it is counted
            else:
                client.writer.close()
                await until(lambda: not service.listener.connections)
            assert later.cancelled == (not stays)

    run(scenario)


def test_request_on_a_broker_that_stops_before_its_start_closes_the_connection() -> None:
    async def scenario() -> None:
        released, informed = asyncio.Event(), asyncio.Event()
        waiting = partial(_dispatch_when, released, informed, echo)
        async with Service(waiting).running() as service:
            client = await service.client()
            client.send(heartbeat(11))
            await until(lambda: service.listener.connections)
            released.set()
            assert await client.closed()

    run(scenario)
