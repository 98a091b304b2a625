"""Connections on real sockets: served in order, bounded, and closed when they misbehave."""

import asyncio
import struct
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from inspect import CORO_CLOSED, getcoroutinestate
from itertools import pairwise
from typing import Any

import pytest
import uvloop

from ottla.clock import SystemClock
from ottla.protocol.conversation import ClientConversation, Request, Response
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.transport.admission import Admission, AdmissionConfig
from ottla.transport.connection import (
    WRITE_BUFFER_BYTES,
    Admittance,
    CloseReason,
    Connection,
    ConnectionConfig,
    DeferredResponse,
    Dispatch,
)
from ottla.transport.descriptors import UNLIMITED, Descriptors
from ottla.transport.listener import AddressTaken, Listener
from ottla.transport.memory_pool import SILENT_SECONDS, STALL_SECONDS, MemoryPools
from ottla.transport.network import TcpNetwork


class FastClock(SystemClock):
    """The system clock, which a test can advance."""

    ahead_s = 0.0

    def elapsed_s(self) -> float:
        return super().elapsed_s() + self.ahead_s


class StoppedClock(FastClock):
    """A clock that only the test advances."""

    def elapsed_s(self) -> float:
        return self.ahead_s


def has_partial_frame(connection: Connection) -> bool:
    """Return whether the connection has received part of a frame, or frames behind another."""
    framer = connection._conversation.framer  # pyright: ignore[reportPrivateUsage]
    return framer.partial or framer.has_rest


def bytes_arrived(connection: Connection) -> int:
    """Return how many bytes of an incomplete frame the connection has received."""
    return connection._conversation.framer.arrived  # pyright: ignore[reportPrivateUsage]


def heartbeat(number: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=number, member_id="m")


