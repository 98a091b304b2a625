"""Both ends of a connection, joined without a socket."""

import struct
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cases import each_case
from ottla.errors import ErrorCode, ProtocolViolation
from ottla.protocol.apis import (
    API_OF_KEY,
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
)
from ottla.protocol.conversation import (
    ALL_VERSIONS,
    ClientConversation,
    InFlightRequest,
    ReceivedResponse,
    Request,
    ServerConversation,
    negotiate,
)
from ottla.protocol.headers import RequestHeader, write_request_header
from ottla.protocol.message import Api, Message
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import NEVER, Versions
from ottla.protocol.writer import EncodingError
from protocol_values import example, varint
from sampling import examples


def joined(buffers: Sequence[Buffer]) -> bytes:
    return b"".join(buffers)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def raw_request(key: int, version: int, body: bytes = b"", client_id: str | None = None) -> bytes:
    """Return a request with any key and version, with a header of version 1."""
    return frame(write_request_header(RequestHeader(key, version, 5, client_id), 1) + body)


def heartbeat(group: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=1, member_id="m")


def answer(code: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


@each_case("api", API_OF_KEY.values(), ids=lambda api: api.name)
def test_every_api_in_every_version(api: Api) -> None:
    client, server = ClientConversation("ottla"), ServerConversation()
    for version in api.versions:
        asked, answered = example(api.request, version), example(api.response, version)
        if isinstance(answered, ApiVersionsResponse):
            answered.error_code = 0
        sent, buffers = client.send(asked, version)
        (request,) = server.receive(joined(buffers))
        assert request.api is api
        assert request.version == request.header.api_version == version
        assert request.header.client_id == "ottla"
        assert request.header.correlation_id == sent.correlation_id
        assert request.message == asked
        assert request.refused is ErrorCode.NONE
        assert (client.awaited, server.unanswered) == (1, 1)
        (response,) = client.receive(joined(server.send(request, answered)))
        assert response == ReceivedResponse(sent, answered, version)
        assert (client.awaited, server.unanswered) == (0, 0)


@each_case("client_id", [None, "", "é\U0001f600", "x" * 32_767])
@each_case("version", [0, 4])
def test_client_ids(client_id: str | None, version: int) -> None:
    client, server = ClientConversation(client_id), ServerConversation()
    (request,) = server.receive(joined(client.send(heartbeat("g"), version)[1]))
    assert request.header.client_id == client_id
    assert request.message == heartbeat("g")


@settings(max_examples=examples(30, usual=60), deadline=None, derandomize=True, database=None)
@given(st.permutations(range(12)), st.integers(1, 400))
def test_responses_are_sent_in_request_order(order: list[int], size: int) -> None:
    client, server = ClientConversation(), ServerConversation()
    stream = b"".join(joined(client.send(heartbeat(f"g{n}"), n % 5)[1]) for n in range(12))
    requests: list[Request] = []
    for start in range(0, len(stream), size):
        requests += server.receive(stream[start : start + size])
    assert [request.sequence for request in requests] == list(range(12))
    left = b""
    finished: set[int] = set()
    for number in order:
        buffers = server.send(requests[number], answer(number))
        finished.add(number)
        leaving = next((n for n in range(12) if n not in finished), 12)
        assert server.unanswered == 12 - leaving
        left += joined(buffers)
    responses: list[ReceivedResponse] = []
    for start in range(0, len(left), size):
        responses += client.receive(left[start : start + size])
    assert [response.message for response in responses] == [answer(n) for n in range(12)]
    assert [response.request.correlation_id for response in responses] == list(range(12))


class Joined(RuleBasedStateMachine):
    """Random sends, partial reads, responses in any order, and requests without a response."""

    def __init__(self) -> None:
        super().__init__()
        self.client, self.server = ClientConversation("c"), ServerConversation()
        self.to_server = self.to_client = b""
        self.open: list[Request] = []
        self.expected: list[tuple[int, int]] = []  # correlation id and code, in order
        self.codes: dict[int, int] = {}
        self.sent = 0

    @rule(version=st.sampled_from([0, 3, 4]))
    def ask(self, version: int) -> None:
        sent, buffers = self.client.send(heartbeat("g"), version)
        self.to_server += joined(buffers)
        self.codes[sent.correlation_id] = self.sent % 100
        self.expected.append((sent.correlation_id, self.sent % 100))
        self.sent += 1

    @rule(version=st.sampled_from([3, 9, 13]))
    def produce_without_answer(self, version: int) -> None:
        request = ProduceRequest(acks=0, timeout_ms=1, topic_data=())
        self.to_server += joined(self.client.send(request, version, answered=False)[1])

    @precondition(lambda self: bool(self.to_server))
    @rule(size=st.integers(1, 200))
    def server_reads(self, size: int) -> None:
        self.open += self.server.receive(self.to_server[:size])
        self.to_server = self.to_server[size:]

    @precondition(lambda self: bool(self.open))
    @rule(pick=st.integers(0, 1000))
    def server_answers(self, pick: int) -> None:
        request = self.open.pop(pick % len(self.open))
        if request.api is PRODUCE:
            buffers = self.server.send(request, None)
        else:
            message = answer(self.codes[request.header.correlation_id])
            whole = pick % 2 == 0
            body = message if whole else message.buffers(request.version)
            buffers = self.server.send(request, body)
        self.to_client += joined(buffers)

    @precondition(lambda self: bool(self.to_client))
    @rule(size=st.integers(1, 200))
    def client_reads(self, size: int) -> None:
        for response in self.client.receive(self.to_client[:size]):
            correlation_id, code = self.expected.pop(0)
            assert response.request.correlation_id == correlation_id
            assert response.message == answer(code)
        self.to_client = self.to_client[size:]

    @invariant()
    def counts_agree(self) -> None:
        assert self.client.awaited == len(self.expected)
        assert self.server.unanswered >= len(self.open)

    def teardown(self) -> None:
        while self.to_server or self.open or self.to_client:
            if self.to_server:
                self.server_reads(1000)
            elif self.open:
                self.server_answers(len(self.open) - 1)
            else:
                self.client_reads(1000)
        assert not self.expected
        assert self.client.awaited == self.server.unanswered == 0


TestJoined = Joined.TestCase
TestJoined.settings = settings(
    max_examples=examples(20, usual=60),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
)


def test_produce_without_response_does_not_block() -> None:
    client, server = ClientConversation(), ServerConversation()
    silent = ProduceRequest(acks=0, timeout_ms=1, topic_data=())
    stream = joined(client.send(heartbeat("a"), 4)[1])
    stream += joined(client.send(silent, 9, answered=False)[1])
    stream += joined(client.send(heartbeat("b"), 4)[1])
    first, second, third = server.receive(stream)
    assert server.send(third, answer(3)) == []
    assert server.send(second, None) == []
    left = joined(server.send(first, answer(1)))
    assert [r.message for r in client.receive(left)] == [answer(1), answer(3)]
    assert (client.awaited, server.unanswered) == (0, 0)


def test_request_gets_one_response() -> None:
    client, server = ClientConversation(), ServerConversation()
    stream = joined(client.send(heartbeat("a"), 4)[1] + client.send(heartbeat("b"), 4)[1])
    first, second = server.receive(stream)
    server.send(second, answer(0))
    with pytest.raises(AssertionError, match="one response"):
        server.send(second, answer(0))
    server.send(first, answer(0))
    with pytest.raises(AssertionError, match="one response"):
        server.send(first, answer(0))


def test_unencodable_response_can_be_replaced() -> None:
    client, server = ClientConversation(), ServerConversation()
    (request,) = server.receive(joined(client.send(heartbeat("a"), 4)[1]))
    with pytest.raises(EncodingError):
        server.send(request, answer(40_000))
    (response,) = client.receive(joined(server.send(request, answer(4))))
    assert response.message == answer(4)


def test_records_are_sent_without_a_copy() -> None:
    client, server = ClientConversation(), ServerConversation()
    batch = bytes(100_000)
    asked = example(PRODUCE.request, 9)
    assert isinstance(asked, ProduceRequest)
    asked.topic_data[0].partition_data[0].records = batch
    _, buffers = client.send(asked, 9)
    assert any(buffer is batch for buffer in buffers)
    (request,) = server.receive(joined(buffers))
    assert request.message == asked
    answered: Any = example(FETCH.response, 12)
    answered.responses[0].partitions[0].records = batch
    (request,) = server.receive(joined(client.send(example(FETCH.request, 12), 12)[1]))
    client, server = ClientConversation(), ServerConversation()
    (request,) = server.receive(joined(client.send(example(FETCH.request, 12), 12)[1]))
    buffers = server.send(request, answered)
    assert any(buffer is batch for buffer in buffers)
    assert client.receive(joined(buffers))[0].message == answered


def test_response_to_another_request_is_rejected() -> None:
    client = ClientConversation()
    client.send(heartbeat("a"), 0)
    with pytest.raises(ProtocolViolation, match="response 7, expected 0"):
        client.receive(frame(struct.pack(">ih", 7, 0)))


def test_responses_out_of_order_are_rejected() -> None:
    client = ClientConversation()
    client.send(heartbeat("a"), 0)
    client.send(heartbeat("b"), 0)
    with pytest.raises(ProtocolViolation, match="response 1, expected 0"):
        client.receive(frame(struct.pack(">ih", 1, 0)))


def test_response_without_request_is_rejected() -> None:
    with pytest.raises(ProtocolViolation, match="without a request"):
        ClientConversation().receive(frame(struct.pack(">ih", 0, 0)))
    client = ClientConversation()
    client.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=()), 9, answered=False)
    with pytest.raises(ProtocolViolation, match="without a request"):
        client.receive(frame(struct.pack(">ih", 0, 0)))


