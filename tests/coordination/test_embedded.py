"""The embedded store beyond the conformance tests: its file, order and time."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from coordination.backends import States, Watched
from coordination.store_model import PATH, StoppedClock, ignore
from ottla.clock import SystemClock
from ottla.coordination.embedded import EmbeddedSession, EmbeddedStore
from ottla.coordination.errors import ConnectionLoss, NoNode, SessionExpired, StoreRefused
from ottla.coordination.operations import Create, Delete, SetData
from ottla.coordination.session import Change, SessionState, WatchEvent
from ottla.coordination.tree import Tree, events
from ottla.errors import StorageFailure
from ottla.log.files import OsDisk
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import Loss, SimulatedDisk, finish

T = TypeVar("T")


class SlowDisk(SimulatedDisk):
    """A disk whose blocking calls wait until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = asyncio.Event()
        self.idle.set()
        self.begun = asyncio.Event()

    async def blocking(self, call: Callable[[], T]) -> T:
        self.begun.set()
        try:
            await self.idle.wait()
        except asyncio.CancelledError:
            call()  # like the real disk: a begun call finishes before a cancellation is raised
            raise
        return call()

    async def work(self) -> None:
        """Return when a blocking call waits."""
        self.begun.clear()
        await self.begun.wait()

    def syncs(self) -> int:
        return self.calls.count(("sync", PATH))


def opened(disk: SimulatedDisk) -> EmbeddedStore:
    return EmbeddedStore.open(disk, PATH, StoppedClock())


def with_slow_disk(
    program: Callable[[SlowDisk, EmbeddedStore], Coroutine[Any, Any, None]],
) -> None:
    async def main() -> None:
        disk = SlowDisk()
        async with asyncio.timeout(20):
            await program(disk, opened(disk))

    asyncio.run(main())


def test_restart_deletes_ephemeral_nodes_and_continues_zxids() -> None:
    disk = SimulatedDisk()
    session = finish(opened(disk).connect(ignore))
    finish(session.create("/a"))
    finish(session.create("/a/e", b"x", ephemeral=True))
    epoch = finish(session.get("/a/e")).stat.czxid
    store = opened(disk.after_crash(Loss.ALL, Random(0)))
    again = finish(store.connect(ignore))
    assert again.id > epoch
    assert finish(again.children("/a")) == []
    finish(again.create("/a/e", ephemeral=True))
    assert finish(again.get("/a/e")).stat.czxid > epoch


def test_second_process_is_refused_until_the_first_closes() -> None:
    disk = SimulatedDisk()
    first = opened(disk)
    with pytest.raises(StoreRefused, match="in use by another process"):
        opened(disk)
    finish(first.close())
    finish(first.close())
    finish(opened(disk).close())


def test_store_that_fails_to_open_releases_the_lock() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.fails = lambda what, path: True
    with pytest.raises(StorageFailure):
        opened(disk)
    disk.fails = lambda what, path: False
    opened(disk)


def test_store_works_on_a_real_disk(tmp_path: Path) -> None:
    async def program() -> None:
        disk = OsDisk()
        path = str(tmp_path / "folder" / "coordination")
        for number in range(3):
            store = EmbeddedStore.open(disk, path, SystemClock())
            assert store.repair is None
            with pytest.raises(StoreRefused):
                EmbeddedStore.open(disk, path, SystemClock())
            sessions = [await store.connect(ignore) for _ in range(4)]
            await asyncio.gather(
                *(one.create("/n-", b"x", sequence=True) for one in sessions for _ in range(25))
            )
            await sessions[0].create("/e", ephemeral=True)
            assert len(await sessions[1].children("/")) == 100 * (number + 1) + 1
            await store.close()
        disk.close()

    asyncio.run(program())


# Order and durability.


