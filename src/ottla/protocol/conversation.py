"""The protocol state of both ends of a connection, without I/O.

Invariants. Responses are in the order of the requests. A server can complete requests in any order,
but sends a response only after all earlier ones. A client accepts a response only for its oldest
in-flight request. A violation is final: messages before it are returned, it is stored in
`violation` and raised by the next call, and nothing after it is read.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ottla.errors import ErrorCode, ProtocolViolation
from ottla.protocol.apis import (
    API_OF_KEY,
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    METADATA,
    PRODUCE,
)
from ottla.protocol.buffer_pool import BufferPool
from ottla.protocol.frames import FRAME_BYTES_MAX, Framer, ReadBuffer, frame_length
from ottla.protocol.headers import (
    CLIENT_ID_BYTES_MAX,
    REQUEST_START,
    RequestHeader,
    header_tags_end,
    read_request_header,
    read_response_header,
    request_header_end,
    response_body_position,
    write_response_header,
)
from ottla.protocol.message import OBJECTS_MAX, Api, Message
from ottla.protocol.primitives import Buffer
from ottla.protocol.reader import TooManyObjects
from ottla.protocol.schema import Versions

T = TypeVar("T")

RESPONSE_OBJECTS_MAX: Final = 4_000_000
"""The limit of a client, which trusts its broker; metadata of 200,000 partitions has 2 million."""

ALL_VERSIONS: Final[Mapping[int, Versions]] = {key: api.versions for key, api in API_OF_KEY.items()}

Response: TypeAlias = Message | Sequence[Buffer]
"""A response message, or its encoded body."""


OBJECTS_AT_ONCE: Final = 1000
"""A request with more elements is a LargeRequest; this many take about 10 ms to process."""

_COSTLY: Final = frozenset((DESCRIBE_CONFIGS, CREATE_TOPICS))


def objects_at_once(api: Api) -> int:
    """Return the limit of an API; it is lower if each element returns all settings of a topic."""
    return OBJECTS_AT_ONCE // 50 if api in _COSTLY else OBJECTS_AT_ONCE


class _Conversation:
    """The part that both ends share: frames, and the first violation."""

    def __init__(
        self,
        frame_bytes_max: int,
        huge_memory: Callable[[int], memoryview] | None = None,
        buffer_pool: BufferPool | None = None,
        read_buffer: ReadBuffer | None = None,
        in_place: bytes | None = None,
    ) -> None:
        self.framer = Framer(frame_bytes_max, huge_memory, buffer_pool, read_buffer, in_place)
        self._violation: ProtocolViolation | None = None

    @property
    def violation(self) -> ProtocolViolation | None:
        """The violation of the peer; if it is set, close the connection."""
        return self._violation or self.framer.violation

    def _read(self, frames: Iterable[memoryview], read: Callable[[memoryview], T]) -> list[T]:
        """Read frames up to the first violation; raise it if no frame precedes it."""
        if self._violation is not None:
            raise self._violation
        taken: list[T] = []
        for frame in frames:
            try:
                taken.append(read(frame))
            except ProtocolViolation as violation:
                self._violation = violation
                if not taken:
                    raise
                break
        return taken


class Request:
    """A request that a server received.

    `version` is the version of the response: that of the header, except for an unsupported version
    of ApiVersions, for which `refused` is UNSUPPORTED_VERSION. `sequence` counts the requests of
    the connection.
    """

    __slots__ = ("api", "header", "message", "refused", "sequence", "version")

    def __init__(
        self,
        api: Api,
        header: RequestHeader,
        message: Message,
        version: int,
        sequence: int,
        refused: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.api = api
        self.header = header
        self.message = message
        self.version = version
        self.sequence = sequence
        self.refused = refused

    def drop_message(self) -> None:
        """Drop the message, and with it the frame: `send` needs only the rest."""
        self.message = _UNREAD


class EncodedRequest(Request):
    """A request whose response is a frame that is encoded already."""

    __slots__ = ()


class LargeRequest(Request):
    """A request with many elements, which is decoded later by `read`."""

    __slots__ = ("frame", "objects_max", "position")

    def __init__(
        self,
        api: Api,
        header: RequestHeader,
        message: Message,
        version: int,
        sequence: int,
        *,
        frame: memoryview,
        position: int,
        objects_max: int,
    ) -> None:
        super().__init__(api, header, message, version, sequence)
        self.frame = frame
        self.position = position
        self.objects_max = objects_max

    def drop_message(self) -> None:
        """Drop the message and the frame."""
        super().drop_message()
        self.frame = memoryview(b"")

    def read(self) -> None:
        """Decode `message`. Raises ProtocolViolation."""
        read = _reader(self.api)
        self.message = read(self.frame, self.version, self.position, self.objects_max)


_IN_PLACE: Final = PRODUCE.key.to_bytes(2, "big")
"""The first bytes of Produce requests, which are appended where they were read."""


class ServerConversation(_Conversation):
    """The server side: decodes requests and orders the responses."""

    def __init__(
        self,
        versions: Mapping[int, Versions] = ALL_VERSIONS,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        objects_max: int = OBJECTS_MAX,
        huge_memory: Callable[[int], memoryview] | None = None,
        buffer_pool: BufferPool | None = None,
        read_buffer: ReadBuffer | None = None,
        objects_at_once: Callable[[Api], int] = lambda api: OBJECTS_MAX,
    ) -> None:
        """Requests with more objects than `objects_at_once` are returned as LargeRequest.

        The records of a Produce request can be views of `read_buffer`.
        """
        super().__init__(frame_bytes_max, huge_memory, buffer_pool, read_buffer, _IN_PLACE)
        self._versions = versions
        self._objects_max = objects_max
        self._objects_at_once = objects_at_once
        self._known: dict[tuple[int, int], _Known] = {}  # by API key and version
        self._received = 0
        self._answered = 0  # number of responses sent
        self._held: dict[int, list[Buffer]] = {}  # responses that wait for earlier ones

    @property
    def unanswered(self) -> int:
        """The number of requests whose response was not sent."""
        return self._received - self._answered

    @property
    def next_is_produce(self) -> bool:
        """Whether the next request is a Produce request, or nothing is known of it yet."""
        return self.framer.next_begins_with(_IN_PLACE)

    def next_frame(self) -> memoryview | None:
        """Return the frame of the next request that was read; None if there is none.

        The caller passes it to `request`, or its response to `send_encoded`.
        """
        if self._violation is not None:
            raise self._violation
        return self.framer.next_frame()

    def request(self, frame: memoryview) -> Request:
        """Decode the request in a frame; it now requires a response."""
        try:
            return self._request(frame)
        except ProtocolViolation as violation:
            self._violation = violation
            raise

    def receive(self, data: Buffer) -> list[Request]:
        """Return the requests that these bytes complete, up to a violation."""
        return self.requests(self.framer.receive(data))

    def requests(self, frames: Iterable[memoryview]) -> list[Request]:
        """Decode the requests in frames; each now requires a response."""
        return self._read(frames, self._request)

    def send(self, request: Request, answer: Response | None) -> list[Buffer]:
        """Return the buffers to send after `request` is completed; None means no response."""
        assert request.sequence >= self._answered, "a request gets one response"
        assert request.sequence not in self._held, "a request gets one response"
        if isinstance(answer, Message):
            assert isinstance(answer, request.api.response), "the response belongs to another API"
        buffers = [] if answer is None else _response_frame(request, answer)
        if request.sequence != self._answered:
            self._held[request.sequence] = buffers
            return []
        self._answered += 1
        while self._held and self._answered in self._held:
            buffers += self._held.pop(self._answered)
            self._answered += 1
        return buffers

    def send_encoded(self, response: list[Buffer]) -> list[Buffer]:
        """Return what to send after the request in the last frame got an encoded response."""
        sequence = self._received
        self._received += 1
        if sequence != self._answered:
            self._held[sequence] = response
            return []
        self._answered += 1
        return response

    def skip(self) -> None:
        """Leave the request in the last frame undecoded and without a response."""
        assert self._answered == self._received, "all earlier requests have their responses"
        self._received += 1
        self._answered += 1

    def skip_requests(self, api_keys: Container[int]) -> int:
        """Leave the next requests undecoded and without responses; return their number.

        Skips those with these API keys, up to the first other one or the end of what was read.
        """
        assert self._answered == self._received, "all earlier requests have their responses"
        skipped = self.framer.skip_frames(api_keys)
        self._received += skipped
        self._answered += skipped
        return skipped

    def encoded_request(self) -> Request:
        """Return the request in the last frame; its response will be an encoded frame."""
        sequence = self._received
        self._received += 1
        return EncodedRequest(PRODUCE, _NO_HEADER, _UNREAD, 0, sequence)

    def _request(self, frame: memoryview) -> Request:
        header, position = read_request_header(frame)
        version, sequence = header.api_version, self._received
        known = self._known.get((header.api_key, version)) or self._look_up(header)
        if known is None:
            # The body of an unsupported version cannot be decoded. The response in version 0 lists
            # the supported versions.
            nothing = API_VERSIONS.request.decode(b"", 0)
            self._received += 1
            refused = ErrorCode.UNSUPPORTED_VERSION
            return Request(API_VERSIONS, header, nothing, 0, sequence, refused)
        api, has_tags, at_once, read = known
        if has_tags:
            position = header_tags_end(frame, position)
        try:
            message = read(frame, version, position, at_once)
        except TooManyObjects:
            if at_once == self._objects_max:
                raise
            self._received += 1
            return LargeRequest(
                api,
                header,
                _UNREAD,
                version,
                sequence,
                frame=frame,
                position=position,
                objects_max=self._objects_max,
            )
        self._received += 1
        return Request(api, header, message, version, sequence)

    def _look_up(self, header: RequestHeader) -> "_Known | None":
        """Return how to read an API version; None for an unsupported version of ApiVersions."""
        key, version = header.api_key, header.api_version
        api, supported = API_OF_KEY.get(key), self._versions.get(key)
        if api is None or supported is None:
            raise ProtocolViolation(f"unknown API key {key}")
        if version not in supported or version not in api.versions:
            if api is not API_VERSIONS:
                raise ProtocolViolation(f"{api.name} version {version} is not supported")
            return None
        at_once = min(self._objects_at_once(api), self._objects_max)
        has_tags = api.request_header_version(version) >= 2
        known = self._known[key, version] = _Known(api, has_tags, at_once, _reader(api))
        return known


class _Known(NamedTuple):
    """How to read the requests of an API version."""

    api: Api
    has_tags: bool
    objects_at_once: int
    read: "_Read"


_Read: TypeAlias = Callable[[memoryview, int, int, int], Message]
"""Takes a frame, a version, a position and the maximum number of objects."""


class _Unread(Message):
    """The placeholder for a message that is not decoded yet, or not needed any more."""


_JOINED_BYTES_MAX: Final = 1024
"""The size up to which copying the beginning of a body, or a whole request, costs less than sending
it by itself."""

_UNREAD: Final = _Unread()
_NO_HEADER: Final = RequestHeader(PRODUCE.key, 0, 0, None)


def _reader(api: Api) -> _Read:
    return _decode_metadata if api is METADATA else api.request.decode


def _decode_metadata(frame: memoryview, version: int, position: int, objects_max: int) -> Message:
    """Decode a Metadata request and ignore bytes after it.

    librdkafka 2.16 sends three extra bytes when it requests all topics in a flexible version: it
    encodes the array length in the old form. Kafka ignores them, too.
    """
    return METADATA.request.decode_prefix(frame, version, position, objects_max)[0]


def _response_frame(request: Request, answer: Response) -> list[Buffer]:
    if type(request) is EncodedRequest:
        assert not isinstance(answer, Message)
        return [*answer]
    header = write_response_header(
        request.header.correlation_id, request.api.response_header_version(request.version)
    )
    body = answer.buffers(request.version) if isinstance(answer, Message) else answer
    return _frame(header, body)


def _frame(header: bytes, body: Sequence[Buffer]) -> list[Buffer]:
    size = len(header) + sum(map(len, body))
    first = body[0] if body else b""
    if type(first) is bytes and len(first) <= _JOINED_BYTES_MAX:
        return [frame_length(size) + header + first, *body[1:]]
    return [frame_length(size) + header, *body]


class InFlightRequest(NamedTuple):
    """A request without a response yet."""

    api: Api
    version: int
    correlation_id: int


class _Headers(NamedTuple):
    """The headers of an API version: how those of requests end, and the version of responses."""

    request_end: bytes
    response_version: int


class ReceivedResponse(NamedTuple):
    """A response that a client received."""

    request: InFlightRequest
    message: Message
    version: int
    """The version of the response: the request's, except for an unsupported ApiVersions."""


