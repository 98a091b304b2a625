"""A connection to a broker, seen from the client: requests go out, their answers come back.

Invariant: every request is settled once: by its answer, by its deadline, or by the end of the
connection. Requests follow each other without waiting, and answers come in their order; so a
request that is not answered in time ends the connection, because nothing behind it can be trusted
to come. What is asked is in a version that both ends speak.

A channel knows nothing of leaders or retries: that is its owner's.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from ottla.errors import ErrorCode, ProtocolViolation, RequestError
from ottla.protocol.apis import API_VERSIONS, Api
from ottla.protocol.conversation import ClientConversation, negotiate
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Versions
from ottla.transport.network import Connector

M = TypeVar("M", bound=Message)

# A fetch of 50 MB may bring a batch that is larger, and metadata of large clusters are some MB.
ANSWER_BYTES_MAX: Final = 1 << 30

# Written and not taken by the broker beyond this, `is_full` says so.
WRITE_BUFFER_BYTES: Final = 1 << 20


class Disconnected(RequestError):
    """The connection could not be made or has ended; what was asked may have been done."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class TimedOut(RequestError):
    """There was no answer in time; what was asked may have been done, or may be done yet."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class NotSupported(RequestError):
    """The broker does not offer an API, or no version of it that we speak."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class Awaited(NamedTuple):
    """A request without an answer, and until when it may stay so."""

    answer: asyncio.Future[Message]
    deadline_s: float
    api: Api


class Channel(asyncio.BufferedProtocol):
    """One connection, from when it is made to when it is lost."""

    def __init__(self, address: str, client_id: str, ended: Callable[[], None]) -> None:
        self.address: Final = address
        self.versions: Mapping[int, Versions] = {}  # the broker's, by key; once it was greeted
        self.last_used_s = 0.0
        self._conversation = ClientConversation(client_id, frame_bytes_max=ANSWER_BYTES_MAX)
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._awaited: deque[Awaited] = deque()
        self._timer: asyncio.TimerHandle | None = None
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
        return len(self._awaited)

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
        api = message.API
        assert api is not None
        transport = self._writable()
        sent, buffers = self._conversation.send(
            message, self.version(api) if version is None else version
        )
        answer: asyncio.Future[Message] = self._loop.create_future()
        self.last_used_s = self._loop.time()
        deadline_s = self.last_used_s + timeout_s
        self._awaited.append(Awaited(answer, deadline_s, sent.api))
        transport.writelines(buffers)
        timer = self._timer
        if timer is None or timer.when() > deadline_s:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline_s, self._look_at_deadlines)
        return answer

    def send_unanswered(self, message: Message) -> None:
        """Send a request that has no answer, which is Produce with acks=0."""
        api = message.API
        assert api is not None
        transport = self._writable()
        _, buffers = self._conversation.send(message, self.version(api), answered=False)
        self.last_used_s = self._loop.time()
        transport.writelines(buffers)

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

    def close(self) -> None:
        """End it: what is awaited fails."""
        self._end(Disconnected(f"the connection to {self.address} was closed"))

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
        why = f": {exc}" if exc is not None else ""
        self._end(Disconnected(f"the broker at {self.address} closed the connection{why}"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._conversation.framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        conversation = self._conversation
        if self._reason is not None:
            return
        try:
            responses = conversation.responses(conversation.framer.filled(nbytes))
        except ProtocolViolation as violation:
            self._end(self._violated(violation))
            return
        for response in responses:
            awaited = self._awaited.popleft()
            if not awaited.answer.done():
                awaited.answer.set_result(response.message)
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
        awaited, self._awaited = self._awaited, deque()
        for one in awaited:
            if not one.answer.done():
                one.answer.set_exception(reason)
        self._ended()


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
) -> Channel:
    """Connect to a broker and learn what it speaks; Disconnected or TimedOut when that fails."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    channel = Channel(address, client_id, ended)
    try:
        async with asyncio.timeout(setup_timeout_s):
            await network.connect(lambda: channel, host, port)
    except TimeoutError as error:
        raise TimedOut(f"{address} did not accept a connection in {setup_timeout_s:g} s") from error
    except OSError as error:
        raise Disconnected(_why_not(address, error)) from error
    try:
        await channel.greet(software, request_timeout_s)
    except BaseException:
        channel.close()
        raise
    return channel


def _why_not(address: str, error: OSError) -> str:
    """What to say of a connection that could not be made, with what to do."""
    if isinstance(error, ConnectionRefusedError):
        return (
            f"connection refused at {address}: is the broker running? "
            "`ottla dev` starts one on 127.0.0.1:9092"
        )
    return f"no connection to {address}: {error.strerror or error}"
