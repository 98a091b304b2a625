"""A listener: an address that clients connect to, and its connections.

Invariant: an admitted connection is in `connections` until it is lost. Over max.connections a new
connection waits until others have left, as in Kafka; at most `backlog` connections wait, the rest
is refused. Over the limit of its address, or of open files, it is refused at once.

Closing stops accepting first, then gives pending requests and responses some time, and leaves no
connection open.
"""

import errno
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from ottla.clock import Clock
from ottla.errors import OttlaError
from ottla.transport.admission import Admission, Refusal
from ottla.transport.connection import (
    Admittance,
    Connection,
    ConnectionConfig,
    Dispatch,
    ServeFetchFrame,
    ServeFrame,
    Turns,
    dispatched,
)
from ottla.transport.descriptors import UNLIMITED, Descriptors
from ottla.transport.log_rate_limit import CloseReason, LogRateLimit
from ottla.transport.memory_pool import MemoryPools
from ottla.transport.network import Network, Server

_LOG = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0

UNREAD_SECONDS: Final = 0.5
"""How long a closing listener waits for a client that does not read its response."""


class AddressTaken(OttlaError):
    """Another process listens on the address."""

    def __init__(self, where: str, port: int) -> None:
        super().__init__(where, port)
        self.where = where
        self.port = port

    def __str__(self) -> str:
        return f"{self.where} is already in use"


