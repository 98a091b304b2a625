"""The CPU time that a follower takes for one Fetch in which one partition has records.

The follower is real: replica fetchers, connections, logs on a disk. The leader is a stub in another
process, which answers at once with a ready-made batch for one partition, the next one each time. So
the CPU time of this process is the follower's alone. The round trip time says little on two cores.

Invariant: each Fetch returns one batch, and the follower reports the new log end offset with the
next one. The records are in the page cache when a round trip ends; nothing is synced.
"""

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from itertools import count
from typing import cast

import uvloop

from ottla.clock import SystemClock
from ottla.cluster.image import Address, Broker, PartitionState
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition, Uuid
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
from ottla.replication.fetcher import FetcherConfig, ReplicaFetchers
from ottla.replication.follower import FollowerPartition
from ottla.transport.backoff import Backoff
from ottla.transport.broker_channels import BrokerChannels, ChannelsConfig
from ottla.transport.network import TcpNetwork

HOST = "127.0.0.1"
TOPIC_ID = Uuid(b"topic id of test")
FOLLOWER, LEADER = BrokerId(1), BrokerId(2)
GOAL_US = 80
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


async def follow(port: int, partitions: int, seconds: float) -> tuple[float, float]:
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
        for hosted in [await logs.create(name, TOPIC_ID, LogConfig()) for name in names]:
            fetchers.set(FollowerPartition(hosted, TOPIC_ID, state))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3.0, help="time per case")
    seconds: float = parser.parse_args().seconds
    print("partitions    batch  CPU us/fetch  wall us/fetch")
    missed = False
    for partitions, size in ((1, 1024), (1, 16384), (100, 16384), (1000, 16384)):
        port: multiprocessing.Queue[int] = multiprocessing.Queue()
        process = multiprocessing.Process(target=lead, args=(size, port), daemon=True)
        process.start()
        try:
            cpu_us, wall_us = uvloop.run(follow(port.get(), partitions, seconds))
        finally:
            process.terminate()
            process.join()
        missed |= cpu_us > GOAL_US
        print(f"{partitions:>10} {size:>8} {cpu_us:>13.1f} {wall_us:>14.1f}")
    sys.exit(f"the goal is {GOAL_US} us of CPU per fetch" if missed else None)


if __name__ == "__main__":
    main()
