"""Connections on real sockets: shared, tried in turn, paused after failures, closed when idle."""

import asyncio

import pytest

from client.scenario_runner import run
from client.scripted_broker import ScriptedBroker
from ottla.client.network.cluster_view import BrokerView
from ottla.client.network.connections import Address, ConnectionConfig, Connections
from ottla.clock import SystemClock
from ottla.errors import RequestError
from ottla.ids import BrokerId
from ottla.transport.backoff import Backoff
from ottla.transport.channel import Channel, Disconnected
from ottla.transport.network import TcpNetwork

HOST = "127.0.0.1"


class RecordingClock(SystemClock):
    """Records pauses instead of making them. Otherwise its time stands still."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def elapsed_s(self) -> float:
        return 1000 + sum(self.pauses)

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.pauses.append(seconds)
        await asyncio.sleep(0)


async def unused_address() -> Address:
    """Return an address at which nothing listens."""
    async with ScriptedBroker({}) as here:
        return here.place


def connections(
    *seeds: Address,
    clock: RecordingClock | None = None,
    idle_s: float = 60,
    rebootstraps: bool = True,
) -> Connections:
    rules = ConnectionConfig(
        seeds,
        "test",
        ("ottla", "0"),
        Backoff(0.05, 1.0, lambda: 0.5),
        idle_s=idle_s,
        rebootstraps=rebootstraps,
    )
    return Connections(rules, TcpNetwork(), clock or RecordingClock(), lambda: 0.5)


async def wait_closed(channel: Channel) -> None:
    while channel.is_open:
        await asyncio.sleep(0.005)


def test_concurrent_callers_share_one_connection() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as one:
            ours = connections(one.place)
            channels = await asyncio.gather(*(ours.to(one.view()) for _ in range(20)))
            assert {*map(id, channels)} == {id(ours.open_to(one.view()))}
            assert await ours.any([]) is channels[0]
            assert one.accepted == 1
            await ours.close()

    run(scenario())


def test_cancelled_caller_does_not_end_the_shared_attempt() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as one:
            ours = connections(one.place)
            first = asyncio.create_task(ours.to(one.view()))
            second = asyncio.create_task(ours.to(one.view()))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).is_open
            assert one.accepted == 1
            await ours.close()

    run(scenario())


def test_next_bootstrap_server_is_tried_when_one_is_down() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as one:
            down = await unused_address()
            ours = connections(down, one.place)
            for _ in range(3):
                assert (await ours.any([])).is_open
            await ours.close()

    run(scenario())


def test_bootstrap_servers_are_used_when_all_brokers_are_gone() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as seed:
            gone = BrokerView(BrokerId(7), *await unused_address())
            ours = connections(seed.place)
            assert (await ours.any([gone])).address.endswith(f":{seed.place.port}")
            await ours.close()
            strict = connections(seed.place, rebootstraps=False)
            with pytest.raises(Disconnected, match="refused"):
                await strict.any([gone])
            assert (await strict.any([])).is_open
            await strict.close()

    run(scenario())


def test_backoff_grows_with_failures_and_ends_with_success() -> None:
    async def scenario() -> None:
        clock = RecordingClock()
        ours = connections(await unused_address(), clock=clock)
        for _ in range(4):
            with pytest.raises(Disconnected, match="ottla dev"):
                await ours.any([])
        assert clock.pauses == pytest.approx([0.05, 0.1, 0.2])

    run(scenario())


def test_lost_connection_is_reopened_after_a_pause() -> None:
    async def scenario() -> None:
        clock = RecordingClock()
        async with ScriptedBroker({}) as one:
            ours = connections(one.place, clock=clock)
            channel = await ours.to(one.view())
            assert clock.pauses == []
            one.drop()
            await wait_closed(channel)
            assert ours.open_to(one.view()) is None
            assert await ours.to(one.view()) is not channel
            assert clock.pauses == pytest.approx([0.05])
            await ours.close()

    run(scenario())


def test_idle_connections_are_closed() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as one:
            ours = connections(one.place, idle_s=600)
            channel = await ours.to(one.view())
            ours.close_idle()
            assert channel.is_open
            channel.last_used_s -= 601
            ours.close_idle()
            assert not channel.is_open
            await ours.close()

    run(scenario())


def test_close_leaves_nothing() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as one:
            ours = connections(one.place)
            channel = await ours.to(one.view())
            attempt = asyncio.create_task(ours.to(BrokerView(BrokerId(2), *await unused_address())))
            await asyncio.sleep(0)
            await ours.close()
            assert not channel.is_open
            with pytest.raises((asyncio.CancelledError, RequestError)):
                await attempt
            with pytest.raises(Disconnected, match="closed"):
                await ours.to(one.view())

    run(scenario())


def test_missing_bootstrap_servers_are_named() -> None:
    async def scenario() -> None:
        with pytest.raises(Disconnected, match=r"bootstrap\.servers"):
            await connections().any([])

    run(scenario())
