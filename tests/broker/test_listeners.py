"""Listeners of a broker: addresses, connection limits, and advertised addresses."""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.nodes import Client, RunningBroker, broker, closed, run
from broker.test_configs import BROKER_RESOURCE, set_one
from broker.test_node import create
from ottla.cluster.image import Address
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.transport.listener import Listener
from ottla.transport.network import _TcpServer  # pyright: ignore[reportPrivateUsage]

TWO = (
    "listeners=PLAINTEXT://127.0.0.1:0,SIX://[::1]:0",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT",
    "inter.broker.listener.name=PLAINTEXT",
)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6 here")


async def client_at(running: RunningBroker, listener: str, host: str) -> Client:
    port = running.node.addresses[listener].port
    return Client(*await asyncio.open_connection(host, port))


async def is_accepted(running: RunningBroker) -> bool:
    client = await running.client()
    try:
        await client.ask(MetadataRequest(topics=[]), MetadataResponse)
    except (EOFError, ConnectionError):
        return False
    return True


async def wait_for_waiting_connection(running: RunningBroker, name: str = "PLAINTEXT") -> None:
    listeners = running.node._listeners  # pyright: ignore[reportPrivateUsage]
    (listener,) = (one for one in listeners if one.name == name)
    while not listener.waiting:
        await asyncio.sleep(0.001)


async def waiting_connection(running: RunningBroker) -> "asyncio.Future[bool]":
    """Open a connection that has to wait; the future returns whether it was served."""
    late = asyncio.ensure_future(is_accepted(running))
    await wait_for_waiting_connection(running)
    assert not late.done()
    return late


@needs_ipv6
def test_client_gets_the_address_of_its_listener(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, *TWO) as running:
            for listener, host in (("PLAINTEXT", "127.0.0.1"), ("SIX", "::1")):
                client = await client_at(running, listener, host)
                address = (host, running.node.addresses[listener].port)
                met = await client.ask(MetadataRequest(topics=None), MetadataResponse)
                assert [(one.host, one.port) for one in met.brokers] == [address]
                asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
                described = await client.ask(asked, DescribeClusterResponse)
                assert [(one.host, one.port) for one in described.brokers] == [address]
                request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
                found = await client.ask(request, FindCoordinatorResponse)
                assert (found.coordinators[0].host, found.coordinators[0].port) == address
                await client.close()

    run(scenario)


def test_advertised_addresses_are_returned(tmp_path: Path) -> None:
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0,OUT://127.0.0.1:0",
        "advertised.listeners=PLAINTEXT://10.1.2.3:0,OUT://broker.example:19092",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
    )

    async def scenario() -> None:
        async with broker(tmp_path, *settings) as running:
            addresses = running.node.addresses
            assert addresses["OUT"] == Address("broker.example", 19092)
            assert addresses["PLAINTEXT"].host == "10.1.2.3"
            client = await running.client()
            (response,) = (await client.ask(MetadataRequest(topics=None), MetadataResponse)).brokers
            assert Address(response.host, response.port) == addresses["PLAINTEXT"]

    run(scenario)


def backlog_of(listener: Listener) -> int:
    """Return the backlog that listen() was called with, which the system may have lowered."""
    server = listener._server  # pyright: ignore[reportPrivateUsage]
    assert isinstance(server, _TcpServer)
    (listening,) = server._server.sockets  # pyright: ignore[reportPrivateUsage]
    with socket.fromfd(listening.fileno(), socket.AF_INET, socket.SOCK_STREAM) as own:
        info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    return int.from_bytes(info[28:32], sys.byteorder)  # tcpi_sacked, for a listening socket


@pytest.mark.skipif(sys.platform != "linux", reason="Linux reports the backlog of a socket")
@pytest.mark.parametrize(
    ("settings", "backlog"), [((), 4096), (("socket.listen.backlog.size=77",), 77)]
)
def test_operating_system_gets_the_backlog_setting(
    tmp_path: Path, settings: tuple[str, ...], backlog: int
) -> None:
    backlog_max = int(Path("/proc/sys/net/core/somaxconn").read_text())

    async def scenario() -> None:
        async with broker(tmp_path, *settings) as running:
            (listener,) = running.node.listeners
            assert backlog_of(listener) == min(backlog, backlog_max)
            assert listener.waiting_max == backlog

    run(scenario)


