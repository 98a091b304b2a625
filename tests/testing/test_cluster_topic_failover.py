# pyright: reportPrivateUsage=false
"""Topics are created and deleted although the controller dies at any write of the change."""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from itertools import count

import pytest

from ottla import Admin, Consumer, NewTopic
from ottla.cluster.znodes import DELETIONS
from ottla.coordination.embedded import EmbeddedSession
from ottla.coordination.operations import Operation
from ottla.coordination.session import Result
from ottla.errors import ErrorCode, RequestError
from ottla.testing import Cluster, ClusterBroker
from testing.test_replicated_cluster import TOPIC, producer, run, until

PARTITIONS = 2


class MortalController:
    """Kills the controller at a write to a topic, before or after the write is stored."""

    def __init__(self, cluster: Cluster, patch: pytest.MonkeyPatch) -> None:
        self._cluster = cluster
        self._multi = EmbeddedSession.multi
        self._left = 0
        self._stores = False
        self._victim: ClusterBroker | None = None
        self._session: EmbeddedSession | None = None
        self._reached = asyncio.Event()
        self._killed = asyncio.Event()

        async def multi(session: EmbeddedSession, operations: Sequence[Operation]) -> list[Result]:
            return await self._write(session, operations)

        patch.setattr(EmbeddedSession, "multi", multi)

    async def _write(
        self, session: EmbeddedSession, operations: Sequence[Operation]
    ) -> list[Result]:
        is_change = any(TOPIC in one.path.split("/") for one in operations)
        if session is self._session and is_change and self._left:
            self._left -= 1
            if not self._left:
                if self._stores:
                    await self._multi(session, operations)
                self._reached.set()
                await self._killed.wait()
        return await self._multi(session, operations)  # which fails if the session has ended

    async def during(self, change: Awaitable[None], write: int, *, stores: bool) -> bool:
        """Make a change, and let the controller die at a write; returns whether it came so far."""
        victim = self._cluster.controller
        assert victim is not None
        assert victim._running is not None
        self._session = victim._running._session
        self._left, self._stores = write, stores
        self._reached, self._killed = asyncio.Event(), asyncio.Event()
        making = asyncio.ensure_future(change)
        reached = asyncio.ensure_future(self._reached.wait())
        await asyncio.wait((making, reached), return_when=asyncio.FIRST_COMPLETED)
        self._left, dies = 0, self._reached.is_set()
        if dies:
            killing = asyncio.ensure_future(victim.kill())
            await asyncio.sleep(0)  # the session has ended
            self._killed.set()
            await killing
            await until(lambda: self._cluster.controller not in (victim, None))
        reached.cancel()
        await making
        if dies:
            await victim.start()
        await self._cluster.settled()
        return dies


async def created(ours: Admin) -> None:
    try:
        (await ours.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])).or_raise()
    except RequestError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # by an attempt without a response
            raise


async def deleted(ours: Admin) -> None:
    try:
        (await ours.delete_topics(TOPIC)).or_raise()
    except RequestError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise


async def check_new(cluster: Cluster) -> None:
    """Check that the topic has the records of this call only."""
    for broker in cluster.brokers:
        assert broker.image is not None
        topic = broker.image.topics[TOPIC]
        assert len(topic.partitions) == PARTITIONS
        assert all(len(one.in_sync) == 3 for one in topic.partitions)
    async with producer(cluster) as client:
        for partition in range(PARTITIONS):
            await client.send(TOPIC, b"%d" % partition, partition=partition)
        await client.flush()
    async with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        consumer.assign(*((TOPIC, index) for index in range(PARTITIONS)))
        consumer.seek_to_beginning()
        found: list[tuple[int, bytes | None]] = []
        while len(found) < PARTITIONS:
            found += [(one.offset, one.value) for one in await consumer.poll(1)]
    assert sorted(found) == [(0, b"0"), (0, b"1")]


async def check_gone(cluster: Cluster) -> None:
    """Check that nothing is left of the topic: brokers that return set its logs aside."""
    for broker in cluster.brokers:
        await until(partial(has_forgotten, broker))
        assert broker._running is not None
        assert broker._running._session is not None
        assert not await broker._running._session.children(DELETIONS)


def has_forgotten(broker: ClusterBroker) -> bool:
    """Whether a broker does not know the topic, and has no log of it."""
    assert broker.image is not None
    logs = (broker.directories[0] / f"{TOPIC}-{index}" for index in range(PARTITIONS))
    return TOPIC not in broker.image.topics and not any(one.exists() for one in logs)


@pytest.mark.parametrize("stores", [False, True], ids=["before the write", "after the write"])
def test_controller_dies_at_each_write_of_a_creation_and_a_deletion(
    stores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with (
            Cluster(brokers=4) as cluster,
            Admin({"bootstrap.servers": cluster.bootstrap_servers}) as ours,
        ):
            mortal = MortalController(cluster, monkeypatch)
            creations = deletions = 0
            for write in count(1):
                before = creations + deletions
                creations += await mortal.during(created(ours), write, stores=stores)
                await check_new(cluster)
                deletions += await mortal.during(deleted(ours), write, stores=stores)
                await check_gone(cluster)
                if creations + deletions == before:
                    break  # there are no more writes
            assert creations >= 2, "the topic, and its leaders"
            assert deletions >= 2, "the intention, and the end"

    run(scenario)
