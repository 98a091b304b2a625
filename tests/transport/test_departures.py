"""Clients that close their end while a request waits for its response."""

import asyncio
import os
from array import array
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ

import pytest

from ottla.log.shield import shielded
from ottla.protocol.apis import FETCH, HEARTBEAT, JOIN_GROUP
from ottla.protocol.conversation import Request, Response, ServerConversation
from ottla.protocol.frames import Framer
from ottla.protocol.message import Message
from ottla.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.messages.fetch import FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.transport.admission import AdmissionConfig
from ottla.transport.connection import (
    BEHIND_SECONDS,
    Connection,
    ConnectionConfig,
    DeferredResponse,
    FrameWait,
)
from ottla.transport.memory_pool import READ_BUFFER_BYTES
from transport.test_listener import Client, Run, Service, StoppedClock, echo, heartbeat, run

__all__ = ["run"]


DELETED = DeleteRecordsResponse(throttle_time_ms=0, topics=())
ALLOCATED = AllocateProducerIdsResponse(
    throttle_time_ms=0, error_code=0, producer_id_start=0, producer_id_len=1
)
JOINED = JoinGroupResponse(
    error_code=0, generation_id=1, protocol_name="", leader="", member_id="", members=[]
)
SYNC = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
SYNCED = SyncGroupResponse(error_code=0, assignment=b"")
DELETE = DeleteRecordsRequest(topics=[], timeout_ms=2**31 - 1)
ALLOCATE = AllocateProducerIdsRequest(broker_id=1)
FOREVER = 600_000
SERVED = ConnectionConfig(departed_served_ms=FOREVER)
PATIENT = ConnectionConfig(departed_ms=FOREVER, departed_served_ms=FOREVER)


class Waiting:
    """A dispatcher: Heartbeat has a response at once, and the others wait for `release`."""

    def __init__(self) -> None:
        self.served: list[int] = []
        self.waiting = 0
        self.release = asyncio.Event()
        self.produced = self.deletions = 0

    def __call__(
        self, request: Request, connection: Connection
    ) -> Response | DeferredResponse | None:
        if isinstance(request.message, ProduceRequest):
            return DeferredResponse(self._produce())
        if isinstance(request.message, DeleteRecordsRequest):
            self.deletions += 1
            return DeferredResponse(self._wait(DELETED))
        if isinstance(request.message, AllocateProducerIdsRequest):
            return DeferredResponse(self._wait(ALLOCATED))
        if isinstance(request.message, JoinGroupRequest):
            self.served.append(request.message.session_timeout_ms)
            return DeferredResponse(self._wait(JOINED))
        if isinstance(request.message, SyncGroupRequest):
            return DeferredResponse(self._wait(SYNCED))
        assert isinstance(request.message, HeartbeatRequest)
        self.served.append(request.message.generation_id)
        return echo(request, connection)

    async def _wait(self, response: Message) -> Message:
        self.waiting += 1
        try:
            await self.release.wait()
        finally:
            self.waiting -= 1
        return response

    async def _produce(self) -> ProduceResponse:
        async def append() -> None:
            self.waiting += 1
            await self.release.wait()
            self.waiting -= 1
            self.produced += 1

        await shielded(append())
        part = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
        return ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=[part])]
        )


def join(number: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=number,
        rebalance_timeout_ms=1000,
        member_id="",
        protocol_type="consumer",
        protocols=[],
    )


def unacknowledged_bytes(client: Client) -> int:
    """Return how many bytes have not arrived in the broker's socket."""
    count = array("i", [0])
    ioctl(client.writer.get_extra_info("socket").fileno(), TIOCOUTQ, count)
    return client.writer.transport.get_write_buffer_size() + count[0]


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds; the test's timeout limits the wait."""
    while not holds():
        await asyncio.sleep(0.001)


def has_departed(connection: Connection) -> bool:
    return connection._has_departed  # pyright: ignore[reportPrivateUsage]


def is_delay_over(connection: Connection) -> bool:
    return connection._waits_are_over  # pyright: ignore[reportPrivateUsage]


def timer_of(connection: Connection) -> asyncio.TimerHandle | None:
    return connection._departed_timer  # pyright: ignore[reportPrivateUsage]


