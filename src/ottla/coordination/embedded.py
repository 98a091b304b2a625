"""Coordination inside the process: a tree in memory, a journal on the disk, any number of sessions.

Invariant: a change is seen, by a read or a watch, only once it is on the device, unless it is
provisional and the disk is full. A session that has ended changes nothing any more. When the file
is opened no session is left of those before, so no ephemeral node is; zxids go on. One process at a
time has the file.

`keep_time`, run by the owner, ends sessions that were suspended for too long.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Self, TypeVar

from ottla.clock import Clock
from ottla.coordination.errors import ConnectionLoss, NodeError, SessionExpired, StoreInUse
from ottla.coordination.group_commit import GroupCommit
from ottla.coordination.journal import Journal
from ottla.coordination.operations import Create, Delete, Operation, SetData, check
from ottla.coordination.paths import check_path
from ottla.coordination.session import Listener, Node, Result, SessionState, Stat, Watch
from ottla.coordination.tree import Transaction, Tree, events
from ottla.coordination.watches import Watches
from ottla.errors import DiskFull, StorageFailure
from ottla.log.disk import Disk, Lock

T = TypeVar("T")

SESSION_TIMEOUT_MS: Final = 18_000  # Kafka's zookeeper.session.timeout.ms

LOCK_SUFFIX: Final = ".lock"


class EmbeddedStore:
    """The tree and its sessions."""

    def __init__(
        self,
        commits: GroupCommit,
        notes: list[str],
        tree: Tree,
        lock: Lock,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self.notes = notes  # what a person should know of how the file was found
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
        """Hold the file, made if it is missing. Waits for the device."""
        disk.make_directory(path.rpartition("/")[0])
        lock = disk.lock(path + LOCK_SUFFIX)
        if lock is None:
            raise StoreInUse(
                f"{path} is in use by another process: stop that broker, or give this one another "
                f"data directory"
            )
        try:
            journal, tree = Journal.open(disk, path)
            left = [tree.end_session(session_id) for session_id in tree.owners()]
            tree.settle()
            with suppress(DiskFull):
                if left:
                    journal.append(left)
                    left.clear()
        except BaseException:
            lock.release()
            raise
        commits = GroupCommit(disk, journal, tree, left)
        return cls(commits, journal.notes, tree, lock, clock, session_timeout_ms)

    @property
    def failure(self) -> StorageFailure | None:
        """Why nothing works any more, if so."""
        return self._commits.failure

    async def connect(self, listener: Listener) -> "EmbeddedSession":
        """A session of its own."""
        self._commits.check_usable()
        # Sessions take zxids for their ids, as transactions do, so that no two are the same. This
        # one is written down with the first ephemeral node; before that nobody has seen it.
        self._tree.zxid += 1
        session = EmbeddedSession(self, self._tree.zxid, listener)
        self._sessions[session.id] = session
        return session

    async def close(self) -> None:
        """End all sessions and let go of the file."""
        for session in list(self._sessions.values()):
            with suppress(StorageFailure):
                await session.close()
        await self._commits.close()
        self._lock.release()

    # The life of sessions, as whoever owns the store orders it.

    def suspend(self, session_id: int) -> None:
        """Cut a session off; it ends unless it is resumed before its timeout."""
        session = self._sessions[session_id]
        if session.state is SessionState.CONNECTED:
            session.suspended_at_s = self._clock.elapsed_s()
            session.become(SessionState.SUSPENDED)
            tell(self._watches.dropped(session_id))
            self._some_suspended.set()

    def resume(self, session_id: int) -> None:
        """Connect a session again, if it has not ended meanwhile."""
        session = self._sessions.get(session_id)
        if session is not None and session.state is SessionState.SUSPENDED:
            session.become(SessionState.CONNECTED)

    async def expire(self, session_id: int) -> None:
        """End a session, as ZooKeeper does when it has not heard of one for too long."""
        session = self._sessions.get(session_id)
        if session is not None:
            with suppress(SessionExpired):  # it ended while this waited for its turn
                await self.ask(session, lambda: self._end(session), provisional=True)

    async def expire_due(self) -> None:
        """End the sessions that have been suspended for as long as their timeout."""
        now_s = self._clock.elapsed_s()
        for session_id, due_s in self._deadlines():
            if due_s <= now_s:
                await self.expire(session_id)

    async def keep_time(self) -> None:
        """End suspended sessions when it is time, for as long as the owner lets it run."""
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

    # What sessions ask for. All but `ask` and `leave` are acts, done when it is their turn.

    async def ask(
        self, session: "EmbeddedSession", act: Callable[[], T], *, provisional: bool = False
    ) -> T:
        """Have something done in its turn, unless the session has ended by then."""

        def act_if_alive() -> T:
            if session.id not in self._sessions:
                raise SessionExpired
            return act()

        return await self._commits.ask(act_if_alive, provisional=provisional)

    async def leave(self, session: "EmbeddedSession") -> None:
        """End a session at its own wish."""
        if session.id in self._sessions:
            with suppress(SessionExpired):
                await self.ask(session, lambda: self._end(session), provisional=True)

    def commit(self, session: "EmbeddedSession", operations: Sequence[Operation]) -> list[Result]:
        """Change the tree."""
        results, transaction = self._tree.commit(operations, session.id)
        self._add(transaction)
        return results

    def get(self, session: "EmbeddedSession", path: str, watch: Watch | None) -> Node:
        """Read a node; one that is not there is not watched."""
        node = self._tree.get(path)
        if watch is not None:
            self._watches.on_data(path, session.id, watch)
        return node

    def exists(self, session: "EmbeddedSession", path: str, watch: Watch | None) -> Stat | None:
        """Look at a node."""
        if watch is not None:
            self._watches.on_data(path, session.id, watch)
        return self._tree.exists(path)

    def children(self, session: "EmbeddedSession", path: str, watch: Watch | None) -> list[str]:
        """Read the names of a node's children."""
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
            # Found now: watches that are set later in the same group have seen this already.
            fired = list(self._watches.fired(events(transaction)))
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

    __slots__ = ("_listener", "_provisional", "_store", "id", "left", "state", "suspended_at_s")

    def __init__(self, store: EmbeddedStore, session_id: int, listener: Listener) -> None:
        self.id: int = session_id
        self.state: SessionState = SessionState.CONNECTED
        self.suspended_at_s = 0.0
        self.left = False  # whether it ends at its own wish: then nobody is told
        self._provisional = False  # what is asked for now
        self._store = store
        self._listener = listener

    def become(self, state: SessionState) -> None:
        """Be told how the session is now."""
        self.state = state
        if not self.left:
            tell([(self._listener, state)])

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Make a node; returns its path."""
        (made,) = await self.multi([Create(path, data, ephemeral, sequence)])
        assert isinstance(made, str)
        return made

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node."""
        check_path(path)
        return await self._ask(lambda: self._store.get(self, path, watch))

    async def set(self, path: str, data: bytes, version: int | None = None) -> Stat:
        """Replace a node's data if it has the version expected."""
        (stat,) = await self.multi([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node if it has the version expected, and no children."""
        await self.multi([Delete(path, version)])

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Look at a node."""
        check_path(path)
        return await self._ask(lambda: self._store.exists(self, path, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of a node's children, sorted."""
        check_path(path)
        return await self._ask(lambda: self._store.children(self, path, watch))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all of it in one transaction or nothing."""
        check(operations)
        return await self._ask(lambda: self._store.commit(self, operations))

    async def sync(self) -> None:
        """Return when later reads see what was acknowledged before: here they always do."""
        await self._ask(lambda: None)

    @contextmanager
    def provisional(self) -> Generator[None]:
        """Let a full disk put off what is asked for inside."""
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
        # The connection may have broken meanwhile: then the answer did not come through.
        self._check_connected()
        return result

    def _check_connected(self) -> None:
        if self.state is SessionState.SUSPENDED:
            raise ConnectionLoss
        if self.left or (self.state is SessionState.LOST and self._store.failure is None):
            raise SessionExpired


def tell(news: Iterable[tuple[Callable[[T], None], T]]) -> None:
    """Call listeners and watches; what goes wrong in one does not concern the others."""
    for call, what in news:
        try:
            call(what)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"{call!r} failed on {what}", "exception": error}
            )