@each_case("body", [b"", b"\0", b"\0\0\0", b"\0\0\0\0\0", bytes(7), bytes(300)])
def test_response_of_wrong_shape_is_rejected(body: bytes) -> None:
    client = ClientConversation()
    client.send(heartbeat("a"), 0)
    with pytest.raises(ProtocolViolation):
        client.receive(frame(body))


def test_correlation_ids_wrap_around() -> None:
    client, server = ClientConversation(), ServerConversation()
    client._correlation_id = 2**31 - 2  # pyright: ignore[reportPrivateUsage]
    ids: list[int] = []
    for number in range(4):
        sent, buffers = client.send(heartbeat("a"), 4)
        ids.append(sent.correlation_id)
        (request,) = server.receive(joined(buffers))
        (response,) = client.receive(joined(server.send(request, answer(number))))
        assert response.request is sent
    assert ids == [2**31 - 2, 2**31 - 1, 0, 1]


@each_case("key", [-1, 52, 59, 93, 1000, 32_767])
def test_unknown_api_is_rejected(key: int) -> None:
    assert key not in API_OF_KEY
    with pytest.raises(ProtocolViolation, match=f"unknown API key {key}"):
        ServerConversation().receive(raw_request(key, 0))


def test_unsupported_version_is_rejected() -> None:
    for api in API_OF_KEY.values():
        if api is API_VERSIONS:
            continue
        for version in (-1, api.versions.low - 1, api.versions.high + 1, 32_767):
            if version not in api.versions:
                with pytest.raises(ProtocolViolation, match="is not supported"):
                    ServerConversation().receive(raw_request(api.key, version, bytes(50)))