async def some_iterations() -> None:
    """Let the event loop do what is due."""
    for _ in range(5):
        await asyncio.sleep(0)


async def responses(client: Client) -> list[Message]:
    """Return all responses up to the end of the connection."""
    received = client.conversation.receive(await client.reader.read())
    assert client.conversation.violation is None
    return [one.message for one in received]


def epolls() -> int:
    """The number of epoll sets that this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            count += "eventpoll" in os.readlink(f"/proc/self/fd/{name}")
    return count


def test_waiting_request_ends_when_its_client_leaves(run: Run) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        before = epolls()
        async with Service(waiting).running() as service:
            clients = [await service.client() for _ in range(50)]
            for client in clients:
                client.send(join(1))
            await until(lambda: waiting.waiting == 50)
            for client in clients[:49]:
                client.writer.close()
            await until(lambda: len(service.listener.connections) == 1)
            assert waiting.waiting == 1
            clients[49].writer.transport.abort()
            await until(lambda: not service.listener.connections)
            assert waiting.waiting == 0
            assert epolls() == before

    run(scenario)


def test_requests_sent_before_the_end_are_still_served(run: Run) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, SERVED).running() as service:
            client = await service.client()
            client.send(join(1), heartbeat(11), join(2), heartbeat(12), join(3), heartbeat(13))
            client.writer.close()
            await until(lambda: waiting.served and not service.listener.connections)
            assert waiting.served == [1, 11, 12, 13]  # nobody waits any more
            assert waiting.waiting == 0

    run(scenario)


def test_waiting_requests_of_a_client_that_left_are_not_decoded(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = list[int]()
    decode = ServerConversation.request

    def counted(conversation: ServerConversation, frame: memoryview) -> Request:
        request = decode(conversation, frame)
        decoded.append(request.api.key)
        return request

    monkeypatch.setattr(ServerConversation, "request", counted)

    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, SERVED).running() as service:
            client = await service.client()
            client.send(join(1), *(join(2) for _ in range(100)), heartbeat(11))
            client.writer.close()
            await until(lambda: waiting.served and not service.listener.connections)
            assert waiting.served == [1, 11]
            assert decoded == [JOIN_GROUP.key, HEARTBEAT.key]

    run(scenario)


def test_waiting_requests_of_a_client_that_left_are_skipped_together(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    next_frame = Framer.next_frame

    def counted(framer: Framer) -> memoryview | None:
        nonlocal looks
        looks += 1
        return next_frame(framer)

    monkeypatch.setattr(Framer, "next_frame", counted)

    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, SERVED).running() as service:
            client = await service.client()
            client.send(*(join(1) for _ in range(1000)), heartbeat(11), join(2), heartbeat(12))
            client.writer.close()
            await until(lambda: waiting.served and not service.listener.connections)
            assert waiting.served == [1, 11, 12]
            assert looks < 10

    run(scenario)


def test_produce_is_finished_after_its_client_has_left(run: Run) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with Service(
            waiting, ConnectionConfig(departed_ms=20, departed_served_ms=FOREVER)
        ).running() as service:
            client = await service.client()
            data = TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=0, records=b"")]
            )
            client.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), version=9)
            client.send(heartbeat(11))
            await until(lambda: waiting.waiting == 1)
            client.writer.close()
            for _ in range(20):  # a dropped request would end now
                await asyncio.sleep(0.005)
            assert waiting.waiting == 1
            assert not waiting.served  # the requests behind it keep their order
            waiting.release.set()
            await until(lambda: not service.listener.connections)
            assert waiting.produced == 1
            assert waiting.served == [11]

    run(scenario)


def test_requests_not_served_in_a_second_are_skipped_except_produce(run: Run) -> None:
    produce = ProduceRequest(
        acks=0,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"")])
        ],
    )

    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, ConnectionConfig(departed_served_ms=0)).running() as service:
            client = await service.client()
            client.send(join(1), heartbeat(11))
            client.send(DELETE, version=2)
            client.send(produce, version=9)
            client.send(heartbeat(12))
            await until(lambda: waiting.waiting)
            (connection,) = service.listener.connections
            client.writer.close()
            await until(lambda: has_departed(connection))
            waiting.release.set()
            await until(lambda: waiting.produced and not service.listener.connections)
            assert waiting.produced == 1
            assert waiting.served == [1]
            assert not waiting.deletions

    run(scenario)


def test_queued_requests_are_served_for_a_second_by_default(run: Run) -> None:
    config = ConnectionConfig(departed_ms=FOREVER)  # the first request is not cancelled

    async def served(after_s: float) -> list[int]:
        waiting = Waiting()
        async with Service(waiting, config, clock=StoppedClock()).running() as service:
            client = await service.client()
            client.send(DELETE, version=2)
            client.send(heartbeat(11), heartbeat(12))
            await until(lambda: waiting.waiting)
            (connection,) = service.listener.connections
            client.writer.close()
            await until(lambda: has_departed(connection))
            service.clock.ahead_s = after_s
            waiting.release.set()
            await until(lambda: not service.listener.connections)
            return waiting.served

    async def scenario() -> None:
        assert await served(0.999) == [11, 12]
        assert await served(1.0) == []

    run(scenario)


def test_wait_for_followers_ends_when_its_client_leaves(run: Run) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with Service(
            waiting, ConnectionConfig(departed_ms=20, departed_served_ms=FOREVER)
        ).running() as service:
            client = await service.client()
            client.send(DELETE, version=2)
            client.send(heartbeat(11))
            client.send(DELETE, version=2)
            await until(lambda: waiting.waiting == 1)
            client.writer.write_eof()
            assert await client.reader.read() == b""
            await until(lambda: not service.listener.connections)
            assert waiting.served == [11]
            assert waiting.deletions == 2
            assert waiting.waiting == 0

    run(scenario)


def test_client_that_waits_for_followers_is_idle(run: Run) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, ConnectionConfig(idle_ms_max=5000)).running() as service:
            client = await service.client()
            client.send(DELETE, version=2)
            await until(lambda: waiting.waiting == 1)
            service.clock.ahead_s = 4.0
            service.listener.close_idle_and_slow()
            assert waiting.waiting == 1
            service.clock.ahead_s = 6.0
            service.listener.close_idle_and_slow()
            assert await client.closed()
            await until(lambda: not waiting.waiting)

    run(scenario)


def test_client_that_fills_the_socket_waits_half_a_minute_for_others(run: Run) -> None:
    """Its end would come behind the bytes that are not read; a few requests leave room for it."""
    config = ConnectionConfig(receive_buffer_bytes=16_384)

    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, config).running() as service:
            behind, patient, deleting = [await service.client() for _ in range(3)]
            many = [heartbeat(11)] * 20_000  # 0.7 MB: more than is read at once and the buffer
            behind.send(join(1), *many)
            behind.writer.write_eof()
            patient.send(join(1))
            deleting.send(DELETE, version=2)
            deleting.send(*many)
            await until(lambda: waiting.waiting == 3)
            patient.send(heartbeat(11))  # unread: reading is paused behind the first request
            await until(lambda: not unacknowledged_bytes(patient))
            service.clock.ahead_s = BEHIND_SECONDS - 5
            service.listener.close_idle_and_slow()
            assert waiting.waiting == 3
            service.clock.ahead_s = BEHIND_SECONDS + 1

            def is_closed() -> bool:
                service.listener.close_idle_and_slow()
                return len(service.listener.connections) == 2

            await until(is_closed)
            behind.writer.transport.abort()
            deleting.writer.transport.abort()
            waiting.release.set()
            assert await patient.reader.read(1)

    run(scenario)


def test_no_response_follows_a_dropped_one(run: Run) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, SERVED).running() as service:
            client = await service.client()
            client.send(join(1), heartbeat(11))
            client.writer.write_eof()
            assert await client.reader.read() == b""
            assert waiting.served == [1, 11]

    run(scenario)


def test_no_response_follows_a_skipped_one(run: Run) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, PATIENT).running() as service:
            client = await service.client()
            client.send(DELETE, version=2)
            client.send(join(1), heartbeat(11))
            await until(lambda: waiting.waiting)
            (connection,) = service.listener.connections
            client.writer.write_eof()
            await until(lambda: has_departed(connection))
            waiting.release.set()
            assert await responses(client) == [DELETED]
            assert waiting.served == [11]

    run(scenario)


def test_client_that_stopped_sending_has_half_a_second_more(run: Run) -> None:
    async def scenario() -> None:
        waiting, loop = Waiting(), asyncio.get_running_loop()
        async with Service(waiting).running() as service:
            client = await service.client()
            client.send(DELETE, version=2)
            await until(lambda: waiting.waiting)
            (connection,) = service.listener.connections
            before_s = loop.time()
            client.writer.write_eof()
            await until(lambda: has_departed(connection))
            timer = timer_of(connection)
            assert timer is not None
            # uvloop counts in milliseconds.
            assert before_s + 0.49 < timer.when() < loop.time() + 0.51

    run(scenario)


def test_half_a_second_begins_with_the_wait(run: Run) -> None:
    """A client that stopped sending, and reads slowly, gets a later response all the same."""

    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        return [memoryview(bytes(10_000_000))]

    async def scenario() -> None:
        async with Service(dispatch).running() as service:
            client = await service.client()
            client.send(heartbeat(11))
            await until(lambda: service.listener.connections)
            (connection,) = service.listener.connections
            client.writer.write_eof()
            await until(lambda: has_departed(connection))
            assert timer_of(connection) is None
            assert len(await client.reader.read()) > 10_000_000

    run(scenario)


@pytest.mark.parametrize("request_of_a_group", [join(1), SYNC], ids=["join", "sync"])
def test_waits_for_other_clients_end_at_once(run: Run, request_of_a_group: Message) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, PATIENT).running() as service:
            client = await service.client()
            client.send(request_of_a_group)
            await until(lambda: waiting.waiting)
            client.writer.close()
            await until(lambda: not service.listener.connections)
            assert not waiting.waiting

    run(scenario)


def test_what_a_broker_has_sent_is_finished(run: Run) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with Service(waiting, ConnectionConfig(departed_ms=0)).running() as service:
            client = await service.client()
            client.send(ALLOCATE, version=0)
            await until(lambda: waiting.waiting)
            service.clock.ahead_s = 3600.0
            service.listener.close_idle_and_slow()
            (connection,) = service.listener.connections
            client.writer.write_eof()
            await until(lambda: is_delay_over(connection))
            await some_iterations()
            assert waiting.waiting == 1
            waiting.release.set()
            assert await responses(client) == [ALLOCATED]

    run(scenario)


class Stubborn:
    """A dispatcher: a request finishes what it has begun before it lets a cancellation pass."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.cancelled = 0
        self.task: asyncio.Task[object] | None = None

    def __call__(self, request: Request, connection: Connection) -> DeferredResponse:
        return DeferredResponse(self._wait())

    async def _wait(self) -> Response:
        self.task = asyncio.current_task()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                if self.cancelled > 2:  # the test has failed
                    raise
        raise asyncio.CancelledError


