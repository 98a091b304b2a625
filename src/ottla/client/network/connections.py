"""The connections of a client: at most one per broker, opened on demand.

Invariant: an address has one connection or one attempt at a time, however many callers need it.
After a failure the next attempt waits, longer each time. A caller that needs any broker gets one
while a known broker or a bootstrap server can be reached. With SASL, no caller gets a connection
before it is authenticated; a session with a lifetime is re-authenticated in time (KIP-368).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.network.cluster_view import BrokerView
from ottla.clock import Clock
from ottla.errors import RequestError
from ottla.protocol.buffer_pool import BufferPool
from ottla.transport.backoff import Backoff
from ottla.transport.channel import Channel, open_channel
from ottla.transport.failures import AuthenticationFailed, Disconnected
from ottla.transport.network import Connector

if TYPE_CHECKING:
    from ottla.transport.login import Login

CLOSED: Final = "the client is closed"
DOUBLINGS_MAX: Final = 32

SPARE_BYTES_MAX: Final = 24 * 1024 * 1024
"""Three fetch responses of six partitions: one arrives, one is read, one waits."""

RENEWED_AFTER: Final = (0.85, 0.1)
"""Re-authenticate after this share of the session lifetime, plus up to this much at random."""

RENEWED_S_MIN: Final = 1.1
"""Kafka refuses a second re-authentication within one second."""

_log: Final = logging.getLogger(__name__)


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectionConfig(NamedTuple):
    """How a client connects."""

    seeds: Sequence[Address]
    """The bootstrap servers, used first and again when no other broker can be reached."""

    client_id: str
    software: tuple[str, str]
    backoff: Backoff
    setup_timeout_s: float = 10.0
    setup_timeout_max_s: float = 30.0
    request_timeout_s: float = 30.0
    idle_s: float = 540.0
    rebootstraps: bool = True
    tls: SSLContext | None = None
    login: "Login | None" = None

    @property
    def addresses(self) -> str:
        """The bootstrap servers, for messages."""
        return ", ".join(f"{one.host}:{one.port}" for one in self.seeds)


class _Remote:
    """The connection of one address."""

    def __init__(self, place: Address) -> None:
        self.place = place
        self.channel: Channel | None = None
        self.attempt: asyncio.Task[Channel] | None = None
        self.renewal: asyncio.Task[None] | None = None
        self.failures = 0  # consecutive
        self.failure: RequestError | None = None  # the last of them
        self.not_before_s = 0.0

    @property
    def open_channel(self) -> Channel | None:
        channel = self.channel
        return channel if channel is not None and channel.is_open else None


class Connections:
    """All connections of a client."""

    def __init__(
        self,
        rules: ConnectionConfig,
        network: Connector,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self.rules = rules
        self.network = network
        self.clock = clock
        self.random = random
        self._remotes: dict[Address, _Remote] = {}
        self._buffer_pool = BufferPool(SPARE_BYTES_MAX)
        self._closed = False
        self._complaint = ""
        if rules.tls is not None:
            from ottla.transport.tls import TlsNetwork

            self.network = TlsNetwork(network, rules.tls)

    def open_to(self, broker: BrokerView) -> Channel | None:
        """Return the open connection to a broker, if there is one."""
        remote = self._remotes.get(Address(broker.host, broker.port))
        return None if remote is None else remote.open_channel

    def failure_of(self, broker: BrokerView) -> RequestError | None:
        """Return why the last attempt to connect to a broker failed; None if it did not."""
        remote = self._remotes.get(Address(broker.host, broker.port))
        return None if remote is None else remote.failure

    async def to(self, broker: BrokerView) -> Channel:
        """Return a connection to a broker; raises Disconnected or TimedOut."""
        return await self._reach(self._remote(Address(broker.host, broker.port)))

    async def any(self, brokers: Iterable[BrokerView]) -> Channel:
        """Return a connection to a known broker or else to a bootstrap server."""
        known = [self._remote(Address(one.host, one.port)) for one in brokers]
        open_ = [channel for remote in known if (channel := remote.open_channel) is not None]
        if open_:
            return min(open_, key=lambda one: (one.is_throttled, one.in_flight, self.random()))
        tries = self._in_turn(known)
        if self.rules.rebootstraps or not known:
            seeds = [self._remote(place) for place in self.rules.seeds]
            tries += [one for one in self._in_turn(seeds) if one not in tries]
        failure: RequestError = Disconnected("no broker is known: set bootstrap.servers")
        for remote in tries:
            try:
                return await self._reach(remote)
            except RequestError as error:
                # If one broker refuses us and another is down, the refusal is the error to report.
                if not isinstance(failure, AuthenticationFailed):
                    failure = error
        self._complain(failure)
        raise failure

    def _complain(self, failure: RequestError) -> None:
        """Log the failure once: a consumer that waits for records would not see it otherwise."""
        if failure.retriable and str(failure) != self._complaint and not self._closed:
            self._complaint = str(failure)
            _log.warning("no broker is reachable; the client keeps trying: %s", failure)

    def _note_reached(self, remote: _Remote) -> None:
        """Log the end of what `_complain` has logged, for the same readers."""
        if self._complaint:
            self._complaint = ""
            _log.warning("a broker is reachable again: %s", remote.place)

    def close_idle(self) -> None:
        """Close idle connections (connections.max.idle.ms)."""
        now_s = asyncio.get_running_loop().time()
        for remote in self._remotes.values():
            channel = remote.open_channel
            if (
                channel is not None
                and not channel.in_flight
                and 0 <= self.rules.idle_s < now_s - channel.last_used_s
            ):
                channel.close()

    def close_waiting(self) -> None:
        """Close the connections on which a request waits for its response."""
        for remote in self._remotes.values():
            channel = remote.open_channel
            if channel is not None and channel.in_flight:
                channel.close()

    async def close(self) -> None:
        """Close all connections; requests in flight fail and no connection is opened any more."""
        self._closed = True
        remotes = self._remotes.values()
        tasks: list[asyncio.Task[Any]] = []
        for remote in remotes:
            tasks += [task for task in (remote.attempt, remote.renewal) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for remote in remotes:
            if remote.channel is not None:
                remote.channel.close()

    def _remote(self, place: Address) -> _Remote:
        return self._remotes.setdefault(place, _Remote(place))

    def _in_turn(self, remotes: Iterable[_Remote]) -> list[_Remote]:
        """Sort by the time of the next allowed attempt; equal ones at random."""
        now_s = self.clock.elapsed_s()
        return sorted(remotes, key=lambda one: (max(one.not_before_s, now_s), self.random()))

    async def _reach(self, remote: _Remote) -> Channel:
        if self._closed:
            raise Disconnected(CLOSED)
        if (channel := remote.open_channel) is not None:
            return channel
        if remote.attempt is None:
            remote.attempt = asyncio.get_running_loop().create_task(self._attempt(remote))
            remote.attempt.add_done_callback(_noted)
        attempt = remote.attempt
        # Others may wait for the same attempt, so a cancelled caller does not cancel it.
        await asyncio.wait((attempt,))
        if attempt.cancelled():
            raise Disconnected(CLOSED)
        return attempt.result()

    async def _attempt(self, remote: _Remote) -> Channel:
        rules = self.rules
        try:
            await self.clock.sleep(max(0.0, remote.not_before_s - self.clock.elapsed_s()))
            doubled_s = rules.setup_timeout_s * 2 ** min(remote.failures, DOUBLINGS_MAX)
            channel = await open_channel(
                self.network,
                *remote.place,
                client_id=rules.client_id,
                software=rules.software,
                setup_timeout_s=min(doubled_s, rules.setup_timeout_max_s),
                request_timeout_s=rules.request_timeout_s,
                ended=lambda: self._ended(remote),
                buffer_pool=self._buffer_pool,
            )
            await self._log_in(remote, channel)
        except RequestError as error:
            remote.failures += 1
            remote.failure = error
            self._pause(remote)
            raise
        finally:
            remote.attempt = None
        remote.failures, remote.failure = 0, None
        self._note_reached(remote)
        remote.channel = channel
        return channel

    def _ended(self, remote: _Remote) -> None:
        """Start the backoff after a lost connection."""
        if remote.renewal is not None:
            remote.renewal.cancel()
        if remote.attempt is None:
            self._pause(remote)

    async def _log_in(self, remote: _Remote, channel: Channel) -> None:
        login = self.rules.login
        if login is None:
            return
        try:
            session_s = await login.on(channel, self.rules.request_timeout_s)
        except BaseException:
            channel.close()
            raise
        if session_s > 0:
            renewing = self._renew(channel, login, session_s)
            remote.renewal = asyncio.get_running_loop().create_task(renewing)

    async def _renew(self, channel: Channel, login: "Login", session_s: float) -> None:
        """Re-authenticate as often as the broker requires, while the connection lasts."""
        share, later = RENEWED_AFTER
        while session_s > 0:
            after_s = session_s * (share + later * self.random())
            await self.clock.sleep(max(after_s, RENEWED_S_MIN))
            # Re-authentication does not count as use, so an idle connection is still closed.
            used_s = channel.last_used_s
            channel.hold()
            try:
                session_s = await login.on(channel, self.rules.request_timeout_s)
            except RequestError as error:
                channel.fail(error)
                return
            channel.last_used_s = used_s
            channel.release()

    def _pause(self, remote: _Remote) -> None:
        pause_s = self.rules.backoff.pause_s(max(remote.failures, 1))
        remote.not_before_s = self.clock.elapsed_s() + pause_s


def _noted(attempt: asyncio.Task[Channel]) -> None:
    """Retrieve the error of an attempt that nobody waited for; the next caller tries again."""
    if not attempt.cancelled():
        attempt.exception()
