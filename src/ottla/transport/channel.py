"""A connection to a broker, seen from the client: requests go out, their answers come back.

Invariant: every request is settled once: by its answer, by its deadline, or by the end of the
connection. Requests follow each other without waiting, and answers come in their order; so a
request that is not answered in time ends the connection, because nothing behind it can be trusted
to come. What is asked is in a version that both ends speak. While the client logs in anew, only
the login is sent, and while the broker wants a pause nothing else either (KIP-219); what is asked
meanwhile waits for its end, in order.

A channel knows nothing of leaders or retries: that is its owner's.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from ottla.errors import ErrorCode, ProtocolViolation, RequestError
from ottla.protocol.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.conversation import ClientConversation, negotiate
from ottla.protocol.message import Api, Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Versions
from ottla.protocol.spares import Spares
from ottla.transport.failures import (
    WANTS_LOGIN,
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

# A fetch of 50 MB may bring a batch that is larger, and metadata of large clusters are some MB.
ANSWER_BYTES_MAX: Final = 1 << 30

# Written and not taken by the broker beyond this, `is_full` says so.
WRITE_BUFFER_BYTES: Final = 1 << 20


# A login has the connection for itself.
_LOGIN: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})


class Awaited(NamedTuple):
    """A request without an answer, and until when it may stay so."""

    tell: OnResponse
    deadline_s: float
    api: Api


class Channel(asyncio.BufferedProtocol):
    """One connection, from when it is made to when it is lost."""

    def __init__(
        self,
        address: str,
        client_id: str,
        ended: Callable[[], None],
        spares: Spares | None = None,
    ) -> None:
        self.address: Final = address
        self.versions: Mapping[int, Versions] = {}  # the broker's, by key; once it was greeted
        self.features: Mapping[str, int] = {}  # the levels that the cluster has agreed on
        self.last_used_s = 0.0
        self._conversation = ClientConversation(
            client_id, frame_bytes_max=ANSWER_BYTES_MAX, spares=spares
        )
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._awaited: deque[Awaited] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._recess = ThrottleQueue(self._loop, self._send_held)
        self._first: memoryview | None = None  # where the first bytes went, until they came
        self._has_served = False  # anything but the greeting
        self._reason: RequestError | None = None  # why it ended
        self.is_full = False  # the broker does not take what was written

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address}, {len(self._awaited)} awaited)"

    # What its owner asks.

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and self._reason is None

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._awaited) + len(self._recess.held)

    @property
    def is_resting(self) -> bool:
        """Whether the broker wanted a pause that is not over."""
        return self._recess.is_pause

    def version(self, api: Api) -> int:
        """The newest version of an API that both ends speak; NotSupported without one."""
        theirs = self.versions.get(api.key)
        version = None if theirs is None else negotiate(api.versions, theirs)
        if version is None:
            why = "not offered" if theirs is None else f"it has version {theirs} only"
            raise NotSupported(
                f"{api.name} is not supported by the broker at {self.address}: {why}"
            )
        return version

    def send(
        self, message: Message, timeout_s: float, *, version: int | None = None
    ) -> asyncio.Future[Message]:
        """Send a request; its answer or its failure comes by the future."""
        answer: asyncio.Future[Message] = self._loop.create_future()
        self._post(message, timeout_s, partial(_settle, answer), version, answer)
        return answer

    def post(
        self, message: Message, timeout_s: float, tell: OnResponse, *, version: int | None = None
    ) -> None:
        """Send a request; `tell` hears its answer or its failure, as soon as that is here.

        It must not raise: it is called between the answers.
        """
        self._post(message, timeout_s, tell, version)

    def send_unanswered(self, message: Message) -> None:
        """Send a request that has no answer, which is Produce with acks=0."""
        api = message.API
        assert api is not None
        self._writable()
        if self._recess.is_on:
            self._recess.held.append(QueuedRequest(message, self.version(api), 0, None))
        else:
            self._send_unanswered(message, self.version(api))

    async def ask(
        self, message: Message, answer: type[M], timeout_s: float, *, version: int | None = None
    ) -> M:
        """Send a request and wait for its answer."""
        given = await self.send(message, timeout_s, version=version)
        assert isinstance(given, answer)
        return given

    async def greet(self, software: tuple[str, str], timeout_s: float) -> None:
        """Learn what the broker speaks, in two steps if it does not know our newest version."""
        request = ApiVersionsRequest(
            client_software_name=software[0], client_software_version=software[1]
        )
        answer = await self.ask(
            request, ApiVersionsResponse, timeout_s, version=API_VERSIONS.versions.high
        )
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = next(
                (
                    Versions(one.min_version, one.max_version)
                    for one in answer.api_keys
                    if one.api_key == API_VERSIONS.key
                ),
                Versions(0, 0),
            )
            version = negotiate(API_VERSIONS.versions, theirs) or 0
            answer = await self.ask(request, ApiVersionsResponse, timeout_s, version=version)
        if answer.error_code:
            raise RequestError(ErrorCode.of(answer.error_code))
        self.versions = {
            one.api_key: Versions(one.min_version, one.max_version) for one in answer.api_keys
        }
        self.features = {one.name: one.max_version_level for one in answer.finalized_features}

    def hold(self) -> None:
        """Send nothing but a login, until `release`."""
        self._recess.log_in()

    def release(self) -> None:
        """The login is over: send what waited for it."""
        self._recess.logged_in()

    def fail(self, reason: RequestError) -> None:
        """End it for a reason: what is awaited fails with it."""
        self._end(reason)

    def close(self) -> None:
        """End it: what is awaited fails."""
        self._end(Disconnected(f"the connection to {self.address} was closed"))

    def _post(
        self,
        message: Message,
        timeout_s: float,
        tell: OnResponse,
        version: int | None,
        answer: asyncio.Future[Message] | None = None,
    ) -> None:
        api = message.API
        assert api is not None
        self._writable()
        if version is None:
            version = self.version(api)
        if self._recess.is_on and api not in _LOGIN:
            self._recess.held.append(QueuedRequest(message, version, timeout_s, tell, answer))
        else:
            self._send(message, version, timeout_s, tell)

    def _send(self, message: Message, version: int, timeout_s: float, tell: OnResponse) -> None:
        sent, buffers = self._conversation.send(message, version)
        self.last_used_s = self._loop.time()
        deadline_s = self.last_used_s + timeout_s
        self._awaited.append(Awaited(tell, deadline_s, sent.api))
        self._writable().writelines(buffers)
        timer = self._timer
        if timer is None or timer.when() > deadline_s:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline_s, self._look_at_deadlines)

    def _send_held(self, held: Iterable[QueuedRequest]) -> None:
        for one in held:
            if self._reason is not None:
                break
            if one.tell is None:
                self._send_unanswered(one.message, one.version)
            elif one.answer is None or not one.answer.done():
                self._send(one.message, one.version, one.timeout_s, one.tell)

    def _send_unanswered(self, message: Message, version: int) -> None:
        _, buffers = self._conversation.send(message, version, answered=False)
        self.last_used_s = self._loop.time()
        self._writable().writelines(buffers)

    def _writable(self) -> asyncio.Transport:
        if self._reason is not None or self._transport is None:
            raise self._reason or Disconnected(f"there is no connection to {self.address}")
        return self._transport

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        self.last_used_s = self._loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker is gone."""
        if isinstance(exc, ssl.SSLError) and not self._has_served:
            self._end(tls_failed(self.address, exc))
            return
        why = f": {exc}" if exc is not None else ""
        # Who does not like how we begin closes without a word.
        hint = "" if self._has_served else f"; {WANTS_LOGIN}"
        self._end(Disconnected(f"the broker at {self.address} closed the connection{why}{hint}"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        buffer = self._conversation.framer.buffer()
        if not self.versions and not self._conversation.framer.partial:
            self._first = buffer
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        conversation = self._conversation
        if self._reason is not None:
            return
        if self._first is not None:
            first, self._first = bytes(self._first[: min(nbytes, 2)]), None
            if (stranger := not_kafka(self.address, first)) is not None:
                self._end(stranger)
                return
        try:
            responses = conversation.responses(conversation.framer.filled(nbytes))
        except ProtocolViolation as violation:
            self._end(self._violated(violation))
            return
        if self.versions and responses:
            self._has_served = True
        for response in responses:
            pause_ms: int = getattr(response.message, "throttle_time_ms", 0)
            if pause_ms > 0:
                self._recess.rest(pause_ms / 1000)
            self._awaited.popleft().tell(response.message)
            if self._reason is not None:  # who heard it has closed the connection
                return
        if conversation.violation is not None:
            self._end(self._violated(conversation.violation))

    def eof_received(self) -> bool:
        """The broker sends nothing more: close."""
        return False

    def pause_writing(self) -> None:
        """The broker does not take what was written."""
        self.is_full = True

    def resume_writing(self) -> None:
        """The broker took it."""
        self.is_full = False

    # Ending.

    def _violated(self, violation: ProtocolViolation) -> RequestError:
        return Disconnected(f"{self.address} does not answer as a Kafka broker does: {violation}")

    def _look_at_deadlines(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        # Who gave up waiting is in the queue still, because its answer comes all the same.
        late = next((one for one in self._awaited if one.deadline_s <= now_s), None)
        if late is not None:
            self._end(TimedOut(f"{self.address} did not answer {late.api.name} in time"))
        elif self._awaited:
            next_s = min(one.deadline_s for one in self._awaited)
            self._timer = self._loop.call_at(next_s, self._look_at_deadlines)

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
        hearers = [
            *(one.tell for one in self._awaited),
            *(one.tell for one in self._recess.end() if one.tell is not None),
        ]
        self._awaited = deque()
        for tell in hearers:
            tell(reason)
        self._ended()


def _settle(answer: asyncio.Future[Message], word: Message | RequestError) -> None:
    if answer.done():
        return  # who asked has given up waiting
    if isinstance(word, RequestError):
        answer.set_exception(word)
    else:
        answer.set_result(word)


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
    spares: Spares | None = None,
) -> Channel:
    """Connect to a broker and learn what it speaks; Disconnected or TimedOut when that fails."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    channel = Channel(address, client_id, ended, spares)
    try:
        async with asyncio.timeout(setup_timeout_s):
            await network.connect(lambda: channel, host, port)
    except TimeoutError as error:
        raise TimedOut(f"{address} did not accept a connection in {setup_timeout_s:g} s") from error
    except OSError as error:
        raise not_connected(address, error) from error
    try:
        await channel.greet(software, request_timeout_s)
    except BaseException:
        channel.close()
        raise
    return channel
