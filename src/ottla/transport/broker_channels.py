"""The connections of a broker to the other brokers, and to the controller.

Invariant: a broker has one connection or one connection attempt at a time in each lane, and a
bounded number of requests in flight; further requests wait in order. Every request completes within
its timeout. After a failure the next attempt waits, longer each time, until the broker registers
again.

Nothing is retried: a request whose connection is lost may have been executed. ControllerChannel
repeats only what no controller has accepted.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.clock import Clock
from ottla.cluster.image import Address, Broker
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER, BrokerEpoch, BrokerId
from ottla.protocol.buffer_pool import BufferPool
from ottla.protocol.message import Message
from ottla.release import RELEASE
from ottla.transport.backoff import Backoff
from ottla.transport.channel import Channel, open_channel
from ottla.transport.failures import Disconnected, TimedOut
from ottla.transport.network import Connector

M = TypeVar("M", bound=Message)

SPARE_BYTES_MAX: Final = 24 * 1024 * 1024
"""Buffers for large responses that are kept for the next ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelsConfig:
    """How a broker connects to other brokers."""

    client_id: str
    listener: str  # the inter-broker listener
    backoff: Backoff
    setup_timeout_s: float = 10.0  # to connect, and for each request of the login
    in_flight_max: int = 5  # requests per connection
    lanes: int = 1  # connections per broker, so that a long request delays only some others


class NotRegistered(Disconnected):
    """The broker is not registered as far as is known: nothing was sent."""


class _Remote:
    """The connection to one broker."""

    def __init__(self, in_flight_max: int) -> None:
        self.address: Address | None = None
        self.epoch: BrokerEpoch | None = None
        self.channel: Channel | None = None
        self.attempt: asyncio.Task[Channel] | None = None
        self.turns = asyncio.Semaphore(in_flight_max)
        self.asked = 0  # requests that are in flight or wait
        self.failures = 0  # consecutive
        self.not_before_s = 0.0

    def end_turn(self, response: "asyncio.Future[Message] | None" = None) -> None:
        """Let the next request be sent."""
        self.asked -= 1
        self.turns.release()
        if response is not None:
            response.exception()  # nobody may wait for it; retrieve it for asyncio


