"""The CPU time of a round trip between a follower and its leader, if one partition has records.

For the follower, this process runs a real follower: replica fetchers, connections, logs on a disk.
The leader is a stub in another process, which answers at once with a ready-made batch for one
partition, the next one each time. For the leader, this process runs a real broker, and another one
a real follower. The broker appends a batch to the next partition when the one before is committed,
as for one producer with acks=all. So a round trip is: the Fetch arrives, moves the high watermark
and waits; an append wakes it; the response leaves. The time of the append is measured apart and
subtracted: it belongs to the producer. The round trip time says little on two cores.

Invariant: each Fetch returns one batch, and the follower reports the new log end offset with the
next one. The records are in the page cache when a round trip ends; nothing is synced.
"""
# pyright: reportPrivateUsage=false

import argparse
import asyncio
import cProfile
import gc
import multiprocessing
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple, cast

import uvloop

from ottla.broker.dispatch import BrokerParts
from ottla.broker.node import Environment, Node
from ottla.clock import SystemClock
from ottla.cluster.image import Address, Broker, PartitionState
from ottla.cluster.topic_creation import AskedTopic
from ottla.controller.credential import ClusterCredential
from ottla.coordination.embedded import EmbeddedStore
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition, Uuid
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import LogManager
from ottla.protocol.apis import API_VERSIONS, FETCH
from ottla.protocol.conversation import ServerConversation
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.records.batch import assign_offset
from ottla.records.builder import BatchBuilder
from ottla.release import RELEASE
from ottla.replication.fetcher import FetcherConfig, ReplicaFetchers
from ottla.replication.follower import FollowerPartition
from ottla.replication.in_sync_replicas import IsrProposal
from ottla.replication.partition import Partition
from ottla.settings.config_parser import broker_config
from ottla.settings.config_types import Secret
from ottla.transport.backoff import Backoff
from ottla.transport.broker_channels import BrokerChannels, ChannelsConfig
from ottla.transport.channel import Channel
from ottla.transport.login import BrokerLogin
from ottla.transport.network import TcpNetwork

HOST = "127.0.0.1"
TOPIC_ID = Uuid(b"topic id of test")
FOLLOWER, LEADER = BrokerId(1), BrokerId(2)
FOLLOWER_GOAL_US, LEADER_GOAL_US = 80, 60
NOW_MS = 1_700_000_000_000
SETTLE_S = 0.5
SLICE_S = 0.1  # the best slice counts, because other processes share the cores


def batch(size: int) -> bytearray:
    """A batch of about this many bytes, with records of 100 bytes."""
    builder = BatchBuilder(16 * 1024 * 1024)
    for _ in range(max(1, size // 110)):
        builder.append(NOW_MS, None, os.urandom(100))
    return bytearray(builder.build())


class StubLeader(asyncio.Protocol):
    """Answers each Fetch with one batch for the next partition of the session."""

    def __init__(self, data: bytearray) -> None:
        self._conversation = ServerConversation()
        self._data = data
        self._offsets: dict[int, int] = {}
        self._turn = count()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # of uvloop

    def data_received(self, data: bytes) -> None:
        """Answer the requests."""
        assert self._transport is not None
        for request in self._conversation.receive(data):
            response = self._answer(request.message)
            self._transport.writelines(self._conversation.send(request, response))

    def _answer(self, message: Message) -> Message:
        if not isinstance(message, FetchRequest):
            keys = [
                ApiVersion(
                    api_key=api.key, min_version=api.versions.low, max_version=api.versions.high
                )
                for api in (API_VERSIONS, FETCH)
            ]
            return ApiVersionsResponse(error_code=0, api_keys=keys)
        if message.session_epoch == 0:
            self._offsets = {}
        for topic in message.topics:
            for one in topic.partitions:
                self._offsets[one.partition] = one.fetch_offset
        number = next(self._turn) % len(self._offsets)
        offset = self._offsets[number]
        assign_offset(self._data, offset, 0)
        data = PartitionData(
            partition_index=number,
            error_code=0,
            high_watermark=offset,
            last_stable_offset=offset,
            log_start_offset=0,
            aborted_transactions=None,
            records=bytes(self._data),
        )
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]
        return FetchResponse(throttle_time_ms=0, session_id=7, responses=topics)


def lead(size: int, port: "multiprocessing.Queue[int]") -> None:
    """Run the stub leader, until it is terminated."""
    data = batch(size)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: StubLeader(data), HOST, 0)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


