"""Simulated coordination: the embedded store, reached by sessions over a simulated network.

Invariant: the requests of a session are served in order, and responses and watches arrive in order.
A session that the store has not heard for its timeout expires. Its client learns that when it
reaches the store again, or when it was disconnected for the timeout (rule B8). When a connection
breaks, requests on their way are lost before or after they took effect, and the client cannot tell
which.

The store runs on a disk of its own. It is an ensemble that as a whole never fails.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from ottla.coordination.embedded import EmbeddedSession, EmbeddedStore
from ottla.coordination.errors import ConnectionLoss, CoordinationError, SessionExpired
from ottla.coordination.operations import Operation
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
from ottla.errors import StorageFailure
from ottla.testing.clock import SimulatedClock
from ottla.testing.device import SimulatedDevice
from ottla.testing.network import SimulatedNetwork
from ottla.testing.trace import Trace

T = TypeVar("T")

ADDRESS: Final = "10.0.0.100"
JOURNAL: Final = "/coordination/journal"
DELAY_SECONDS: Final = 0.002
HEARTBEATS: Final = 8  # per session timeout
CLIENT_GIVES_UP: Final = 2 / 3  # of the session timeout without a response, as in ZooKeeper
LOST_CHANCE: Final = 0.5  # that a request is lost before it takes effect, when a connection breaks


class SimulatedCoordination:
    """The store and the sessions of all brokers."""

    def __init__(
        self,
        clock: SimulatedClock,
        random: Random,
        network: SimulatedNetwork,
        trace: Trace,
        *,
        session_timeout_s: float,
    ) -> None:
        self.clock = clock
        self.random = random
        self.network = network
        self.trace = trace
        self.session_timeout_s = session_timeout_s
        self.device = SimulatedDevice(clock, Random(random.random()))
        self.counts: Counter[str] = Counter()  # what happened to sessions and requests
        self._store: EmbeddedStore | None = None
        self._sessions: list[SimulatedSession] = []
        self._context = copy_context()  # of no broker
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def store(self) -> EmbeddedStore:
        """The store."""
        assert self._store is not None, "open it first"
        return self._store

    async def open(self) -> None:
        """Start."""
        self._store = await self.device.blocking(
            lambda: EmbeddedStore.open(self.device, JOURNAL, self.clock)
        )

    async def close(self) -> None:
        """End all sessions."""
        for session in [*self._sessions]:
            session.forget()
        for task in self._tasks:
            task.cancel()
        await self.store.close()

    def client(
        self,
        address: str,
        context: Context,
        is_alive: Callable[[], bool],
        is_paused: Callable[[], bool],
    ) -> "CoordinationClient":
        """Return the coordination of one process, whose callbacks run in its context."""
        return CoordinationClient(self, address, context, is_alive, is_paused)

    def break_connections(self, address: str, *, at_next_request: bool = False) -> None:
        """Break the connections from an address; the clients connect again.

        They can also break when the next request is on its way, which may take effect or not.
        """
        for session in self._sessions:
            if session.client.address == address:
                if at_next_request:
                    session.breaks_at_request = True
                else:
                    session.disconnect()

    async def expire(self, address: str) -> None:
        """Expire the sessions from an address at once, whether or not the store hears them."""
        for session in [*self._sessions]:
            if session.client.address == address:
                await session.expire()

    def delay_s(self) -> float:
        """Return the time that a message takes."""
        return DELAY_SECONDS * (0.1 + 0.9 * self.random.random())

    def add(self, session: "SimulatedSession") -> None:
        """Serve a session."""
        self._sessions.append(session)
        self._run(self._keep(session))

    async def _keep(self, session: "SimulatedSession") -> None:
        serving = self._run(session.serve())
        await session.keep_alive()
        session.forget()
        serving.cancel()
        self._sessions.remove(session)

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task outside any broker."""
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task


class CoordinationClient:
    """The coordination as one process sees it."""

    def __init__(
        self,
        coordination: SimulatedCoordination,
        address: str,
        context: Context,
        is_alive: Callable[[], bool],
        is_paused: Callable[[], bool],
    ) -> None:
        self.address = address
        self.context = context
        self.is_alive = is_alive
        self.is_paused = is_paused
        self._coordination = coordination

    @property
    def is_cut_off(self) -> bool:
        """Whether a partition separates the process from the store."""
        return self._coordination.network.is_partitioned(self.address, ADDRESS)

    async def connect(self, listener: Listener) -> "SimulatedSession":
        """Open a session; waits for the end of a partition."""
        coordination = self._coordination
        await coordination.clock.sleep(coordination.delay_s())
        while self.is_cut_off:
            await coordination.clock.sleep(0.1)
        inner = await coordination.store.connect(lambda state: None)
        session = SimulatedSession(coordination, self, inner, listener)
        coordination.add(session)
        return session


