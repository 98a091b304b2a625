"""Clients that leave while their Produce or DeleteRecords waits for a follower that is cut off."""

import asyncio
import struct
from collections.abc import Callable
from socket import SO_LINGER, SOL_SOCKET

from broker.test_node import batch
from ottla import Producer
from ottla.broker.node import Node
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.conversation import OBJECTS_AT_ONCE, ClientConversation
from ottla.protocol.message import Message
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.testing import Cluster, ClusterBroker
from testing.test_replicated_cluster import run

FOREVER_MS = 2**31 - 1
NOT_THERE = range(1, OBJECTS_AT_ONCE + 2)
"""Partitions that do not exist; with them, a request is a large one."""


def produce(*missing: int) -> ProduceRequest:
    parts = [PartitionProduceData(index=number, records=batch(b"v")) for number in (0, *missing)]
    topics = [TopicProduceData(name="t", partition_data=parts)]
    return ProduceRequest(acks=-1, timeout_ms=FOREVER_MS, topic_data=topics)


def delete(*missing: int) -> DeleteRecordsRequest:
    parts = [DeleteRecordsPartition(partition_index=number, offset=1) for number in (0, *missing)]
    topics = [DeleteRecordsTopic(name="t", partitions=parts)]
    return DeleteRecordsRequest(topics=topics, timeout_ms=FOREVER_MS)


VERSIONS: dict[type[Message], int] = {ProduceRequest: 9, DeleteRecordsRequest: 2}
REQUESTS: dict[str, Callable[[], Message]] = {
    "produce": produce,
    "large produce": lambda: produce(*NOT_THERE),
    "delete": delete,
    "large delete": lambda: delete(*NOT_THERE),
}


CLIENTS = [
    *((name, how) for name in ("produce", "delete") for how in ("close", "half", "reset")),
    *((f"large {name}", how) for name in ("produce", "delete") for how in ("close", "reset")),
]


def node_of(broker: ClusterBroker) -> Node:
    running = broker._running  # pyright: ignore[reportPrivateUsage]
    assert running is not None
    assert running._node is not None  # pyright: ignore[reportPrivateUsage]
    return running._node  # pyright: ignore[reportPrivateUsage]


def peers_of(node: Node) -> set[object]:
    """Return the addresses of the other ends of a broker's connections."""
    listeners = node._listeners  # pyright: ignore[reportPrivateUsage]
    transports = [
        one._transport  # pyright: ignore[reportPrivateUsage]
        for listener in listeners
        for one in listener.connections
    ]
    return {one.get_extra_info("peername") for one in transports if one is not None}


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds; `run` limits the wait."""
    while not holds():
        await asyncio.sleep(0.005)


def leave(writer: asyncio.StreamWriter, how: str) -> None:
    if how == "half":
        writer.write_eof()
    elif how == "close":
        writer.close()
    else:
        socket = writer.get_extra_info("socket")
        socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


def test_departed_clients_do_not_wait_for_a_follower() -> None:
    async def scenario() -> None:
        # The ISR does not shrink, so nothing but the departure ends the waits.
        settings = {"replica.lag.time.max.ms": 600_000}
        async with Cluster(brokers=3, settings=settings) as cluster:
            config = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}
            async with Producer[bytes, bytes](config) as producer:
                for _ in range(2):
                    await producer.send("t", b"v")
                await producer.flush()
            await cluster.settled()
            leader = cluster.leader("t", 0)
            assert leader is not None
            node = node_of(leader)
            assert node.replica_manager is not None
            partition = node.replica_manager.partitions[TopicPartition("t", PartitionIndex(0))]
            produces = partition.commit_waiters
            deletes = partition._low_watermarks  # pyright: ignore[reportPrivateUsage]
            end = partition.log.log_end_offset
            other = next(one for one in cluster.brokers if one is not leader)
            fault = cluster.partition(leader, other)
            peers = set[object]()
            writers: list[tuple[asyncio.StreamWriter, str]] = []
            for waits, (name, how) in enumerate(CLIENTS, 1):
                _, writer = await asyncio.open_connection("127.0.0.1", leader.port)
                writers.append((writer, how))
                peers.add(writer.get_extra_info("sockname"))
                message = REQUESTS[name]()
                conversation = ClientConversation("test")
                writer.writelines(conversation.send(message, VERSIONS[type(message)])[1])
                await until(lambda waits=waits: len(produces) + len(deletes) == waits)
            for writer, how in writers:
                leave(writer, how)
            await until(lambda: not len(produces) and not len(deletes))
            await until(lambda: not peers & peers_of(node))
            fault.end()
            await cluster.settled()
            produced = sum("produce" in name for name, _ in CLIENTS)
            assert partition.log.log_end_offset == end + produced
            await until(lambda: partition.low_watermark == 1)
            for writer, _ in writers:
                writer.close()

    run(scenario)
