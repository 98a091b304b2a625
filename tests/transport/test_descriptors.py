"""Connections and the limit of open files."""

import asyncio

import pytest

from ottla.transport.admission import AdmissionConfig
from ottla.transport.connection_eviction import ConnectionEviction
from ottla.transport.descriptors import OTHER_DESCRIPTORS, Descriptors, connections_max
from ottla.transport.log_rate_limit import CloseReason
from transport.test_listener import Run, Service, heartbeat, run

__all__ = ["run"]


@pytest.mark.parametrize(
    ("limit", "open_files", "partitions", "expected"),
    [
        (1064, 0, 0, 1000),
        (1064, 100, 100, 600),  # every partition can roll its segment
        (1064, 400, 400, 300),  # too many partitions: half of the free ones
        (1064, 999, 0, 1),
        (1064, 1000, 1000, 0),
        (1064, 5000, 1000, 0),
    ],
)
def test_connections_leave_descriptors_for_the_log(
    limit: int, open_files: int, partitions: int, expected: int
) -> None:
    assert connections_max(limit, open_files, partitions) == expected


class Process:
    """A service whose process has a limit of open files."""

    def __init__(self, connections: int, admission: AdmissionConfig | None = None) -> None:
        self.open_files = 0
        descriptors = Descriptors(
            lambda: OTHER_DESCRIPTORS + connections,
            lambda: self.open_files,
            lambda: 0,
            lambda: len(self.service.listener.connections) + len(self.service.listener.waiting),
        )
        self.service = Service(admission=admission, descriptors=descriptors)
        self.eviction = ConnectionEviction(self.service.admission, descriptors)
        self.eviction.listeners.append(self.service.listener)


async def until_waiting(service: Service, count: int) -> None:
    while len(service.listener.waiting) < count:
        await asyncio.sleep(0.001)


def test_connection_without_a_descriptor_is_refused(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Process(2).service.running() as service:
            first, second = await service.client(), await service.client()
            for client in (first, second):
                client.send(heartbeat(1))
                assert await client.answers(1) == [1]
            assert await (await service.client()).closed()
            assert service.listener.refused == 1
            first.writer.close()
            while len(service.listener.connections) == 2:
                await asyncio.sleep(0.001)
            third = await service.client()
            third.send(heartbeat(3))
            assert await third.answers(1) == [3]

    run(scenario)
    (told,) = [one.args for one in caplog.records if one.msg == "connection refused"]
    assert told == {
        "peer": "127.0.0.1",
        "listener": "PLAINTEXT",
        "reason": f"the limit of {OTHER_DESCRIPTORS + 2} open files allows 2 connections; raise "
        "the limit: ulimit -n, or LimitNOFILE= of a systemd service",
    }


def test_connections_that_wait_for_admission_have_descriptors(run: Run) -> None:
    async def scenario() -> None:
        async with Process(3, AdmissionConfig(connections_max=1)).service.running() as service:
            served = await service.client()
            served.send(heartbeat(1))
            assert await served.answers(1) == [1]
            late = [await service.client() for _ in range(2)]
            await until_waiting(service, 2)
            assert await (await service.client()).closed()
            served.writer.close()  # a connection that waits has its descriptor already
            late[0].send(heartbeat(2))
            assert await late[0].answers(1) == [2]

    run(scenario)


def test_growing_log_takes_descriptors_of_idle_connections(run: Run) -> None:
    async def scenario() -> None:
        process = Process(4, AdmissionConfig(connections_max=3))
        async with process.service.running() as service:
            clients = [await service.client() for _ in range(3)]
            for client in (*clients, clients[0]):  # the second has been idle longest
                client.send(heartbeat(1))
                assert await client.answers(1) == [1]
            waiting = await service.client()
            await until_waiting(service, 1)
            process.open_files = 2
            process.eviction.evict_excess()
            process.eviction.evict_excess()  # connections that are closing count once
            assert await waiting.closed()
            assert await clients[1].closed()
            assert service.listener.closed == {CloseReason.CROWDED: 2}
            for client in (clients[0], clients[2]):
                client.send(heartbeat(2))
                assert await client.answers(1) == [2]

    run(scenario)


def test_growing_log_takes_descriptors_of_silent_connections_first(run: Run) -> None:
    async def scenario() -> None:
        process = Process(5)
        async with process.service.running() as service:
            waiting_for_records = await service.client()
            waiting_for_records.send(heartbeat(1))
            assert await waiting_for_records.answers(1) == [1]
            silent = [await service.client() for _ in range(2)]  # their accept is the last activity
            while len(service.listener.connections) < 3:
                await asyncio.sleep(0.001)
            process.open_files = 4
            process.eviction.evict_excess()
            for client in silent:
                assert await client.closed()
            waiting_for_records.send(heartbeat(2))
            assert await waiting_for_records.answers(1) == [2]

    run(scenario)


def test_connection_of_a_full_address_does_not_wait_for_ever(run: Run) -> None:
    async def scenario() -> None:
        async with Service(admission=AdmissionConfig(connections_max=0)).running() as service:
            late = [await service.client() for _ in range(2)]
            await until_waiting(service, 2)
            service.limits = AdmissionConfig(per_address_max=1)
            service.listener.admit_waiting()
            late[0].send(heartbeat(1))
            assert await late[0].answers(1) == [1]
            assert await late[1].closed()
            assert not service.listener.waiting
            assert service.listener.refused == 1

    run(scenario)