class _Request(NamedTuple):
    act: Callable[[], Awaitable[Any]]  # Any: the result of any operation
    answer: "asyncio.Future[Any]"
    link: int


class SimulatedSession:
    """A session of one process."""

    def __init__(
        self,
        coordination: SimulatedCoordination,
        client: CoordinationClient,
        inner: EmbeddedSession,
        listener: Listener,
    ) -> None:
        self.client = client
        self.state = SessionState.CONNECTED  # as the client knows
        self._coordination = coordination
        self._clock = coordination.clock
        self._inner = inner
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._link = 0  # number of the connection
        self._requests: deque[_Request] = deque()  # on their way to the store
        self._more = asyncio.Event()
        self._open: dict[asyncio.Future[Any], None] = {}  # requests without a response
        self._inbox: deque[tuple[int, Callable[[], None]]] = deque()  # on their way to the client
        self._latest_s = 0.0  # arrival time of the last of them
        self._held = 0  # arrivals that wait for the end of a partition
        self._watches: dict[int, tuple[str, Watch]] = {}  # with their paths
        self._watch_number = 0
        self._expiry: asyncio.TimerHandle | None = None  # while the connection is lost
        self._state_changed = asyncio.Event()
        self._is_closed = False
        self.breaks_at_request = False

    @property
    def id(self) -> int:
        """The session id."""
        return self._inner.id

    # Operations.

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a node and return its path."""
        return await self._ask(
            lambda: self._inner.create(path, data, ephemeral=ephemeral, sequence=sequence)
        )

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node."""
        sent = self._watched(path, watch)
        return await self._ask(lambda: self._inner.get(path, sent))

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes."""
        return await self._ask(lambda: self._inner.get_all(paths))

    async def set(self, path: str, data: bytes, version: int | None = None) -> Stat:
        """Replace a node's data."""
        return await self._ask(lambda: self._inner.set(path, data, version))

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node."""
        await self._ask(lambda: self._inner.delete(path, version))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the Stat of a node, or None."""
        sent = self._watched(path, watch)
        return await self._ask(lambda: self._inner.exists(path, sent))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children."""
        sent = self._watched(path, watch)
        return await self._ask(lambda: self._inner.children(path, sent))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Run all operations in one transaction, or none."""
        return await self._ask(lambda: self._inner.multi(operations))

    async def sync(self) -> None:
        """Return when later reads see every change that was acknowledged before."""
        await self._ask(self._inner.sync)

    async def connected(self) -> None:
        """Return when the session is connected."""
        while self.state is SessionState.SUSPENDED:
            await self._state_changed.wait()
        self._check_connected()

    def provisional(self) -> AbstractContextManager[None]:
        """Postpone nothing: the disk of the store is never full."""
        return nullcontext()

    async def close(self) -> None:
        """End the session."""
        if self._is_closed:
            return
        with suppress(CoordinationError):
            await self._ask(self._inner.close)
        self._is_closed = True
        self.state = SessionState.LOST

    async def _ask(self, act: Callable[[], Awaitable[T]]) -> T:
        self._check_connected()
        answer: asyncio.Future[T] = self._loop.create_future()
        self._open[answer] = None
        self._requests.append(_Request(act, answer, self._link))
        self._more.set()
        try:
            return await answer
        finally:
            self._open.pop(answer, None)

    def forget(self) -> None:
        """Fail what a process that has ended still waits for."""
        for answer in [*self._open]:
            if not answer.done():
                answer.set_exception(SessionExpired())

    def _check_connected(self) -> None:
        if self._is_closed or self.state is SessionState.LOST or not self.client.is_alive():
            raise SessionExpired
        if self.state is SessionState.SUSPENDED:
            raise ConnectionLoss

    def _watched(self, path: str, watch: Watch | None) -> Watch | None:
        """Return the watch for the store, which sends the event to the client."""
        if watch is None:
            return None
        self._watch_number += 1
        number, link = self._watch_number, self._link
        self._watches[number] = path, watch

        def fire(event: WatchEvent) -> None:
            if event.change is not Change.DISCONNECTED:  # the client notices that itself
                self._send_back(link, lambda: self._fire(number, event))

        return fire

    def _fire(self, number: int, event: WatchEvent) -> None:
        found = self._watches.pop(number, None)
        if found is not None:
            self._tell(found[1], event)

    def _tell(self, watch: Watch, event: WatchEvent) -> None:
        if not self._is_closed:
            watch(event)

    # The store's end.

    async def serve(self) -> None:
        """Serve the requests in their order, until the session has ended."""
        random = self._coordination.random
        while True:
            if not self._requests:
                self._more.clear()
                await self._more.wait()
            request = self._requests.popleft()
            await self._clock.sleep(self._coordination.delay_s())
            if self.breaks_at_request:
                self.breaks_at_request = False
                self.disconnect()
            is_lost = random.random() < LOST_CHANCE
            while self.client.is_cut_off and request.link == self._link:
                is_lost = True  # if the connection breaks before the partition ends
                await self._clock.sleep(0.05)
            if request.link != self._link and is_lost:
                self._coordination.counts["requests to coordination lost"] += 1
                continue
            await self._carry_out(request)

    async def _carry_out(self, request: _Request) -> None:
        answer = request.answer
        try:
            result = await request.act()
        except SessionExpired:
            self._send_back(request.link, self._lose)
        except (CoordinationError, StorageFailure) as error:
            failure = error
            self._send_back(
                request.link, lambda: None if answer.done() else answer.set_exception(failure)
            )
        else:
            self._send_back(
                request.link, lambda: None if answer.done() else answer.set_result(result)
            )

    async def keep_alive(self) -> None:
        """Exchange heartbeats, until the session has ended at both ends."""
        coordination, client, clock = self._coordination, self.client, self._clock
        timeout_s = coordination.session_timeout_s
        by_store_s = by_client_s = clock.elapsed_s()
        while self._inner.state is not SessionState.LOST or self.state is not SessionState.LOST:
            await clock.sleep(timeout_s / HEARTBEATS)
            now_s = clock.elapsed_s()
            is_running = client.is_alive() and not client.is_paused()
            if is_running and not client.is_cut_off:
                by_store_s = now_s
                by_client_s = now_s
                self._let_go()
                if self.state is SessionState.SUSPENDED:
                    self._loop.call_soon(self._reconnect, context=client.context)
                elif self._inner.state is SessionState.LOST:
                    self._loop.call_soon(self._lose, context=client.context)
            if self._inner.state is not SessionState.LOST and now_s - by_store_s >= timeout_s:
                await self.expire()
            if not client.is_alive():
                self.forget()
                if self._inner.state is SessionState.LOST:
                    break
            if is_running and now_s - by_client_s >= CLIENT_GIVES_UP * timeout_s:
                self.disconnect()

    async def expire(self) -> None:
        """Let the store expire the session; the client learns it later."""
        if self._inner.state is not SessionState.LOST:
            self._coordination.trace.note("expired", self.client.address)
            self._coordination.counts["sessions expired"] += 1
            await self._coordination.store.expire(self._inner.id)

    def _send_back(self, link: int, call: Callable[[], None]) -> None:
        delay_s = self._coordination.delay_s()
        when_s = self._latest_s = max(self._latest_s, self._clock.elapsed_s() + delay_s)
        self._inbox.append((link, call))
        self._loop.call_at(when_s, self._receive, context=self.client.context)

    def _receive(self) -> None:
        if self.client.is_cut_off:
            self._held += 1
            return
        link, call = self._inbox.popleft()
        if not self.client.is_alive():
            return
        if link == self._link:
            call()
        else:
            self._coordination.counts["responses of coordination lost"] += 1

    def _let_go(self) -> None:
        """Let everything arrive that waited for the end of a partition."""
        held, self._held = self._held, 0
        for _ in range(held):
            self._loop.call_soon(self._receive, context=self.client.context)

    # The client's end.

    def disconnect(self) -> None:
        """Break the connection; the client connects again when it can."""
        if self.state is SessionState.CONNECTED and not self._is_closed:
            self._coordination.trace.note("disconnected", self.client.address)
            self._link += 1
            self._loop.call_soon(self._suspend, context=self.client.context)

    def _suspend(self) -> None:
        if self.state is SessionState.CONNECTED and self.client.is_alive():
            self._expiry = self._loop.call_later(
                self._coordination.session_timeout_s, self._lose, context=self.client.context
            )
            self._fail_all(ConnectionLoss)
            self._become(SessionState.SUSPENDED)

    def _reconnect(self) -> None:
        if self.state is not SessionState.SUSPENDED:
            return
        if self._inner.state is SessionState.LOST:
            self._lose()
        else:
            self._stop_timer()
            self._become(SessionState.CONNECTED)

    def _stop_timer(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _lose(self) -> None:
        self._stop_timer()
        if self.state is not SessionState.LOST and not self._is_closed:
            self._fail_all(SessionExpired)
            self._become(SessionState.LOST)

    def _fail_all(self, failure: type[CoordinationError]) -> None:
        for answer in [*self._open]:
            if not answer.done():
                answer.set_exception(failure())
        watches, self._watches = self._watches, {}
        for path, watch in watches.values():
            event = WatchEvent(Change.DISCONNECTED, path)
            self._loop.call_soon(self._tell, watch, event, context=self.client.context)

    def _become(self, state: SessionState) -> None:
        self.state = state
        self._state_changed.set()
        self._state_changed.clear()
        self._listener(state)
