"""A client's connection to a broker: requests out, responses in.

Requests are pipelined and responses arrive in order. While the client re-authenticates, the channel
sends only the login, and while the broker throttles it (KIP-219), nothing; other requests are
queued. A channel does not know leaders or retries: those belong to its owner.

Invariant: every request completes once: by its response, its deadline or the end of the connection.
A request that misses its deadline ends the connection, because the responses after it could not be
matched any more.
Invariant: a request is sent in a version that both ends support.
"""

import asyncio
import select
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from ottla.errors import ErrorCode, ProtocolViolation, RequestError
from ottla.protocol.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.buffer_pool import BufferPool
from ottla.protocol.conversation import ClientConversation, negotiate
from ottla.protocol.message import Api, Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Versions
from ottla.transport.failures import (
    SEE_LOG,
    WANTS_LOGIN,
    WANTS_TLS,
    AuthenticationFailed,
    Disconnected,
    NotSupported,
    TimedOut,
    not_connected,
    not_kafka,
    tls_failed,
)
from ottla.transport.network import Connector
from ottla.transport.throttle_queue import OnResponse, QueuedRequest, ThrottleQueue

__all__ = [
    "AuthenticationFailed",
    "Channel",
    "Disconnected",
    "NotSupported",
    "TimedOut",
    "open_channel",
]

M = TypeVar("M", bound=Message)

RESPONSE_BYTES_MAX: Final = 1 << 30
"""A fetch of 50 MB may return one larger batch; metadata of large clusters takes some MB."""

WRITE_BUFFER_BYTES: Final = 1 << 20
"""Unsent bytes above which `is_full` is true."""

# Only these are sent during a login.
_LOGIN: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})


class InFlight(NamedTuple):
    """A request that was sent and has no response yet."""

    on_response: OnResponse
    deadline_s: float
    api: Api


