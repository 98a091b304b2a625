"""Fetch responses that are sent from the records files, against responses that are copied."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from broker.disks import FaultyDisk
from broker.handlers.test_fetch import FetchSpec, request
from broker.nodes import Client, RunningBroker, broker, run
from broker.test_node import batch, create, produce
from ottla.broker import fetch_read
from ottla.ids import ZERO_UUID, LeaderEpoch, Offset
from ottla.log.cached_reads import PinnedRecords, RecordSlice
from ottla.log.disk import Reader
from ottla.protocol.conversation import ClientConversation
from ottla.protocol.message import Message
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.transport import memory_pool
from ottla.transport.connection import Connection
from page_cache import needs_cachestat

pytestmark = needs_cachestat

LARGE: Final = 8 << 20


@pytest.fixture(autouse=True)
def _proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every client count as one that reads its responses."""
    monkeypatch.setattr(memory_pool, "PROVEN_BYTES", 0)


class RawClient:
    """A connection that receives responses as bytes, with a small buffer if asked for."""

    def __init__(self) -> None:
        self._conversation = ClientConversation("raw")
        self.socket = socket.socket()
        self.socket.setblocking(False)

    async def connect(
        self, running: RunningBroker, receive_bytes: int | None = None
    ) -> "RawClient":
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(self.socket, ("127.0.0.1", running.port))
        return self

    async def send(self, *messages: tuple[Message, int]) -> None:
        data = b"".join(
            b"".join(self._conversation.send(message, version)[1]) for message, version in messages
        )
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = await asyncio.get_running_loop().sock_recv(self.socket, count - len(data))
            if not more:
                raise EOFError(len(data))
            data += more
        return bytes(data)

    async def frame(self) -> bytes:
        """The next response without its correlation id."""
        (length,) = struct.unpack(">i", await self.exactly(4))
        return (await self.exactly(length))[4:]

    async def ask(self, message: Message, version: int) -> bytes:
        await self.send((message, version))
        return await self.frame()