async def follow(
    port: int,
    partitions: int,
    seconds: float,
    topic_id: Uuid = TOPIC_ID,
    login: "Callable[[Channel], Awaitable[None]] | None" = None,
) -> tuple[float, float]:
    """Return the microseconds per Fetch, of CPU and of the wall clock."""
    clock, disk, numbers = SystemClock(), OsDisk(), count(1)
    with tempfile.TemporaryDirectory() as directory:
        logs = await LogManager.open(
            disk,
            [directory],
            lambda topic: LogConfig(),
            cluster_id="c",
            node_id=FOLLOWER,
            clock=clock,
            random=lambda: 0.5,
            new_id=lambda: Uuid(next(numbers).to_bytes(16, "big")),
        )
        leader = Broker(LEADER, BrokerEpoch(1), {"INTERNAL": Address(HOST, port)})
        config = ChannelsConfig(
            client_id="broker-1-fetcher", listener="INTERNAL", backoff=Backoff(0.05, 1, lambda: 0.5)
        )
        channels = BrokerChannels(
            FOLLOWER,
            config,
            network=TcpNetwork(),
            clock=clock,
            broker={LEADER: leader}.get,
            serve=_refuse,
            login=login,
        )
        fetchers = ReplicaFetchers(
            FOLLOWER,
            channels=channels,
            logs=logs,
            config=FetcherConfig(),
            broker_epoch=lambda: BrokerEpoch(1),
            clock=clock,
            random=lambda: 0.5,
        )
        state = PartitionState((LEADER, FOLLOWER), LEADER, LeaderEpoch(0), (LEADER, FOLLOWER), 0)
        names = [TopicPartition("t", number) for number in range(partitions)]
        for hosted in [await logs.create(name, topic_id, LogConfig()) for name in names]:
            fetchers.set(FollowerPartition(hosted, topic_id, state))
        await asyncio.sleep(SETTLE_S)
        best = (float("inf"), 0.0)
        for _ in range(round(seconds / SLICE_S)):
            fetches, cpu_s, wall_s = (
                fetchers.counts.fetches,
                time.process_time(),
                time.perf_counter(),
            )
            await asyncio.sleep(SLICE_S)
            fetches = max(fetchers.counts.fetches - fetches, 1)
            cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
            best = min(best, (cpu_s / fetches * 1e6, wall_s / fetches * 1e6))
        assert fetchers.counts.bytes_in > 0, fetchers.counts
        assert not fetchers.counts.errors
        await fetchers.close()
        await channels.close()
        await logs.close(BrokerEpoch(1))
    disk.close()
    return best


async def _refuse(message: Message) -> Message:
    raise AssertionError("a broker does not fetch from itself")


class OpenNode(Node):
    """A broker whose parts can be changed."""

    parts: BrokerParts

    async def _serve(self, parts: BrokerParts) -> None:
        self.parts = parts
        await super()._serve(parts)


class Place(NamedTuple):
    """What a follower in another process has to know."""

    port: int
    password: str
    topic_id: bytes


def follow_broker(partitions: int, places: "multiprocessing.Queue[Place]") -> None:
    """Follow a broker, until this process is terminated."""
    port, password, topic_id = places.get()
    credential = ClusterCredential(Secret(password), os.urandom)
    login = BrokerLogin(credential.login(), ("ottla", RELEASE), 10)
    uvloop.run(follow(port, partitions, 3600, Uuid(topic_id), login))


def with_follower(led: Partition) -> None:
    """Give a partition of a single broker a follower, which is in sync."""

    def propose(led: Partition, proposal: IsrProposal) -> None:
        raise AssertionError("the ISR does not change")

    def is_alive(broker_id: BrokerId) -> bool:
        return True

    led._propose, led._is_alive = propose, is_alive  # noqa: SLF001 - as in its tests
    replicas = (LEADER, FOLLOWER)
    led.update(PartitionState(replicas, LEADER, LeaderEpoch(0), replicas, 1))


