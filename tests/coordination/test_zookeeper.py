"""Real ensembles: lost responses, restarted servers, threads."""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kazoo.client import KazooClient

from controller.lossy_session import LossySession
from coordination.backends import States, Watched, ignore
from coordination.proxy import Proxy
from coordination.zookeeper_backend import ZooKeeperBackend
from judges.java import ZOOKEEPER_POM, class_path
from kafka_java import judge_needed
from ottla.cluster.image import Address, Broker, PartitionChange, PartitionState
from ottla.cluster.registration import NO_BROKER_EPOCH, Registration
from ottla.cluster.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    PERSISTENT_PATHS,
    TopicNode,
    broker_path,
    state_path,
    topic_path,
)
from ottla.controller.lease import elect_controller, ensure, read_controller, register
from ottla.controller.loading import read_registrations
from ottla.controller.partition_changes import Stored
from ottla.controller.store import ClusterStore
from ottla.coordination import ensemble
from ottla.coordination.ensemble import LocalServer, pyspark_class_path
from ottla.coordination.errors import ConnectionLoss, EnsembleFailed, InvalidPath
from ottla.coordination.operations import Check, Create, SetData
from ottla.coordination.session import Change, SessionState, WatchEvent
from ottla.coordination.zookeeper import ZooKeeper
from ottla.ids import BrokerId, Uuid
from resolver import NAME, Resolver

T = TypeVar("T")

Program = Callable[[ZooKeeperBackend], Coroutine[Any, Any, None]]


def in_place(port: int, root: str, program: Program) -> None:
    async def main() -> None:
        backend = ZooKeeperBackend(port, root)
        try:
            async with asyncio.timeout(60):
                await program(backend)
        finally:
            await backend.close()

    asyncio.run(main())
    assert threads_of_kazoo() == []


def threads_of_kazoo() -> list[str]:
    return [one.name for one in threading.enumerate() if "zk_loop" in one.name]


def test_b6_lost_response_is_a_connection_loss_of_a_done_change(zookeeper_port: int) -> None:
    async def program(backend: ZooKeeperBackend) -> None:
        states = States()
        session, other = await backend.session(states), await backend.session()
        assert len(threads_of_kazoo()) == 2
        await session.create("/epoch", b"1")
        seen = Watched()
        await other.sync()
        await other.exists("/controller", seen)
        link = backend.link(session)
        link.swallow()
        asked = asyncio.ensure_future(
            session.multi([Create("/controller", ephemeral=True), SetData("/epoch", b"2", 0)])
        )
        waiting = asyncio.ensure_future(session.get("/epoch"))
        await seen.until(WatchEvent(Change.CREATED, "/controller"))
        link.cut()
        for one in (asked, waiting):
            with pytest.raises(ConnectionLoss):
                await one
        link.mend()
        await states.until(SessionState.SUSPENDED, SessionState.CONNECTED)
        await session.sync()
        node = await session.get("/controller")
        assert node.stat.ephemeral_owner == session.id
        await session.multi([Check("/epoch", 1)])

    in_place(zookeeper_port, "/b6", program)


def test_b6_controller_finds_out_about_lost_responses(zookeeper_port: int) -> None:
    """Registration, election, and a change: each is made once (rules B1, B2 and B6)."""

    async def program(backend: ZooKeeperBackend) -> None:
        inner, other = await backend.session(), await backend.session()
        session, link = LossySession(inner), backend.link(inner)
        await ensure(session, PERSISTENT_PATHS)
        await ensure(session, (CONTROLLER_EPOCH,))
        await other.sync()

        async def swallow() -> None:
            link.swallow()

        async def lost(call: Coroutine[Any, Any, T], path: str) -> T:
            seen = Watched()
            await other.exists(path, seen)
            session.before_write = swallow
            asked = asyncio.ensure_future(call)
            await seen.until_count(1)
            link.cut()
            link.mend()
            return await asked

        me = Broker(BrokerId(1), NO_BROKER_EPOCH, {"PLAINTEXT": Address("h", 1)})
        registration = Registration(me, Uuid(b"1" * 16), {})
        epoch = await lost(register(session, registration), broker_path(me.id))
        assert (await read_registrations(other))[me.id].epoch == epoch
        lease = await lost(elect_controller(session, me.id, 0), CONTROLLER)
        assert lease is not None
        assert await read_controller(other) == (1, lease.epoch) == (1, 1)
        store = ClusterStore(lease)
        node = TopicNode(Uuid(b"t" * 16), ((me.id,),))
        await lost(store.create_topic("t", node, {}), topic_path("t"))
        new = PartitionState((me.id,))
        change = PartitionChange("t", 0, new, new.led_by(me.id, (me.id,)))
        stored = await lost(store.store_changes([change]), state_path("t", 0))
        assert stored == [Stored(change, change.after)]
        cluster = await ClusterStore(lease).load_cluster()
        assert cluster.topics[0].topic.partitions == (change.after,)

    in_place(zookeeper_port, "/lost", program)