class BrokerChannels:
    """One connection to each other broker, opened on demand.

    Requests of one connection are served in order. A long request delays those behind it, so
    replication, control requests and the forwarded requests of clients have separate
    BrokerChannels, and forwarded requests have several connections.
    """

    def __init__(
        self,
        node_id: BrokerId,
        config: ChannelsConfig,
        *,
        network: Connector,
        clock: Clock,
        broker: Callable[[BrokerId], Broker | None],
        serve: Callable[[Message], Awaitable[Message]],
        login: Callable[[Channel], Awaitable[None]] | None = None,
    ) -> None:
        """Channels of broker `node_id`.

        `broker` returns a registered broker. `serve` handles the requests of this broker to itself.
        `login` authenticates a new connection before it is used.
        """
        self._node_id = node_id
        self._config = config
        self._network = network
        self._clock = clock
        self._broker = broker
        self._serve = serve
        self._login = login
        self._remotes: dict[tuple[BrokerId, int], _Remote] = {}  # by broker and lane
        self._buffer_pool = BufferPool(SPARE_BYTES_MAX)
        self._is_closed = False

    async def ask(
        self, broker_id: BrokerId, message: Message, response_type: type[M], *, timeout_s: float
    ) -> M:
        """Send a request and return the response; raises Disconnected or TimedOut.

        Raises Disconnected at once if the broker is not registered, refuses the connection or
        closes it. A broker that does not react ends the request after the timeout.
        """
        async with self._time_limit(broker_id, message, timeout_s) as deadline_s:
            if broker_id == self._node_id:
                response = await self._serve(message)
            else:
                response = await self._send(broker_id, message, deadline_s)
        assert isinstance(response, response_type)
        return response

    async def _send(self, broker_id: BrokerId, message: Message, deadline_s: float) -> Message:
        lanes = (self._remote(broker_id, lane) for lane in range(self._config.lanes))
        remote = min(lanes, key=lambda one: one.asked)
        remote.asked += 1
        try:
            await remote.turns.acquire()
        except BaseException:
            remote.asked -= 1
            raise
        try:
            channel = await self._reach(broker_id, remote)
            response = channel.send(message, deadline_s - self._clock.elapsed_s())
        except BaseException:
            remote.end_turn()
            raise
        # The turn ends with the request: a cancelled caller does not take it back.
        response.add_done_callback(remote.end_turn)
        await asyncio.wait((response,))
        return response.result()

    async def channel(self, broker_id: BrokerId, *, lane: int = 0) -> Channel:
        """Return the open connection to another broker; raises Disconnected or TimedOut.

        Each lane has its own connection; `ask` uses the first ones. Requests that are sent on a
        channel directly do not count as in flight.
        """
        assert broker_id != self._node_id
        return await self._reach(broker_id, self._remote(broker_id, lane))

    async def close(self) -> None:
        """Close all connections; requests in flight fail and no connection is opened any more."""
        self._is_closed = True
        attempts = [one.attempt for one in self._remotes.values() if one.attempt is not None]
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        for remote in self._remotes.values():
            if remote.channel is not None:
                remote.channel.close()

    @asynccontextmanager
    async def _time_limit(
        self, broker_id: BrokerId, message: Message, timeout_s: float
    ) -> AsyncGenerator[float]:
        try:
            async with asyncio.timeout(timeout_s):
                yield self._clock.elapsed_s() + timeout_s
        except TimeoutError as error:
            assert message.API is not None
            raise TimedOut(
                f"no response from broker {broker_id} to {message.API.name} in {timeout_s:g} s"
            ) from error

    def _remote(self, broker_id: BrokerId, lane: int = 0) -> _Remote:
        remote = self._remotes.get((broker_id, lane))
        if remote is None:
            remote = self._remotes[broker_id, lane] = _Remote(self._config.in_flight_max)
        return remote

    async def _reach(self, broker_id: BrokerId, remote: _Remote) -> Channel:
        while True:
            if self._is_closed:
                raise Disconnected("this broker is stopping")
            address = self._follow_registration(broker_id, remote)
            channel = remote.channel
            if channel is not None and channel.is_open:
                return channel
            attempt = remote.attempt
            if attempt is None:
                attempting = self._attempt(remote, address)
                attempt = remote.attempt = asyncio.get_running_loop().create_task(attempting)
                attempt.add_done_callback(_retrieve_error)
            # Others may wait for the same attempt, so a cancelled caller does not cancel it.
            await asyncio.wait((attempt,))
            if not attempt.cancelled():
                return attempt.result()

    def _follow_registration(self, broker_id: BrokerId, remote: _Remote) -> Address:
        """Return the address of a broker; a new registration begins without a backoff."""
        broker = self._broker(broker_id)
        address = None if broker is None else broker.addresses.get(self._config.listener)
        if broker is None or address is None:
            raise NotRegistered(
                f"broker {broker_id} is not registered with listener {self._config.listener}"
            )
        if (address, broker.epoch) != (remote.address, remote.epoch):
            if remote.attempt is not None:
                remote.attempt.cancel()
                remote.attempt = None
            if remote.channel is not None and address != remote.address:
                remote.channel.close()
            remote.address, remote.epoch = address, broker.epoch
            remote.failures, remote.not_before_s = 0, 0.0
        return address

    async def _attempt(self, remote: _Remote, address: Address) -> Channel:
        config = self._config
        try:
            await self._clock.sleep(max(0.0, remote.not_before_s - self._clock.elapsed_s()))
            channel = await open_channel(
                self._network,
                address.host,
                address.port,
                client_id=config.client_id,
                software=("ottla", RELEASE),
                setup_timeout_s=config.setup_timeout_s,
                request_timeout_s=config.setup_timeout_s,
                ended=lambda: self._ended(remote),
                buffer_pool=self._buffer_pool,
            )
            await self._log_in(channel)
        except RequestError:
            remote.failures += 1
            self._pause(remote)
            raise
        finally:
            if remote.attempt is asyncio.current_task():
                remote.attempt = None
        remote.failures = 0
        remote.channel = channel
        return channel

    async def _log_in(self, channel: Channel) -> None:
        if self._login is not None:
            try:
                await self._login(channel)
            except BaseException:
                channel.close()
                raise

    def _ended(self, remote: _Remote) -> None:
        """Start the backoff after a lost connection."""
        if remote.attempt is None:
            self._pause(remote)

    def _pause(self, remote: _Remote) -> None:
        pause_s = self._config.backoff.pause_s(max(remote.failures, 1))
        remote.not_before_s = self._clock.elapsed_s() + pause_s


def _retrieve_error(attempt: asyncio.Task[Channel]) -> None:
    """Retrieve the error of an attempt that nobody waited for; the next caller tries again."""
    if not attempt.cancelled():
        attempt.exception()


class ControllerChannel:
    """Sends requests to the current controller, which may be this broker."""

    def __init__(
        self,
        channels: BrokerChannels,
        controller: Callable[[], BrokerId],
        *,
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        """A channel; `controller` returns the controller in the cluster image, or NO_BROKER."""
        self._channels = channels
        self._controller = controller
        self._clock = clock
        self._backoff = backoff

    async def ask(self, message: Message, response_type: type[M], *, timeout_s: float = 30.0) -> M:
        """Send a request and return the response; raises Disconnected or TimedOut.

        Waits for a controller, and asks again after NOT_CONTROLLER. A request whose connection is
        lost may have been executed: only the caller can decide whether to repeat it.
        """
        deadline_s = self._clock.elapsed_s() + timeout_s
        refused = 0
        while True:
            left_s = deadline_s - self._clock.elapsed_s()
            if left_s <= 0:
                raise Disconnected(f"no broker was the controller in {timeout_s:g} s")
            controller = self._controller()
            if controller != NO_BROKER:
                with suppress(NotRegistered):  # it has died, and its successor is not known yet
                    response = await self._channels.ask(
                        controller, message, response_type, timeout_s=left_s
                    )
                    if getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                        return response
            refused += 1
            left_s = deadline_s - self._clock.elapsed_s()
            await self._clock.sleep(max(0.0, min(self._backoff.pause_s(refused), left_s)))