def test_request_of_a_departed_client_is_cancelled_once(run: Run) -> None:
    async def scenario() -> None:
        stubborn = Stubborn()
        async with Service(stubborn, ConnectionConfig(departed_ms=0)).running() as service:
            client = await service.client()
            client.send(join(1))
            await until(lambda: stubborn.task)
            (connection,) = service.listener.connections
            client.writer.close()
            await until(lambda: is_delay_over(connection))
            await some_iterations()
            assert stubborn.cancelled == 1
            stubborn.release.set()
            await until(lambda: not service.listener.connections)

    run(scenario)


def test_lost_connection_drops_its_cancelled_request(run: Run) -> None:
    async def scenario() -> None:
        stubborn = Stubborn()
        async with Service(stubborn).running() as service:
            client = await service.client()
            client.send(join(1))
            await until(lambda: stubborn.task)
            (connection,) = service.listener.connections
            client.writer.close()
            await until(lambda: stubborn.cancelled)
            connection.abort()
            await until(lambda: not service.listener.connections)
            task = stubborn.task
            assert task is not None
            stubborn.release.set()
            await until(task.done)
            assert task.cancelled()

    run(scenario)


def test_cancellation_by_others_closes_the_connection(run: Run) -> None:
    """Nothing is served after it: the event loop may be ending."""

    async def scenario() -> None:
        stubborn = Stubborn()
        async with Service(stubborn).running() as service:
            client = await service.client()
            client.send(join(1), heartbeat(11))
            await until(lambda: stubborn.task)
            task = stubborn.task
            assert task is not None
            stubborn.release.set()  # it ends with a cancellation that is not the connection's
            assert await client.closed()
            assert task.cancelled()
            assert stubborn.task is task

    run(scenario)