def test_versions_only_advertised_are_rejected() -> None:
    """ApiVersions advertises Produce 0 to 2 for librdkafka."""
    server = ServerConversation({PRODUCE.key: PRODUCE.advertised})
    for version in range(3):
        with pytest.raises(ProtocolViolation, match="is not supported"):
            server.receive(raw_request(PRODUCE.key, version, bytes(50)))


def test_api_not_served_is_rejected() -> None:
    before_login = {API_VERSIONS.key: API_VERSIONS.versions, SASL_HANDSHAKE.key: Versions(1, 1)}
    client = ClientConversation()
    with pytest.raises(ProtocolViolation, match="unknown API key 3"):
        ServerConversation(before_login).receive(
            joined(client.send(MetadataRequest(topics=None), 1)[1])
        )
    with pytest.raises(ProtocolViolation, match="version 0 is not supported"):
        ServerConversation(before_login).receive(raw_request(SASL_HANDSHAKE.key, 0, b"\0\1x"))
    (request,) = ServerConversation(before_login).receive(
        raw_request(SASL_HANDSHAKE.key, 1, b"\0\5PLAIN")
    )
    assert request.api is SASL_HANDSHAKE
    none_at_all = ServerConversation({METADATA.key: NEVER})
    with pytest.raises(ProtocolViolation):
        none_at_all.receive(raw_request(METADATA.key, 0, bytes(4)))