class Counted:
    """How often records were sent from their file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pinned = 0
        self.monkeypatch = monkeypatch
        pinned = RecordSlice.pinned

        def counted(one: RecordSlice, reader: Reader) -> PinnedRecords | None:
            found = pinned(one, reader)
            self.pinned += found is not None
            return found

        monkeypatch.setattr(RecordSlice, "pinned", counted)

    def copy_all(self, *, copied: bool) -> None:
        self.monkeypatch.setattr(fetch_read, "PINNED_BYTES_MIN", 1 << 60 if copied else 1)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


async def fill(client: Client, topic: str, partitions: int, random: Random) -> None:
    for _ in range(12):
        for index in range(partitions):
            size = random.choice((10, 3000, 60_000, 300_000))
            await produce(client, topic, batch(random.randbytes(size), b"x"), index=index)


def test_fetch_from_files_equals_a_copied_one(tmp_path: Path, counted: Counted) -> None:
    random = Random(5)

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t", 3)
            await fill(client, "t", 3, random)
            raw = await RawClient().connect(running)
            traffic = running.parts.replica_manager.leader_partition("t", 0).traffic
            for _ in range(60):
                version = random.choice((4, 11, 12, 13, 17))
                topic = known if version >= 13 else "t"
                wanted = [
                    FetchSpec(topic, index, random.randrange(24), random.choice((1, 70_000, LARGE)))
                    for index in random.sample(range(3), random.randrange(1, 4))
                ]
                asked = request(
                    *wanted,
                    bytes_max=random.choice((1, 100_000, LARGE)),
                    isolation=random.randrange(2),
                )
                answers, counts = list[bytes](), list[tuple[int, int]]()
                for copied in (False, True):
                    counted.copy_all(copied=copied)
                    before = traffic.bytes_out, traffic.records_out
                    answers.append(await raw.ask(asked, version))
                    counts.append((traffic.bytes_out - before[0], traffic.records_out - before[1]))
                assert answers[0] == answers[1]
                assert counts[0] == counts[1]
            assert counted.pinned > 60
            raw.socket.close()

    run(scenario)


def test_other_responses_follow_a_fetch_from_files(tmp_path: Path, counted: Counted) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "socket.send.buffer.bytes=20000") as running:
            client = await running.client()
            await create(client, "t", 3)
            await fill(client, "t", 3, Random(6))
            fetches = request(
                *(FetchSpec("t", index, 0, LARGE) for index in range(3)), bytes_max=LARGE
            )
            metadata = MetadataRequest(topics=None)
            messages: list[tuple[Message, int]] = []
            for _ in range(3):
                messages += [(metadata, 12), (fetches, 12), (metadata, 12), (metadata, 12)]
            answers: list[list[bytes]] = []
            for copied in (False, True):
                counted.copy_all(copied=copied)
                raw = await RawClient().connect(running, 5000)
                await raw.send(*messages)
                answers.append([await raw.frame() for _ in messages])
                raw.socket.close()
            assert answers[0] == answers[1]
            assert counted.pinned == 9

    run(scenario)


async def truncate(running: RunningBroker) -> None:
    partition = running.parts.replica_manager.leader_partition("t", 0)
    await partition.log.truncate_to(3)
    partition.log.begin_epoch(LeaderEpoch(partition.leader_epoch))
    partition.high_watermark = Offset(3)
    client = await running.client()
    for _ in range(12):
        await produce(client, "t", batch(b"other" * 50_000))


async def delete_topic(running: RunningBroker) -> None:
    client = await running.client()
    gone = DeleteTopicState(name="t", topic_id=ZERO_UUID)
    answer = await client.ask(
        DeleteTopicsRequest(topics=[gone], timeout_ms=5000), DeleteTopicsResponse, 6
    )
    assert answer.responses[0].error_code == 0


async def roll(running: RunningBroker) -> None:
    log = running.parts.replica_manager.leader_partition("t", 0).log
    log.roll(0)
    await produce(await running.client(), "t", batch(b"other" * 50_000))
    await log.flush()


CHANGES: dict[str, Callable[[RunningBroker], Awaitable[None]]] = {
    "truncate": truncate,
    "delete the topic": delete_topic,
    "roll": roll,
}


def is_sending(running: RunningBroker) -> bool:
    return any(sends_file(one) for one in running.node.listeners[0].connections)


def sends_file(connection: Connection) -> bool:
    return connection._is_sending_files  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("change", CHANGES)
def test_slow_reader_gets_the_records_of_its_fetch(
    tmp_path: Path, counted: Counted, change: str
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "socket.send.buffer.bytes=20000") as running:
            client = await running.client()
            await create(client, "t")
            await fill(client, "t", 1, Random(7))
            asked = request(FetchSpec("t", 0, 0, LARGE), bytes_max=LARGE)
            counted.copy_all(copied=True)
            raw = await RawClient().connect(running)
            expected = await raw.ask(asked, 12)
            assert len(expected) > 500_000
            counted.copy_all(copied=False)
            slow = await RawClient().connect(running, 5000)
            await slow.send((asked, 12))
            while not is_sending(running):
                await asyncio.sleep(0.001)
            await CHANGES[change](running)
            assert is_sending(running)
            assert await slow.frame() == expected
            assert counted.pinned == 1
            raw.socket.close()
            slow.socket.close()

    run(scenario)


def test_records_in_the_socket_survive_a_truncation(tmp_path: Path, counted: Counted) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            for number in range(40):
                await produce(client, "t", batch(b"%d" % number * 1000))
            asked = request(FetchSpec("t", 0, 0, LARGE), bytes_max=LARGE)
            raw = await RawClient().connect(running)
            counted.copy_all(copied=True)
            expected = await raw.ask(asked, 12)
            counted.copy_all(copied=False)
            await raw.send((asked, 12))
            traffic = running.parts.replica_manager.leader_partition("t", 0).traffic
            while traffic.records_out < 80:
                await asyncio.sleep(0.001)
            assert not is_sending(running)  # all of it is in the socket
            await truncate(running)
            assert await raw.frame() == expected
            assert counted.pinned == 1
            raw.socket.close()

    run(scenario)


def test_large_records_are_sent_from_files_by_default(tmp_path: Path, counted: Counted) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 2)
            await produce(client, "t", batch(bytes(fetch_read.PINNED_BYTES_MIN)))
            await produce(client, "t", batch(bytes(fetch_read.PINNED_BYTES_MIN - 1000)), index=1)
            for index, pinned in ((0, 1), (1, 1), (0, 2)):
                answer = await client.ask(request(FetchSpec("t", index)), FetchResponse, 12)
                assert answer.responses[0].partitions[0].records
                assert counted.pinned == pinned

    run(scenario)


def test_cold_records_are_copied(tmp_path: Path, counted: Counted) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        async with broker(tmp_path, disk=disk) as running:
            client = await running.client()
            await create(client, "t")
            await produce(client, "t", batch(bytes(500_000)))
            disk.cold = True
            answer = await client.ask(request(FetchSpec("t")), FetchResponse, 12)
            assert len(answer.responses[0].partitions[0].records or b"") > 500_000
            assert counted.pinned == 0

    run(scenario)