class Channel(asyncio.BufferedProtocol):
    """One connection to a broker."""

    def __init__(
        self,
        address: str,
        client_id: str,
        ended: Callable[[], None],
        buffer_pool: BufferPool | None = None,
    ) -> None:
        self.address: Final = address
        self.versions: Mapping[int, Versions] = {}  # of the broker, by API key; known after `greet`
        self.features: Mapping[str, int] = {}  # the cluster's finalized features
        self.last_used_s = 0.0
        self._conversation = ClientConversation(
            client_id, frame_bytes_max=RESPONSE_BYTES_MAX, buffer_pool=buffer_pool
        )
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[InFlight] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._throttle_queue = ThrottleQueue(self._loop, self._send_queued)
        self._first: memoryview | None = None  # the buffer of the first bytes, until they arrive
        self._has_served = False  # whether it has answered more than ApiVersions
        self._reason: RequestError | None = None  # why the connection ended
        self.is_full = False  # the broker does not read what was written

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address}, {len(self._in_flight)} in flight)"

    # Called by the owner.

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and self._reason is None

    def is_ended_by_peer(self) -> bool:
        """Whether the broker has closed the connection, also before the event loop notices."""
        if not self.is_open:
            return True
        assert self._transport is not None
        connected = self._transport.get_extra_info("socket")
        if connected is None or not hasattr(select, "POLLRDHUP"):  # simulated, or not Linux
            return False
        polled = select.poll()
        polled.register(connected.fileno(), select.POLLRDHUP)
        return bool(polled.poll(0))

    @property
    def in_flight(self) -> int:
        """The number of requests without a response, queued ones included."""
        return len(self._in_flight) + len(self._throttle_queue.requests)

    @property
    def is_throttled(self) -> bool:
        """Whether the broker throttles this connection (KIP-219)."""
        return self._throttle_queue.is_throttled

    def version(self, api: Api) -> int:
        """Return the newest version of an API that both ends support, or raise NotSupported."""
        theirs = self.versions.get(api.key)
        version = None if theirs is None else negotiate(api.versions, theirs)
        if version is None:
            why = "not offered" if theirs is None else f"it offers version {theirs} only"
            raise NotSupported(
                f"{api.name} is not supported by the broker at {self.address}: {why}"
            )
        return version

    def send(
        self, message: Message, timeout_s: float, *, version: int | None = None
    ) -> asyncio.Future[Message]:
        """Send a request; the future receives the response or the error."""
        response: asyncio.Future[Message] = self._loop.create_future()
        self._post(message, timeout_s, partial(_settle, response), version, response)
        return response

    def post(
        self,
        message: Message,
        timeout_s: float,
        on_response: OnResponse,
        *,
        version: int | None = None,
    ) -> None:
        """Send a request; `on_response` is called with the response or the error.

        It must not raise: it is called while responses are being read.
        """
        self._post(message, timeout_s, on_response, version)

    def send_unanswered(self, message: Message) -> None:
        """Send a request that has no response: Produce with acks=0."""
        api = message.API
        assert api is not None
        self._writable()
        if self._throttle_queue.is_active:
            self._throttle_queue.requests.append(QueuedRequest(message, self.version(api), 0, None))
        else:
            self._send_unanswered(message, self.version(api))

    async def ask(
        self, message: Message, kind: type[M], timeout_s: float, *, version: int | None = None
    ) -> M:
        """Send a request and wait for its response."""
        response = await self.send(message, timeout_s, version=version)
        assert isinstance(response, kind)
        return response

    async def greet(self, software: tuple[str, str], timeout_s: float) -> None:
        """Learn the broker's versions, in two steps if it does not know our ApiVersions version."""
        request = ApiVersionsRequest(
            client_software_name=software[0], client_software_version=software[1]
        )
        response = await self.ask(
            request, ApiVersionsResponse, timeout_s, version=API_VERSIONS.versions.high
        )
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = next(
                (
                    Versions(one.min_version, one.max_version)
                    for one in response.api_keys
                    if one.api_key == API_VERSIONS.key
                ),
                Versions(0, 0),
            )
            version = negotiate(API_VERSIONS.versions, theirs) or 0
            response = await self.ask(request, ApiVersionsResponse, timeout_s, version=version)
        if response.error_code:
            raise RequestError(ErrorCode.of(response.error_code))
        self.versions = {
            one.api_key: Versions(one.min_version, one.max_version) for one in response.api_keys
        }
        self.features = {one.name: one.max_version_level for one in response.finalized_features}

    def hold(self) -> None:
        """Queue all requests but the login, until `release`."""
        self._throttle_queue.begin_authentication()

    def release(self) -> None:
        """Send the requests that were queued during the login."""
        self._throttle_queue.end_authentication()

    def fail(self, reason: RequestError) -> None:
        """Close the connection; requests in flight fail with the reason."""
        self._end(reason)

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._end(Disconnected(f"the connection to {self.address} was closed"))

    def _post(
        self,
        message: Message,
        timeout_s: float,
        on_response: OnResponse,
        version: int | None,
        response: asyncio.Future[Message] | None = None,
    ) -> None:
        api = message.API
        assert api is not None
        self._writable()
        if version is None:
            version = self.version(api)
        if self._throttle_queue.is_active and api not in _LOGIN:
            self._throttle_queue.requests.append(
                QueuedRequest(message, version, timeout_s, on_response, response)
            )
        else:
            self._send(message, version, timeout_s, on_response)

    def _send(
        self, message: Message, version: int, timeout_s: float, on_response: OnResponse
    ) -> None:
        sent, buffers = self._conversation.send(message, version)
        self.last_used_s = self._loop.time()
        deadline_s = self.last_used_s + timeout_s
        self._in_flight.append(InFlight(on_response, deadline_s, sent.api))
        self._writable().writelines(buffers)
        timer = self._timer
        if timer is None or timer.when() > deadline_s:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline_s, self._check_deadlines)

    def _send_queued(self, requests: Iterable[QueuedRequest]) -> None:
        for one in requests:
            if self._reason is not None:
                break
            if one.on_response is None:
                self._send_unanswered(one.message, one.version)
            elif one.response is None or not one.response.done():
                self._send(one.message, one.version, one.timeout_s, one.on_response)

    def _send_unanswered(self, message: Message, version: int) -> None:
        _, buffers = self._conversation.send(message, version, answered=False)
        self.last_used_s = self._loop.time()
        self._writable().writelines(buffers)

    def _writable(self) -> asyncio.Transport:
        if self._reason is not None or self._transport is None:
            raise self._reason or Disconnected(f"not connected to {self.address}")
        return self._transport

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        self.last_used_s = self._loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests in flight."""
        # The client has closed it, or the TLS handshake failed, which whoever connects is told.
        if self._reason is not None or self._transport is None:
            return
        if isinstance(exc, ssl.SSLError) and not self._has_served:
            self._end(tls_failed(self.address, exc))
            return
        why = f": {exc}" if exc is not None else ""
        closed = f"the broker at {self.address} closed the connection"
        if not self.versions:
            hint = SEE_LOG if self._is_encrypted else f"{SEE_LOG}; {WANTS_TLS}"
            self._end(Disconnected(f"{closed} before its first response{why}; {hint}"))
            return
        # A broker with SASL answers ApiVersions before the login, and closes at other requests.
        hint = "" if self._has_served else f"; {WANTS_LOGIN}"
        self._end(Disconnected(f"{closed}{why}{hint}"))

    @property
    def _is_encrypted(self) -> bool:
        assert self._transport is not None
        return self._transport.get_extra_info("sslcontext") is not None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that the next bytes are read into."""
        buffer = self._conversation.framer.buffer()
        if not self.versions and not self._conversation.framer.partial:
            self._first = buffer
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Complete the requests whose responses have arrived."""
        conversation = self._conversation
        if self._reason is not None:
            return
        if self._first is not None:
            first, self._first = bytes(self._first[: min(nbytes, 2)]), None
            if (error := not_kafka(self.address, first)) is not None:
                self._end(error)
                return
        try:
            responses = conversation.responses(conversation.framer.filled(nbytes))
        except ProtocolViolation as violation:
            self._end(self._violated(violation))
            return
        if self.versions and responses:
            self._has_served = True
        for response in responses:
            throttle_ms: int = getattr(response.message, "throttle_time_ms", 0)
            if throttle_ms > 0:
                self._throttle_queue.throttle(throttle_ms / 1000)
            self._in_flight.popleft().on_response(response.message)
            if self._reason is not None:  # the callback has closed the connection
                return
        if conversation.violation is not None:
            self._end(self._violated(conversation.violation))

    def eof_received(self) -> bool:
        """Close: the broker sends nothing more."""
        return False

    def pause_writing(self) -> None:
        """Note that the broker does not read."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Note that the broker reads again."""
        self.is_full = False

    # Closing.

    def _violated(self, violation: ProtocolViolation) -> RequestError:
        return Disconnected(
            f"invalid response from {self.address}, is it a Kafka broker? {violation}"
        )

    def _check_deadlines(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        # Cancelled requests stay in the queue, because their responses arrive all the same.
        late = next((one for one in self._in_flight if one.deadline_s <= now_s), None)
        if late is not None:
            self._end(TimedOut(f"no response from {self.address} to {late.api.name} in time"))
        elif self._in_flight:
            next_s = min(one.deadline_s for one in self._in_flight)
            self._timer = self._loop.call_at(next_s, self._check_deadlines)

    def _end(self, reason: RequestError) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        if self._timer is not None:
            self._timer.cancel()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._conversation.framer.drop()
        callbacks = [
            *(one.on_response for one in self._in_flight),
            *(
                one.on_response
                for one in self._throttle_queue.drain()
                if one.on_response is not None
            ),
        ]
        self._in_flight = deque()
        for on_response in callbacks:
            on_response(reason)
        self._ended()


def _settle(response: asyncio.Future[Message], result: Message | RequestError) -> None:
    if response.done():
        return  # the caller was cancelled
    if isinstance(result, RequestError):
        response.set_exception(result)
    else:
        response.set_result(result)


async def open_channel(
    network: Connector,
    host: str,
    port: int,
    *,
    client_id: str,
    software: tuple[str, str],
    setup_timeout_s: float,
    request_timeout_s: float,
    ended: Callable[[], Any],
    buffer_pool: BufferPool | None = None,
) -> Channel:
    """Connect to a broker and learn its versions; raises Disconnected or TimedOut."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    channel = Channel(address, client_id, ended, buffer_pool)
    try:
        async with asyncio.timeout(setup_timeout_s):
            await network.connect(lambda: channel, host, port)
    except TimeoutError as error:
        raise TimedOut(f"{address} did not accept a connection in {setup_timeout_s:g} s") from error
    except OSError as error:
        raise not_connected(address, host, error) from error
    try:
        await channel.greet(software, request_timeout_s)
    except BaseException:
        channel.close()
        raise
    return channel