def test_change_is_invisible_until_it_is_on_the_device() -> None:
    async def program(disk: SlowDisk, store: EmbeddedStore) -> None:
        writer, reader = await store.connect(ignore), await store.connect(ignore)
        await writer.create("/a", b"old")
        watched = Watched()
        await reader.get("/a", watched)
        disk.idle.clear()
        async with asyncio.TaskGroup() as tasks:
            setting = tasks.create_task(writer.set("/a", b"new"))
            await disk.work()
            reading = tasks.create_task(reader.get("/a"))
            looking = tasks.create_task(reader.exists("/a"))
            done, _ = await asyncio.wait((setting, reading, looking), timeout=0.01)
            assert not done
            assert watched.all == []
            disk.idle.set()
        assert reading.result().data == b"new"
        assert watched.all == [WatchEvent(Change.DATA, "/a")]

    with_slow_disk(program)


def test_requests_during_a_sync_share_the_next_sync() -> None:
    async def program(disk: SlowDisk, store: EmbeddedStore) -> None:
        sessions = [await store.connect(ignore) for _ in range(20)]
        before = disk.syncs()
        disk.idle.clear()
        async with asyncio.TaskGroup() as tasks:
            for session in sessions:
                tasks.create_task(session.create("/n-", sequence=True))
            await disk.work()
            disk.idle.set()
        assert disk.syncs() - before == 2
        assert len(await sessions[0].children("/")) == 20

    with_slow_disk(program)


def test_watch_set_after_change_in_same_group_does_not_fire() -> None:
    async def program(disk: SlowDisk, store: EmbeddedStore) -> None:
        session = await store.connect(ignore)
        await session.create("/a")
        watched = Watched()
        disk.idle.clear()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.create("/first"))
            await disk.work()
            tasks.create_task(session.set("/a", b"1"))
            reading = tasks.create_task(session.get("/a", watched))
            tasks.create_task(session.create("/last"))
            await asyncio.sleep(0)
            disk.idle.set()
        assert reading.result().data == b"1"
        assert watched.all == []
        await session.set("/a", b"2")
        assert watched.all == [WatchEvent(Change.DATA, "/a")]

    with_slow_disk(program)