class ClientConversation(_Conversation):
    """The client side: encodes requests, which can be pipelined, and matches responses."""

    def __init__(
        self,
        client_id: str | None = None,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        buffer_pool: BufferPool | None = None,
    ) -> None:
        super().__init__(frame_bytes_max, buffer_pool=buffer_pool)
        if client_id is not None and len(client_id.encode()) > CLIENT_ID_BYTES_MAX:
            raise ValueError(f"client id is longer than {CLIENT_ID_BYTES_MAX} bytes")
        self._client_id = client_id
        self._correlation_id = 0
        self._headers: dict[tuple[Api, int], _Headers] = {}  # of the versions that were sent
        self._awaited: deque[InFlightRequest] = deque()

    @property
    def awaited(self) -> int:
        """The number of in-flight requests."""
        return len(self._awaited)

    def send(
        self, message: Message, version: int, *, answered: bool = True
    ) -> tuple[InFlightRequest, list[Buffer]]:
        """Encode a request; `answered` is False for Produce with acks=0."""
        api = message.API
        assert api is not None, "the message has no API"
        assert isinstance(message, api.request), "the message is not a request"
        headers = self._headers.get((api, version)) or self._headers_of(api, version)
        body = message.buffers(version)
        sent = InFlightRequest(api, version, self._correlation_id)
        header = REQUEST_START.pack(api.key, version, sent.correlation_id) + headers.request_end
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        if answered:
            self._awaited.append(sent)
        if sum(map(len, body)) <= _JOINED_BYTES_MAX:
            body = [b"".join(body)]
        return sent, _frame(header, body)

    def _headers_of(self, api: Api, version: int) -> "_Headers":
        end = request_header_end(self._client_id, api.request_header_version(version))
        headers = _Headers(end, api.response_header_version(version))
        self._headers[api, version] = headers
        return headers

    def receive(self, data: Buffer) -> list[ReceivedResponse]:
        """Return the responses that these bytes complete, up to a violation."""
        return self.responses(self.framer.receive(data))

    def responses(self, frames: Iterable[memoryview]) -> list[ReceivedResponse]:
        """Decode the responses in frames, each for the oldest in-flight request."""
        return self._read(frames, self._response)

    def _response(self, frame: memoryview) -> ReceivedResponse:
        correlation_id = read_response_header(frame)
        if not self._awaited:
            raise ProtocolViolation(f"response {correlation_id} without a request")
        sent = self._awaited.popleft()
        if sent.correlation_id != correlation_id:
            raise ProtocolViolation(f"response {correlation_id}, expected {sent.correlation_id}")
        version = sent.version
        position = response_body_position(frame, self._headers[sent.api, version].response_version)
        if sent.api is API_VERSIONS and _refused(frame, position):
            version = 0
        message = sent.api.response.decode(
            frame, version, position=position, objects_max=RESPONSE_OBJECTS_MAX
        )
        return ReceivedResponse(sent, message, version)


def _refused(frame: memoryview, position: int) -> bool:
    """Whether an ApiVersions response reports an unsupported version; it then has version 0."""
    code = int.from_bytes(frame[position : position + 2], "big")
    return code == ErrorCode.UNSUPPORTED_VERSION


def negotiate(ours: Versions, theirs: Versions) -> int | None:
    """Return the highest version that both ends support; None if there is none."""
    newest = min(ours.high, theirs.high)
    return newest if newest >= max(ours.low, theirs.low) else None
