"""Produce requests whose acknowledgement waits do not hold up those behind them."""

import asyncio
import struct
from collections.abc import Sequence
from socket import SO_LINGER, SOL_SOCKET

import pytest

from ottla.log.shield import shielded
from ottla.protocol.buffer_pool import is_free
from ottla.protocol.conversation import Request
from ottla.protocol.message import Message
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.transport.connection import (
    Connection,
    ConnectionConfig,
    DeferredResponse,
    Served,
    State,
)
from ottla.transport.memory_pool import MemoryPools
from ottla.transport.pending_acks import PENDING_ACK_BYTES_MAX, PENDING_ACKS_MAX, PendingAck
from transport.test_departures import has_departed, until
from transport.test_listener import Client, Run, Service, echo, heartbeat, run

__all__ = ["run"]


class Broker:
    """A dispatcher: Produce waits until the test completes it; Heartbeat has a response at once.

    `acks` are the pending acknowledgements by number, `served` the requests in the order in which
    they were served, and `sent` those whose response was sent.
    """

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.served: list[int] = []
        self.sent: list[int] = []
        self.cancelled: list[int] = []
        self.acks: dict[int, PendingAck] = {}
        self.slow: dict[int, asyncio.Event] = {}
        self.completes: dict[int, int] = {}  # serving a request completes the ack of another one
        self.refuses: set[int] = set()  # requests for which the connection is closed

    def __call__(self, request: Request, connection: Connection) -> Served:
        message = request.message
        if isinstance(message, HeartbeatRequest):
            self.served.append(message.generation_id)
            return echo(request, connection)
        assert isinstance(message, ProduceRequest)
        number = message.timeout_ms
        if number in self.completes:
            before = [*self.served]
            self.acks[self.completes[number]].complete()
            assert self.served == before, "no request is served within another one"
        if number in self.refuses:
            connection.close()
        if number in self.slow:
            ack = self._ack(number)
            return DeferredResponse(self._append_slowly(number), ack=ack)
        self.served.append(number)
        return None if message.acks == 0 else self._ack(number)

    def _ack(self, number: int) -> PendingAck:
        ack = PendingAck(ProduceResponse(responses=[], throttle_time_ms=number), self.size)
        ack.on_response = lambda response: self.sent.append(number)
        ack.on_cancel = lambda: self.cancelled.append(number)
        self.acks[number] = ack
        return ack

    async def _append_slowly(self, number: int) -> None:
        async def append() -> None:
            await self.slow[number].wait()
            self.served.append(number)

        await shielded(append())

    def complete(self, *numbers: int) -> None:
        for number in numbers:
            self.acks[number].complete()


def produce(number: int, records: bytes = b"", acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=0, records=records)]
    )
    return ProduceRequest(acks=acks, timeout_ms=number, topic_data=[data])


def send(client: Client, *messages: Message) -> None:
    """Send all requests in one write, so that the broker reads them together."""
    parts: list[bytes] = []
    for message in messages:
        is_produce = isinstance(message, ProduceRequest)
        answered = not is_produce or message.acks != 0
        _, buffers = client.conversation.send(message, 9 if is_produce else 4, answered=answered)
        parts += map(bytes, buffers)
    client.writer.write(b"".join(parts))


async def answers(client: Client, count: int) -> list[int]:
    """Return the numbers of the next responses."""
    found: list[int] = []
    while len(found) < count:
        data = await client.reader.read(65_536)
        if not data:
            raise EOFError(found)
        for response in client.conversation.receive(data):
            assert isinstance(response.message, ProduceResponse | HeartbeatResponse)
            found.append(response.message.throttle_time_ms)
    assert len(found) == count
    return found


PATIENT = ConnectionConfig(departed_ms=600_000)


def leave(client: Client, how: str) -> None:
    """Close the connection with FIN or RST, or only its sending half."""
    if how == "half":
        client.writer.write_eof()
    elif how == "close":
        client.writer.close()
    else:
        socket = client.writer.get_extra_info("socket")
        socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        client.writer.transport.abort()


