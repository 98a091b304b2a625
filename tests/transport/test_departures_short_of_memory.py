"""Clients that leave, or stay silent, while their frames wait for memory."""

from functools import partial
from typing import Final

import pytest

from ottla.transport.connection import ConnectionConfig
from ottla.transport.memory_pool import SILENT_SECONDS, STALL_SECONDS, WAIT_SECONDS, MemoryPools
from transport.test_departures import (
    PATIENT,
    has_departed,
    unacknowledged_bytes,
    until,
)
from transport.test_listener import (
    DONE,
    Client,
    Run,
    Service,
    bytes_arrived,
    large_frame,
    respond_done,
    run,
)

__all__ = ["run"]


POOL_BYTES: Final = 1_000_000
FRAME_BYTES: Final = 120_000  # the socket holds what the connection does not read of it


class Holder:
    """Holds all memory for requests, as the slow frame of a client that stays."""

    def __init__(self, pool_bytes: int = POOL_BYTES) -> None:
        self.pools = MemoryPools(request_bytes=pool_bytes)
        self.count = 0
        self.reserve()

    def reserve(self) -> None:
        requests = self.pools.requests
        self.count = requests.left
        assert requests.reserve(self, self.count, 2 * requests.limit)

    def memory_available(self) -> None:
        raise AssertionError("it does not wait")

    def release(self) -> None:
        self.pools.requests.release(self, self.count)


def waiting(service: Service) -> int:
    """Return how many frames wait for memory."""
    return sum(one.memory.short for one in service.listener.connections)


async def waiting_for_memory(service: Service, holder: Holder, sent: bytes) -> Client:
    """Return a client that has sent a frame or a part of it, which waits for memory."""
    client = await service.client()
    client.writer.write(sent[:100])  # the first memory of a frame depends on its first bytes
    await until(lambda: 96 in [bytes_arrived(one) for one in service.listener.connections])
    before = waiting(service)
    client.writer.write(sent[100:])
    await until(lambda: waiting(service) > before and not unacknowledged_bytes(client))
    return client


def test_unfinished_frame_that_waits_for_memory_ends_at_once(run: Run) -> None:
    """Its rest cannot come. Clients that did this kept their sockets as long as the holder."""

    async def scenario() -> None:
        holder = Holder()
        async with Service(respond_done, PATIENT, memory=holder.pools).running() as service:
            sent = large_frame(10 * FRAME_BYTES)[:FRAME_BYTES]
            client = await waiting_for_memory(service, holder, sent)
            client.writer.close()
            await until(lambda: not service.listener.connections)
            assert not holder.pools.requests.has_waiters
            assert holder.pools.requests.held == POOL_BYTES
            holder.release()

    run(scenario)


@pytest.mark.parametrize("is_released", [True, False])
def test_frame_that_waits_for_memory_has_half_a_second_more(run: Run, is_released: bool) -> None:
    config = PATIENT if is_released else ConnectionConfig(departed_ms=10)

    async def scenario() -> None:
        holder = Holder()
        async with Service(respond_done, config, memory=holder.pools).running() as service:
            client = await waiting_for_memory(service, holder, large_frame(FRAME_BYTES))
            (connection,) = service.listener.connections
            client.writer.write_eof()
            await until(lambda: has_departed(connection))
            if is_released:
                assert [*service.listener.connections] == [connection]
                holder.release()
                assert await client.reader.read() == DONE
            await until(lambda: not service.listener.connections)
            if not is_released:
                holder.release()

    run(scenario)


class Crowd:
    """Clients of a broker with frames of some size, of which each has sent the first 40 KB."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def join(self, count: int, frame_bytes: int) -> None:
        for _ in range(count):
            before = waiting(self.service)
            client = await self.service.client()
            client.writer.write(large_frame(frame_bytes)[:40_000])
            await until(partial(self._more_wait, before))

    def _more_wait(self, before: int) -> bool:
        return waiting(self.service) > before

    @property
    def closed(self) -> int:
        """How many the listener has closed."""
        return self.service.listener.closed.total()

    def look(self, seconds: float) -> None:
        """Let the listener look for overdue connections at a time."""
        self.service.clock.ahead_s = seconds
        self.service.listener.close_idle_and_slow()


def test_huge_frames_that_wait_make_way_for_ordinary_ones(run: Run) -> None:
    """Hundreds of them held more than the limit, and no producer got memory for a batch."""

    async def scenario() -> None:
        holder = Holder()
        async with Service(respond_done, memory=holder.pools).running() as service:
            crowd = Crowd(service)
            await crowd.join(20, 3_000_000)
            crowd.look(0)
            crowd.look(SILENT_SECONDS + 0.5)
            assert not crowd.closed, "no other frame waits"
            ordinary = await waiting_for_memory(service, holder, large_frame(FRAME_BYTES))
            crowd.look(SILENT_SECONDS - 0.5)
            assert not crowd.closed
            await crowd.join(1, 3_000_000)  # it is served before older ones
            crowd.look(SILENT_SECONDS + 0.5)
            assert crowd.closed == 20
            crowd.look(2 * SILENT_SECONDS + 1)
            assert crowd.closed == 21
            holder.release()
            assert await ordinary.reader.readexactly(len(DONE)) == DONE

    run(scenario)


def test_frames_that_wait_make_way_for_later_ones(run: Run) -> None:
    async def scenario() -> None:
        holder = Holder()
        async with Service(respond_done, memory=holder.pools).running() as service:
            crowd = Crowd(service)
            await crowd.join(20, 900_000)
            crowd.look(0)
            crowd.look(STALL_SECONDS - 0.5)
            assert not crowd.closed
            crowd.look(STALL_SECONDS + 0.5)
            assert crowd.closed == 19
            holder.release()

    run(scenario)


def test_frame_waits_for_memory_for_a_limited_time(run: Run) -> None:
    """Its client may have left: the end comes behind what it has sent."""

    async def scenario() -> None:
        holder = Holder()
        async with Service(respond_done, memory=holder.pools).running() as service:
            crowd = Crowd(service)
            await crowd.join(1, 3_000_000)
            crowd.look(0)
            crowd.look(WAIT_SECONDS - 0.5)
            assert not crowd.closed
            crowd.look(WAIT_SECONDS + 0.5)
            assert crowd.closed == 1
            holder.release()

    run(scenario)


def test_frame_that_gets_memory_meanwhile_waits_from_then_on(run: Run) -> None:
    async def scenario() -> None:
        holder = Holder(10 * POOL_BYTES)
        async with Service(respond_done, memory=holder.pools).running() as service:
            frame = large_frame(3_000_000)
            client = await waiting_for_memory(service, holder, frame[:40_000])
            (connection,) = service.listener.connections
            before, crowd = bytes_arrived(connection), Crowd(service)
            crowd.look(0)
            holder.release()
            holder.reserve()
            client.writer.write(frame[40_000:100_000])
            await until(lambda: connection.memory.short and bytes_arrived(connection) > before)
            crowd.look(WAIT_SECONDS - 0.5)
            crowd.look(WAIT_SECONDS + 0.5)
            assert not crowd.closed
            crowd.look(2 * WAIT_SECONDS)
            assert crowd.closed == 1
            holder.release()

    run(scenario)
