# pyright: reportPrivateUsage=false
"""Brokers serve with the committed ISR while coordination is down (rule B10)."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from ottla import Producer
from ottla.cluster.image import PartitionState
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.renewed_session import RenewedSession
from ottla.ids import PartitionIndex, TopicPartition
from ottla.replication.partition import Partition
from ottla.testing import Cluster
from ottla.testing.cluster import ClusterBroker

TOPIC = "orders"
SETTINGS = {"replica.lag.time.max.ms": 500, "replica.fetch.wait.max.ms": 100}


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


@contextmanager
def outage(cluster: Cluster) -> Generator[None]:
    """Cut all sessions; none of them expires, because the ensemble is down."""

    async def expire_none(self: EmbeddedStore) -> None:
        await asyncio.sleep(0.05)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedStore, "expire_due", expire_none)
        sessions: list[tuple[EmbeddedStore, int]] = []
        for broker in cluster.brokers:
            running = broker._running
            assert running is not None
            assert running._session is not None
            sessions.append((broker._coordination, running._session.id))
        for store, session_id in sessions:
            store.suspend(session_id)
        yield
        for store, session_id in sessions:
            store.resume(session_id)


def led(broker: ClusterBroker) -> Partition:
    running = broker._running
    assert running is not None
    assert running._node is not None
    assert running._node.replica_manager is not None
    name = TopicPartition(TOPIC, PartitionIndex(0))
    return running._node.replica_manager.partitions[name]


def stored(broker: ClusterBroker) -> PartitionState:
    assert broker.image is not None
    state = broker.image.state(TOPIC, 0)
    assert state is not None
    return state


def controller_epoch(broker: ClusterBroker) -> int:
    assert broker.image is not None
    return broker.image.controller_epoch


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_b10_brokers_serve_while_coordination_is_down() -> None:
    async def scenario() -> None:
        async with (
            Cluster(brokers=3, settings=SETTINGS) as cluster,
            Producer[bytes, bytes]({"bootstrap.servers": cluster.bootstrap_servers}) as client,
        ):
            await client.send(TOPIC, b"0")
            await client.flush()
            await cluster.settled()
            leader, controller = cluster.leader(TOPIC, 0), cluster.controller
            assert leader is not None
            follower = next(one for one in cluster.brokers if one not in (leader, controller))
            before = stored(leader)
            with outage(cluster):
                for number in range(1, 10):
                    await client.send(TOPIC, b"%d" % number)
                await client.flush()
                assert led(leader).high_watermark == 10
                await follower.kill()
                waiting = await client.send(TOPIC, b"10")
                # The leader wants to remove the dead follower. Nobody can store that now.
                await until(lambda: led(leader).proposed_isr is not None)
                assert led(leader).log.log_end_offset == 11
                assert led(leader).high_watermark == 10, "the committed ISR counts"
                assert not waiting.done
                assert [one for one in cluster.brokers if one.running] == [
                    one for one in cluster.brokers if one is not follower
                ]
                assert stored(leader) == before
            await client.flush()
            await waiting
            after = stored(leader)
            assert (after.leader, follower.id in after.in_sync) == (before.leader, False)
            assert led(leader).high_watermark == 11

    run(scenario)


def test_b10_first_broker_back_does_not_shrink_the_isr() -> None:
    async def scenario() -> None:
        async with (
            Cluster(brokers=3, settings=SETTINGS) as cluster,
            Producer[bytes, bytes]({"bootstrap.servers": cluster.bootstrap_servers}) as client,
        ):
            await client.send(TOPIC, b"0")
            await client.flush()
            await cluster.settled()
            leader = cluster.leader(TOPIC, 0)
            assert leader is not None
            before = stored(leader)
            first = next(one for one in cluster.brokers if one is not leader)
            running, epoch = first._running, controller_epoch(first)
            may_return = asyncio.Event()
            renew = RenewedSession.renew

            async def renewed(session: RenewedSession) -> None:
                if session._coordination is not running:
                    await may_return.wait()
                await renew(session)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(RenewedSession, "renew", renewed)
                for broker in cluster.brokers:
                    await broker.expire_session()
                await until(lambda: controller_epoch(first) > epoch)
                assert cluster.controller is first
                after = stored(first)
                assert (after.leader, after.in_sync) == (before.leader, before.in_sync)
                await client.send(TOPIC, b"1")
                await client.flush()
                may_return.set()
                await cluster.settled()
            assert [*stored(first).in_sync] == [*before.in_sync]

    run(scenario)