@each_case("version", [5, 6, 99, 32_767, -1])
@each_case("body", [b"", b"\0", b"\xff" * 50])
def test_unsupported_api_versions_gets_version_0_response(version: int, body: bytes) -> None:
    """The body is ignored; the response of version 0 lists the versions."""
    server = ServerConversation()
    (request,) = server.receive(raw_request(API_VERSIONS.key, version, body, "new"))
    assert request.refused is ErrorCode.UNSUPPORTED_VERSION
    assert request.version == 0
    assert request.header == RequestHeader(18, version, 5, "new")
    assert request.message == ApiVersionsRequest()
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),),
    )
    assert joined(server.send(request, refusal)).hex() == (
        "00000010"  # frame length
        "00000005"  # correlation id, no tags
        "0023"  # UNSUPPORTED_VERSION
        "00000001"  # one API of three numbers
        "0012" + "0000" + "0004"
    )


@each_case("version", API_VERSIONS.versions)
def test_client_reads_unsupported_api_versions_response(version: int) -> None:
    old = ServerConversation({**ALL_VERSIONS, API_VERSIONS.key: Versions(0, 0)})
    client = ClientConversation()
    sent, buffers = client.send(ApiVersionsRequest(), version)
    (request,) = old.receive(joined(buffers))
    assert (request.refused is ErrorCode.UNSUPPORTED_VERSION) is (version > 0)
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=(ApiVersion(api_key=18, min_version=0, max_version=0),),
    )
    (response,) = client.receive(joined(old.send(request, refusal)))
    assert response == ReceivedResponse(sent, refusal, 0)


def test_api_versions_response_has_request_version() -> None:
    """Its header has no tags, even in flexible versions."""
    client, server = ClientConversation(), ServerConversation()
    for version in API_VERSIONS.versions:
        _, buffers = client.send(ApiVersionsRequest(), version)
        (request,) = server.receive(joined(buffers))
        message = example(ApiVersionsResponse, version)
        assert isinstance(message, ApiVersionsResponse)
        message.error_code = ErrorCode.NONE
        left = joined(server.send(request, message))
        assert left[8:] == message.encode(version)
        assert client.receive(left)[0] == ReceivedResponse(
            InFlightRequest(API_VERSIONS, version, version), message, version
        )
    client.send(ApiVersionsRequest(), 4)
    with pytest.raises(ProtocolViolation):
        client.receive(frame(struct.pack(">i", 5)))


def test_header_tags_are_skipped_and_checked_by_server() -> None:
    head = struct.pack(">hhih", HEARTBEAT.key, 4, 9, -1)
    body = heartbeat("g").encode(4)
    section = varint(2) + b"\0\1x" + b"\5\0"
    (request,) = ServerConversation().receive(frame(head + section + body))
    assert request.message == heartbeat("g")
    for bad in (b"\1", b"\2\5\0\0\0", b"\1\0\xff\xff\xff\xff\x0f", b"\x80\0"):
        with pytest.raises(ProtocolViolation):
            ServerConversation().receive(frame(head + bad + body))
    client = ClientConversation()
    client.send(heartbeat("g"), 4)
    tagged = struct.pack(">i", 0) + section + answer(0).encode(4)
    assert client.receive(frame(tagged))[0].message == answer(0)


@each_case("size", range(10))
def test_request_too_short_for_header_is_rejected(size: int) -> None:
    with pytest.raises(ProtocolViolation, match="too short for a header"):
        ServerConversation().receive(frame(bytes(size)))


def test_extra_bytes_after_request_are_rejected() -> None:
    raw = raw_request(HEARTBEAT.key, 0, heartbeat("g").encode(0))
    assert ServerConversation().receive(raw)
    raw = raw_request(HEARTBEAT.key, 0, heartbeat("g").encode(0) + b"\0")
    with pytest.raises(ProtocolViolation, match="after the message"):
        ServerConversation().receive(raw)


def test_frame_size_and_object_limits_apply() -> None:
    client = ClientConversation()
    _, buffers = client.send(heartbeat("g" * 100), 4)
    with pytest.raises(ProtocolViolation, match="at most 50 are allowed"):
        ServerConversation(frame_bytes_max=50).receive(joined(buffers))
    request = MetadataRequest(topics=[]).encode(4)
    many = struct.pack(">i", 30) + b"\0\1t" * 30 + request[4:]
    assert ServerConversation(objects_max=30).receive(raw_request(METADATA.key, 4, many))
    with pytest.raises(ProtocolViolation, match="number of objects"):
        ServerConversation(objects_max=29).receive(raw_request(METADATA.key, 4, many))


