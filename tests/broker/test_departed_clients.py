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
from broker.test_node import create
from ottla.broker import cooperative
from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.node import _dispatch_when  # pyright: ignore[reportPrivateUsage]
from ottla.broker.shutdown import Shutdown
from ottla.clock import SystemClock
from ottla.groups.events import DeleteGroups
from ottla.groups.types import RequestToken
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.transport.connection import ConnectionConfig
from transport.test_listener import Service, echo, heartbeat

FOREVER_MS = 2**31 - 1
CLIENTS = 20


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds; `run` limits the wait."""
    while not holds():
        await asyncio.sleep(0.001)


def connections(running: RunningBroker) -> int:
    return sum(len(one.connections) for one in running.node.listeners)


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
