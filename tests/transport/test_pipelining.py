"""Pipelined requests: they wait as they were read, and other connections get their turn."""

from ottla.protocol.conversation import Request, Response
from ottla.transport.connection import Connection, ConnectionConfig, DeferredResponse
from ottla.transport.memory_pool import MemoryPools
from transport.test_departures import SERVED, Waiting, join, until
from transport.test_listener import Run, Service, echo, heartbeat, run

__all__ = ["run"]

MANY = 1000


def test_requests_behind_a_waiting_one_are_kept_as_bytes(run: Run) -> None:
    async def scenario() -> None:
        waiting, memory = Waiting(), MemoryPools(request_bytes=10_000_000)
        async with Service(waiting, SERVED, memory=memory).running() as service:
            client = await service.client()
            client.send(join(1), *map(heartbeat, range(MANY)))
            await until(lambda: memory.requests.held)
            (connection,) = service.listener.connections
            conversation = connection._conversation  # pyright: ignore[reportPrivateUsage]
            assert waiting.served == [1]
            assert conversation.unanswered == 1  # no other request was decoded
            assert memory.requests.held < 128 * 1024
            connection.departed()  # the response of the waiting one is not awaited any more
            await until(lambda: len(waiting.served) == 1 + MANY)
            assert waiting.served == [1, *range(MANY)]
            await until(lambda: not memory.requests.held)

    run(scenario)


def test_other_connections_are_served_between_pipelined_requests(run: Run) -> None:
    served: list[str] = []

    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        served.append("many" if request.header.client_id == "test" else "one")
        return echo(request, connection)

    async def scenario() -> None:
        async with Service(dispatch).running() as service:
            many, one = await service.client(), await service.client()
            one.conversation._client_id = "other"  # pyright: ignore[reportPrivateUsage]
            many.send(*map(heartbeat, range(MANY)))
            await until(lambda: served)
            one.send(heartbeat(1))
            assert await one.answers(1) == [1]
            assert len(served) < MANY
            assert await many.answers(MANY) == [*range(MANY)]

    run(scenario)


def test_client_that_waits_for_others_is_idle(run: Run) -> None:
    async def scenario() -> None:
        waiting, config = Waiting(), ConnectionConfig(idle_ms_max=5000)
        async with Service(waiting, config).running() as service:
            client = await service.client()
            client.send(join(1))
            await until(lambda: waiting.waiting)
            service.clock.ahead_s = 4.0
            service.listener.close_idle_and_slow()
            assert waiting.waiting
            service.clock.ahead_s = 6.0
            service.listener.close_idle_and_slow()
            assert await client.closed()
            await until(lambda: not waiting.waiting)

    run(scenario)