def echo(request: Request, connection: Connection) -> Response | DeferredResponse | None:
    """Answer a heartbeat with its generation as the throttle time."""
    message = request.message
    assert isinstance(message, HeartbeatRequest)
    return HeartbeatResponse(throttle_time_ms=message.generation_id, error_code=0)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.conversation = ClientConversation("test")

    def send(self, *messages: Message, version: int = 4) -> None:
        for message in messages:
            _, buffers = self.conversation.send(message, version)
            self.writer.writelines(buffers)

    async def answers(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            data = await self.reader.read(65_536)
            if not data:
                raise EOFError(found)
            for response in self.conversation.receive(data):
                assert isinstance(response.message, HeartbeatResponse)
                found.append(response.message.throttle_time_ms)
        return found

    async def closed(self) -> bool:
        """Wait until the broker has closed the connection."""
        with suppress(ConnectionError):
            return await self.reader.read() == b""
        return True


class Service:
    def __init__(
        self,
        dispatch: Dispatch = echo,
        config: ConnectionConfig | None = None,
        admission: AdmissionConfig | None = None,
        memory: MemoryPools | None = None,
        descriptors: Descriptors = UNLIMITED,
        clock: FastClock | None = None,
    ) -> None:
        self.clock = clock or FastClock()
        self.limits = admission or AdmissionConfig()
        self.admission = Admission(lambda: self.limits)
        self.listener = Listener(
            "PLAINTEXT",
            dispatch,
            network=TcpNetwork(),
            clock=self.clock,
            admission=self.admission,
            config=lambda: config or ConnectionConfig(),
            memory=memory,
            descriptors=descriptors,
        )
        self.port = 0
        self.clients: list[Client] = []

    @asynccontextmanager
    async def running(self, *, listening: bool = True) -> AsyncGenerator["Service"]:
        self.port = await self.listener.hold("127.0.0.1", 0, 50)
        if listening:
            await self.listener.start()
        try:
            yield self
        finally:
            await self.listener.close(grace_s=0.5)
            await self.leave()
        assert not self.listener.connections
        while self.admission.count:  # the event loop reports lost connections in its next iteration
            await asyncio.sleep(0)

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def leave(self) -> None:
        for client in self.clients:
            client.writer.close()
            with suppress(ConnectionError):
                await client.writer.wait_closed()


Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a scenario on asyncio's event loop and on uvloop, which brokers use."""

    def in_the_loop(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(30):
                await scenario()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())

    return in_the_loop


def test_pipelined_requests_are_answered_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with Service().running() as service:
            client = await service.client()
            client.send(*map(heartbeat, range(500)))
            assert await client.answers(500) == list(range(500))

    run(scenario)


def test_many_pipelining_clients_do_not_hold_up_another_one(run: Run) -> None:
    """They share the requests of a turn; each had sixteen, and a hundred clients 1,600."""
    served = 0
    alone = list[int]()

    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        nonlocal served
        assert isinstance(request.message, HeartbeatRequest)
        served += 1
        if request.message.generation_id == 1:
            alone.append(served)
        return echo(request, connection)

    async def scenario() -> None:
        async with Service(dispatch).running() as service:
            crowd = [await service.client() for _ in range(100)]
            other = await service.client()
            for client in crowd:
                client.send(*map(heartbeat, [0] * 200))
            while not served:
                await asyncio.sleep(0)
            for _ in range(10):
                other.send(heartbeat(1))
                assert await other.answers(1) == [1]
            longest = max(later - before for before, later in pairwise(alone))
            assert longest < 1000
            for client in crowd:
                assert await client.answers(200) == [0] * 200

    run(scenario)


def test_deferred_response_delays_the_following_requests(run: Run) -> None:
    order: list[int] = []
    release = asyncio.Event()

    async def wait(number: int) -> HeartbeatResponse:
        await release.wait()
        return HeartbeatResponse(throttle_time_ms=number, error_code=0)

    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        assert isinstance(request.message, HeartbeatRequest)
        number = request.message.generation_id
        order.append(number)
        return DeferredResponse(wait(number)) if number == 1 else echo(request, connection)

    async def scenario() -> None:
        async with Service(dispatch).running() as service:
            client = await service.client()
            client.send(*map(heartbeat, range(4)))
            assert await client.answers(1) == [0]
            await asyncio.sleep(0)
            assert order == [0, 1]
            release.set()
            assert await client.answers(3) == [1, 2, 3]
            assert order == [0, 1, 2, 3]

    run(scenario)


def test_request_may_have_no_response(run: Run) -> None:
    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        assert isinstance(request.message, HeartbeatRequest)
        return None if request.message.generation_id == 0 else echo(request, connection)

    async def scenario() -> None:
        async with Service(dispatch).running() as service:
            client = await service.client()
            _, buffers = client.conversation.send(heartbeat(0), 4, answered=False)
            client.writer.writelines(buffers)
            client.send(heartbeat(1))
            assert await client.answers(1) == [1]

    run(scenario)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2_000_000),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 12, 99, 1, -1),
        struct.pack(">ihhih", 12, 12, 0, 1, -1) + b"xx",
    ],
    ids=["negative length", "too long", "unknown API", "unknown version", "cut off"],
)
def test_invalid_bytes_close_only_their_connection(run: Run, data: bytes) -> None:
    async def scenario() -> None:
        async with Service(config=ConnectionConfig(frame_bytes_max=1_000_000)).running() as service:
            good, bad = await service.client(), await service.client()
            bad.send(heartbeat(7))
            bad.writer.write(data)
            assert await bad.answers(1) == [7]  # the request before it is answered
            assert await bad.closed()
            good.send(heartbeat(1))
            assert await good.answers(1) == [1]

    run(scenario)


def test_unknown_api_versions_version_gets_a_v0_response(run: Run) -> None:
    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        assert isinstance(request.message, ApiVersionsRequest)
        return ApiVersionsResponse(error_code=int(request.refused), api_keys=[])

    async def scenario() -> None:
        async with Service(dispatch).running() as service:
            client = await service.client()
            client.writer.write(struct.pack(">ihhih", 10, 18, 99, 5, -1))
            assert await client.reader.readexactly(8) == struct.pack(">ii", 10, 5)
            assert await client.reader.readexactly(6) == struct.pack(">hi", 35, 0)

    run(scenario)


