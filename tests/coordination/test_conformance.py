"""Conformance of nodes and transactions with ZooKeeper's semantics, for every implementation."""

import asyncio

import pytest

from coordination.backends import Backend, Runner
from ottla.coordination.errors import (
    BadVersion,
    InvalidPath,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    TooLarge,
)
from ottla.coordination.operations import (
    REQUEST_BYTES_MAX,
    Check,
    Create,
    Delete,
    Operation,
    SetData,
)
from ottla.coordination.session import Node, Stat


def test_node_is_created_read_set_and_deleted(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        assert await session.create("/a", b"one") == "/a"
        data, made = await session.get("/a")
        assert data == b"one"
        assert made == Stat(0, made.czxid, made.czxid, 0, 0)
        stat = await session.set("/a", b"two")
        assert stat == made._replace(version=1, mzxid=stat.mzxid)
        assert stat.mzxid > made.czxid > 0
        assert await session.get("/a") == Node(b"two", stat)
        assert await session.exists("/a") == stat
        await session.delete("/a")
        assert await session.exists("/a") is None
        with pytest.raises(NoNode, match="/a: the node or its parent does not exist"):
            await session.get("/a")

    run(scenario)


def test_many_nodes_are_read_at_once(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a")
        paths = [f"/a/{number}" for number in range(250)]
        await session.multi([Create(path, path.encode()) for path in paths[:-1]])
        *found, missing = await session.get_all(paths)
        assert [None if one is None else one.data.decode() for one in found] == paths[:-1]
        assert found[7] == await session.get(paths[7])
        assert missing is None
        assert await session.get_all([]) == []
        with pytest.raises(InvalidPath):
            await session.get_all(["a"])

    run(scenario)


def test_missing_node_raises_no_node(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        for asked in (
            session.get("/a"),
            session.set("/a", b""),
            session.delete("/a"),
            session.children("/a"),
            session.create("/a/b"),
            session.create("/a/b-", sequence=True),
            session.multi([Check("/a")]),
        ):
            with pytest.raises(NoNode):
                await asked

    run(scenario)


def test_creating_an_existing_node_fails(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a", b"first")
        for path in ("/a", "/"):
            with pytest.raises(NodeExists) as raised:
                await session.create(path, b"second")
            assert raised.value.path == path
        assert (await session.get("/a")).data == b"first"

    run(scenario)


def test_root_has_data_and_cannot_be_deleted(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        assert (await session.get("/")).data == b""
        await session.set("/", b"root", 0)
        assert (await session.get("/")).data == b"root"
        with pytest.raises(InvalidPath):
            await session.delete("/")

    run(scenario)


def test_children_are_listed_and_counted(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a")
        for path in ("/a/c", "/a/b", "/a/b/deep", "/a/Ä"):
            await session.create(path)
        assert await session.children("/a") == ["b", "c", "Ä"]
        assert await session.children("/a/c") == []
        assert await session.children("/") == ["a"]
        stat = (await session.get("/a")).stat
        assert stat.children_count == 3
        assert stat.version == 0
        with pytest.raises(NotEmpty):
            await session.delete("/a")
        await session.delete("/a/c")
        assert await session.children("/a") == ["b", "Ä"]

    run(scenario)


def test_wrong_version_changes_nothing(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a", b"0")
        await session.set("/a", b"1", 0)
        for asked in (
            session.set("/a", b"2", 0),
            session.set("/a", b"2", 2),
            session.delete("/a", 0),
            session.multi([Check("/a", 0)]),
        ):
            with pytest.raises(BadVersion):
                await asked
        assert (await session.get("/a")).data == b"1"
        await session.multi([Check("/a", 1), Check("/a")])
        await session.delete("/a", 1)

    run(scenario)


def test_wrong_version_takes_precedence_over_children(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a")
        await session.create("/a/b")
        with pytest.raises(BadVersion):
            await session.delete("/a", 7)

    run(scenario)


def test_b7_recreated_node_has_higher_czxid_and_version_0(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a")
        await session.set("/a", b"x")
        first = (await session.get("/a")).stat
        await session.delete("/a")
        await session.create("/a")
        second = (await session.get("/a")).stat
        assert second.version == 0
        assert second.czxid > first.mzxid

    run(scenario)


def test_sequence_counts_all_children_ever_created(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/q")
        assert await session.create("/q/n-", b"x", sequence=True) == "/q/n-0000000000"
        await session.create("/q/other")
        await session.delete("/q/n-0000000000")
        assert await session.create("/q/n-", sequence=True) == "/q/n-0000000002"
        assert await session.create("/q/m", sequence=True, ephemeral=True) == "/q/m0000000003"
        made = await session.multi([Create("/q/m-", sequence=True)] * 2)
        assert made == ["/q/m-0000000004", "/q/m-0000000005"]
        for path in ("/q/", "/"):  # a name cannot consist of the counter only
            with pytest.raises(InvalidPath):
                await session.create(path, sequence=True)

    run(scenario)


def test_ephemeral_node_has_an_owner_and_no_children(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/e", b"x", ephemeral=True)
        assert (await session.get("/e")).stat.ephemeral_owner == session.id
        with pytest.raises(NoChildrenForEphemerals):
            await session.create("/e/child")
        with pytest.raises(NoChildrenForEphemerals):
            await session.multi([Create("/f", ephemeral=True), Create("/f/child")])
        assert await session.exists("/f") is None

    run(scenario)


def test_closing_a_session_deletes_its_ephemeral_nodes(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        owner, other = await backend.session(), await backend.session()
        assert owner.id != other.id
        await owner.create("/stays")
        await owner.create("/stays/e", ephemeral=True)
        await owner.create("/f", ephemeral=True)
        await other.create("/g", ephemeral=True)
        await owner.close()
        await other.sync()
        assert await other.children("/") == ["g", "stays"]
        assert await other.children("/stays") == []

    run(scenario)


def test_session_sees_acknowledged_writes_of_another(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        writer, reader = await backend.session(), await backend.session()
        await writer.create("/a", b"x")
        await reader.sync()
        assert (await reader.get("/a")).data == b"x"
        await reader.set("/a", b"y", 0)
        await writer.sync()
        assert (await writer.get("/a")).data == b"y"

    run(scenario)


# Multi.


def test_multi_is_one_transaction(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/old")
        results = await session.multi(
            [
                Create("/a", b"1"),
                Create("/a/b", b"2", ephemeral=True),
                SetData("/a", b"3", 0),
                Check("/a", 1),
                Delete("/old", 0),
            ]
        )
        data, stat = await session.get("/a")
        assert results == ["/a", "/a/b", stat._replace(), None, None]
        assert data == b"3"
        below = (await session.get("/a/b")).stat
        assert stat.czxid == stat.mzxid == below.czxid
        assert below.ephemeral_owner == session.id
        assert await session.exists("/old") is None

    run(scenario)


FAILING: list[tuple[Operation, type[Exception]]] = [
    (Create("/a"), NodeExists),
    (Create("/none/a"), NoNode),
    (Create("/e/child"), NoChildrenForEphemerals),
    (SetData("/a", b"", 9), BadVersion),
    (SetData("/none", b""), NoNode),
    (Delete("/p"), NotEmpty),
    (Delete("/a", 9), BadVersion),
    (Delete("/none"), NoNode),
    (Check("/a", 9), BadVersion),
    (Check("/none"), NoNode),
]


def test_failed_multi_changes_nothing_and_names_the_operation(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        for path in ("/a", "/p", "/p/child", "/goes"):
            await session.create(path, b"before")
        await session.create("/e", ephemeral=True)
        before = {path: await session.get(path) for path in ("/", "/a", "/p", "/p/child", "/goes")}
        good: list[Operation] = [
            SetData("/a", b"after"),
            Create("/p/new"),
            Create("/p/new/below"),
            SetData("/a", b"later"),
            Delete("/goes"),
            SetData("/p", b"after", 0),
            Create("/p/s-", sequence=True),
        ]
        for index in (0, 2, len(good)):
            for operation, error in FAILING:
                with pytest.raises(error) as raised:
                    await session.multi([*good[:index], operation, *good[index:]])
                assert isinstance(raised.value, NodeExists | NoNode | BadVersion | NotEmpty
                                  | NoChildrenForEphemerals)  # fmt: skip
                assert (raised.value.index, raised.value.path) == (index, operation.path)
        assert {path: await session.get(path) for path in before} == before
        assert await session.create("/p/s-", sequence=True) == "/p/s-0000000001"

    run(scenario)


def test_empty_multi_does_nothing(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        assert await session.multi([]) == []

    run(scenario)


def test_concurrent_operations_run_in_call_order(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        await session.create("/a", b"-")
        asked: list[object] = await asyncio.gather(
            session.get("/a"),
            session.set("/a", b"0"),
            session.get("/a"),
            session.set("/a", b"1"),
            session.multi([SetData("/a", b"2"), SetData("/a", b"3")]),
            session.get("/a"),
            session.delete("/a", 4),
            session.exists("/a"),
        )
        read = [one.data for one in asked if isinstance(one, Node)]
        assert read == [b"-", b"0", b"3"]
        assert asked[-1] is None

    run(scenario)


def test_one_of_many_conditional_writes_wins(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        sessions = [await backend.session() for _ in range(3)]
        await sessions[0].create("/a")
        asked = [session.set("/a", b"%d" % number, 0) for number, session in enumerate(sessions)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        won = [number for number, one in enumerate(outcomes) if isinstance(one, Stat)]
        assert len(won) == 1
        assert sum(isinstance(one, BadVersion) for one in outcomes) == 2
        await sessions[0].sync()
        assert (await sessions[0].get("/a")).data == b"%d" % won[0]

    run(scenario)


# Requests that are refused before they are sent.


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/\0", "/a\nb", "/\ud800"]
)
def test_invalid_path_is_refused(run: Runner, path: str) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        for asked in (
            session.create(path),
            session.get(path),
            session.set(path, b""),
            session.delete(path),
            session.exists(path),
            session.children(path),
        ):
            with pytest.raises(InvalidPath):
                await asked
        with pytest.raises(InvalidPath) as raised:
            await session.multi([Create("/good"), Check(path)])
        assert raised.value.index == 1
        assert await session.children("/") == []

    run(scenario)


def test_too_large_request_is_refused_and_session_lives(run: Runner) -> None:
    async def scenario(backend: Backend) -> None:
        session = await backend.session()
        large = bytes(REQUEST_BYTES_MAX - 100)
        await session.create("/a", large)
        assert (await session.get("/a")).data == large
        with pytest.raises(TooLarge):
            await session.set("/a", bytes(REQUEST_BYTES_MAX))
        half = bytes(REQUEST_BYTES_MAX // 2)
        with pytest.raises(TooLarge) as raised:
            await session.multi([Create("/b", half), Create("/c", half)])
        assert raised.value.index == 1
        many = [Create(f"/many-{number:06}") for number in range(REQUEST_BYTES_MAX // 80)]
        await session.multi(many)
        assert await session.exists("/b") is None

    run(scenario)