def test_session_reconnected_in_time_outlives_its_timeout(
    zookeeper_port: int,
) -> None:
    async def program(backend: ZooKeeperBackend) -> None:
        states, timeout_ms = States(), 3000
        session = await backend.session(states, timeout_ms)
        await backend.cut(session)
        await states.until(SessionState.SUSPENDED)
        lost_at_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        await backend.mend(session)
        await states.until(SessionState.SUSPENDED, SessionState.CONNECTED)
        while asyncio.get_running_loop().time() < lost_at_s:
            await session.get("/")
        await session.create("/e", ephemeral=True)
        assert states.all == [SessionState.SUSPENDED, SessionState.CONNECTED]

    in_place(zookeeper_port, "/outlives", program)


def test_host_name_is_resolved_at_each_reconnect(
    zookeeper_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server has moved to another address; the event loop does not wait for the resolver."""
    resolver = Resolver(monkeypatch)

    async def resolve(link: Proxy) -> None:
        resolver.port = link.port
        while not resolver.is_asked.is_set():
            await asyncio.sleep(0)
        resolver.let_resolve()

    async def program() -> None:
        states, old, new = States(), Proxy(zookeeper_port), Proxy(zookeeper_port)
        await old.start()
        await new.start()
        zookeeper = ZooKeeper(f"{NAME}:2181/named", session_timeout_ms=60_000)
        connecting = asyncio.ensure_future(zookeeper.connect(states))
        await resolve(old)
        session = await connecting
        old.cut()
        await states.until(SessionState.SUSPENDED)
        await resolve(new)
        await states.until(SessionState.SUSPENDED, SessionState.CONNECTED)
        assert (old.connections, new.connections) == (1, 1)
        await session.close()
        await old.close()
        await new.close()

    asyncio.run(asyncio.wait_for(program(), 120))


def test_cancelled_call_leaves_the_session_usable(zookeeper_port: int) -> None:
    async def program(backend: ZooKeeperBackend) -> None:
        session = await backend.session()
        await session.create("/a", b"x")
        link = backend.link(session)
        link.swallow()
        asked = asyncio.ensure_future(session.get("/a"))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait((asked,))
        link.mend()
        assert (await session.set("/a", b"y")).version == 1
        assert (await session.get("/a")).data == b"y"
        assert link.connections == 1

    in_place(zookeeper_port, "/cancelled", program)


def test_root_path_is_created_and_hidden(zookeeper_port: int) -> None:
    async def program() -> None:
        inner = await ZooKeeper(f"127.0.0.1:{zookeeper_port}/deep/er/still/").connect(ignore)
        await inner.create("/a")
        assert await inner.multi([Create("/a/b-", sequence=True)]) == ["/a/b-0000000000"]
        outer = await ZooKeeper(f"127.0.0.1:{zookeeper_port}").connect(ignore)
        await outer.sync()
        assert await outer.children("/deep/er/still/a") == ["b-0000000000"]
        assert "deep" in await outer.children("/")
        again = await ZooKeeper(f"127.0.0.1:{zookeeper_port}/deep/er/still").connect(ignore)
        watched = Watched()
        await again.exists("/a/c", watched)
        assert await again.create("/a/c") == "/a/c"
        assert watched.all == [WatchEvent(Change.CREATED, "/a/c")]
        await asyncio.gather(inner.close(), outer.close(), again.close())

    asyncio.run(program())
    with pytest.raises(InvalidPath):
        ZooKeeper("localhost:2181/a//b")


def test_unreachable_ensemble_fails_after_the_timeout() -> None:
    async def program() -> None:
        deaf = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port: int = deaf.sockets[0].getsockname()[1]
        deaf.close()
        await deaf.wait_closed()
        zookeeper = ZooKeeper(f"127.0.0.1:{port}", connection_timeout_ms=200)
        with pytest.raises(EnsembleFailed, match=r"correct zookeeper\.connect"):
            await zookeeper.connect(ignore)

    asyncio.run(program())
    assert threads_of_kazoo() == []


def test_b10_restarted_server_keeps_sessions_and_nodes(
    tmp_path: Path,
) -> None:
    with judge_needed():
        jars = class_path(ZOOKEEPER_POM)
    patience_ms = 200_000  # a busy machine starts a server slowly; 20 ticks are the maximum
    tick_ms = patience_ms // 20
    with LocalServer(tmp_path, jars, tick_ms=tick_ms) as server:

        async def program() -> None:
            states = States()
            # A client that connects during the start of a server may wait for minutes.
            link = Proxy(server.port)
            await link.start()
            where = f"127.0.0.1:{link.port}/b10"
            zookeeper = ZooKeeper(where, session_timeout_ms=patience_ms)
            session = await zookeeper.connect(states)
            await session.create("/a", b"x")
            await session.create("/e", ephemeral=True)
            before = await session.get("/a")
            server.kill()
            link.cut()
            await states.until(SessionState.SUSPENDED)
            restarted = LocalServer(tmp_path, jars, port=server.port, tick_ms=tick_ms)
            await asyncio.to_thread(restarted.start)
            link.mend()
            try:
                await states.until(SessionState.SUSPENDED, SessionState.CONNECTED)
                assert await session.get("/a") == before
                assert (await session.get("/e")).stat.ephemeral_owner == session.id
            finally:
                await session.close()  # otherwise its thread continues to look for the server
                await link.close()
                await asyncio.to_thread(restarted.stop)
            assert not restarted.running

        asyncio.run(program())
    assert not server.running


def test_b8_session_of_a_stuck_event_loop_expires(zookeeper_port: int) -> None:
    gone = threading.Event()

    def watch(event: object) -> None:
        gone.set()

    observer: Any = KazooClient(f"127.0.0.1:{zookeeper_port}")
    observer.start()

    async def program() -> None:
        states = States()
        root = f"127.0.0.1:{zookeeper_port}/stuck"
        session = await ZooKeeper(root, session_timeout_ms=1500).connect(states)
        await session.create("/broker", ephemeral=True)
        assert await asyncio.to_thread(observer.exists, "/stuck/broker", watch)
        assert gone.wait(60), "kazoo's thread keeps the session alive"  # the event loop is stuck
        await states.until(SessionState.SUSPENDED, SessionState.LOST)
        await session.close()

    try:
        asyncio.run(program())
    finally:
        observer.stop()
        observer.close()


# The server.


def test_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    with judge_needed():
        class_path(ZOOKEEPER_POM)
    server = LocalServer(tmp_path, str(tmp_path / "nothing"))
    with pytest.raises(EnsembleFailed, match="ZooKeeperServerMain"):
        server.start()
    assert not server.running


def test_missing_java_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnsembleFailed, match="install Java 17"):
        LocalServer(tmp_path / "folder", "x").start()
    assert not (tmp_path / "folder").exists()


def test_zookeeper_jars_come_from_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        return None

    monkeypatch.setattr(ensemble.importlib.util, "find_spec", found)
    with pytest.raises(EnsembleFailed, match=r"pip install \"\.\[spark\]\""):
        pyspark_class_path()
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)  # other tests may have imported it
    package = tmp_path / "pyspark"
    (package / "jars").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(EnsembleFailed, match="there is no ZooKeeper in"):
        pyspark_class_path()
    (package / "jars" / "zookeeper-3.9.5.jar").touch()
    assert pyspark_class_path() == f"{package}/jars/*"