class EndlessWait(FrameWait):
    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Fetches:
    """Serves the frames of Fetch requests: they wait without an end."""

    def __init__(self) -> None:
        self.waits: list[EndlessWait] = []

    def __call__(self, frame: memoryview, connection: Connection) -> FrameWait | None:
        if bytes(frame[:2]) != FETCH.key.to_bytes(2, "big"):
            return None
        self.waits.append(EndlessWait())
        return self.waits[-1]


def fetch(*names: str) -> FetchRequest:
    topics = [FetchTopic(topic=name, partitions=[]) for name in names]
    return FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, topics=topics)


def test_no_response_follows_a_dropped_fetch(run: Run) -> None:
    async def scenario() -> None:
        waiting, fetches = Waiting(), Fetches()
        async with Service(waiting, PATIENT).running(listening=False) as service:
            await service.listener.start(serve_fetch_frame=fetches)
            client = await service.client()
            client.send(fetch(), version=12)
            client.send(heartbeat(11))
            await until(lambda: fetches.waits)
            client.writer.write_eof()
            assert await responses(client) == []
            assert waiting.served == [11]
            assert [one.is_cancelled for one in fetches.waits] == [True]

    run(scenario)


def test_client_whose_fetch_waits_is_idle(run: Run) -> None:
    config = ConnectionConfig(idle_ms_max=5000)

    async def scenario() -> None:
        fetches = Fetches()
        async with Service(Waiting(), config).running(listening=False) as service:
            await service.listener.start(serve_fetch_frame=fetches)
            client = await service.client()
            client.send(fetch(), version=12)
            await until(lambda: fetches.waits)
            service.clock.ahead_s = 4.0
            service.listener.close_idle_and_slow()
            assert [one.is_cancelled for one in fetches.waits] == [False]
            service.clock.ahead_s = 6.0
            service.listener.close_idle_and_slow()
            assert await client.closed()
            await until(lambda: fetches.waits[0].is_cancelled)

    run(scenario)


