"""Metadata of a real broker: shared requests, refreshed on demand, and always with a deadline."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from client.scenario_runner import run
from ottla.client.network.cluster_view import BrokerView
from ottla.client.network.connections import Address, ConnectionConfig, Connections
from ottla.client.network.metadata import Metadata, MetadataConfig
from ottla.clock import SystemClock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId
from ottla.testing import Cluster
from ottla.transport.backoff import Backoff
from ottla.transport.channel import Disconnected, TimedOut
from ottla.transport.network import TcpNetwork

BACKOFF = Backoff(0.01, 0.1, lambda: 0.5)


class FastClock(SystemClock):
    """The system clock, which a test can advance."""

    ahead_s = 0.0

    def elapsed_s(self) -> float:
        return super().elapsed_s() + self.ahead_s


class CountingMetadata(Metadata):
    """Metadata that counts its requests and its updates."""

    news: int
    questions: int

    async def _ask(self) -> None:
        self.questions += 1
        await super()._ask()


@asynccontextmanager
async def metadata(
    *seeds: Address, clock: FastClock | None = None, **rules: Any
) -> AsyncGenerator[CountingMetadata]:
    clock = clock or FastClock()
    connections = Connections(
        ConnectionConfig(seeds, "test", ("ottla", "0"), BACKOFF), TcpNetwork(), clock, lambda: 0.5
    )

    def changed() -> None:
        made.news += 1

    made = CountingMetadata(connections, MetadataConfig(BACKOFF, **rules), clock, changed)
    made.news = made.questions = 0
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await connections.close()


def place(cluster: Cluster) -> Address:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return Address(host, int(port))


def test_topic_is_known_with_its_leaders() -> None:
    async def scenario() -> None:
        settings = {"num.partitions": "3"}
        async with Cluster(settings=settings) as cluster, metadata(place(cluster)) as known:
            topic = await known.topic("orders", 10)
            assert sorted(topic.partitions) == [0, 1, 2]
            leader = known.view.leader("orders", 2)
            assert leader is not None
            channel = await known.channel(leader.leader)
            assert channel is await known.any_channel()
            assert known.news

    run(scenario())


def test_concurrent_callers_share_one_request() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, metadata(place(cluster)) as known:
            await known.topic("orders", 10)
            before = known.questions
            await asyncio.gather(*(known.refreshed(10) for _ in range(50)))
            assert known.questions == before + 1
            await known.topic("orders", 10)  # is cached: no request is sent
            assert known.questions == before + 1

    run(scenario())


def test_refresh_waits_for_a_request_sent_after_it() -> None:
    """A response to an earlier request may be the stale metadata that caused the need."""

    async def scenario() -> None:
        async with Cluster() as cluster, metadata(place(cluster)) as known:
            first = asyncio.create_task(known.refreshed(10))
            while not known.questions:
                await asyncio.sleep(0)
            second = asyncio.create_task(known.refreshed(10))
            await asyncio.gather(first, second)
            assert known.questions == 2

    run(scenario())


def test_invalid_topic_name_is_refused_at_once() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, metadata(place(cluster)) as known:
            with pytest.raises(RequestError, match="no such name") as wrong:
                await known.topic("no such name!", 10)
            assert wrong.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario())


def test_refused_topic_is_logged_once_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, metadata(place(cluster)) as known:
            await known.topic("a.b", 10)
            known.want("a_b")  # as a consumer that has subscribed to it
            for _ in range(3):
                await known.refreshed(10)
        logged = [one for one in caplog.messages if "a_b cannot be used" in one]
        assert len(logged) == 1
        assert "collides with existing topic: a.b" in logged[0]

    run(scenario())


def test_missing_topic_times_out_with_a_reason() -> None:
    async def scenario() -> None:
        settings = {"auto.create.topics.enable": "false"}
        async with Cluster(settings=settings) as cluster, metadata(place(cluster)) as known:
            with pytest.raises(TimedOut, match=r"topic missing after 0\.3 s.*check the name"):
                await known.topic("missing", 0.3)
            assert known.questions > 1

    run(scenario())


def test_timeout_without_a_broker_has_a_hint() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            gone = place(cluster)
        async with metadata(gone) as known:
            with pytest.raises(Disconnected, match="ottla dev"):
                await known.topic("orders", 0.3)
            with pytest.raises(Disconnected, match="ottla dev"):
                await known.refreshed(0.1)

    run(scenario())


def test_broker_that_comes_back_is_found() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, metadata(place(cluster)) as known:
            await known.topic("orders", 10)
            await cluster.brokers[0].stop()
            with pytest.raises(RequestError):
                await known.refreshed(0.2)
            await cluster.brokers[0].start()
            await known.refreshed(10)
            assert known.failure is None

    run(scenario())


def test_old_metadata_is_refreshed() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, metadata(place(cluster), max_age_s=0.05) as known:
            await known.topic("orders", 10)
            before = known.questions
            while known.questions < before + 3:
                await asyncio.sleep(0.01)

    run(scenario())


def test_unused_topics_are_dropped() -> None:
    async def scenario() -> None:
        clock = FastClock()
        async with (
            Cluster() as cluster,
            metadata(place(cluster), clock=clock, max_idle_s=60.0) as known,
        ):
            await known.topic("used", 10)
            await known.topic("unused", 10)
            clock.ahead_s = 50
            known.want("used")
            clock.ahead_s = 100
            await known.refreshed(10)
            assert {*known.view.topics} == {"used"}

    run(scenario())


def test_leader_hint_is_used_and_a_missing_one_refreshes() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, metadata(place(cluster)) as known:
            await known.topic("orders", 10)
            leader = known.view.leader("orders", 0)
            assert leader is not None
            questions, news = known.questions, known.news
            other = BrokerView(BrokerId(9), "127.0.0.1", 1)
            known.learn("orders", 0, 9, leader.leader_epoch + 1, other)
            assert known.news == news + 1
            moved = known.view.leader("orders", 0)
            assert moved is not None
            assert moved.leader == 9
            assert known.questions == questions
            known.learn("orders", 0, 8, leader.leader_epoch)
            while known.questions == questions:
                await asyncio.sleep(0.001)

    run(scenario())
