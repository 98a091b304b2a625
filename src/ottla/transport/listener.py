"""A listener: the address that clients connect to, and their connections.

Invariant: every connection that was let in is in `connections` until it is lost. One that comes
when there are too many waits until others have left, as with Kafka, and one whose address has too
many is closed; as many wait as the system lets wait for a listener, and the rest is closed. Closing
stops new ones first, gives requests that are being served some time, and answers that are being
taken, and leaves none behind.
"""

import errno
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from ottla.clock import Clock
from ottla.errors import OttlaError
from ottla.transport.admission import Admission, Refusal
from ottla.transport.connection import Admittance, Connection, ConnectionConfig, Dispatch
from ottla.transport.log_rate_limit import CloseReason, LogRateLimit
from ottla.transport.memory import MemoryPools
from ottla.transport.network import Network, Server

_LOG = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0

UNTAKEN_SECONDS: Final = 0.5
"""How long a listener that closes waits for a client that takes nothing of its answer."""


class AddressTaken(OttlaError):
    """Another process listens there."""

    def __init__(self, where: str, port: int) -> None:
        super().__init__(where, port)
        self.where = where
        self.port = port

    def __str__(self) -> str:
        return f"{self.where} is taken"


class Listener:
    """Accepts connections and lets them be served."""

    def __init__(
        self,
        name: str,
        dispatch: Dispatch,
        *,
        network: Network,
        clock: Clock,
        admission: Admission,
        rules: Callable[[], ConnectionConfig],
        memory: MemoryPools | None = None,
        crowded: Callable[[], None] = lambda: None,
    ) -> None:
        """A listener that calls `crowded` when there may be too many connections."""
        self.name = name
        self.connections: dict[Connection, None] = {}  # in the order in which they came
        self.waiting: dict[Connection, None] = {}  # to be let in, in the same order
        self.waiting_max = 50
        self.accepted = 0
        self.refused = 0
        self.sent_away: Counter[CloseReason] = Counter()
        self._dispatch = dispatch
        self._network = network
        self._clock = clock
        self._admission = admission
        self._rules = rules
        self._memory = memory or MemoryPools()
        self._crowded = crowded
        self._server: Server | None = None
        self._host: str | None = None
        self._complaints = LogRateLimit()

    async def hold(self, host: str | None, port: int, backlog: int = 50) -> int:
        """Take the address; returns the port, which the system chooses when 0 is asked for."""
        self.waiting_max = backlog
        try:
            self._server = await self._network.hold(self._connection, host, port, backlog)
        except OSError as error:
            raise _not_listening(host, port, error) from error
        self._host = host
        return self._server.port

    async def start(self) -> None:
        """Accept connections."""
        assert self._server is not None
        try:
            await self._server.start()
        except OSError as error:  # another process has begun to listen since it was held
            self._server.close()
            raise _not_listening(self._host, self._server.port, error) from error

    def _connection(self) -> Connection:
        return Connection(
            self._dispatch,
            self._opened,
            self._lost,
            self._rules(),
            self._clock,
            self.name,
            self._complained,
            self._memory,
        )

    def _opened(self, connection: Connection) -> Admittance:
        refusal = self._enter(connection)
        if refusal is None:
            return Admittance.ADMITTED
        if refusal.for_good or len(self.waiting) >= self.waiting_max:
            self.refused += 1
            self._log(logging.WARNING, "connection refused", connection, "refused", refusal.why)
            return Admittance.REFUSED
        self.waiting[connection] = None
        self._log(logging.WARNING, "connection waits", connection, "waits", refusal.why)
        return Admittance.QUEUED

    def _enter(self, connection: Connection) -> Refusal | None:
        refusal = self._admission.enter(connection.address, self._clock.elapsed_s())
        if refusal is None:
            self.accepted += 1
            self.connections[connection] = None
            self._crowded()
        return refusal

    def let_in(self) -> None:
        """Let those in who wait, as far as there is room by now."""
        for connection in [*self.waiting]:
            refusal = self._enter(connection)
            if refusal is None:
                del self.waiting[connection]
                connection.admit()
            elif not refusal.for_good:
                return

    def _complained(self, connection: Connection, fault: CloseReason, reason: str) -> None:
        self.sent_away[fault] += 1
        mild = fault in (CloseReason.OVERDUE, CloseReason.CROWDED)
        level = logging.INFO if mild else logging.WARNING
        self._log(level, "connection closed", connection, fault, reason)

    def _log(self, level: int, event: str, connection: Connection, kind: str, why: str) -> None:
        left_out = self._complaints.left_out(connection.address, kind, self._clock.elapsed_s())
        if left_out is not None:
            about = {"peer": connection.address, "listener": self.name, "reason": why}
            _LOG.log(level, event, about | ({"left_out": left_out} if left_out else {}))

    def _lost(self, connection: Connection) -> None:
        self.waiting.pop(connection, None)
        if connection in self.connections:
            del self.connections[connection]
            self._admission.leave(connection.address)
            self.let_in()

    # Time.

    async def keep(self) -> None:
        """Close what is overdue, until this is cancelled."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            self.sweep()
            self._crowded()
            self.let_in()  # a connection of another listener may have left, or a second is over

    def sweep(self) -> None:
        """Close the connections that have been silent for too long, or too slow."""
        # All are looked at before one is closed: that gives memory to who waits, and then the
        # others who do not move would be let off, only to be in the way again.
        overdue = [(one, reason) for one in self.connections if (reason := one.timeout_reason())]
        for connection, reason in overdue:
            self._complained(connection, CloseReason.OVERDUE, reason)
            connection.abort()

    def send_away(self, connection: Connection, reason: str) -> None:
        """Close a connection for others."""
        self._complained(connection, CloseReason.CROWDED, reason)
        connection.abort()

    async def close(self, grace_s: float = 5.0) -> None:
        """Accept no more, let what is being served end, then close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in [*self.waiting]:
            connection.abort()
        self.waiting.clear()
        deadline = self._clock.elapsed_s() + grace_s
        while self._clock.elapsed_s() < deadline:
            for connection in [*self.connections]:
                if connection.has_stopped_reading(UNTAKEN_SECONDS):
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