def has_timer(connection: Connection) -> bool:
    timer = connection._departed_timer  # pyright: ignore[reportPrivateUsage]
    return timer is not None and not timer.cancelled()


def is_reading(connection: Connection) -> bool:
    return connection._paused_since_s is None  # pyright: ignore[reportPrivateUsage]


def state(connection: Connection) -> State:
    return connection._state  # pyright: ignore[reportPrivateUsage]


def test_deferred_response_without_acknowledgement_waits_for_those_before_it(run: Run) -> None:
    async def refused() -> Message:
        return ProduceResponse(responses=[], throttle_time_ms=2)

    async def scenario() -> None:
        broker, behind = Broker(), asyncio.Event()

        def dispatch(request: Request, connection: Connection) -> Served:
            message = request.message
            if isinstance(message, ProduceRequest) and message.timeout_ms == 2:
                behind.set()
                return DeferredResponse(refused())
            return broker(request, connection)

        async with Service(dispatch).running() as service:
            client = await service.client()
            send(client, produce(1), produce(2), produce(3))
            await until(lambda: behind.is_set() and 3 in broker.acks)
            broker.complete(3, 1)
            assert await answers(client, 3) == [1, 2, 3]

    run(scenario)


def test_acks_are_sent_in_request_order(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with Service(broker).running() as service:
            client = await service.client()
            send(client, *map(produce, range(5)))
            await until(lambda: broker.served == [0, 1, 2, 3, 4])
            (connection,) = service.listener.connections
            assert is_reading(connection)
            broker.complete(4, 3, 1)
            await asyncio.sleep(0)
            assert broker.sent == []
            broker.complete(0)
            assert await answers(client, 2) == [0, 1]
            assert broker.sent == [0, 1]
            broker.complete(2)
            assert await answers(client, 3) == [2, 3, 4]
            assert broker.sent == [0, 1, 2, 3, 4]
            send(client, heartbeat(5))
            assert await answers(client, 1) == [5]

    run(scenario)


def test_another_api_waits_for_pending_acks(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with Service(broker).running() as service:
            client = await service.client()
            send(client, produce(1), produce(2), heartbeat(3), produce(4))
            await until(lambda: 2 in broker.acks)
            (connection,) = service.listener.connections
            await until(lambda: state(connection) is State.HELD)
            assert not is_reading(connection)
            broker.complete(1)
            assert await answers(client, 1) == [1]
            assert broker.served == [1, 2]
            broker.complete(2)
            assert await answers(client, 2) == [2, 3]
            await until(lambda: broker.served[2:] == [heartbeat(3).generation_id, 4])
            broker.complete(4)
            assert await answers(client, 1) == [4]
            assert is_reading(connection)

    run(scenario)


def test_response_at_once_waits_for_earlier_acks(run: Run) -> None:
    """A request without a response (acks=0) is counted, and changes no order."""

    async def scenario() -> None:
        broker = Broker()
        async with Service(broker).running() as service:
            client = await service.client()
            send(client, produce(1), produce(2, acks=0), produce(3, acks=1), produce(4, acks=0))
            await until(lambda: broker.served == [1, 2, 3, 4])
            broker.complete(3)
            await asyncio.sleep(0)
            assert broker.sent == []
            broker.complete(1)
            assert await answers(client, 2) == [1, 3]
            send(client, heartbeat(5))
            assert await answers(client, 1) == [5]

    run(scenario)


@pytest.mark.parametrize("acks", [-1, 0])
def test_pending_acks_are_bounded_by_number(run: Run, acks: int) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with Service(broker).running() as service:
            client = await service.client()
            count = 2 * PENDING_ACKS_MAX
            send(client, produce(0), *(produce(n, acks=acks) for n in range(1, count)))
            await until(lambda: len(broker.served) >= PENDING_ACKS_MAX)
            (connection,) = service.listener.connections
            await until(lambda: state(connection) is State.HELD)
            assert not is_reading(connection)
            assert len(broker.served) == PENDING_ACKS_MAX
            broker.complete(0)
            if acks:
                await until(lambda: len(broker.served) > PENDING_ACKS_MAX)
                await until(lambda: state(connection) is State.HELD)
                assert len(broker.served) == PENDING_ACKS_MAX + 1
                for number in range(1, count):
                    await until(lambda number=number: number in broker.acks)
                    broker.complete(number)
                assert await answers(client, count) == [*range(count)]
            await until(lambda: is_reading(connection))

    run(scenario)


def test_pending_acks_are_bounded_by_bytes(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker(size=PENDING_ACK_BYTES_MAX // 4)
        async with Service(broker).running() as service:
            client = await service.client()
            send(client, *map(produce, range(6)))
            await until(lambda: len(broker.served) >= 4)
            (connection,) = service.listener.connections
            await until(lambda: state(connection) is State.HELD)
            assert not is_reading(connection)
            assert broker.served == [0, 1, 2, 3]
            broker.complete(0)
            await until(lambda: len(broker.served) >= 5)
            await until(lambda: state(connection) is State.HELD)
            assert broker.served == [0, 1, 2, 3, 4]
            broker.complete(1, 2, 3, 4)
            await until(lambda: 5 in broker.acks)
            broker.complete(5)
            assert await answers(client, 6) == [0, 1, 2, 3, 4, 5]

    run(scenario)


@pytest.mark.parametrize("size", [1000, 40_000, 400_000], ids=["in place", "one read", "large"])
@pytest.mark.parametrize("is_slow", [False, True], ids=["at once", "slow"])
def test_waiting_ack_keeps_no_memory_of_its_request(run: Run, size: int, *, is_slow: bool) -> None:
    async def scenario() -> None:
        broker, memory = Broker(), MemoryPools(request_bytes=10_000_000)
        if is_slow:
            broker.slow[1] = asyncio.Event()
        buffer = memory.read_buffer.free()
        async with Service(broker, memory=memory).running() as service:
            client = await service.client()
            # The Heartbeat stays behind, so the rest of the read is kept.
            send(client, produce(1, bytes(size)), heartbeat(2))
            await until(lambda: 1 in broker.acks)
            if is_slow:
                await until(lambda: memory.requests.held >= min(size, 1))
                assert not is_free(buffer) or memory.requests.held >= size
                broker.slow[1].set()
            (connection,) = service.listener.connections
            await until(lambda: state(connection) is State.HELD)
            assert is_free(buffer)
            assert 0 < memory.requests.held < 100  # the Heartbeat
            broker.complete(1)
            assert await answers(client, 2) == [1, 2]
            await until(lambda: not memory.requests.held)

    run(scenario)


def test_slow_produce_holds_up_those_behind_it(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.slow[2] = asyncio.Event()
        async with Service(broker).running() as service:
            client = await service.client()
            send(client, *map(produce, range(1, 5)))
            await until(lambda: 2 in broker.acks)
            broker.complete(1)  # is sent while the slow one is appended
            assert await answers(client, 1) == [1]
            assert broker.served == [1]
            broker.slow[2].set()
            await until(lambda: broker.served == [1, 2, 3, 4])
            broker.complete(3, 4)
            await asyncio.sleep(0)
            assert broker.sent == [1]
            broker.complete(2)
            assert await answers(client, 3) == [2, 3, 4]

    run(scenario)


def test_ack_completed_by_another_connection_serves_nothing_there(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.completes[9] = 1
        async with Service(broker).running() as service:
            first, second = await service.client(), await service.client()
            send(first, produce(1), heartbeat(2))
            await until(lambda: 1 in broker.acks)
            send(second, produce(9))
            assert await answers(first, 2) == [1, 2]
            assert broker.served == [1, 9, 2]
            broker.complete(9)
            assert await answers(second, 1) == [9]

    run(scenario)


def test_lost_connection_cancels_its_pending_acks(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with Service(broker).running() as service:
            client = await service.client()
            send(client, *map(produce, range(3)))
            await until(lambda: len(broker.acks) == 3)
            broker.complete(1)
            # Reset the connection; after a plain close, the acknowledgements are still awaited.
            socket = client.writer.get_extra_info("socket")
            socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.transport.abort()
            await until(lambda: not service.listener.connections)
            assert broker.cancelled == [0, 2]
            broker.complete(0, 2)  # has no effect any more
            assert broker.sent == []

    run(scenario)


def test_client_that_stops_sending_gets_its_acks(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with Service(broker, PATIENT).running() as service:
            client = await service.client()
            send(client, *map(produce, range(3)))
            client.writer.write_eof()
            await until(lambda: len(broker.acks) == 3)
            (connection,) = service.listener.connections
            await until(lambda: state(connection) is State.CLOSING)
            broker.complete(0)
            assert await answers(client, 1) == [0]
            broker.complete(1, 2)
            assert await answers(client, 2) == [1, 2]
            assert await client.closed()

    run(scenario)


def test_request_behind_acks_of_half_closed_client_is_answered(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with Service(broker, PATIENT).running() as service:
            client = await service.client()
            send(client, produce(1), heartbeat(2), produce(3))
            client.writer.write_eof()
            await until(lambda: 1 in broker.acks)
            (connection,) = service.listener.connections
            await until(lambda: has_timer(connection))
            broker.complete(1)
            assert await answers(client, 2) == [1, 2]
            await until(lambda: 3 in broker.acks)
            broker.complete(3)
            assert await answers(client, 1) == [3]
            assert await client.closed()

    run(scenario)


@pytest.mark.parametrize("how", ["close", "half", "reset"])
@pytest.mark.parametrize("behind", [[], [heartbeat(3)]], ids=["reading", "held"])
def test_acks_of_a_departed_client_are_dropped(
    run: Run, how: str, behind: Sequence[Message]
) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with Service(broker, ConnectionConfig(departed_ms=20)).running() as service:
            client = await service.client()
            send(client, produce(1), produce(2), *behind)
            await until(lambda: 2 in broker.acks)
            (connection,) = service.listener.connections
            broker.complete(2)
            leave(client, how)
            await until(lambda: not service.listener.connections)
            assert broker.cancelled == [1]
            assert broker.served == [1, 2, *([3] if behind else [])]
            assert broker.sent == []
            assert not has_timer(connection)
            if how == "half":
                assert await client.reader.read() == b""

    run(scenario)


def test_produce_behind_a_slow_one_of_a_half_closed_client_is_answered(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.slow[1] = asyncio.Event()
        async with Service(broker, PATIENT).running() as service:
            client = await service.client()
            send(client, produce(1), produce(2), produce(3))
            await until(lambda: 1 in broker.acks)
            (connection,) = service.listener.connections
            leave(client, "half")
            await until(lambda: has_departed(connection))
            broker.slow[1].set()
            await until(lambda: broker.served == [1, 2, 3])
            broker.complete(3, 2, 1)
            assert await answers(client, 3) == [1, 2, 3]

    run(scenario)


def test_produce_requests_of_a_departed_client_are_appended(run: Run) -> None:
    async def scenario() -> None:
        broker, memory = Broker(size=100), MemoryPools(request_bytes=10_000_000)
        config = ConnectionConfig(departed_ms=20)
        async with Service(broker, config, memory=memory).running() as service:
            client = await service.client()
            count = 3 * PENDING_ACKS_MAX
            send(client, *map(produce, range(count)), heartbeat(count), produce(count + 1))
            await until(lambda: len(broker.served) == PENDING_ACKS_MAX)
            leave(client, "half")
            assert await client.reader.read() == b""  # the responses would be out of order
            await until(lambda: not service.listener.connections)
            assert broker.served == [*range(count + 2)]
            assert broker.cancelled == [*range(count), count + 1]
            await until(lambda: not memory.requests.held)

    run(scenario)


def test_slow_produce_of_a_departed_client_is_appended(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.slow[2] = asyncio.Event()
        async with Service(broker, ConnectionConfig(departed_ms=20)).running() as service:
            client = await service.client()
            send(client, produce(1), produce(2), produce(3))
            await until(lambda: 2 in broker.acks)
            leave(client, "close")
            await until(lambda: broker.cancelled == [1])
            broker.slow[2].set()
            await until(lambda: not service.listener.connections)
            assert broker.served == [1, 2, 3]
            assert broker.cancelled == [1, 3]  # the slow one had not begun to wait

    run(scenario)


CLOSERS: dict[str, Sequence[int]] = {"violation": [1, 2], "refused": [1, 2, 3]}


@pytest.mark.parametrize("why", CLOSERS)
def test_closed_connection_sends_pending_acks_first(run: Run, why: str) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with Service(broker).running() as service:
            client = await service.client()
            send(client, produce(1), produce(2))
            if why == "violation":
                client.writer.write(b"\0\0\0\x08" + bytes(8))  # a malformed Produce request
            else:
                broker.refuses.add(3)
                send(client, produce(3, acks=0))
            send(client, produce(4))
            await until(lambda: len(broker.acks) == 2)
            (connection,) = service.listener.connections
            await until(lambda: state(connection) is State.CLOSING)
            assert not is_reading(connection)
            service.listener.close_idle_and_slow()
            broker.complete(2)
            await asyncio.sleep(0)
            broker.complete(1)
            assert await answers(client, 2) == [1, 2]
            assert await client.closed()
            assert broker.served == CLOSERS[why]

    run(scenario)


@pytest.mark.parametrize("behind", [[], [3]], ids=["last", "not last"])
def test_failed_ack_closes_its_connection(
    run: Run, caplog: pytest.LogCaptureFixture, behind: list[int]
) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with Service(broker).running() as service:
            client = await service.client()
            send(client, *map(produce, [0, 1, 2, *behind]))
            await until(lambda: len(broker.acks) == 3 + len(behind))
            broker.acks[2].complete(RuntimeError("broken on purpose"))
            broker.complete(0, 1)
            assert await answers(client, 2) == [0, 1]
            broker.complete(*behind)  # its response cannot be sent before that of the failed one
            assert await client.closed()
            assert broker.sent == [0, 1, *behind]

    run(scenario)
    (record,) = (one for one in caplog.records if one.message == "request failed")
    assert record.exc_info is not None
    assert "broken on purpose" in str(record.exc_info[1])


def test_shutdown_sends_pending_acks(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        service = Service(broker)
        service.port = await service.listener.hold("127.0.0.1", 0, 50)
        await service.listener.start()
        client = await service.client()
        send(client, *map(produce, range(3)))
        await until(lambda: len(broker.acks) == 3)
        (connection,) = service.listener.connections
        closing = asyncio.create_task(service.listener.close())
        await until(lambda: state(connection) is State.CLOSING)
        send(client, produce(3))  # is not served any more
        broker.complete(0, 1, 2)
        assert await answers(client, 3) == [0, 1, 2]
        await closing
        assert await client.closed()
        assert broker.served == [0, 1, 2]
        await service.leave()

    run(scenario)


def test_client_with_pending_acks_is_idle(run: Run) -> None:
    """As in Kafka: nobody knows whether it still exists."""

    async def scenario() -> None:
        broker, config = Broker(), ConnectionConfig(idle_ms_max=5000)
        async with Service(broker, config).running() as service:
            client = await service.client()
            send(client, produce(1))
            await until(lambda: 1 in broker.acks)
            send(client, produce(2))
            await until(lambda: 2 in broker.acks)
            service.clock.ahead_s = 4.0
            broker.complete(1)
            assert await answers(client, 1) == [1]
            (connection,) = service.listener.connections
            service.clock.ahead_s = 8.0  # counts from the response
            assert connection.timeout_reason() is None
            service.clock.ahead_s = 10.0
            service.listener.close_idle_and_slow()
            assert await client.closed()
            await until(lambda: broker.cancelled == [2])

    run(scenario)


def test_acknowledgement_may_complete_while_its_wait_is_cancelled() -> None:
    async def scenario() -> None:
        ack = PendingAck(None, 0)
        task = asyncio.create_task(ack.completed())
        await asyncio.sleep(0)
        task.cancel()
        ack.complete()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