def test_request_cancelled_before_its_turn_has_no_effect() -> None:
    async def program(disk: SlowDisk, store: EmbeddedStore) -> None:
        session = await store.connect(ignore)
        disk.idle.clear()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.create("/first"))
            await disk.work()
            waiting = tasks.create_task(session.create("/cancelled"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait((waiting,))
            assert waiting.cancelled()
            disk.idle.set()
        assert await session.children("/") == ["first"]

    with_slow_disk(program)


def test_request_cancelled_during_the_sync_takes_effect() -> None:
    async def program(disk: SlowDisk, store: EmbeddedStore) -> None:
        session = await store.connect(ignore)
        watched = Watched()
        await session.children("/", watched)
        disk.idle.clear()
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(session.create("/first"))
            await disk.work()
            second = tasks.create_task(session.create("/second"))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
            disk.idle.set()
        assert first.cancelled()
        assert second.result() == "/second"
        assert await session.children("/") == ["first", "second"]
        assert len(watched.all) == 1

    with_slow_disk(program)


def test_session_that_expires_before_its_turn_changes_nothing() -> None:
    async def program(disk: SlowDisk, store: EmbeddedStore) -> None:
        zombie, other = await store.connect(ignore), await store.connect(ignore)
        disk.idle.clear()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(other.create("/first"))
            await disk.work()
            expiring = tasks.create_task(store.expire(zombie.id))
            await asyncio.sleep(0)
            making = asyncio.ensure_future(zombie.create("/controller", ephemeral=True))
            await asyncio.sleep(0)
            disk.idle.set()
            await expiring
            with pytest.raises(SessionExpired):
                await making
        assert await other.children("/") == ["first"]

    with_slow_disk(program)


def test_b6_connection_loss_leaves_a_change_in_doubt() -> None:
    async def program(disk: SlowDisk, store: EmbeddedStore) -> None:
        session = await store.connect(ignore)
        disk.idle.clear()
        asked = [
            asyncio.ensure_future(session.create("/a")),
            asyncio.ensure_future(session.delete("/none")),
        ]
        await disk.work()
        store.suspend(session.id)
        disk.idle.set()
        for one in asked:
            with pytest.raises(ConnectionLoss):
                await one
        store.resume(session.id)
        assert await session.exists("/a") is not None

    with_slow_disk(program)


# Failure.


def test_disk_failure_ends_all_sessions() -> None:
    async def program() -> None:
        disk = SimulatedDisk()
        store = opened(disk)
        states, watched = States(), Watched()
        session, other = await store.connect(ignore), await store.connect(states)
        await session.create("/a", b"old")
        await other.children("/", watched)
        disk.fails = lambda what, path: what == "sync"
        with pytest.raises(StorageFailure):
            await session.set("/a", b"new")
        disk.fails = lambda what, path: False
        assert store.failure is not None
        assert states.all == [SessionState.LOST]
        assert watched.all == [WatchEvent(Change.DISCONNECTED, "/")]
        for asked in (session.get("/a"), other.create("/b"), store.connect(ignore)):
            with pytest.raises(StorageFailure, match="coordination store has failed"):
                await asked
        await store.close()
        again = await opened(disk.after_crash(Loss.ALL, Random(0))).connect(ignore)
        assert (await again.get("/a")).data == b"old"

    asyncio.run(program())


def test_closed_store_refuses_requests() -> None:
    store = opened(SimulatedDisk())
    session = finish(store.connect(ignore))
    finish(store.close())
    with pytest.raises(SessionExpired):
        finish(session.get("/"))
    with pytest.raises(StorageFailure, match="closed"):
        finish(store.connect(ignore))


# Time.


def test_suspended_session_expires_exactly_at_its_timeout() -> None:
    async def program(clock: SimulatedClock) -> None:
        store = EmbeddedStore.open(SimulatedDisk(), PATH, clock, session_timeout_ms=6000)
        owner, other = await store.connect(ignore), await store.connect(ignore)
        await owner.create("/e", ephemeral=True)
        ended_at: list[float] = []

        def tell(event: WatchEvent) -> None:
            assert event.change is Change.DELETED
            ended_at.append(clock.elapsed_s())

        await other.get("/e", tell)
        keeping = asyncio.ensure_future(store.keep_time())
        await clock.sleep(100)
        store.suspend(owner.id)
        await clock.sleep(5.9)
        store.resume(owner.id)
        await clock.sleep(1)
        store.suspend(owner.id)
        clock.jump_ms = 3_600_000  # a change of the wall clock does not affect sessions
        await clock.sleep(5.9)
        assert ended_at == []
        await clock.sleep(1)
        assert ended_at == [pytest.approx(112.9)]
        assert owner.state is SessionState.LOST
        store.resume(owner.id)
        assert owner.state is SessionState.LOST
        keeping.cancel()
        await asyncio.wait((keeping,))

    simulated(program)


def test_each_suspended_session_expires_at_its_own_time() -> None:
    async def program(clock: SimulatedClock) -> None:
        store = EmbeddedStore.open(SimulatedDisk(), PATH, clock, session_timeout_ms=6000)
        first, second = await store.connect(ignore), await store.connect(ignore)
        keeping = asyncio.ensure_future(store.keep_time())
        store.suspend(first.id)
        await clock.sleep(3)
        store.suspend(second.id)
        await clock.sleep(4)
        assert (first.state, second.state) == (SessionState.LOST, SessionState.SUSPENDED)
        await clock.sleep(3)
        assert second.state is SessionState.LOST
        keeping.cancel()
        await asyncio.wait((keeping,))

    simulated(program)


def test_checks_and_failures_do_not_write_to_disk() -> None:
    disk = SimulatedDisk()
    session: EmbeddedSession = finish(opened(disk).connect(ignore))
    before = len(disk.calls)
    finish(session.multi([]))
    with pytest.raises(NoNode):
        finish(session.multi([Create("/a"), Delete("/none")]))
    finish(session.close())
    assert len(disk.calls) == before


def test_changes_have_events_only_at_watched_paths() -> None:
    tree = Tree()
    _, transaction = tree.commit(
        [Create("/a"), Create("/a/b"), SetData("/a", b"x"), Delete("/a/b")], session_id=1
    )
    assert [*events(transaction, ())] == []
    assert [*events(transaction, ("/a",))] == [
        WatchEvent(Change.CREATED, "/a"),
        WatchEvent(Change.CHILDREN, "/a"),
        WatchEvent(Change.DATA, "/a"),
        WatchEvent(Change.CHILDREN, "/a"),
    ]
