"""The listener that commits group offsets, called as Spark calls it, with brokers in trouble."""

import time
from collections.abc import Callable, Generator, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from client.leaks import client_threads
from ottla.pipeline import offset_committer
from ottla.pipeline.lag import LagListener
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.sync import Admin
from ottla.testing import ClusterThread
from ottla.transport.channel import Channel

PATIENCE_S = 30.0
AT_ONCE_S = 20.0
"""Longer than the pauses of a busy machine, and shorter than the client's timeout of 60 s."""

_RUNS = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterThread]:
    with ClusterThread() as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topic("t", 1)
        yield cluster


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the commits that clients of this process send."""
    found: list[int] = []
    posted: Any = Channel._post  # pyright: ignore[reportPrivateUsage]

    def post(self: Channel, message: Any, *arguments: Any) -> Any:
        if isinstance(message, OffsetCommitRequest):
            found.append(message.topics[0].partitions[0].committed_offset)
        return posted(self, message, *arguments)

    monkeypatch.setattr(Channel, "_post", post)
    return found


class Query:
    """A run of a query that reads the topic `t`: what Spark passes to its listeners."""

    def __init__(self, listener: LagListener, name: str) -> None:
        self._listener = listener
        self._ids = {"id": name, "runId": f"run-{next(_RUNS)}"}
        listener.onQueryStarted(self._event())

    def progress(self, end: int | None) -> None:
        """Report the end of a micro-batch; None for one without an end."""
        offsets = None if end is None else f'{{"t": {{"0": {end}}}}}'
        sources = [SimpleNamespace(endOffset=offsets)]
        progress = SimpleNamespace(**self._ids, name=self._ids["id"], sources=sources)
        self._listener.onQueryProgress(self._event(progress=progress))

    def terminate(self) -> None:
        self._listener.onQueryTerminated(self._event())

    def _event(self, **fields: Any) -> Any:
        return SimpleNamespace(**self._ids, **fields)


def listener_for(servers: str) -> LagListener:
    """A listener in a session whose queries have one source with these brokers."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": "t"}

    def returns(value: object) -> Callable[..., Any]:
        return lambda *_: value

    leaf = SimpleNamespace(
        isStreaming=returns(True),
        getClass=returns(SimpleNamespace(getSimpleName=returns("StreamingDataSourceV2Relation"))),
        stream=returns(object()),
        relation=returns(
            SimpleNamespace(
                name=returns("ottla"),
                options=returns(SimpleNamespace(asCaseSensitiveMap=returns(options))),
            )
        ),
    )
    leaves = SimpleNamespace(size=returns(1), apply=returns(leaf))
    plan = SimpleNamespace(collectLeaves=returns(leaves))
    execution = SimpleNamespace(logicalPlan=returns(plan))
    query = SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=returns(execution)))
    session: Any = SimpleNamespace(streams=SimpleNamespace(get=returns(query)))
    return LagListener(session)


@pytest.fixture
def ended() -> Generator[Callable[[], None]]:
    """Wait until the committers that the test started have closed their clients."""
    with client_threads() as started:

        def wait() -> None:
            until_s = time.monotonic() + PATIENCE_S
            while left := started():
                assert time.monotonic() < until_s, left
                time.sleep(0.001)

        yield wait
        wait()


def committed(cluster: ClusterThread, name: str) -> int | None:
    group = f"ottla-pipeline.{name}"
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        [kept] = admin.list_group_offsets(group)[group].values() or [None]
    return kept and kept.offset


def test_last_offsets_are_committed_when_the_query_ends(
    cluster: ClusterThread, ended: Callable[[], None]
) -> None:
    listener = listener_for(cluster.bootstrap_servers)
    query = Query(listener, "ends")
    query.progress(1)
    query.progress(None)
    query.progress(7)
    query.terminate()
    ended()
    assert committed(cluster, "ends") == 7


def test_wait_returns_when_the_offsets_are_committed(cluster: ClusterThread) -> None:
    """A program that ends waits in this way, for queries that run and for those that ended."""
    listener = listener_for(cluster.bootstrap_servers)
    over, running = Query(listener, "over"), Query(listener, "running")
    over.progress(3)
    over.terminate()
    running.progress(4)
    listener.wait(PATIENCE_S)
    assert committed(cluster, "over") == 3
    assert committed(cluster, "running") == 4
    running.progress(5)
    listener.wait(PATIENCE_S)
    assert committed(cluster, "running") == 5
    running.terminate()


def test_only_the_newest_waiting_offsets_are_committed(
    cluster: ClusterThread, sent: list[int], ended: Callable[[], None]
) -> None:
    query = Query(listener_for(cluster.bootstrap_servers), "newest")
    with cluster.brokers[0].pause():
        for end in range(1, 21):
            query.progress(end)
    query.terminate()
    ended()
    assert committed(cluster, "newest") == 20
    assert sent in ([1, 20], [20])  # the first may have been replaced before it was sent


def test_next_run_commits_after_the_earlier_one(
    cluster: ClusterThread, sent: list[int], ended: Callable[[], None]
) -> None:
    listener = listener_for(cluster.bootstrap_servers)
    first, second = Query(listener, "again"), Query(listener, "again")
    with cluster.brokers[0].pause():
        first.progress(10)
        first.terminate()
        second.progress(20)
        second.terminate()
    ended()
    assert sent == [10, 20]


@pytest.mark.parametrize("trouble", ["silent", "gone"])
def test_broker_in_trouble_does_not_delay_the_listener(
    cluster: ClusterThread,
    ended: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: str,
) -> None:
    """Spark's listener bus has one thread, and `spark.stop()` waits for it."""
    monkeypatch.setattr(offset_committer, "FINISH_S", 0.2)
    servers = cluster.bootstrap_servers if trouble == "silent" else "127.0.0.1:1"
    listener = listener_for(servers)
    query = Query(listener, trouble)
    with cluster.brokers[0].pause():
        began_s = time.monotonic()
        for end in range(1, 21):
            query.progress(end)
        query.terminate()
        assert time.monotonic() < began_s + AT_ONCE_S
        ended()
    assert f"offset commit failed: query {trouble}" in caplog.text


def test_failed_commit_is_repeated_when_the_query_ends(
    ended: Callable[[], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the query runs, a commit gives up early."""
    with ClusterThread() as cluster:
        [broker] = cluster.brokers
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topic("t", 1)
        listener = listener_for(cluster.bootstrap_servers)
        query = Query(listener, "repeated")
        query.progress(1)
        listener.wait(PATIENCE_S)
        assert committed(cluster, "repeated") == 1
        broker.kill()
        monkeypatch.setattr(offset_committer, "COMMIT_S_MAX", 0.2)
        query.progress(2)
        listener.wait(PATIENCE_S)
        monkeypatch.undo()
        assert "offset commit failed: query repeated" in caplog.text
        broker.start()
        assert committed(cluster, "repeated") == 1
        query.terminate()
        ended()
        assert committed(cluster, "repeated") == 2