class Listener:
    """Accepts connections and serves their requests through `dispatch`."""

    def __init__(
        self,
        name: str,
        dispatch: Dispatch,
        *,
        network: Network,
        clock: Clock,
        admission: Admission,
        config: Callable[[], ConnectionConfig],
        memory: MemoryPools | None = None,
        turns: Turns | None = None,
        descriptors: Descriptors = UNLIMITED,
        evict_excess: Callable[[], None] = lambda: None,
    ) -> None:
        """A listener that calls `evict_excess` when there may be too many connections."""
        self.name = name
        self.connections: dict[Connection, None] = {}  # oldest first
        self.waiting: dict[Connection, None] = {}  # not admitted yet, oldest first
        self.waiting_max = 0  # `hold` sets it
        self.accepted = 0
        self.refused = 0
        self.closed: Counter[CloseReason] = Counter()
        self._dispatch = dispatch
        self._serve_frame: ServeFrame | None = None
        self._serve_fetch_frame: ServeFetchFrame = dispatched
        self._serve_broker_frame: ServeFetchFrame = dispatched
        self._network = network
        self._clock = clock
        self._admission = admission
        self._config = config
        self._memory = memory or MemoryPools()
        self._turns = turns or Turns()
        self._descriptors = descriptors
        self._evict_excess = evict_excess
        self._server: Server | None = None
        self._host: str | None = None
        self._log_rate_limit = LogRateLimit()

    async def hold(self, host: str | None, port: int, backlog: int) -> int:
        """Bind the address and return its port; the system chooses one for port 0."""
        self.waiting_max = backlog
        try:
            self._server = await self._network.hold(self._connection, host, port, backlog)
        except OSError as error:
            raise _not_listening(host, port, error) from error
        self._host = host
        return self._server.port

    async def start(
        self,
        serve_frame: ServeFrame | None = None,
        serve_fetch_frame: ServeFetchFrame = dispatched,
        serve_broker_frame: ServeFetchFrame = dispatched,
    ) -> None:
        """Accept connections; their frames go to one of these before they are decoded."""
        assert self._server is not None
        self._serve_frame = serve_frame
        self._serve_fetch_frame = serve_fetch_frame
        self._serve_broker_frame = serve_broker_frame
        try:
            await self._server.start()
        except OSError as error:  # another process has listened since it was bound
            self._server.close()
            raise _not_listening(self._host, self._server.port, error) from error

    def _connection(self) -> Connection:
        return Connection(
            self._dispatch,
            self._admit_or_queue,
            self._lost,
            self._config(),
            self._clock,
            self.name,
            self._note_close,
            self._memory,
            self._network.watch_departure,
            self._serve_frame,
            self._network.watch_writable,
            self._serve_fetch_frame,
            self._serve_broker_frame,
            self._turns,
        )

    def _admit_or_queue(self, connection: Connection) -> Admittance:
        refusal = self._descriptors.refusal() or self._admit(connection)
        if refusal is None:
            return Admittance.ADMITTED
        if refusal.is_final or len(self.waiting) >= self.waiting_max:
            self._note_refusal(connection, refusal)
            return Admittance.REFUSED
        self.waiting[connection] = None
        self._log(logging.WARNING, "connection queued", connection, "queued", refusal.reason)
        return Admittance.QUEUED

    def _admit(self, connection: Connection) -> Refusal | None:
        refusal = self._admission.enter(connection.address, self._clock.elapsed_s())
        if refusal is None:
            self.accepted += 1
            self.connections[connection] = None
            self._evict_excess()
        return refusal

    def admit_waiting(self) -> None:
        """Admit waiting connections as far as the limits allow, the oldest first."""
        while self.waiting:
            connection = next(iter(self.waiting))
            refusal = self._admit(connection)
            if refusal is not None and not refusal.is_final:
                return
            del self.waiting[connection]
            if refusal is None:
                connection.admit()
            else:  # meanwhile its address has too many connections
                self._note_refusal(connection, refusal)
                connection.abort()

    def _note_refusal(self, connection: Connection, refusal: Refusal) -> None:
        self.refused += 1
        self._log(logging.WARNING, "connection refused", connection, "refused", refusal.reason)

    def _note_close(self, connection: Connection, kind: CloseReason, reason: str) -> None:
        self.closed[kind] += 1
        is_expected = kind in (CloseReason.OVERDUE, CloseReason.CROWDED)
        level = logging.INFO if is_expected else logging.WARNING
        self._log(level, "connection closed", connection, kind, reason)

    def _log(self, level: int, event: str, connection: Connection, kind: str, reason: str) -> None:
        suppressed = self._log_rate_limit.suppressed(
            connection.address, kind, self._clock.elapsed_s()
        )
        if suppressed is not None:
            about = {"peer": connection.address, "listener": self.name, "reason": reason}
            _LOG.log(level, event, about | ({"suppressed": suppressed} if suppressed else {}))

    def _lost(self, connection: Connection) -> None:
        self.waiting.pop(connection, None)
        if connection in self.connections:
            del self.connections[connection]
            self._admission.leave(connection.address)
            self.admit_waiting()

    # Timeouts.

    async def run(self) -> None:
        """Close overdue connections once a second, until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            self.close_idle_and_slow()
            self._evict_excess()
            self.admit_waiting()  # other listeners' connections leave, and rates end

    def close_idle_and_slow(self) -> None:
        """Close the connections that are idle or too slow."""
        # All are examined before the first is closed. Closing one releases memory, so nobody would
        # wait for memory any more, and the other stalled connections would pass the examination.
        overdue = [(one, reason) for one in self.connections if (reason := one.timeout_reason())]
        for connection, reason in overdue:
            self._note_close(connection, CloseReason.OVERDUE, reason)
            connection.abort()

    def evict(self, connection: Connection, reason: str) -> None:
        """Close a connection in favour of others."""
        self._note_close(connection, CloseReason.CROWDED, reason)
        connection.abort()

    async def close(self, grace_s: float = 5.0) -> None:
        """Stop accepting, let pending requests finish, then close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in [*self.waiting]:
            connection.abort()
        self.waiting.clear()
        deadline = self._clock.elapsed_s() + grace_s
        while self._clock.elapsed_s() < deadline:
            for connection in [*self.connections]:
                if connection.has_stopped_reading(UNREAD_SECONDS):
                    connection.abort()
                elif connection.is_idle:
                    connection.close()
            if not self.connections:
                return
            await self._clock.sleep(0.01)
        for connection in [*self.connections]:
            connection.abort()
        await self._clock.sleep(0)


def _not_listening(host: str | None, port: int, error: OSError) -> OttlaError:
    shown = f"[{host}]" if host and ":" in host else host
    where = f"{shown or 'all addresses'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return AddressTaken(where, port)
    return OttlaError(f"cannot listen on {where}: {error.strerror or error}")
