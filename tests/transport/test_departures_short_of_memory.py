"""Clients that close their end while a frame waits for memory."""

from typing import Final

import pytest

from ottla.transport.connection import ConnectionConfig
from ottla.transport.memory_pool import MemoryPools
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

    def __init__(self) -> None:
        self.pools = MemoryPools(request_bytes=POOL_BYTES)
        assert self.pools.requests.reserve(self, POOL_BYTES, 2 * POOL_BYTES)

    def memory_available(self) -> None:
        raise AssertionError("it does not wait")

    def release(self) -> None:
        self.pools.requests.release(self, POOL_BYTES)


async def waiting_for_memory(service: Service, holder: Holder, sent: bytes) -> Client:
    """Return a client that has sent a frame or a part of it, which waits for memory."""
    client = await service.client()
    client.writer.write(sent[:100])  # the first memory of a frame depends on its first bytes
    await until(lambda: [bytes_arrived(one) for one in service.listener.connections] == [96])
    client.writer.write(sent[100:])
    await until(lambda: holder.pools.requests.has_waiters and not unacknowledged_bytes(client))
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