async def lead_really(
    size: int,
    partitions: int,
    seconds: float,
    places: "multiprocessing.Queue[Place]",
    profile: cProfile.Profile | None,
) -> tuple[float, float]:
    """Return the microseconds per round trip, of the CPU of a leader and of the wall clock."""
    clock, disk, records = SystemClock(), OsDisk(), memoryview(batch(size))
    with tempfile.TemporaryDirectory() as directory:
        store = EmbeddedStore.open(disk, f"{directory}/coordination", clock)
        config = broker_config(
            overrides=(
                f"node.id={LEADER}",
                f"listeners=PLAINTEXT://{HOST}:0",
                f"log.dirs={directory}/data",
            )
        )
        around = Environment(
            clock,
            disk,
            TcpNetwork(),
            store,
            LocalCleaner(),
            lambda: 0.5,
            lambda: Uuid(os.urandom(16)),
            os.urandom,
        )
        async with OpenNode(config, LEADER, around) as node:
            parts = node.parts
            topic = await parts.topics.create(AskedTopic("t", partitions, 1), {})
            led = [parts.replica_manager.leader_partition("t", one) for one in range(partitions)]
            for one in led:
                with_follower(one)
            _, password = parts.cluster_credential.credentials
            port = node.addresses["PLAINTEXT"].port
            places.put(Place(port, password.reveal(), topic.id))
            for one in led:  # until the follower fetches all of them
                await append(one, records)
            gc.freeze()  # as `ottla broker` does when it has started
            best = (float("inf"), 0.0)
            for _ in range(round(seconds / SLICE_S)):
                best = min(best, await measure(led, records, profile))
        await store.close()
    disk.close()
    return best


async def append(led: Partition, records: memoryview) -> float:
    """Append a batch and wait until it is committed; return the CPU seconds of the append."""
    began_s = time.thread_time()
    end = led.append(records, produce_version=12, acks=-1, now_ms=NOW_MS).last_offset + 1
    took_s = time.thread_time() - began_s
    await led.committed(end)
    return took_s


async def measure(
    led: list[Partition], records: memoryview, profile: cProfile.Profile | None
) -> tuple[float, float]:
    rounds, appends_s, cpu_s, wall_s = 0, 0.0, time.process_time(), time.perf_counter()
    if profile is not None:
        profile.enable()
    while time.perf_counter() < wall_s + SLICE_S:
        appends_s += await append(led[rounds % len(led)], records)
        rounds += 1
    if profile is not None:
        profile.disable()
    cpu_s = time.process_time() - cpu_s - appends_s
    return cpu_s / rounds * 1e6, (time.perf_counter() - wall_s) / rounds * 1e6


CASES = ((1, 1024), (1, 16384), (100, 16384), (1000, 16384))


def measure_follower(partitions: int, size: int, seconds: float) -> tuple[float, float]:
    """Measure a follower of a stub leader."""
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=lead, args=(size, port), daemon=True)
    process.start()
    try:
        return uvloop.run(follow(port.get(), partitions, seconds))
    finally:
        process.terminate()
        process.join()


def measure_leader(
    partitions: int, size: int, seconds: float, profile: cProfile.Profile | None
) -> tuple[float, float]:
    """Measure a leader with a follower in another process."""
    places: multiprocessing.Queue[Place] = multiprocessing.Queue()
    process = multiprocessing.Process(target=follow_broker, args=(partitions, places), daemon=True)
    process.start()
    try:
        return uvloop.run(lead_really(size, partitions, seconds, places, profile))
    finally:
        process.terminate()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3.0, help="time per case")
    parser.add_argument("--profile", action="store_true", help="print where the leader's time goes")
    arguments = parser.parse_args()
    seconds: float = arguments.seconds
    print("part      partitions    batch  CPU us/round trip  goal  wall us/round trip")
    missed = False
    for partitions, size in CASES:
        profile = cProfile.Profile() if arguments.profile else None
        follower = measure_follower(partitions, size, seconds)
        leader = measure_leader(partitions, size, seconds, profile)
        for part, (cpu_us, wall_us), goal_us in (
            ("follower", follower, FOLLOWER_GOAL_US),
            ("leader", leader, LEADER_GOAL_US),
        ):
            missed |= cpu_us > goal_us
            row = f"{part:<9} {partitions:>10} {size:>8} {cpu_us:>18.1f} {goal_us:>5}"
            print(f"{row} {wall_us:>19.1f}")
        if profile is not None:
            profile.print_stats("tottime")
    print("the goals are not reached" if missed else "the goals are reached")


if __name__ == "__main__":
    main()
