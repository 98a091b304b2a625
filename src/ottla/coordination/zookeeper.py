"""Coordination through a ZooKeeper ensemble.

Invariant: a session is exactly one ZooKeeper session. Once lost it stays lost, although kazoo would
continue with a new one. While the connection is broken no request is given to kazoo, so no queued
write runs late. Requests in flight raise ConnectionLoss (rule B6). A session that was disconnected
for its timeout is lost, even if ZooKeeper cannot be reached to confirm it (rule B8).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import EventType, KazooState

from ottla.coordination.errors import (
    BadVersion,
    ConnectionLoss,
    CoordinationError,
    EnsembleFailed,
    NoChildrenForEphemerals,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from ottla.coordination.kazoo_thread import KazooResult, KazooStat, KazooThread, KazooTransaction
from ottla.coordination.operations import Create, Delete, Operation, SetData, check
from ottla.coordination.paths import ROOT, check_path
from ottla.coordination.session import (
    Change,
    Listener,
    Node,
    Result,
    SessionState,
    Stat,
    Watch,
    WatchEvent,
)

SESSION_TIMEOUT_MS: Final = 9_000  # the default of zookeeper.session.timeout.ms

READS_PER_REQUEST: Final = 200

REMEDY: Final = "start ZooKeeper, or correct zookeeper.connect"  # if no server answers

_ANY_VERSION: Final = -1

_REFUSALS: Final[dict[type[Exception], type[NodeError]]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
}

# After these errors it is unknown whether the change was made.
_AMBIGUOUS: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.SessionMovedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
)

# Results of the operations of a failed multi that did not fail themselves.
_NOT_TO_BLAME: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)

_CHANGES: Final[dict[str, Change]] = {
    EventType.CREATED: Change.CREATED,
    EventType.CHANGED: Change.DATA,
    EventType.DELETED: Change.DELETED,
    EventType.CHILD: Change.CHILDREN,
    EventType.NONE: Change.DISCONNECTED,
}


class ZooKeeper:
    """An ensemble, as Kafka's zookeeper.connect names it: `host:port,host:port/path`."""

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = SESSION_TIMEOUT_MS,
        creates_root: bool = True,
        source: str = "",
        remedy: str = REMEDY,
    ) -> None:
        """Use the servers of `connect`; without `creates_root` its path must exist.

        `source` is where `connect` comes from, and begins the error if no server answers. `remedy`
        ends it.
        """
        self._connect = connect
        servers, slash, path = connect.partition("/")
        self._hosts = "".join(servers.split())
        self._root = (slash + path).rstrip("/")
        check_path(self._root or ROOT)
        self._creates_root = creates_root
        self._source = source and f"{source}: "
        self._remedy = remedy
        self._session_timeout_s = session_timeout_ms / 1000
        self._connection_timeout_s = connection_timeout_ms / 1000

    async def connect(self, listener: Listener) -> "ZooKeeperSession":
        """Open a session; create the root path if it is missing."""
        thread = KazooThread(self._hosts, self._session_timeout_s)
        session = ZooKeeperSession(thread, self._root, listener, self._session_timeout_s)
        try:
            async with asyncio.timeout(self._connection_timeout_s):
                await session.open()
                if self._creates_root:
                    await session.make_root()
                elif await session.exists(ROOT) is None:
                    raise EnsembleFailed(
                        f"the path {self._root} does not exist in the ZooKeeper at {self._hosts}: "
                        "correct zookeeper.connect"
                    )
        except TimeoutError:
            await session.close()
            raise EnsembleFailed(await self._silence()) from None
        except asyncio.CancelledError:
            session.abandon()
            raise
        except BaseException:
            await session.close()
            raise
        return session

    async def _silence(self) -> str:
        """Return why no server answered: host names that are unknown, or no ZooKeeper there."""
        loop = asyncio.get_running_loop()
        unknown: list[str] = []
        for server in self._hosts.split(","):
            host = _host(server)
            try:
                await loop.getaddrinfo(host, None)
            except OSError as error:
                unknown.append(f"; the host {host} is unknown ({error.strerror or error})")
        return (
            f"{self._source}no ZooKeeper server of {self._connect} answered within "
            f"{self._connection_timeout_s:g} s{''.join(unknown)}: {self._remedy}"
        )


def _host(server: str) -> str:
    """Return the host of host:port or [address]:port."""
    if server.startswith("["):
        return server[1:].partition("]")[0]
    return server.partition(":")[0]


