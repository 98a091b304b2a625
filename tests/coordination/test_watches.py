"""Conformance of watches and session states, for every implementation."""

import asyncio

import pytest

from coordination.backends import Backend, Runner, States, Watched
from ottla.coordination.errors import BadVersion, ConnectionLoss, NodeExists, NoNode, SessionExpired
from ottla.coordination.operations import Check, Create, Delete, Operation, SetData
from ottla.coordination.session import Change, SessionState, Stat, WatchEvent

CREATED, DATA, DELETED = Change.CREATED, Change.DATA, Change.DELETED
CHILDREN, DISCONNECTED = Change.CHILDREN, Change.DISCONNECTED


def test_b7_data_watch_fires_once(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        reader, writer = await backend.session(), await backend.session()
        await writer.create("/a", b"0")
        await reader.sync()
        watched = Watched()
        await reader.get("/a", watched)
        await writer.create("/a/child")
        await writer.set("/a", b"1")
        await writer.set("/a", b"2")
        await reader.sync()
        assert (await reader.get("/a")).data == b"2"
        await watched.until(WatchEvent(DATA, "/a"))

    run(scenario)


def test_deletion_fires_every_kind_of_watch(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        reader, writer = await backend.session(), await backend.session()
        await writer.create("/a")
        await reader.sync()
        data, existence, children, parent = Watched(), Watched(), Watched(), Watched()
        await reader.get("/a", data)
        await reader.exists("/a", existence)
        await reader.children("/a", children)
        await reader.children("/", parent)
        await writer.delete("/a")
        await reader.sync()
        assert await reader.exists("/a") is None
        for watched in (data, existence, children):
            await watched.until(WatchEvent(DELETED, "/a"))
        await parent.until(WatchEvent(CHILDREN, "/"))

    run(scenario)


def test_watch_on_missing_node_fires_on_creation(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        watched, refused = Watched(), Watched()
        assert await session.exists("/a", watched) is None
        for asked in (session.get("/a", refused), session.children("/a", refused)):
            with pytest.raises(NoNode):
                await asked
        await session.create("/a")
        await session.set("/a", b"1")
        assert watched.all == [WatchEvent(CREATED, "/a")]
        assert refused.all == []

    run(scenario)


def test_child_watch_fires_only_for_children(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a")
        await session.create("/a/b")
        watched = Watched()
        await session.children("/a", watched)
        await session.set("/a", b"x")
        await session.set("/a/b", b"x")
        await session.create("/a/b/deeper")
        assert watched.all == []
        await session.create("/a/c")
        await session.create("/a/d")
        assert watched.all == [WatchEvent(CHILDREN, "/a")]
        await session.children("/a", watched)
        await session.delete("/a/d")
        assert watched.all == [WatchEvent(CHILDREN, "/a")] * 2

    run(scenario)


def test_watch_fires_before_its_session_sees_the_change(run: Runner) -> None:
    """Neither a read nor the writer's own result is earlier than the watch event."""

    async def scenario(backend: Backend) -> None:
        reader, writer = await backend.session(), await backend.session()
        await writer.create("/a", b"0")
        await reader.sync()
        for number in range(1, 30):
            watched = Watched()
            seen = await reader.get("/a", watched)
            assert seen.stat.version == number - 1
            setting = asyncio.ensure_future(writer.set("/a", b"%d" % number))
            while seen.stat.version < number:
                assert len(watched.all) <= 1
                await asyncio.sleep(0)  # let the writer run
                seen = await reader.get("/a")
                assert bool(watched.all) >= (seen.stat.version == number)
            own = Watched()
            await setting
            await writer.get("/a", own)
            await writer.set("/a", b"%d" % number, number)
            assert own.all == [WatchEvent(DATA, "/a")]
            await writer.delete("/a")
            await writer.create("/a")
            for _ in range(number):
                await writer.set("/a", b"%d" % number)
            await reader.sync()

    run(scenario)


def test_watch_events_arrive_in_order_of_the_changes(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        reader, writer = await backend.session(), await backend.session()
        paths = [f"/n{number}" for number in range(20)]
        watched = Watched()
        for path in paths:
            await reader.exists(path, watched)
        await asyncio.gather(*(writer.create(path) for path in paths[::2]))
        await writer.multi([Create(path) for path in paths[1::2]])
        await watched.until(*(WatchEvent(CREATED, path) for path in paths[::2] + paths[1::2]))

    run(scenario)


def test_failed_multi_fires_no_watch(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a")
        watched = Watched()
        await session.get("/a", watched)
        await session.children("/", watched)
        with pytest.raises(NoNode):
            await session.multi([SetData("/a", b"x"), Create("/b"), Delete("/none")])
        assert watched.all == []
        await session.multi([SetData("/a", b"x"), Create("/b")])
        assert watched.all == [WatchEvent(DATA, "/a"), WatchEvent(CHILDREN, "/")]

    run(scenario)


def test_each_watch_fires_independently(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a")
        watched, other = Watched(), Watched()
        await session.get("/a", watched)
        await session.exists("/a", watched)
        await session.get("/a", other)
        await session.set("/a", b"x")
        assert watched.all == [WatchEvent(DATA, "/a")] * 2
        assert other.all == [WatchEvent(DATA, "/a")]

    run(scenario)


def test_failing_watch_does_not_affect_others(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        failures: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        session = await backend.session()
        await session.create("/a")
        broken, watched = ValueError("a watch of somebody"), Watched()

        def fails(event: WatchEvent) -> None:
            raise broken

        await session.get("/a", fails)
        await session.get("/a", watched)
        assert (await session.set("/a", b"x")).version == 1
        assert failures == [broken]
        assert watched.all == [WatchEvent(DATA, "/a")]

    run(scenario)


# Session states.


def test_b8_suspended_session_does_nothing_until_reconnected(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        states, watched = States(), Watched()
        session, other = await backend.session(states), await backend.session()
        await session.create("/a", ephemeral=True)
        await session.get("/a", watched)
        await session.children("/", watched)
        await backend.cut(session)
        await states.until(SessionState.SUSPENDED)
        assert session.state is SessionState.SUSPENDED
        await watched.until_count(2)  # in any order
        assert set(watched.all) == {WatchEvent(DISCONNECTED, path) for path in ("/a", "/")}
        for asked in (session.get("/a"), session.create("/b"), session.sync(), session.multi([])):
            with pytest.raises(ConnectionLoss):
                await asked
        await other.set("/a", b"x")
        waiting = asyncio.ensure_future(session.connected())
        await asyncio.sleep(0)
        assert not waiting.done()
        await backend.mend(session)
        await states.until(SessionState.SUSPENDED, SessionState.CONNECTED)
        await waiting
        await session.connected()
        assert session.state is SessionState.CONNECTED
        await session.sync()
        node = await session.get("/a")
        assert node.data == b"x"
        assert node.stat.ephemeral_owner == session.id
        assert await session.exists("/b") is None
        assert len(watched.all) == 2

    run(scenario)


def test_b8_expired_session_loses_its_ephemeral_nodes(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        states, told, watched = States(), Watched(), Watched()
        session, other = await backend.session(states), await backend.session()
        await session.create("/stays")
        await session.create("/e", ephemeral=True)
        await session.get("/stays", told)
        await other.sync()
        await other.get("/e", watched)
        await backend.expire(session)
        await watched.until(WatchEvent(DELETED, "/e"))
        assert await other.children("/") == ["stays"]
        await states.until_last(SessionState.LOST)
        assert session.state is SessionState.LOST
        assert told.all == [WatchEvent(DISCONNECTED, "/stays")]
        for asked in (session.get("/stays"), session.create("/b"), session.multi([])):
            with pytest.raises(SessionExpired):
                await asked
        await session.close()
        again = await backend.session()
        assert again.id != session.id
        await again.create("/e", ephemeral=True)

    run(scenario)


def test_b8_session_that_stays_disconnected_is_lost(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        states, watched = States(), Watched()
        session, other = await backend.session(states), await backend.session()
        await session.create("/e", ephemeral=True)
        await other.sync()
        await other.get("/e", watched)
        await backend.cut(session)
        await states.until(SessionState.SUSPENDED)
        waiting = asyncio.ensure_future(session.connected())
        await backend.let_expire(session)
        await states.until(SessionState.SUSPENDED, SessionState.LOST)
        await watched.until(WatchEvent(DELETED, "/e"))
        with pytest.raises(SessionExpired):
            await waiting
        with pytest.raises(SessionExpired):
            await session.get("/e")
        await backend.mend(session)
        with pytest.raises(SessionExpired):
            await session.get("/e")
        await session.close()
        again = await backend.session()
        assert again.id != session.id
        assert states.all == [SessionState.SUSPENDED, SessionState.LOST]

    run(scenario)


def test_closed_session_gets_no_events_and_does_nothing(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        states, watched = States(), Watched()
        session, other = await backend.session(states), await backend.session()
        await session.create("/a")
        await session.create("/e", ephemeral=True)
        await session.get("/a", watched)
        await session.children("/", watched)
        await session.close()
        await session.close()
        assert session.state is SessionState.LOST
        with pytest.raises(SessionExpired):
            await session.get("/a")
        await other.set("/a", b"x")
        assert states.all == []
        assert watched.all == []

    run(scenario)


# The recipes that brokers use.


def test_b1_broker_epoch_comes_from_the_registration(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        first, second = await backend.session(), await backend.session()
        await first.create("/ids")
        registration = [Create("/ids/1", ephemeral=True), SetData("/ids/1", b"{}")]
        epochs: list[int] = []
        for session in (first, second):
            _, stat = await session.multi(registration)
            assert isinstance(stat, Stat)
            assert stat == (await session.get("/ids/1")).stat
            assert stat.ephemeral_owner == session.id
            epochs.append(stat.czxid)
            await session.close()
        assert epochs[0] < epochs[1]

    run(scenario)


def test_b2_one_controller_and_b3_zombie_writes_nothing(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        first, second = await backend.session(), await backend.session()
        await first.create("/epoch", b"0")
        await first.create("/state", b"old")

        def election(version: int) -> list[Operation]:
            return [Create("/controller", ephemeral=True), SetData("/epoch", b"", version)]

        await first.multi(election(0))
        with pytest.raises(NodeExists) as exists:
            await second.multi(election(0))
        assert exists.value.index == 0
        await first.delete("/controller")  # as if the session had expired
        await second.sync()
        with pytest.raises(BadVersion) as stale:
            await second.multi(election(0))
        assert stale.value.index == 1
        await second.multi(election(1))
        await first.sync()
        with pytest.raises(BadVersion) as zombie:
            await first.multi([Check("/epoch", 1), SetData("/state", b"zombie", 0)])
        assert zombie.value.index == 0
        await second.multi([Check("/epoch", 2), SetData("/state", b"new", 0)])
        with pytest.raises(BadVersion) as reread:
            await second.multi([Check("/epoch", 2), SetData("/state", b"newer", 0)])
        assert reread.value.index == 1
        assert (await second.get("/state")).data == b"new"

    run(scenario)
