"""Responses with file slices: the same bytes as copied ones, in order, whatever the client does."""

import asyncio
import os
import socket
import struct
import weakref
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import pytest

from ottla.errors import StorageFailure
from ottla.protocol.conversation import Request, Response
from ottla.protocol.file_slice import FileSlice, Piece
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.primitives import Buffer
from ottla.transport import file_sender
from ottla.transport.connection import Connection, ConnectionConfig, DeferredResponse
from ottla.transport.file_sender import FileSender
from ottla.transport.memory_pool import MemoryPools
from transport.test_departures import epolls, until
from transport.test_listener import Run, Service, heartbeat, run

__all__ = ["run"]

FILE_BYTES: Final = 3_000_000


class TestSlice(FileSlice):
    """A slice of a real file, whose pages a test can declare not cached."""

    __test__ = False

    def __init__(self, descriptor: int, position: int, size: int) -> None:
        self._descriptor = descriptor
        self._position = position
        self._size = size
        self.cached_looks = 1 << 30  # how often the bytes are found in the page cache
        self.failure: Exception | None = None
        self.reads: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return self._size

    @property
    def position(self) -> int:
        return self._position

    def fileno(self) -> int:
        return self._descriptor

    def is_cached(self, start: int, count: int) -> bool:
        assert 0 <= start < start + count <= self._size
        self.cached_looks -= 1
        return self.cached_looks >= 0

    def read(self, start: int, count: int) -> Awaitable[Buffer]:
        return self._read(start, count)

    async def _read(self, start: int, count: int) -> Buffer:
        self.reads.append((start, count))
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return os.pread(self._descriptor, count, self._position + start)


class Pages:
    """A file with random bytes."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.content = random.randbytes(FILE_BYTES)
        path = folder / "pages"
        path.write_bytes(self.content)
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY)

    def slice(self, position: int, size: int) -> TestSlice:
        return TestSlice(self.descriptor, position, size)


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path, Random(3))


Bodies = Callable[[int], list[Piece]]


class FileService:
    """A dispatcher that answers a heartbeat with the pieces for its generation."""

    def __init__(
        self, bodies: Bodies, is_deferred: Callable[[int], bool] = lambda n: False
    ) -> None:
        self.bodies = bodies
        self.is_deferred = is_deferred
        self.served = 0

    def __call__(self, request: Request, connection: Connection) -> Response | DeferredResponse:
        assert isinstance(request.message, HeartbeatRequest)
        assert connection.accepts_file_slices()
        self.served += 1
        number = request.message.generation_id
        pieces = cast("Sequence[Buffer]", self.bodies(number))
        return DeferredResponse(self._later(pieces)) if self.is_deferred(number) else pieces

    async def _later(self, pieces: Sequence[Buffer]) -> Sequence[Buffer]:
        await asyncio.sleep(0)
        return pieces


class SlowClient:
    """A raw socket with small buffers, which reads when the test says so."""

    def __init__(self, receive_bytes: int | None = 4096) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.setblocking(False)
        self._correlation_id = 0

    async def connect(self, service: Service) -> "SlowClient":
        await asyncio.get_running_loop().sock_connect(self.socket, ("127.0.0.1", service.port))
        return self

    async def send(self, *numbers: int) -> None:
        data = b""
        for number in numbers:
            message = heartbeat(number).encode(4)
            header = struct.pack(">hhih", 12, 4, self._correlation_id, -1) + b"\0"
            data += struct.pack(">i", len(header) + len(message)) + header + message
            self._correlation_id += 1
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self, count: int, at_once: Callable[[], int] = lambda: 1 << 20) -> bytes:
        data = bytearray()
        while len(data) < count:
            size = min(at_once(), count - len(data))
            more = await asyncio.get_running_loop().sock_recv(self.socket, size)
            if not more:
                raise EOFError(len(data))
            data += more
        return bytes(data)

    async def closed(self) -> bool:
        try:
            while await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20):
                pass
        except ConnectionError:
            pass
        return True


def frame(correlation_id: int, pieces: Sequence[Piece], pages: Pages) -> bytes:
    """The bytes of a response as they are sent when everything is copied."""
    body = b"".join(
        pages.content[piece.position : piece.position + len(piece)]
        if isinstance(piece, FileSlice)
        else piece
        for piece in pieces
    )
    return struct.pack(">ii", len(body) + 5, correlation_id) + b"\0" + body


def unread_connection(service: Service) -> Connection:
    (connection,) = service.listener.connections
    return connection


def unsent(service: Service) -> int:
    sender = unread_connection(service)._file_sender  # pyright: ignore[reportPrivateUsage]
    return 0 if sender is None else sender.unsent


def random_bodies(pages: Pages, seed: int) -> Bodies:
    def bodies(number: int) -> list[Piece]:
        random = Random(f"{seed} {number}")
        kind = random.randrange(4)
        if kind == 0:
            return [b"small %d" % number]
        if kind == 1:
            return [random.randbytes(random.choice((10, 40_000, 300_000)))]
        pieces: list[Piece] = [b"head %d" % number]
        for _ in range(random.randrange(1, 5)):
            size = random.choice((1, 4095, 50_000, 700_000, 1_500_000))
            pieces.append(pages.slice(random.randrange(FILE_BYTES - size), size))
            pieces.append(b"after" * random.choice((1, 1, 20_000)))
        return pieces

    return bodies


class StubTransport(asyncio.Transport):
    """A transport that has sent everything."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


