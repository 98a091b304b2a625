"""Cancelled and interrupted calls leak nothing, wherever they were.

A client's use is cancelled at moments from its start to its end, once or again during its close,
also while the broker is silent or down. After its context is left, no task, timer or socket
remains.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias

import pytest

from client.consumer_scenarios import FROM_START, write
from client.leaks import Leaks, client_tasks, client_timers
from client.scenario_runner import FAST
from ottla.client.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.errors import RequestError
from ottla.testing import Cluster
from ottla.transport.failures import Disconnected
from proxy import Detour

MOMENTS = 12
"""The number of moments that are tried, spread over the whole run."""

_groups = itertools.count()

Life: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]


def settings(servers: str, **more: object) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {**FAST, "bootstrap.servers": servers, **named}


async def sends(servers: str) -> None:
    async with Producer(settings(servers, linger_ms=5, batch_size=200)) as ours:
        for number in range(20):
            await ours.send("t", b"%d" % number, partition=0)
        await ours.flush()
        await ours.send("t", b"last")


async def waits_for_acks(servers: str) -> None:
    async with Producer(settings(servers, linger_ms=0, buffer_memory=400, batch_size=200)) as ours:
        for ack in [await ours.send("t", b"%d" % number) for number in range(20)]:
            await ack


async def polls(servers: str) -> None:
    async with Consumer(settings(servers, fetch_max_wait_ms=1), **from_start()) as ours:
        ours.assign(("t", 0))
        assert await ours.poll(20)
        await ours.end_offsets(("t", 0))
        assert await ours.poll(0.001) == []


async def iterates(servers: str) -> None:
    async with Consumer(settings(servers), **from_start()) as ours:
        ours.assign(("t", 0))
        async for record in ours:
            if record.offset == 9:
                break


async def is_a_member(servers: str) -> None:
    # A group of its own: a member that was cut off stays until its session ends, and delays others.
    group: dict[str, object] = {"group_id": f"g-{next(_groups)}", "heartbeat_interval_ms": 5}
    async with Consumer(settings(servers), "t", **group, **from_start()) as ours:
        while not ours.assignment:
            await ours.poll(0.01)
        await ours.commit({("t", 0): 3})
        await ours.committed(("t", 0))
        ours.commit_soon({("t", 0): 0})
        await ours.poll(0.01)


async def administers(servers: str) -> None:
    async with Admin(settings(servers)) as ours:
        await ours.describe_topics("t")
        await ours.list_groups()
        (await ours.delete_topics("nothing")).failed  # noqa: B018


def from_start() -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in FROM_START.items()}


LIVES: list[Life] = [sends, waits_for_acks, polls, iterates, is_a_member, administers]


async def run_iterations(doing: asyncio.Task[Any], most: int | None = None) -> int:
    """Let a task run for some event loop iterations, or to its end; return how many."""
    count = 0
    while not doing.done() and (most is None or count < most):
        await asyncio.sleep(0)
        count += 1
    return count


async def wait_ended(doing: asyncio.Task[Any]) -> None:
    with suppress(asyncio.CancelledError, RequestError):
        await doing


async def check_leaves_nothing(life: Callable[[], Coroutine[Any, Any, Any]], moments: int) -> None:
    """Check that a run leaks nothing when it ends, and when it is cancelled at any moment."""
    await life()  # afterwards the internal topics exist
    residue = Leaks()
    whole = await run_iterations(asyncio.create_task(life()))
    await residue.check()
    for number in range(moments):
        doing = asyncio.create_task(life())
        await run_iterations(doing, whole * number // moments)
        doing.cancel()
        if number % 2:  # and again, while it closes
            await run_iterations(doing, number // 2)
            doing.cancel()
        await wait_ended(doing)
        await residue.check()
    residue.check_unheard()


def on_a_cluster(scenario: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(300), Cluster() as cluster:
            await write(cluster.bootstrap_servers, "t", 10)
            await scenario(cluster.bootstrap_servers)

    asyncio.run(bounded())


@pytest.mark.parametrize("life", LIVES, ids=lambda one: one.__name__)
def test_cancelled_run_leaves_nothing(life: Life) -> None:
    async def scenario(servers: str) -> None:
        await check_leaves_nothing(lambda: life(servers), MOMENTS)

    on_a_cluster(scenario)


CLIENTS: dict[str, Callable[[str], Any]] = {
    "producer": lambda servers: Producer(settings(servers)),
    "consumer": lambda servers: Consumer(settings(servers, fetch_max_wait_ms=1), **from_start()),
    "member": lambda servers: Consumer(
        settings(servers, fetch_max_wait_ms=1, group_id=f"g-{next(_groups)}"), "t", **from_start()
    ),
    "admin": lambda servers: Admin(settings(servers)),
}


async def make_busy(name: str, client: Any) -> None:
    if name == "producer":
        await client.send("t", b"v", partition=0)
        await client.partitions("t")
    elif name == "admin":
        await client.describe_topics("t")
    else:
        if name == "consumer":
            client.assign(("t", 0))
        assert await client.poll(20)


@pytest.mark.parametrize("client", CLIENTS)
def test_cancelled_close_leaves_nothing(client: str) -> None:
    async def scenario(servers: str) -> None:
        residue: Leaks | None = None
        for turn in range(1, 15):  # before its first iteration the task has not started
            ours = CLIENTS[client](servers)
            await ours.__aenter__()
            await make_busy(client, ours)
            closing = asyncio.create_task(ours.close())
            await run_iterations(closing, turn)
            closing.cancel()
            await run_iterations(closing, 1)
            closing.cancel()
            await wait_ended(closing)
            residue = residue or Leaks()
            await residue.check()
        assert residue is not None
        residue.check_unheard()

    on_a_cluster(scenario)


# Calls that wait for a broker that does not respond or is down.


class Ways:
    """The proxy between the clients of a test and the broker."""

    def __init__(self, servers: str, detour: Detour) -> None:
        self.servers = servers
        self.detour = detour

    def producer(self, **more: object) -> Producer:
        return Producer(settings(self.servers, **more), network=self.detour)

    def consumer(self, *topics: str, **more: object) -> Consumer[bytes, bytes]:
        named = settings(self.servers, fetch_max_wait_ms=1, **more, **from_start())
        return Consumer(named, *topics, network=self.detour)

    def admin(self) -> Admin:
        return Admin(settings(self.servers), network=self.detour)

    def member(self) -> Consumer[bytes, bytes]:
        return self.consumer("t", group_id=f"g-{next(_groups)}")

    def fail(self) -> None:
        """From now on drop all data, without closing connections."""
        self.detour.trouble.freeze()


async def bootstrap(ways: Ways) -> None:
    ways.fail()
    async with ways.producer() as ours:
        await ours.partitions("t")


async def send_without_room(ways: Ways) -> None:
    async with ways.producer(buffer_memory=400, batch_size=200) as ours:
        await (await ours.send("t", b"v", partition=0))
        ways.fail()
        while True:
            await ours.send("t", b"v" * 50, partition=0)


async def flush(ways: Ways) -> None:
    async with ways.producer() as ours:
        await (await ours.send("t", b"v", partition=0))
        ways.fail()
        await ours.send("t", b"v", partition=0)
        await ours.flush()


async def leave_a_producer(ways: Ways) -> None:
    async with ways.producer() as ours:
        await (await ours.send("t", b"v", partition=0))
        ways.fail()
        await ours.send("t", b"v", partition=0)


async def poll(ways: Ways) -> None:
    async with ways.consumer() as ours:
        ways.fail()
        ours.assign(("t", 0))
        await ours.poll(60)


async def iterate(ways: Ways) -> None:
    async with ways.consumer() as ours:
        ours.assign(("t", 0))
        async for record in ours:
            if record.offset == 9:
                ways.fail()


async def columns(ways: Ways) -> None:
    async with ways.consumer() as ours:
        ours.assign(("t", 0))
        async for _ in ours.arrow():
            ways.fail()


async def ask_for_ends(ways: Ways) -> None:
    async with ways.consumer() as ours:
        ways.fail()
        await ours.end_offsets(("t", 0))


async def commit(ways: Ways) -> None:
    async with ways.member() as ours:
        await ours.poll(60)
        ways.fail()
        await ours.commit()


async def commit_soon_and_leave(ways: Ways) -> None:
    async with ways.member() as ours:
        await ours.poll(60)
        ways.fail()
        ours.commit_soon()


async def join(ways: Ways) -> None:
    async with ways.consumer(group_id=f"g-{next(_groups)}") as ours:
        await ours.partitions("t")
        ways.fail()
        ours.subscribe("t")
        await ours.poll(60)


async def leave_a_group(ways: Ways) -> None:
    async with ways.member() as ours:
        await ours.poll(60)
        ways.fail()
        await ours.unsubscribe()


async def ask_as_admin(ways: Ways) -> None:
    async with ways.admin() as ours:
        await ours.describe_topics("t")
        ways.fail()
        await ours.list_groups()


PARKED: list[Callable[[Ways], Coroutine[Any, Any, None]]] = [
    *(bootstrap, send_without_room, flush, leave_a_producer),
    *(poll, iterate, columns, ask_for_ends, commit, commit_soon_and_leave, join, leave_a_group),
    ask_as_admin,
]


@pytest.mark.parametrize("refused", [False, True], ids=["silent", "gone"])
@pytest.mark.parametrize("parked", PARKED, ids=lambda one: one.__name__)
def test_cancelled_call_at_a_failed_broker_leaves_nothing(
    parked: Callable[[Ways], Coroutine[Any, Any, None]], refused: bool
) -> None:
    async def scenario(servers: str) -> None:
        residue = Leaks()
        async with Detour() as detour:
            ways = Ways(servers, detour)
            failed = asyncio.Event()

            def fail() -> None:
                if refused:
                    detour.trouble.is_refusing = True
                    detour.trouble.reset()
                else:
                    detour.trouble.freeze()
                failed.set()

            ways.fail = fail
            doing = asyncio.create_task(parked(ways))
            await failed.wait()
            await asyncio.sleep(0.05)  # so that the call waits; it may be anywhere
            assert not doing.done()
            doing.cancel()
            await asyncio.sleep(0.02)
            doing.cancel()  # its close waits for the broker, too
            await wait_ended(doing)
            assert doing.cancelled()
            left = [*client_tasks(), *client_timers()]
            assert not left, left
        await residue.check()
        residue.check_unheard()

    on_a_cluster(scenario)


# Closing while calls wait.


async def iterate_on(ours: Consumer[bytes, bytes]) -> None:
    async for _ in ours:
        pass


async def batches_on(ours: Consumer[bytes, bytes]) -> None:
    async for _ in ours.batches():
        pass


async def arrow_on(ours: Consumer[bytes, bytes]) -> None:
    async for _ in ours.arrow():
        pass


WAITING: dict[str, Callable[[Consumer[bytes, bytes]], Coroutine[Any, Any, object]]] = {
    "poll": lambda ours: ours.poll(60),
    "poll_arrow": lambda ours: ours.poll_arrow(60),
    "iterate": iterate_on,
    "batches": batches_on,
    "arrow": arrow_on,
    "position": lambda ours: ours.position(("other", 0)),
    "partitions": lambda ours: ours.partitions("other"),
    "end_offsets": lambda ours: ours.end_offsets(("other", 0)),
    "commit": lambda ours: ours.commit({("t", 0): 1}),
    "committed": lambda ours: ours.committed(("t", 0)),
}


@pytest.mark.parametrize("refused", [False, True], ids=["silent", "gone"])
@pytest.mark.parametrize("waiting", WAITING)
def test_close_fails_waiting_consumer_calls(waiting: str, refused: bool) -> None:
    async def scenario(servers: str) -> None:
        async with Detour() as detour:
            ours = Ways(servers, detour).consumer(group_id=f"g-{next(_groups)}")
            async with ours:
                ours.assign(("t", 0))
                ours.seek(("t", 0), 10)
                await ours.position(("t", 0))
                detour.trouble.freeze()
                if refused:
                    detour.trouble.is_refusing = True
                    detour.trouble.reset()
                if waiting == "position":
                    ours.assign(("other", 0))
                doing = asyncio.create_task(WAITING[waiting](ours))
                await asyncio.sleep(0.02)
                assert not doing.done()
                await ours.close()
                async with asyncio.timeout(5):
                    with pytest.raises(Disconnected):
                        await doing
            left = [*client_tasks(), *client_timers()]
            assert not left, left

    on_a_cluster(scenario)
