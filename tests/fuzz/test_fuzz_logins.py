"""Damaged logins: the connection stays a client's, and nothing is served in the middle of one."""

import asyncio
from random import Random
from typing import Any, Final, cast

from fuzz_mutants import bounded_memory, explained, mutant, scaled, seeded
from ottla.access.scram_client import scram
from ottla.broker.handlers import sasl_authenticate, sasl_handshake
from ottla.clock import SystemClock
from ottla.controller.credential import CLUSTER_MECHANISM, CLUSTER_USER, ClusterCredential
from ottla.errors import ProtocolViolation
from ottla.protocol.apis import HEARTBEAT, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.conversation import (
    ClientConversation,
    Request,
    Response,
    ServerConversation,
)
from ottla.protocol.message import Message
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.settings.config_types import Secret
from ottla.transport.connection import (
    Admittance,
    CloseReason,
    Connection,
    ConnectionConfig,
    State,
)
from ottla.transport.memory_pool import MemoryPools

PASSWORD: Final = Secret("the password of the cluster, which is long")
SERVED: Final = {api.key: api.versions for api in (HEARTBEAT, SASL_HANDSHAKE, SASL_AUTHENTICATE)}
CONFIG: Final = ConnectionConfig(versions=SERVED, frame_bytes_max=1 << 20, refused_login_ms=0)


def same_bytes(count: int) -> bytes:
    """Randomness without any: all logins have the same nonce, so a replay is valid."""
    return bytes(range(count))


CREDENTIAL: Final = ClusterCredential(PASSWORD, same_bytes)


class FakeTransport:
    """A transport without a socket."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_open = True

    def writelines(self, buffers: list[bytes]) -> None:
        self.sent += b"".join(buffers)

    def close(self) -> None:
        self.is_open = False

    abort = close

    def is_closing(self) -> bool:
        return not self.is_open

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Target:
    """A connection, the requests that it served, and the state in which it served each."""

    def __init__(self, memory: MemoryPools) -> None:
        self.served: list[tuple[Request, State]] = []
        self.faults: list[CloseReason] = []
        self.transport = FakeTransport()
        self.connection = Connection(
            self._serve,
            lambda connection: Admittance.ADMITTED,
            lambda connection: None,
            CONFIG,
            SystemClock(),
            on_close_reason=lambda connection, reason, text: self.faults.append(reason),
            memory=memory,
        )
        self.connection.connection_made(cast("asyncio.Transport", self.transport))

    def _serve(self, request: Request, connection: Connection) -> Response:
        self.served.append((request, connection._state))  # pyright: ignore[reportPrivateUsage]
        if request.api is SASL_HANDSHAKE:
            return sasl_handshake.handle(request, connection, cluster_credential=CREDENTIAL)
        if request.api is SASL_AUTHENTICATE:
            return sasl_authenticate.handle(request, connection)
        return HeartbeatResponse(throttle_time_ms=0, error_code=0)

    async def receive(self, random: Random, stream: bytes) -> None:
        at = 0
        while at < len(stream) and self.transport.is_open:
            room = self.connection.get_buffer(-1)
            count = min(random.choice((1, 40, 5_000)), len(room), len(stream) - at)
            room[:count] = stream[at : at + count]
            del room
            self.connection.buffer_updated(count)
            at += count
            for _ in range(2):  # the connection may yield its turn, or refuse after a delay
                await asyncio.sleep(0)
        self.connection.connection_lost(None)


def login_stream() -> tuple[bytes, bytes, list[bytes]]:
    """The two messages of a valid login, and the frames of a conversation around it."""
    exchange, server = scram(CLUSTER_MECHANISM, *CREDENTIAL.credentials, "0123456789abcdef"), None
    server = CREDENTIAL.begin_login()
    first = next(exchange)
    final = exchange.send(server.reply(first))
    client = ClientConversation("fuzz")

    def frame(message: Message) -> bytes:
        assert message.API is not None
        return b"".join(client.send(message, message.API.versions.high)[1])

    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    frames = [
        frame(message)
        for message in (
            beat,
            SaslHandshakeRequest(mechanism=CLUSTER_MECHANISM),
            SaslAuthenticateRequest(auth_bytes=first),
            SaslAuthenticateRequest(auth_bytes=final),
            beat,
        )
    ]
    return first, final, frames


FIRST, FINAL, FRAMES = login_stream()


def logs_in(stream: bytes) -> bool:
    """Whether a stream has the exact messages of the login one after the other."""
    conversation = ServerConversation(SERVED, frame_bytes_max=CONFIG.frame_bytes_max)
    try:
        requests = conversation.receive(stream)
    except ProtocolViolation:
        requests = []
    steps = [
        bytes(one.message.auth_bytes)
        if isinstance(one.message, SaslAuthenticateRequest)
        else one.message.mechanism
        if isinstance(one.message, SaslHandshakeRequest) and one.version == 1
        else None
        for one in requests
    ]
    valid = [CLUSTER_MECHANISM, FIRST, FINAL]
    return any(steps[at : at + 3] == valid for at in range(len(steps)))


def streams(random: Random) -> list[bytes]:
    """Whole conversations, and ones with frames that are missing, repeated or out of order."""
    return [
        b"".join(FRAMES),
        *(b"".join(FRAMES[:at] + FRAMES[at + 1 :]) for at in range(len(FRAMES))),
        *(b"".join(random.choices(FRAMES, k=6)) for _ in range(20)),
    ]


def test_undamaged_login_is_accepted() -> None:
    async def scenario() -> None:
        target = Target(MemoryPools())
        await target.receive(Random(1), b"".join(FRAMES))
        assert target.connection.is_broker
        assert [one.api.name for one, _ in target.served] == [
            "Heartbeat", "SaslHandshake", "SaslAuthenticate", "SaslAuthenticate", "Heartbeat",
        ]  # fmt: skip
        assert CLUSTER_USER.encode() in b"".join(FRAMES)

    asyncio.run(scenario())


def test_damaged_logins() -> None:
    random, inputs, memory = seeded("logins"), scaled("logins"), MemoryPools()
    accepted = refused = 0

    async def scenario() -> None:
        nonlocal accepted, refused
        corpus = streams(random)
        for number in range(inputs):
            stream = random.choice(corpus) if number % 20 == 0 else mutant(random, corpus)
            with explained("logins", "", number, stream=stream.hex()):
                target = Target(memory)
                await target.receive(random, stream)
                check(target, stream)
            accepted += target.connection.is_broker
            refused += b"invalid credentials" in target.transport.sent

    with bounded_memory():
        asyncio.run(scenario())
    assert accepted > inputs / 100
    assert refused > inputs / 100
    assert memory.requests.held == 0


def check(target: Target, stream: bytes) -> None:
    connection = target.connection
    assert CloseReason.FAILURE not in target.faults
    if connection.is_broker:
        assert logs_in(stream)
    for request, state in target.served:
        if state is State.AUTHENTICATING:
            assert request.api is SASL_AUTHENTICATE
        else:
            assert state is State.READY
    if target.faults:
        assert not target.transport.is_open