def test_fetch_that_waits_after_its_client_has_left_is_dropped(run: Run) -> None:
    """It is too large for the read buffer, so it is not skipped."""
    names = ["t" * 30_000] * (READ_BUFFER_BYTES // 30_000 + 1)

    async def scenario() -> None:
        waiting, fetches = Waiting(), Fetches()
        async with Service(waiting, PATIENT).running(listening=False) as service:
            await service.listener.start(serve_fetch_frame=fetches)
            client = await service.client()
            client.send(DELETE, version=2)
            client.send(fetch(*names), version=12)
            client.send(heartbeat(11))
            await until(lambda: waiting.waiting)
            (connection,) = service.listener.connections
            client.writer.write_eof()
            await until(lambda: has_departed(connection))
            waiting.release.set()
            assert await responses(client) == [DELETED]
            assert waiting.served == [11]
            assert [one.is_cancelled for one in fetches.waits] == [True]

    run(scenario)


def test_queued_connection_is_dropped_when_its_client_leaves(run: Run) -> None:
    async def scenario() -> None:
        async with Service(admission=AdmissionConfig(connections_max=1)).running() as service:
            first = await service.client()
            first.send(heartbeat(11))
            assert await first.answers(1) == [11]
            second = await service.client()
            second.send(heartbeat(12))
            await until(lambda: len(service.listener.waiting) == 1)
            second.writer.close()
            await until(lambda: not service.listener.waiting)
            assert len(service.listener.connections) == 1

    run(scenario)
