"""A follower that fetches from a running broker: the real handlers, sessions and logins."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from broker.nodes import Client, RunningBroker, broker, run
from broker.replicas import Replicas
from broker.test_cluster_login import login
from broker.test_node import batch, create, produce
from log.log_managers import append
from ottla.clock import SystemClock
from ottla.cluster.image import Address, Broker
from ottla.errors import ErrorCode
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition, Uuid
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import LogManager
from ottla.log.partition_log import PartitionLog
from ottla.protocol.message import Message
from ottla.replication.fetcher import FetcherConfig, ReplicaFetchers
from ottla.replication.follower import FollowerPartition
from ottla.transport.backoff import Backoff
from ottla.transport.broker_channels import BrokerChannels, ChannelsConfig
from ottla.transport.network import TcpNetwork
from transport.test_departures import until

FOLLOWER, LEADER = BrokerId(2), BrokerId(1)
DEFAULTS = FetcherConfig()


async def _serve_nobody(message: Message) -> Message:
    raise AssertionError("a broker does not fetch from itself")


class World:
    """A running broker that leads, and a follower with its own logs."""

    def __init__(
        self,
        running: RunningBroker,
        client: Client,
        topic_id: Uuid,
        logs: LogManager,
        config: FetcherConfig,
    ) -> None:
        self.client, self.topic_id, self.logs = client, topic_id, logs
        self.running = running
        self.replicas = [Replicas(running, index=index) for index in range(3)]
        leader = Broker(LEADER, BrokerEpoch(1), {"PLAINTEXT": Address("127.0.0.1", running.port)})
        channels = BrokerChannels(
            FOLLOWER,
            ChannelsConfig(
                client_id="broker-2-fetcher",
                listener="PLAINTEXT",
                backoff=Backoff(0.05, 1.0, lambda: 0.5),
            ),
            network=TcpNetwork(),
            clock=logs.clock,
            broker={LEADER: leader}.get,
            serve=_serve_nobody,
            login=login(running.parts.cluster_credential),
        )
        self.fetchers = ReplicaFetchers(
            FOLLOWER,
            channels=channels,
            logs=logs,
            config=config,
            broker_epoch=lambda: BrokerEpoch(1),
            clock=logs.clock,
            random=lambda: 0.5,
        )
        self.followers: dict[int, FollowerPartition] = {}

    async def follow(self, index: int = 0) -> PartitionLog:
        """Follow a partition, with the log that exists or a new one."""
        name = TopicPartition("t", index)
        hosted = self.logs.get(name) or await self.logs.create(name, self.topic_id, LogConfig())
        follower = FollowerPartition(hosted, self.topic_id, self.replicas[index].state)
        self.followers[index] = follower
        self.fetchers.set(follower)
        return hosted.log

    def led(self, index: int = 0) -> PartitionLog:
        return self.replicas[index].led.log

    async def is_equal(self, index: int = 0) -> bool:
        led, log = self.led(index), self.followers[index].log
        if led.log_end_offset != log.log_end_offset:
            return False
        start = max(led.log_start_offset, log.log_start_offset)
        return await _bytes(led, start) == await _bytes(log, start)


async def _bytes(log: PartitionLog, start: int) -> bytes:
    return bytes(await (await log.read(start, log.log_end_offset, 1 << 20)).read())


async def until_equal(world: World, index: int = 0) -> None:
    while not await world.is_equal(index):
        await asyncio.sleep(0.005)


@asynccontextmanager
async def replicating(tmp_path: Path, config: FetcherConfig = DEFAULTS) -> AsyncGenerator[World]:
    disk, numbers = OsDisk(), count(1)
    async with broker(tmp_path / "leader") as running:
        client = await running.client()
        topic_id = await create(client, "t", 3)
        logs = await LogManager.open(
            disk,
            [f"{tmp_path}/follower"],
            lambda topic: LogConfig(),
            cluster_id="c",
            node_id=FOLLOWER,
            clock=SystemClock(),
            random=lambda: 0.5,
            new_id=lambda: Uuid(next(numbers).to_bytes(16, "big")),
        )
        world = World(running, client, topic_id, logs, config)
        try:
            yield world
        finally:
            await world.fetchers.close()
            await world.fetchers.channels.close()
            await logs.close(BrokerEpoch(1))
    disk.close()


def test_a16_follower_of_a_broker_has_its_bytes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with replicating(tmp_path) as world:
            for replicas in world.replicas:
                replicas.change(1)
            for index in range(3):
                for number in range(5):
                    await produce(world.client, "t", batch(b"%d" % number, bytes(500)), index=index)
                await world.follow(index)
            for index in range(3):
                await until_equal(world, index)
            sent = world.running.parts.replica_manager.replication.bytes_out
            assert (
                sent
                == world.fetchers.counts.bytes_in
                == sum([len(await _bytes(world.led(index), 0)) for index in range(3)])
            )
            assert not world.fetchers.counts.errors
            assert not world.fetchers.counts.fetch_failures

    run(scenario)


def test_a5_acks_all_waits_for_the_follower_and_moves_its_high_watermark(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with replicating(tmp_path) as world:
            world.replicas[0].change(1, 2)
            await world.follow()
            for number in range(20):
                code, offset = await produce(world.client, "t", batch(b"%d" % number))
                assert (code, offset) == (ErrorCode.NONE, number)
            await until(lambda: world.followers[0].high_watermark == 20)
            assert world.followers[0].lag == 0

    run(scenario)


def test_a2_diverging_log_is_truncated_to_the_leaders(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with replicating(tmp_path) as world:
            world.replicas[0].change(1)
            await produce(world.client, "t", batch(b"a"))
            log = await world.follow()
            await until_equal(world)
            await world.fetchers.remove(TopicPartition("t", 0))
            # It leads in an epoch of its own, and then the broker is elected again.
            log.begin_epoch(LeaderEpoch(world.replicas[0].state.leader_epoch + 1))
            append(world.logs[TopicPartition("t", 0)], b"lost")
            state = world.replicas[0].state
            world.replicas[0].state = state.led_by(LEADER, (LEADER,)).led_by(LEADER, (LEADER,))
            world.replicas[0].led.update(world.replicas[0].state)
            await produce(world.client, "t", batch(b"b"))
            await produce(world.client, "t", batch(b"c"))
            await world.follow()
            await until_equal(world)
            assert list(log.epochs) == list(world.led().epochs)
            assert world.fetchers.counts.truncations == 1

    run(scenario)


def test_a17_deleted_records_mid_batch_at_a_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with replicating(tmp_path) as world:
            world.replicas[0].change(1)
            await produce(world.client, "t", batch(b"0", b"1", b"2"))
            await produce(world.client, "t", batch(*(b"%d" % number for number in range(3, 9))))
            world.led().advance_log_start(Offset(5))
            log = await world.follow()
            await until(lambda: (log.log_start_offset, log.log_end_offset) == (5, 9))
            assert log.segments.first.base_offset == 3
            assert await _bytes(log, 5) == await _bytes(world.led(), 5)

    run(scenario)


def test_new_partition_is_fetched_while_another_fetch_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with replicating(tmp_path, FetcherConfig(wait_max_ms=20_000)) as world:
            for index in range(3):
                world.replicas[index].change(1, 2)
            await world.follow(0)
            await produce(world.client, "t", batch(b"a"))
            # The fetch that acknowledged the record waits for the next one.
            for index in (1, 2):
                await world.follow(index)
                code, _ = await produce(world.client, "t", batch(b"a"), index=index)
                assert code == ErrorCode.NONE  # not REQUEST_TIMED_OUT, after a second

    run(scenario)