def test_only_requests_are_sent() -> None:
    client = ClientConversation()
    with pytest.raises(AssertionError, match="not a request"):
        client.send(answer(0), 4)

    class Foreign(Message, versions="0"):
        """A message without an API."""

    with pytest.raises(AssertionError, match="no API"):
        client.send(Foreign(), 0)
    with pytest.raises(EncodingError):
        client.send(heartbeat("g"), 5)
    assert client.awaited == 0
    assert client.send(heartbeat("g"), 4)[0].correlation_id == 0


def test_client_id_that_is_too_long_is_rejected() -> None:
    ClientConversation("x" * 32_767).send(heartbeat("g"), 4)
    with pytest.raises(ValueError, match="32767 bytes"):
        ClientConversation("x" * 32_768)


def test_response_of_another_api_raises() -> None:
    client, server = ClientConversation(), ServerConversation()
    (request,) = server.receive(joined(client.send(heartbeat("g"), 4)[1]))
    with pytest.raises(AssertionError, match="another API"):
        server.send(request, heartbeat("g"))


@each_case(
    ("ours", "theirs", "version"),
    [
        ((0, 4), (0, 4), 4),
        ((0, 4), (2, 9), 4),
        ((3, 13), (0, 9), 9),
        ((3, 13), (13, 20), 13),
        ((3, 13), (0, 3), 3),
        ((3, 13), (0, 2), None),
        ((3, 13), (14, 20), None),
        ((0, -1), (0, 5), None),
        ((0, 5), (0, -1), None),
        ((0, 0), (0, 0), 0),
    ],
)
def test_negotiated_version(
    ours: tuple[int, int], theirs: tuple[int, int], version: int | None
) -> None:
    assert negotiate(Versions(*ours), Versions(*theirs)) == version
    assert negotiate(Versions(*theirs), Versions(*ours)) == version


def test_random_bytes_end_a_conversation_with_violation() -> None:
    random = Random(3)
    for _ in range(2_000):
        noise = frame(random.randbytes(random.randrange(60)))
        client = ClientConversation()
        client.send(heartbeat("g"), 4)
        with pytest.raises(ProtocolViolation):
            client.receive(noise)
        try:
            requests = ServerConversation().receive(noise)
        except ProtocolViolation:
            continue
        assert requests[0].api.key == struct.unpack_from(">h", noise, 4)[0]


@given(cuts=st.lists(st.integers(1, 40), max_size=30))
def test_requests_before_violation_are_returned(cuts: list[int]) -> None:
    client, server = ClientConversation(), ServerConversation()
    good = b"".join(joined(client.send(heartbeat(group), 4)[1]) for group in "abc")
    for bad in (raw_request(999, 0), struct.pack(">i", -1)):
        server = ServerConversation()
        stream = good + bad + good
        groups: list[str] = []
        at = 0
        for cut in [*cuts, len(stream)]:
            with suppress(ProtocolViolation):
                for request in server.receive(stream[at : at + cut]):
                    assert isinstance(request.message, HeartbeatRequest)
                    groups.append(request.message.group_id)
            at += cut
        assert groups == ["a", "b", "c"]
        assert server.violation is not None
        with pytest.raises(ProtocolViolation):
            server.receive(good)


def test_responses_before_violation_are_returned() -> None:
    client = ClientConversation()
    for group in "ab":
        client.send(heartbeat(group), 0)
    right = frame(struct.pack(">ih", 0, 7))
    wrong = frame(struct.pack(">ih", 9, 7))
    (response,) = client.receive(right + wrong)
    assert response.request.correlation_id == 0
    assert client.violation is not None
    with pytest.raises(ProtocolViolation, match="response 9"):
        client.receive(b"\0")


def test_metadata_request_of_librdkafka_with_extra_bytes() -> None:
    """It has three extra bytes: the array length in the non-flexible format."""
    sent = bytes.fromhex("000000190003000d00000003000772646b61666b610000000000010000")
    (request,) = ServerConversation().receive(sent)
    assert request.header.client_id == "rdkafka"
    assert request.message == MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