class ZooKeeperSession:
    """A session of the ensemble."""

    def __init__(
        self, thread: KazooThread, root: str, listener: Listener, timeout_s: float
    ) -> None:
        self.id: int = 0
        self.state: SessionState = SessionState.SUSPENDED  # until it is connected
        self._thread = thread
        self._client = thread.client
        self._root = root
        self._listener = listener
        self._timeout_s = timeout_s
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending: set[asyncio.Future[Any]] = set()
        self._expiry: asyncio.TimerHandle | None = None
        self._left = False
        self._changed = asyncio.Event()  # wakes those who wait for a connection
        self._stopping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect."""
        self._thread.listen(self._state_changed)
        self._client.start_async()
        await self._opened

    async def make_root(self) -> None:
        """Create the root path, if it is missing."""
        create = self._client.create_async
        parts = self._root.split("/")
        for end in range(2, len(parts) + 1):
            path = "/".join(parts[:end])
            with suppress(NodeExists):
                await self._ask(
                    path, lambda at=path: create(at, b"", ephemeral=False, sequence=False)
                )

    # Operations.

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a node and return its path."""
        check([Create(path, data, ephemeral, sequence)])
        create, real = self._client.create_async, self._real(path)
        made: str = await self._ask(
            path, lambda: create(real, data, ephemeral=ephemeral, sequence=sequence)
        )
        return made[len(self._root) :]

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node."""
        check_path(path)
        armed = self._thread.watch(self._told(path, watch))
        answer: tuple[bytes, KazooStat] = await self._ask(
            path, lambda: self._client.get_async(self._real(path), armed)
        )
        data, stat = answer
        return Node(data, _stat(stat))

    async def details(self, path: str) -> KazooStat:
        """Return all metadata of a node, for tools."""
        check_path(path)
        read, real = self._client.exists_async, self._real(path)
        stat: KazooStat | None = await self._ask(path, lambda: read(real, None))
        if stat is None:
            raise NoNode(path)
        return stat

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes, some with each request; None for a node that does not exist."""
        for path in paths:
            check_path(path)

        async def read(start: int) -> list[Node | None]:
            some = [self._real(path) for path in paths[start : start + READS_PER_REQUEST]]
            return await self._ask(paths[start], lambda: self._thread.read_many(some))

        starts = range(0, len(paths), READS_PER_REQUEST)
        return [*chain.from_iterable(await asyncio.gather(*map(read, starts)))]

    async def set(self, path: str, data: bytes, version: int | None = None) -> Stat:
        """Replace a node's data if it has the expected version."""
        check([SetData(path, data, version)])
        set_data, real = self._client.set_async, self._real(path)
        return _stat(await self._ask(path, lambda: set_data(real, data, _version(version))))

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node if it has the expected version and no children."""
        check([Delete(path, version)])
        delete, real = self._client.delete_async, self._real(path)
        await self._ask(path, lambda: delete(real, _version(version)))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the Stat of a node, or None if it does not exist."""
        check_path(path)
        armed = self._thread.watch(self._told(path, watch))
        stat: KazooStat | None = await self._ask(
            path, lambda: self._client.exists_async(self._real(path), armed)
        )
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted."""
        check_path(path)
        armed = self._thread.watch(self._told(path, watch))
        names: list[str] = await self._ask(
            path, lambda: self._client.get_children_async(self._real(path), armed)
        )
        return sorted(names)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Run all operations in one transaction, or none of them."""
        check(operations)
        self._check_connected()
        if not operations:
            return []
        transaction = self._client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        # Failures are items of the result: kazoo does not raise them (rule B3).
        answers: list[object] = await self._ask(ROOT, transaction.commit_async)
        for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
            if isinstance(answer, Exception) and not isinstance(answer, _NOT_TO_BLAME):
                raise _translated(answer, operation.path, index)
        assert not any(isinstance(answer, Exception) for answer in answers)
        return [self._result(*pair) for pair in zip(operations, answers, strict=True)]

    async def sync(self) -> None:
        """Return when later reads see everything acknowledged before."""
        await self._ask(ROOT, lambda: self._client.sync_async(self._real(ROOT)))

    async def connected(self) -> None:
        """Return when the session is connected."""
        while self.state is SessionState.SUSPENDED:
            await self._changed.wait()
        self._check_connected()

    def provisional(self) -> AbstractContextManager[None]:
        """No effect: the ensemble postpones nothing."""
        return nullcontext()

    async def close(self) -> None:
        """End the session."""
        self.abandon()
        assert self._stopping is not None
        await asyncio.shield(self._stopping)

    def abandon(self) -> None:
        """Begin to end the session; that can take long if no server answers."""
        self._left = True
        self._expire()

    def _add(self, transaction: KazooTransaction, operation: Operation) -> None:
        real = self._real(operation.path)
        if isinstance(operation, Create):
            transaction.create(
                real, operation.data, ephemeral=operation.ephemeral, sequence=operation.sequence
            )
        elif isinstance(operation, SetData):
            transaction.set_data(real, operation.data, _version(operation.version))
        elif isinstance(operation, Delete):
            transaction.delete(real, _version(operation.version))
        else:
            transaction.check(real, _version(operation.version))

    def _result(self, operation: Operation, answer: Any) -> Result:  # Any: untyped in kazoo
        if isinstance(operation, Create):
            made: str = answer
            return made[len(self._root) :]
        return _stat(answer) if isinstance(operation, SetData) else None

    def _real(self, path: str) -> str:
        """Return the path inside the ensemble, below the root path."""
        return self._root + path if path != ROOT else self._root or ROOT

    async def _ask(self, path: str, call: Callable[[], KazooResult]) -> Any:  # untyped in kazoo
        self._check_connected()
        future = self._thread.ask(call())
        self._pending.add(future)
        try:
            return await future
        except kazoo_errors.KazooException as error:
            raise _translated(error, path) from error
        finally:
            self._pending.discard(future)

    def _check_connected(self) -> None:
        if self.state is SessionState.LOST:
            raise SessionExpired
        if self.state is SessionState.SUSPENDED:
            raise ConnectionLoss

    # Callbacks. All of them run on the event loop.

    def _told(self, path: str, watch: Watch | None) -> Callable[[str], None] | None:
        if watch is None:
            return None

        def tell(kind: str) -> None:
            if not self._left:
                watch(WatchEvent(_CHANGES[kind], path))

        return tell

    def _state_changed(self, state: str, session_id: int) -> None:
        if self.state is SessionState.LOST:
            return
        if state == KazooState.LOST or (self.id and session_id not in (0, self.id)):
            self._expire()
        elif state == KazooState.SUSPENDED:
            self._suspend()
        elif not self._opened.done():
            self.id, self.state = session_id, SessionState.CONNECTED
            self._opened.set_result(None)
        else:
            self._stop_timer()
            self._become(SessionState.CONNECTED)

    def _suspend(self) -> None:
        if self._opened.done():
            # kazoo reports a session as lost only after ZooKeeper has confirmed it.
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(self._timeout_s, self._expire)
            self._fail_pending(ConnectionLoss)
            self._become(SessionState.SUSPENDED)

    def _expire(self) -> None:
        if self.state is SessionState.LOST:
            return
        self._stop_timer()
        if not self._opened.done():
            self._opened.set_exception(
                EnsembleFailed("ZooKeeper expired the session before it was open")
            )
        self._fail_pending(SessionExpired)
        # kazoo would continue with a new session; stop its thread even if nobody closes this
        # session.
        self._stopping = asyncio.get_running_loop().create_task(self._thread.stop())
        self._become(SessionState.LOST)

    def _become(self, state: SessionState) -> None:
        self.state = state
        self._changed.set()
        self._changed.clear()
        if not self._left:
            self._listener(state)

    def _stop_timer(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _fail_pending(self, error: type[CoordinationError]) -> None:
        for future in self._pending:
            if not future.done():
                future.set_exception(error())


def _version(version: int | None) -> int:
    return _ANY_VERSION if version is None else version


def _stat(stat: KazooStat) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.numChildren)


def _translated(error: Exception, path: str, index: int = 0) -> CoordinationError:
    for theirs, ours in _REFUSALS.items():
        if isinstance(error, theirs):
            return ours(path, index)
    if isinstance(error, _AMBIGUOUS):
        return ConnectionLoss()
    if isinstance(error, kazoo_errors.SessionExpiredError):
        return SessionExpired()
    if isinstance(error, kazoo_errors.UnimplementedError):
        return EnsembleFailed("the ensemble is too old: upgrade it to ZooKeeper 3.6 or later")
    return EnsembleFailed(f"{path}: ZooKeeper returned {type(error).__name__} {error}")