class NoWatch:
    """A watch of a socket that is never full."""

    def wait(self) -> None:
        raise AssertionError("the socket is full")

    def end(self) -> None:
        """Do nothing."""


def test_header_is_sent_in_the_packet_of_its_records(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each buffer before a file slice would be a packet of its own."""
    flags: list[int] = []

    class NotingSocket(socket.SocketType):
        def send(self, data: Any, how: int = 0, /) -> int:
            flags.append(how)
            return super().send(data, how)

    monkeypatch.setattr(file_sender, "SocketType", NotingSocket)
    near, far = socket.socketpair()
    with near, far:
        transport = StubTransport({"socket": near})
        sender = FileSender(transport, NoWatch(), lambda rest: None, pytest.fail)
        pieces: list[Piece] = [b"head", pages.slice(7, 3000), b"middle", pages.slice(0, 50), b"end"]
        assert sender.send(pieces, 0.0) == 4 + 3000 + 6 + 50 + 3
        assert not sender.is_active
        content = pages.content
        expected = b"head" + content[7:3007] + b"middle" + content[:50] + b"end"
        assert far.recv(10_000, socket.MSG_WAITALL | socket.MSG_DONTWAIT) == expected
    assert flags == [socket.MSG_MORE, socket.MSG_MORE, 0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("receive_bytes", [4096, None])
def test_pipelined_file_responses_equal_copied_ones(
    run: Run, pages: Pages, seed: int, receive_bytes: int | None
) -> None:
    bodies, count, random = random_bodies(pages, seed), 30, Random(seed)

    async def scenario() -> None:
        dispatch = FileService(bodies, lambda number: number % 5 == seed)
        config = ConnectionConfig(send_buffer_bytes=-1 if receive_bytes is None else 16_384)
        async with Service(dispatch, config).running() as service:
            client = await SlowClient(receive_bytes).connect(service)
            await client.send(*range(count))
            expected = b"".join(frame(n, bodies(n), pages) for n in range(count))
            found = await client.read(len(expected), lambda: random.choice((100, 5000, 1 << 20)))
            assert found == expected
            client.socket.close()

    run(scenario)


def test_nothing_is_served_while_a_file_is_being_sent(run: Run, pages: Pages) -> None:
    async def scenario() -> None:
        memory = MemoryPools(response_bytes=100_000_000)
        dispatch = FileService(lambda n: [b"head", pages.slice(5, 2_900_000), b"tail"])
        config = ConnectionConfig(send_buffer_bytes=16_384)
        async with Service(dispatch, config, memory=memory).running() as service:
            client = await SlowClient().connect(service)
            await client.send(0, 1)
            await until(lambda: dispatch.served and unsent(service))
            assert dispatch.served == 1
            assert unsent(service) > 1_000_000
            assert memory.responses_held == 2_900_000 + 17  # the whole response, as a copied one
            one = len(frame(0, dispatch.bodies(0), pages))
            await client.read(2 * one)
            await until(lambda: memory.responses_held == 0)
            assert (dispatch.served, unsent(service)) == (2, 0)
            client.socket.close()

    run(scenario)


def test_response_behind_a_file_waits_for_its_end(run: Run, pages: Pages) -> None:
    async def scenario() -> None:
        memory = MemoryPools(response_bytes=100_000_000)
        bodies = dict[int, list[Piece]]({0: [b"head", pages.slice(5, 2_900_000)], 1: [b"next"]})
        dispatch = FileService(bodies.__getitem__)
        config = ConnectionConfig(send_buffer_bytes=16_384)
        async with Service(dispatch, config, memory=memory).running() as service:
            client = await SlowClient().connect(service)
            await client.send(0, 1)
            await until(lambda: dispatch.served and unsent(service))
            connection = unread_connection(service)
            # A response that became ready meanwhile, as those of pipelined requests do.
            conversation = connection._conversation  # pyright: ignore[reportPrivateUsage]
            behind = conversation.next_frame()
            assert behind is not None
            request = conversation.request(behind)
            connection._send(request, [b"next"])  # pyright: ignore[reportPrivateUsage]
            expected = b"".join(frame(n, bodies[n], pages) for n in (0, 1))
            assert memory.responses_held == len(expected)
            assert await client.read(len(expected)) == expected
            await until(lambda: memory.responses_held == 0)
            client.socket.close()

    run(scenario)


def test_client_that_leaves_releases_everything(run: Run, pages: Pages) -> None:
    async def scenario() -> None:
        memory, before = MemoryPools(response_bytes=100_000_000), epolls()
        slices: list[weakref.ref[TestSlice]] = []

        def bodies(number: int) -> list[Piece]:
            found = pages.slice(0, 2_900_000)
            slices.append(weakref.ref(found))
            return [b"head", found, b"tail"]

        config = ConnectionConfig(send_buffer_bytes=16_384)
        async with Service(FileService(bodies), config, memory=memory).running() as service:
            clients = [await SlowClient().connect(service) for _ in range(3)]
            for client in clients:
                await client.send(0)
            await until(lambda: len(slices) == 3)
            assert all(one() is not None for one in slices)
            for client in clients:
                client.socket.close()
            await until(lambda: not service.listener.connections)
            assert all(one() is None for one in slices)
            assert memory.responses_held == 0
            assert epolls() == before

    run(scenario)


@pytest.mark.parametrize("looks", [0, 1, 2, 7])
def test_bytes_that_are_not_cached_are_read_in_a_thread(
    run: Run, pages: Pages, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sender, "CHUNK_BYTES", 100_000)
    sent: list[tuple[int, int]] = []
    sendfile = os.sendfile

    def counted(out: int, source: int, position: int, count: int) -> int:
        sent.append((position, count))
        return sendfile(out, source, position, count)

    monkeypatch.setattr(os, "sendfile", counted)

    async def scenario() -> None:
        sent.clear()
        cold = pages.slice(7, 1_000_000)
        cold.cached_looks = looks
        warm = pages.slice(100, 50_000)
        pieces: list[Piece] = [b"head", cold, b"between", warm, b"tail"]
        dispatch = FileService(lambda n: pieces if n == 0 else [b"next"], lambda n: True)
        async with Service(dispatch).running() as one:
            client = await SlowClient(None).connect(one)
            await client.send(0, 1)
            expected = frame(0, pieces, pages) + frame(1, [b"next"], pages)
            assert await client.read(len(expected)) == expected
            (start, count), *_ = cold.reads
            assert start + count == len(cold)
            assert len(sent) <= looks  # sendfile is called only after a look
            client.socket.close()

    run(scenario)


@pytest.mark.parametrize("is_deferred", [False, True])
def test_page_cache_is_asked_once_in_a_turn(run: Run, pages: Pages, is_deferred: bool) -> None:
    """The handler of a response that is sent at once has just asked."""

    async def scenario() -> None:
        part = pages.slice(7, 50_000)
        part.cached_looks = int(is_deferred)
        pieces: list[Piece] = [b"head", part, b"tail"]
        async with Service(FileService(lambda n: pieces, lambda n: is_deferred)).running() as one:
            client = await SlowClient(None).connect(one)
            await client.send(0)
            expected = frame(0, pieces, pages)
            assert await client.read(len(expected)) == expected
            assert (part.cached_looks, part.reads) == (0, [])
            client.socket.close()

    run(scenario)


def test_full_socket_is_a_reason_to_ask_again(run: Run, pages: Pages) -> None:
    async def scenario() -> None:
        part = pages.slice(0, 2_900_000)
        part.cached_looks = 0
        pieces: list[Piece] = [b"head", part, b"tail"]
        config = ConnectionConfig(send_buffer_bytes=16_384)
        async with Service(FileService(lambda n: pieces), config).running() as one:
            client = await SlowClient().connect(one)
            await client.send(0)
            expected = frame(0, pieces, pages)
            assert await client.read(len(expected)) == expected
            assert len(part.reads) == 1
            client.socket.close()

    run(scenario)


def test_response_to_a_slow_reader_is_copied_after_a_second(run: Run, pages: Pages) -> None:
    async def scenario() -> None:
        part = pages.slice(0, 2_900_000)
        bodies = dict[int, list[Piece]]({0: [b"head", part, b"tail"], 1: [b"next"]})
        expected = b"".join(frame(n, bodies[n], pages) for n in (0, 1))
        memory = MemoryPools(response_bytes=100_000_000)
        dispatch = FileService(bodies.pop)
        config = ConnectionConfig(send_buffer_bytes=16_384)
        async with Service(dispatch, config, memory=memory).running() as service:
            client = await SlowClient().connect(service)
            await client.send(0, 1)
            await until(lambda: dispatch.served and unsent(service))
            service.listener.close_idle_and_slow()
            assert part.reads == []
            service.clock.ahead_s = file_sender.COPY_SECONDS + 0.1
            service.listener.close_idle_and_slow()
            await until(lambda: not unsent(service))
            assert len(part.reads) == 1
            assert memory.responses_held > 2_900_000  # as before: nothing was read
            assert dispatch.served == 1
            assert await client.read(len(expected)) == expected
            await until(lambda: memory.responses_held == 0)
            client.socket.close()

    run(scenario)


def test_slow_reader_of_a_file_is_idle_only_without_progress(run: Run, pages: Pages) -> None:
    async def scenario() -> None:
        dispatch = FileService(lambda n: [b"head", pages.slice(0, 2_900_000)])
        config = ConnectionConfig(send_buffer_bytes=16_384, idle_ms_max=5000)
        async with Service(dispatch, config).running() as service:
            client = await SlowClient().connect(service)
            await client.send(0)
            await until(lambda: dispatch.served)
            for turn in range(4):
                await client.read(300_000)
                service.clock.ahead_s = 4.0 * turn
                service.listener.close_idle_and_slow()
                assert service.listener.connections
            service.clock.ahead_s += 4.0
            service.listener.close_idle_and_slow()
            service.clock.ahead_s += 6.0
            service.listener.close_idle_and_slow()
            await until(lambda: not service.listener.connections)
            assert await client.closed()
            client.socket.close()

    run(scenario)


@pytest.mark.parametrize("cold", [False, True])
def test_file_that_lost_its_bytes_closes_the_connection(run: Run, pages: Pages, cold: bool) -> None:
    async def scenario() -> None:
        part = pages.slice(0, FILE_BYTES)
        if cold:
            part.cached_looks = 1
        config = ConnectionConfig(send_buffer_bytes=16_384)
        dispatch = FileService(lambda n: [b"head", part, b"tail"])
        os.truncate(pages.path, 2_000_000)
        async with Service(dispatch, config).running() as service:
            client = await SlowClient().connect(service)
            await client.send(0)
            assert await client.closed()
            await until(lambda: not service.listener.connections)
            assert sum(service.listener.closed.values()) == 1
            client.socket.close()

    run(scenario)


def test_failed_read_closes_the_connection(run: Run, pages: Pages) -> None:
    async def scenario() -> None:
        part = pages.slice(0, FILE_BYTES)
        part.cached_looks, part.failure = 0, StorageFailure("pages: read: Input/output error")
        dispatch = FileService(lambda n: [b"head", part, b"tail"], lambda n: True)
        async with Service(dispatch).running() as service:
            client = await SlowClient().connect(service)
            await client.send(0)
            assert await client.closed()
            assert sum(service.listener.closed.values()) == 1
            client.socket.close()

    run(scenario)


def test_closing_listener_sends_a_file_to_its_end(run: Run, pages: Pages) -> None:
    async def scenario() -> None:
        pieces: list[Piece] = [b"head", pages.slice(0, 2_900_000), b"tail"]
        expected = frame(0, pieces, pages)
        config = ConnectionConfig(send_buffer_bytes=16_384)
        dispatch = FileService(lambda n: pieces)
        async with Service(dispatch, config).running() as service:
            client = await SlowClient().connect(service)
            await client.send(0, 1)
            await until(lambda: dispatch.served and unsent(service))
            closing = asyncio.create_task(service.listener.close(grace_s=5))
            assert await client.read(len(expected)) == expected
            assert await client.closed()
            await closing
            assert dispatch.served == 1
            client.socket.close()

    run(scenario)
