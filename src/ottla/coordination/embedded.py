"""Coordination inside the process: a tree in memory, a journal on disk and any number of sessions.

Invariant: reads and watches see a change only after it is on the device, unless it is provisional
and the disk is full. An expired session changes nothing. Opening the file ends all earlier sessions
and deletes their ephemeral nodes; zxids continue. One process at a time holds the file.

The owner runs `keep_time`, which expires sessions that were suspended for too long.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Self, TypeVar

from ottla.clock import Clock
from ottla.coordination.errors import ConnectionLoss, NodeError, SessionExpired, StoreInUse
from ottla.coordination.group_commit import GroupCommit
from ottla.coordination.journal import Journal, Repair
from ottla.coordination.operations import Create, Delete, Operation, SetData, check
from ottla.coordination.paths import check_path
from ottla.coordination.session import Listener, Node, Result, SessionState, Stat, Watch
from ottla.coordination.tree import Transaction, Tree, events
from ottla.coordination.watches import Watches
from ottla.errors import StorageExhausted, StorageFailure
from ottla.log.disk import Disk, Lock

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

SESSION_TIMEOUT_MS: Final = 18_000  # Kafka's zookeeper.session.timeout.ms

LOCK_SUFFIX: Final = ".lock"


class EmbeddedStore:
    """The embedded store: the tree, its journal and its sessions."""

    def __init__(
        self,
        commits: GroupCommit,
        repair: Repair | None,
        tree: Tree,
        lock: Lock,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self.repair = repair  # of the file, when it was opened
        self._commits = commits
        self._commits.failed = self._lose_all
        self._tree = tree
        self._lock = lock
        self._clock = clock
        self._timeout_s = timeout_ms / 1000
        self._sessions: dict[int, EmbeddedSession] = {}
        self._watches = Watches()
        self._some_suspended = asyncio.Event()

    @classmethod
    def open(
        cls, disk: Disk, path: str, clock: Clock, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> Self:
        """Lock and open the file; create it if it is missing. Blocks on the disk."""
        disk.make_directory(path.rpartition("/")[0])
        lock = disk.lock(path + LOCK_SUFFIX)
        if lock is None:
            raise StoreInUse(
                f"{path} is in use by another process: stop that broker, or set log.dirs to "
                "another directory"
            )
        try:
            journal, tree = Journal.open(disk, path)
            left = [tree.end_session(session_id) for session_id in tree.owners()]
            tree.settle()
            with suppress(StorageExhausted):
                if left:
                    journal.append(left)
                    left.clear()
        except BaseException:
            lock.release()
            raise
        commits = GroupCommit(disk, journal, tree, left)
        if journal.repair is not None:
            _log_repair(path, journal.repair)
        return cls(commits, journal.repair, tree, lock, clock, session_timeout_ms)

    @property
    def failure(self) -> StorageFailure | None:
        """The failure that stopped the store, if any."""
        return self._commits.failure

    @property
    def tree(self) -> Tree:
        """The nodes, with changes that are not on the device yet: for checks of a simulation."""
        return self._tree

    async def connect(self, listener: Listener) -> "EmbeddedSession":
        """Open a new session."""
        self._commits.check_usable()
        # Session ids are zxids, like transaction ids, so that no two are equal. The journal holds
        # the session once it has an ephemeral node; until then no other session has seen its id.
        self._tree.zxid += 1
        session = EmbeddedSession(self, self._tree.zxid, listener)
        self._sessions[session.id] = session
        return session

    async def close(self) -> None:
        """End all sessions and close the file."""
        for session in list(self._sessions.values()):
            with suppress(StorageFailure):
                await session.close()
        await self._commits.close()
        self._lock.release()

    # Session lifecycle, driven by the owner of the store.

    def suspend(self, session_id: int) -> None:
        """Suspend a session; it expires unless it is resumed before its timeout."""
        session = self._sessions[session_id]
        if session.state is SessionState.CONNECTED:
            session.suspended_at_s = self._clock.elapsed_s()
            session.become(SessionState.SUSPENDED)
            tell(self._watches.dropped(session_id))
            self._some_suspended.set()

    def resume(self, session_id: int) -> None:
        """Reconnect a suspended session, if it has not expired."""
        session = self._sessions.get(session_id)
        if session is not None and session.state is SessionState.SUSPENDED:
            session.become(SessionState.CONNECTED)

    def abandon(self, session_id: int) -> None:
        """Leave a session to its timeout, as when its process was killed.

        Its listener and its watches are not called any more, and closing it has no effect.
        """
        session = self._sessions.get(session_id)
        if session is not None:
            session.left = True
            self.suspend(session_id)

    async def expire(self, session_id: int) -> None:
        """Expire a session, as ZooKeeper does when its heartbeats stop."""
        session = self._sessions.get(session_id)
        if session is not None:
            with suppress(SessionExpired):  # it ended while this call waited
                await self.ask(session, lambda: self._end(session), provisional=True)

    async def expire_due(self) -> None:
        """Expire the sessions that have been suspended for at least their timeout."""
        now_s = self._clock.elapsed_s()
        for session_id, due_s in self._deadlines():
            if due_s <= now_s:
                await self.expire(session_id)

    async def keep_time(self) -> None:
        """Expire suspended sessions at their timeout, until cancelled."""
        while True:
            await self._some_suspended.wait()
            deadlines = self._deadlines()
            if not deadlines:
                self._some_suspended.clear()
                continue
            next_s = min(due_s for _, due_s in deadlines)
            await self._clock.sleep(max(0.0, next_s - self._clock.elapsed_s()))
            await self.expire_due()

    def _deadlines(self) -> list[tuple[int, float]]:
        return [
            (session.id, session.suspended_at_s + self._timeout_s)
            for session in self._sessions.values()
            if session.state is SessionState.SUSPENDED
        ]

    # Operations of sessions. All except `ask` and `leave` are acts that `GroupCommit` runs in turn.

    async def ask(
        self, session: "EmbeddedSession", act: Callable[[], T], *, provisional: bool = False
    ) -> T:
        """Run `act` in its turn; raise SessionExpired if the session has ended by then."""

        def act_if_alive() -> T:
            if session.id not in self._sessions:
                raise SessionExpired
            return act()

        return await self._commits.ask(act_if_alive, provisional=provisional)

    async def leave(self, session: "EmbeddedSession") -> None:
        """End a session because its client closed it."""
        if session.id in self._sessions:
            with suppress(SessionExpired):
                await self.ask(session, lambda: self._end(session), provisional=True)

    def commit(self, session: "EmbeddedSession", operations: Sequence[Operation]) -> list[Result]:
        """Apply operations to the tree as one transaction."""
        results, transaction = self._tree.commit(operations, session.id)
        self._add(transaction)
        return results

    def get(self, session: "EmbeddedSession", path: str, watch: Watch | None) -> Node:
        """Read a node; a missing node raises NoNode and sets no watch."""
        node = self._tree.get(path)
        if watch is not None:
            self._watches.on_data(path, session.id, watch)
        return node

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes."""
        return [*map(self._tree.get_or_none, paths)]

    def exists(self, session: "EmbeddedSession", path: str, watch: Watch | None) -> Stat | None:
        """Return the Stat of a node, or None if it does not exist."""
        if watch is not None:
            self._watches.on_data(path, session.id, watch)
        return self._tree.exists(path)

    def children(self, session: "EmbeddedSession", path: str, watch: Watch | None) -> list[str]:
        """Return the names of a node's children, sorted."""
        names = self._tree.children(path)
        if watch is not None:
            self._watches.on_children(path, session.id, watch)
        return names

    def _end(self, session: "EmbeddedSession") -> None:
        del self._sessions[session.id]
        dropped = self._watches.dropped(session.id)
        self._add(self._tree.end_session(session.id))

        def ended() -> None:
            session.become(SessionState.LOST)
            if not session.left:
                tell(dropped)

        self._commits.add(None, ended)

    def _add(self, transaction: Transaction) -> None:
        if transaction.changes:
            # Collect the watches now: watches set later in the same group have already seen this
            # change.
            fired = list(self._watches.fired(events(transaction, self._watches)))
            self._commits.add(
                transaction,
                lambda: tell(one.news for one in fired),
                lambda: self._watches.put_back(fired),
            )

    def _lose_all(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.become(SessionState.LOST)
            tell(self._watches.dropped(session.id))


class EmbeddedSession:
    """A session of the embedded store."""

    __slots__ = (
        "_listener",
        "_provisional",
        "_state_changed",
        "_store",
        "id",
        "left",
        "state",
        "suspended_at_s",
    )

    def __init__(self, store: EmbeddedStore, session_id: int, listener: Listener) -> None:
        self.id: int = session_id
        self.state: SessionState = SessionState.CONNECTED
        self.suspended_at_s = 0.0
        self.left = False  # the client closed it: do not call its listener and watches
        self._provisional = False  # whether the current requests are provisional
        self._store = store
        self._listener = listener
        self._state_changed = asyncio.Event()  # wakes those who wait for a connection

    def become(self, state: SessionState) -> None:
        """Set the state and notify the listener."""
        self.state = state
        self._state_changed.set()
        self._state_changed.clear()
        if not self.left:
            tell([(self._listener, state)])

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a node and return its path."""
        (made,) = await self.multi([Create(path, data, ephemeral, sequence)])
        assert isinstance(made, str)
        return made

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node."""
        check_path(path)
        return await self._ask(lambda: self._store.get(self, path, watch))

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes; None for a node that does not exist."""
        for path in paths:
            check_path(path)
        return await self._ask(lambda: self._store.get_all(paths))

    async def set(self, path: str, data: bytes, version: int | None = None) -> Stat:
        """Replace a node's data if it has the expected version."""
        (stat,) = await self.multi([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node if it has the expected version and no children."""
        await self.multi([Delete(path, version)])

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the Stat of a node, or None if it does not exist."""
        check_path(path)
        return await self._ask(lambda: self._store.exists(self, path, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted."""
        check_path(path)
        return await self._ask(lambda: self._store.children(self, path, watch))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Run all operations in one transaction, or none of them."""
        check(operations)
        return await self._ask(lambda: self._store.commit(self, operations))

    async def sync(self) -> None:
        """Return when later reads see everything acknowledged before; here they always do."""
        await self._ask(lambda: None)

    async def connected(self) -> None:
        """Return when the session is connected."""
        while self.state is SessionState.SUSPENDED and not self.left:
            await self._state_changed.wait()
        self._check_connected()

    @contextmanager
    def provisional(self) -> Generator[None]:
        """Let the requests inside succeed although a full disk postpones their write."""
        self._provisional = True
        try:
            yield
        finally:
            self._provisional = False

    async def close(self) -> None:
        """End the session."""
        if not self.left:
            self.left = True
            await self._store.leave(self)
            self.state = SessionState.LOST

    async def _ask(self, act: Callable[[], T]) -> T:
        self._check_connected()
        try:
            result = await self._store.ask(self, act, provisional=self._provisional)
        except NodeError:
            self._check_connected()
            raise
        # The connection may have broken meanwhile; then the response was lost.
        self._check_connected()
        return result

    def _check_connected(self) -> None:
        if self.state is SessionState.SUSPENDED:
            raise ConnectionLoss
        if self.left or (self.state is SessionState.LOST and self._store.failure is None):
            raise SessionExpired


def _log_repair(path: str, repair: Repair) -> None:
    facts = {"file": path, "problem": repair.problem, "truncated_bytes": repair.size}
    if not repair.missing:
        _LOG.warning("coordination journal repaired", facts | {"missing": "nothing acknowledged"})
        return
    remedy = "check the topics and settings; restore a backup of the file if some are missing"
    more = {"missing": repair.missing, "copy": repair.copy, "remedy": remedy}
    _LOG.error("coordination journal repaired", facts | more)


def tell(news: Iterable[tuple[Callable[[T], None], T]]) -> None:
    """Call listeners and watches; an exception in one does not stop the others."""
    for call, what in news:
        try:
            call(what)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"{call!r} failed on {what}", "exception": error}
            )