def test_handler_exception_closes_only_its_connection(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> HeartbeatResponse:
        raise ValueError("later")

    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        assert isinstance(request.message, HeartbeatRequest)
        if request.message.generation_id == 1:
            raise ValueError("at once")
        return (
            DeferredResponse(fail())
            if request.message.generation_id == 2
            else echo(request, connection)
        )

    async def scenario() -> None:
        async with Service(dispatch).running() as service:
            for number in (1, 2):
                client = await service.client()
                client.send(heartbeat(number))
                assert await client.closed()
            client = await service.client()
            client.send(heartbeat(3))
            assert await client.answers(1) == [3]

    run(scenario)
    assert "at once" in caplog.text
    assert "later" in caplog.text


@pytest.mark.parametrize("later", [False, True])
def test_unencodable_response_closes_its_connection(
    run: Run, caplog: pytest.LogCaptureFixture, later: bool
) -> None:
    unwritable = HeartbeatResponse(throttle_time_ms=2**40, error_code=0)

    async def answer() -> HeartbeatResponse:
        return unwritable

    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        return DeferredResponse(answer()) if later else unwritable

    async def scenario() -> None:
        async with Service(dispatch).running() as service:
            client = await service.client()
            client.send(heartbeat(1))
            assert await client.closed()

    run(scenario)
    assert "request failed" in caplog.text


def test_client_that_does_not_read_is_not_served(run: Run) -> None:
    served = 0
    large = "x" * 30_000

    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        nonlocal served
        served += 1
        return [memoryview(large.encode() * 10)]

    async def scenario() -> None:
        async with Service(dispatch).running() as service:
            client = await service.client()
            client.send(*map(heartbeat, range(2000)))
            connection = next(iter(service.listener.connections))
            before, unchanged = 0, 0
            while unchanged < 20:  # the socket buffers fill first
                await asyncio.sleep(0.005)
                unchanged = unchanged + 1 if served == before > 0 else 0
                before = served
            assert before < 2000
            assert is_blocked(connection)
            transport = connection._transport  # pyright: ignore[reportPrivateUsage]
            assert transport is not None
            assert transport.get_write_buffer_size() <= WRITE_BUFFER_BYTES + 300_100
            # The connection is served again when the client reads.
            size = 300_008
            for _ in range(before + 5):
                await client.reader.readexactly(size)
            assert served > before
            service.clock.ahead_s = 700
            service.listener.close_idle_and_slow()

    run(scenario)


def test_incomplete_frame_and_idle_connection_are_closed(run: Run) -> None:
    async def scenario() -> None:
        async with Service().running() as service:
            slow, silent, good = [await service.client() for _ in range(3)]
            for one in (slow, silent, good):
                one.send(heartbeat(0))
                await one.answers(1)
            slow.writer.write(struct.pack(">i", 1000) + b"begun")
            for seconds in range(int(STALL_SECONDS)):
                # A byte every second does not extend the time that a frame may take.
                arrived = 4 + len(b"begun") + seconds
                while arrived not in [bytes_arrived(one) for one in service.listener.connections]:
                    await asyncio.sleep(0.001)
                service.clock.ahead_s = seconds
                service.listener.close_idle_and_slow()
                assert len(service.listener.connections) == 3
                slow.writer.write(b"\0")
            service.clock.ahead_s = STALL_SECONDS + 1
            service.listener.close_idle_and_slow()
            assert await slow.closed()
            service.clock.ahead_s = 590
            good.send(heartbeat(1))
            await good.answers(1)
            service.clock.ahead_s = 605
            service.listener.close_idle_and_slow()
            assert await silent.closed()
            good.send(heartbeat(2))
            assert await good.answers(1) == [2]

    run(scenario)


DONE = struct.pack(">iib", 9, 0, 0) + b"done"


def respond_done(request: Request, connection: Connection) -> Response | DeferredResponse | None:
    return [b"done"]


def large_frame(size: int) -> bytes:
    """Return a Produce request with a batch of `size` bytes; its content does not matter."""
    data = PartitionProduceData(index=0, records=bytes(size))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    return b"".join(ClientConversation("test").send(request, 9)[1])


async def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_exhausted_memory_admits_one_large_frame_at_a_time(run: Run) -> None:
    async def scenario() -> None:
        memory = MemoryPools(request_bytes=200_000)
        async with Service(respond_done, memory=memory).running() as service:
            first, second = await service.client(), await service.client()
            frames = large_frame(30_000_000), large_frame(31_000_000)
            half = 15_000_000
            first.writer.write(frames[0][:half])
            await wait_until(lambda: memory.requests.held >= half)
            second.writer.write(frames[1])
            await wait_until(lambda: memory.requests.has_waiters)
            held = memory.requests.held
            assert held < half + 5_000_000
            # A connection that waits for memory is not stalled; one that others wait for can be.
            service.clock.ahead_s = SILENT_SECONDS - 1
            service.listener.close_idle_and_slow()
            assert len(service.listener.connections) == 2
            first.writer.write(frames[0][half:])
            assert await first.reader.readexactly(len(DONE))
            assert await second.reader.readexactly(len(DONE))
            assert memory.requests.held == 0

    run(scenario)


def test_stalled_large_frame_is_closed_for_waiting_requests(run: Run) -> None:
    async def scenario() -> None:
        memory = MemoryPools(request_bytes=200_000)
        async with Service(respond_done, memory=memory).running() as service:
            stuck, other = await service.client(), await service.client()
            stuck.writer.write(large_frame(30_000_000)[:15_000_000])
            await wait_until(lambda: memory.requests.held >= 15_000_000)
            # Nothing waits for memory, so a transfer that was fast so far may pause.
            service.listener.close_idle_and_slow()
            service.clock.ahead_s = STALL_SECONDS + 1
            service.listener.close_idle_and_slow()
            assert not service.listener.closed
            other.writer.write(large_frame(31_000_000))
            await wait_until(lambda: memory.requests.has_waiters)
            service.listener.close_idle_and_slow()
            assert await stuck.closed()
            assert await other.reader.readexactly(len(DONE))
            assert service.listener.closed[CloseReason.OVERDUE] == 1

    run(scenario)


async def unfinished_requests(service: Service, memory: MemoryPools) -> None:
    """Send beginnings of requests of ordinary size until others wait for memory."""
    for _ in range(80):
        (await service.client()).writer.write(large_frame(300_000)[:250_000])
    await wait_until(lambda: memory.requests.has_waiters)


def test_unfinished_requests_do_not_delay_a_proven_producer(run: Run) -> None:
    async def scenario() -> None:
        memory = MemoryPools(request_bytes=16_000_000)
        async with Service(respond_done, memory=memory).running() as service:
            producer = await service.client()
            for _ in range(2):  # it has completed large requests
                producer.writer.write(large_frame(900_000))
                assert await producer.reader.readexactly(len(DONE))
            await unfinished_requests(service, memory)
            producer.writer.write(large_frame(900_000))
            assert await producer.reader.readexactly(len(DONE))
            assert memory.requests.has_waiters
            assert not service.listener.closed

    run(scenario)


def test_unfinished_requests_delay_a_new_producer_by_seconds(run: Run) -> None:
    async def scenario() -> None:
        memory = MemoryPools(request_bytes=16_000_000)
        async with Service(respond_done, memory=memory).running() as service:
            await unfinished_requests(service, memory)
            producer = await service.client()
            producer.writer.write(large_frame(900_000))
            response = asyncio.create_task(producer.reader.readexactly(len(DONE)))
            await asyncio.wait((response,), timeout=0.1)
            service.clock.ahead_s += SILENT_SECONDS + 1
            service.listener.close_idle_and_slow()
            await response
            # It passed those of the others that wait for memory, too.
            assert 0 < service.listener.closed[CloseReason.OVERDUE] < 80

    run(scenario)


def test_stall_timeout_starts_after_the_deferred_response(run: Run) -> None:
    release = asyncio.Event()

    async def wait() -> HeartbeatResponse:
        await release.wait()
        return HeartbeatResponse(throttle_time_ms=5, error_code=0)

    async def scenario() -> None:
        async with Service(
            lambda request, connection: DeferredResponse(wait())
        ).running() as service:
            client = await service.client()
            _, buffers = client.conversation.send(heartbeat(0), 4)
            client.writer.write(b"".join(buffers) + struct.pack(">i", 100) + b"begun")
            await wait_until(
                lambda: any(has_partial_frame(one) for one in service.listener.connections)
            )
            service.clock.ahead_s = 5 * STALL_SECONDS
            release.set()
            assert await client.answers(1) == [5]
            service.listener.close_idle_and_slow()
            assert not service.listener.closed
            service.clock.ahead_s += STALL_SECONDS + 1
            service.listener.close_idle_and_slow()
            assert await client.closed()

    run(scenario)


def test_unread_response_holds_memory_until_it_is_read(run: Run) -> None:
    size = 20_000_000

    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        return [bytes(size)]

    async def scenario() -> None:
        memory = MemoryPools(response_bytes=1_000_000)
        async with Service(dispatch, memory=memory).running() as service:
            client, gone = await service.client(), await service.client()
            for one in (client, gone):
                one.send(heartbeat(0))
            await wait_until(lambda: memory.responses_held >= 2 * size)
            await client.reader.readexactly(size + 8)
            await wait_until(lambda: memory.responses_held < 2 * size)
            assert memory.responses_held >= size
            # Nothing waits for memory, so the response may stay unread.
            service.clock.ahead_s = 2 * STALL_SECONDS
            service.listener.close_idle_and_slow()
            assert not service.listener.closed
            gone.writer.transport.abort()
            await wait_until(lambda: memory.responses_held == 0)

    run(scenario)


class DrainingTransport(asyncio.Transport):
    """A transport whose peer reads the written bytes slowly."""

    left = 1000

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.left

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass


def test_client_that_reads_slowly_is_not_idle() -> None:
    clock, transport = FastClock(), DrainingTransport()
    connection = Connection(
        lambda request, connection: None,
        lambda connection: Admittance.ADMITTED,
        lambda connection: None,
        ConnectionConfig(idle_ms_max=60_000),
        clock,
    )
    connection.connection_made(transport)
    for _ in range(5):
        assert connection.timeout_reason() is None
        clock.ahead_s += 50
        transport.left -= 100
    assert connection.timeout_reason() is None
    clock.ahead_s += 61
    assert connection.timeout_reason() == "idle for 60 s"


def test_lost_connection_closes_an_unstarted_response(run: Run) -> None:
    async def wait() -> Response:
        raise AssertionError("nobody asks any more")

    async def scenario() -> None:
        coming = wait()
        connection = Connection(
            lambda request, connection: DeferredResponse(coming),
            lambda connection: Admittance.ADMITTED,
            lambda connection: None,
            ConnectionConfig(),
            FastClock(),
        )
        connection.connection_made(DrainingTransport())
        frame = b"".join(ClientConversation("test").send(heartbeat(0), 4)[1])
        connection.get_buffer(len(frame))[: len(frame)] = frame
        connection.buffer_updated(len(frame))
        connection.connection_lost(None)
        assert getcoroutinestate(coming) == CORO_CLOSED
        await asyncio.sleep(0)

    run(scenario)


def test_excess_connection_is_refused_until_another_leaves(run: Run) -> None:
    async def scenario() -> None:
        rules = AdmissionConfig(per_address_max=2)
        async with Service(admission=rules).running() as service:
            first, second = await service.client(), await service.client()
            for one in (first, second):
                one.send(heartbeat(0))
                await one.answers(1)
            third = await service.client()
            assert await third.closed()
            first.writer.close()
            while service.admission.count == 2:
                await asyncio.sleep(0.001)
            fourth = await service.client()
            fourth.send(heartbeat(4))
            assert await fourth.answers(1) == [4]

    run(scenario)


def test_close_waits_for_requests_in_progress(run: Run) -> None:
    release = asyncio.Event()

    async def wait() -> HeartbeatResponse:
        await release.wait()
        return HeartbeatResponse(throttle_time_ms=5, error_code=0)

    async def scenario() -> None:
        service = Service(lambda request, connection: DeferredResponse(wait()))
        service.port = await service.listener.hold("127.0.0.1", 0, 50)
        await service.listener.start()
        client, idle = await service.client(), await service.client()
        client.send(heartbeat(0))
        while all(one.is_idle for one in service.listener.connections):
            await asyncio.sleep(0.001)
        closing = asyncio.create_task(service.listener.close())
        assert await idle.closed()
        with pytest.raises(ConnectionError):
            await service.client()
        release.set()
        assert await client.answers(1) == [5]
        await closing
        assert await client.closed()
        await service.leave()

    run(scenario)


@pytest.mark.parametrize("requests", [1, 50], ids=["all answered", "more to answer"])
def test_close_does_not_wait_for_clients_that_do_not_read(run: Run, requests: int) -> None:
    answer = bytes(16_000_000)

    async def scenario() -> None:
        service = Service(lambda request, connection: [memoryview(answer)])
        service.port = await service.listener.hold("127.0.0.1", 0, 50)
        await service.listener.start()
        deaf, slow = await service.client(), await service.client()
        deaf.send(*map(heartbeat, range(requests)))
        slow.send(heartbeat(0))
        while not all(is_blocked(one) for one in service.listener.connections):
            await asyncio.sleep(0.001)
        closing = asyncio.create_task(service.listener.close(grace_s=1000))
        # A client that reads slowly receives its whole response.
        taken = 0
        while taken < len(answer):
            taken += len(await slow.reader.readexactly(1_000_000))
            service.clock.ahead_s += 0.1
            await asyncio.sleep(0.02)
        while len(service.listener.connections):
            service.clock.ahead_s += 0.3
            await asyncio.sleep(0.03)
        await closing
        assert service.clock.ahead_s < 100
        await service.leave()

    run(scenario)


def is_blocked(connection: Connection) -> bool:
    """Return whether the connection is blocked because its client does not read."""
    return connection._is_blocked  # pyright: ignore[reportPrivateUsage]


def test_address_in_use_is_reported(run: Run) -> None:
    async def scenario() -> None:
        async with Service().running() as service:
            other = Service()
            with pytest.raises(AddressTaken, match=f"127.0.0.1:{service.port} is already in use"):
                await other.listener.hold("127.0.0.1", service.port, 50)

    run(scenario)


def test_address_taken_after_binding_is_reported(run: Run) -> None:
    async def scenario() -> None:
        async with Service().running(
            listening=False
        ) as service:  # bound but not listening: another socket can bind the same port
            late = Service()
            await late.listener.hold("127.0.0.1", service.port, 50)
            await service.listener.start()
            with pytest.raises(AddressTaken, match=f"127.0.0.1:{service.port} is already in use"):
                await late.listener.start()
            client = await service.client()
            client.send(heartbeat(1))
            assert await client.answers(1) == [1]

    run(scenario)


def test_waiting_connection_is_served_when_another_closes(run: Run) -> None:
    async def scenario() -> None:
        rules = AdmissionConfig(connections_max=1)
        async with Service(admission=rules).running() as service:
            first = await service.client()
            first.send(heartbeat(0))
            await first.answers(1)
            late = [await service.client() for _ in range(3)]
            for number in (0, 2):
                late[number].send(heartbeat(number + 1))
            while len(service.listener.waiting) < 3:
                await asyncio.sleep(0.001)
            late[1].writer.close()  # a connection that closes while it waits does not take a slot
            while len(service.listener.waiting) == 3:
                await asyncio.sleep(0.001)
            first.writer.close()
            assert await late[0].answers(1) == [1]
            assert len(service.listener.waiting) == 1
            assert service.admission.count == 1
            late[0].writer.close()
            assert await late[2].answers(1) == [3]
            assert service.listener.refused == 0

    run(scenario)


def test_waiting_connections_are_bounded(run: Run) -> None:
    async def scenario() -> None:
        rules = AdmissionConfig(connections_max=0)
        async with Service(admission=rules).running() as service:
            service.listener.waiting_max = 2
            first, second = await service.client(), await service.client()
            while len(service.listener.waiting) < 2:
                await asyncio.sleep(0.001)
            third = await service.client()
            assert await third.closed()
            assert len(service.listener.waiting) == 2
            assert service.listener.refused == 1
            first.writer.close()
            second.writer.close()

    run(scenario)