def test_storm_of_connections_waits_for_a_busy_broker(tmp_path: Path) -> None:
    """The operating system queues them; a client whose SYN it drops waits a second and longer."""
    storm = min(300, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    assert storm > 50  # Kafka's default, which is too small

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            clients: list[socket.socket] = []
            try:
                for _ in range(storm):  # blocking calls: the broker does not run meanwhile
                    address = ("127.0.0.1", running.port)
                    clients.append(socket.create_connection(address, timeout=0.5))
                assert await is_accepted(running)
            finally:
                for client in clients:
                    client.close()

    run(scenario)


def test_connection_limits_change_at_runtime(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            admin = await running.client()
            await create(admin, "t")
            of_one = "max.connections.per.ip"
            assert await set_one(admin, BROKER_RESOURCE, "", of_one, "1") == 0
            assert not await is_accepted(running)
            assert await set_one(admin, BROKER_RESOURCE, "", of_one, "100") == 0
            assert await is_accepted(running)
            assert await set_one(admin, BROKER_RESOURCE, "", "max.connections", "1") == 0
            late = await waiting_connection(running)
            assert await set_one(admin, BROKER_RESOURCE, "", "max.connections", "100") == 0
            assert await late
            overrides = "max.connections.per.ip.overrides"
            assert await set_one(admin, BROKER_RESOURCE, "1", overrides, "127.0.0.1:1") == 0
            assert not await is_accepted(running)
            assert await set_one(admin, BROKER_RESOURCE, "1", overrides, "10.0.0.1:1") == 0
            assert await is_accepted(running)
            rate = "max.connection.creation.rate"
            assert await set_one(admin, BROKER_RESOURCE, "", rate, "1") == 0
            # Two can be accepted if a second ends between them.
            several = asyncio.gather(*[is_accepted(running) for _ in range(3)])
            await wait_for_waiting_connection(running)
            assert await set_one(admin, BROKER_RESOURCE, "", rate, "100") == 0
            assert await several == [True] * 3

    run(scenario)


def test_shutdown_closes_waiting_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "max.connections=0") as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            await wait_for_waiting_connection(running)
        assert await closed(reader)
        writer.close()

    run(scenario)


@needs_ipv6
def test_listener_has_its_own_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, *TWO, "listener.name.six.max.connections=0") as running:
            assert await is_accepted(running)
            client = await client_at(running, "SIX", "::1")
            asked = asyncio.ensure_future(client.ask(MetadataRequest(topics=[]), MetadataResponse))
            await wait_for_waiting_connection(running, "SIX")
            admin = await running.client()
            limit = "listener.name.six.max.connections"
            assert await set_one(admin, BROKER_RESOURCE, "1", limit, "1") == 0
            assert (await asked).brokers
            await client.close()

    run(scenario)


def test_socket_buffer_sizes_are_configurable(tmp_path: Path) -> None:
    def sizes(running: RunningBroker) -> tuple[int, int]:
        listener: Any = running.node._listeners[0]  # pyright: ignore[reportPrivateUsage]
        (connection,) = listener.connections
        found: socket.socket = connection._transport.get_extra_info("socket")
        return (
            found.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
            found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        )

    async def scenario() -> None:
        settings = ("socket.send.buffer.bytes=30000", "socket.receive.buffer.bytes=20000")
        async with broker(tmp_path / "a", *settings) as running:
            assert await is_accepted(running)
            sent, received = sizes(running)
            # Linux doubles the requested size, to have room for its own bookkeeping.
            assert sent in (30_000, 60_000)
            assert received in (20_000, 40_000)
        settings = ("socket.send.buffer.bytes=-1", "socket.receive.buffer.bytes=-1")
        async with broker(tmp_path / "b", *settings) as running:
            assert await is_accepted(running)
            sent, received = sizes(running)
            assert sent not in (30_000, 60_000)
            assert received > 60_000

    run(scenario)


def test_listeners_cannot_change_at_runtime(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            other = "PLAINTEXT://127.0.0.1:1"
            code = await set_one(client, BROKER_RESOURCE, "1", "listeners", other)
            assert code == ErrorCode.INVALID_REQUEST

    run(scenario)


async def is_served(client: Client) -> bool:
    try:
        await client.ask(MetadataRequest(topics=[]), MetadataResponse)
    except (EOFError, ConnectionError):
        return False
    return True


def test_inter_broker_connection_evicts_the_most_idle(tmp_path: Path) -> None:
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        "max.connections=2",
    )

    async def scenario() -> None:
        async with broker(tmp_path, *settings) as running:
            first, second = [await client_at(running, "OTHER", "127.0.0.1") for _ in range(2)]
            assert await is_served(second)
            assert await is_served(first)
            between = await running.client()
            assert await is_served(between)
            assert not await is_served(second)
            assert await is_served(first)
            late = await client_at(running, "OTHER", "127.0.0.1")
            asked = asyncio.ensure_future(is_served(late))
            await wait_for_waiting_connection(running, "OTHER")
            await between.close()
            assert await asked
            # Inter-broker connections fill the limit, and then no other connection is left.
            members = [await running.client() for _ in range(2)]
            assert [await is_served(one) for one in members] == [True, True]
            assert not await is_served(first)
            assert not await is_served(late)
            for one in (first, second, late):
                await one.close()

    run(scenario)


def test_lower_limit_closes_excess_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            readers = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(3)]
            admin = await running.client()
            assert await set_one(admin, BROKER_RESOURCE, "", "max.connections", "1") == 0
            for reader, writer in readers:
                assert await closed(reader)
                writer.close()
            assert await is_served(admin)

    run(scenario)


def test_all_connections_read_into_the_same_memory(tmp_path: Path) -> None:
    """A thousand idle connections would otherwise hold 128 KiB each (decision 0026)."""
    two = (
        "listeners=PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
    )

    async def scenario() -> None:
        async with broker(tmp_path, *two) as running:
            clients = [
                await client_at(running, listener, "127.0.0.1")
                for listener in ("PLAINTEXT", "OTHER", "PLAINTEXT", "OTHER")
            ]
            for client in clients:
                await client.ask(MetadataRequest(topics=[]), MetadataResponse)
            connections = [
                one for listener in running.node.listeners for one in listener.connections
            ]
            assert len(connections) >= len(clients)
            assert len({id(one.get_buffer(-1).obj) for one in connections}) == 1
            assert {len(one.get_buffer(-1)) for one in connections} == {128 * 1024}
            for client in clients:
                await client.close()

    run(scenario)
