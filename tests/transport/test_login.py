"""The login of a connection: complete, refused, interrupted and attacked."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from ottla.access.scram_client import Exchange, scram
from ottla.broker.handlers import sasl_authenticate, sasl_handshake
from ottla.controller.credential import CLUSTER_MECHANISM, CLUSTER_USER, ClusterCredential
from ottla.errors import ErrorCode
from ottla.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.conversation import ClientConversation, Request, Response
from ottla.protocol.message import Message
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.settings.config_types import Secret
from ottla.transport.connection import (
    LOGIN_BYTES_MAX,
    LOGIN_SECONDS,
    CloseReason,
    Connection,
    ConnectionConfig,
    State,
)
from transport.test_listener import Run, Service, echo, heartbeat, run

__all__ = ["run"]  # a fixture

PASSWORD = Secret("the password of the cluster, which is long")
REFUSED = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
ILLEGAL = int(ErrorCode.ILLEGAL_SASL_STATE)


class Randomness:
    """Different bytes each time, the same in every run."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, count: int) -> bytes:
        self.calls += 1
        return hashlib.shake_128(b"%d" % self.calls).digest(count)


class LoginService(Service):
    """A listener that serves logins and heartbeats, and counts what it served."""

    def __init__(self, delay_ms: int = 0, frame_bytes_max: int = 1 << 20) -> None:
        config = ConnectionConfig(refused_login_ms=delay_ms, frame_bytes_max=frame_bytes_max)
        super().__init__(self._serve, config)
        self.credential = ClusterCredential(PASSWORD, Randomness())
        self.served: list[str] = []
        self.raw_frames = 0
        self.broker_frames = 0

    def _serve(self, request: Request, connection: Connection) -> Response | None:
        self.served.append(request.api.name)
        if request.api is SASL_HANDSHAKE:
            return sasl_handshake.handle(request, connection, cluster_credential=self.credential)
        if request.api is SASL_AUTHENTICATE:
            return sasl_authenticate.handle(request, connection)
        answer = echo(request, connection)
        assert answer is None or isinstance(answer, Message)
        return answer

    def serve_frame(self, frame: memoryview) -> bytes | None:
        self.raw_frames += 1
        return None

    def serve_broker_frame(self, frame: memoryview, connection: Connection) -> None:
        assert connection is self.connection
        self.broker_frames += 1

    @property
    def connection(self) -> Connection:
        (one,) = self.listener.connections
        return one

    @property
    def state(self) -> State:
        return self.connection._state  # pyright: ignore[reportPrivateUsage]


class Peer:
    """The other end of a connection, which may do everything in any order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.conversation = ClientConversation("peer")
        self.received: list[Message] = []

    def send(self, message: Message) -> None:
        api = message.API
        assert api is not None
        self.writer.writelines(self.conversation.send(message, api.versions.high)[1])

    async def next(self) -> Message:
        while not self.received:
            data = await self.reader.read(65_536)
            if not data:
                raise EOFError
            self.received += [one.message for one in self.conversation.receive(data)]
        return self.received.pop(0)

    async def handshake(self, mechanism: str = CLUSTER_MECHANISM) -> int:
        self.send(SaslHandshakeRequest(mechanism=mechanism))
        answer = await self.next()
        assert isinstance(answer, SaslHandshakeResponse)
        assert list(answer.mechanisms) == ([] if answer.error_code else [CLUSTER_MECHANISM])
        return answer.error_code

    async def authenticate(self, message: bytes) -> SaslAuthenticateResponse:
        self.send(SaslAuthenticateRequest(auth_bytes=message))
        answer = await self.next()
        assert isinstance(answer, SaslAuthenticateResponse)
        return answer

    async def challenged(
        self, username: str = CLUSTER_USER, password: Secret = PASSWORD
    ) -> tuple[Exchange, bytes]:
        """Log in up to the proof, and return the proof without sending it."""
        assert await self.handshake() == 0
        exchange = scram(CLUSTER_MECHANISM, username, password, "nonce-of-the-peer")
        answer = await self.authenticate(next(exchange))
        assert answer.error_code == 0
        return exchange, exchange.send(bytes(answer.auth_bytes))

    async def log_in(self) -> None:
        exchange, proof = await self.challenged()
        answer = await self.authenticate(proof)
        assert answer.error_code == 0
        with pytest.raises(StopIteration):
            exchange.send(bytes(answer.auth_bytes))

    async def is_closed(self) -> bool:
        """Wait until the broker has closed the connection, and check that it sent nothing."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def logins(delay_ms: int = 0) -> AsyncGenerator[tuple[LoginService, Peer]]:
    service = LoginService(delay_ms)
    async with service.running(listening=False):
        await service.listener.start(
            service.serve_frame, serve_broker_frame=service.serve_broker_frame
        )
        client = await service.client()
        peer = Peer(client.reader, client.writer)
        yield service, peer


def test_login_makes_the_connection_a_brokers(run: Run) -> None:
    async def scenario() -> None:
        async with logins() as (service, peer):
            peer.send(heartbeat(1))
            assert isinstance(await peer.next(), HeartbeatResponse)
            exchange, proof = await peer.challenged()
            assert service.state is State.AUTHENTICATING
            assert not service.connection.is_broker
            answer = await peer.authenticate(proof)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
            with pytest.raises(StopIteration):
                exchange.send(bytes(answer.auth_bytes))
            assert service.connection.is_broker
            assert service.connection.login is None
            assert service.state is State.READY
            before = service.raw_frames
            assert service.broker_frames == 0
            peer.send(heartbeat(2))
            assert isinstance(await peer.next(), HeartbeatResponse)
            assert (service.raw_frames, service.broker_frames) == (before, 1)
            # A connection logs in once; a second attempt changes nothing.
            assert await peer.handshake() == ILLEGAL
            assert (await peer.authenticate(b"n,,n=x,r=y")).error_code == ILLEGAL
            assert service.connection.is_broker

    run(scenario)


def test_requests_behind_the_proof_are_served_after_it(run: Run) -> None:
    async def scenario() -> None:
        async with logins() as (service, peer):
            _, proof = await peer.challenged()
            peer.send(SaslAuthenticateRequest(auth_bytes=proof))
            for number in range(40):
                peer.send(heartbeat(number))
            answer = await peer.next()
            assert isinstance(answer, SaslAuthenticateResponse)
            assert answer.error_code == 0
            for number in range(40):
                answer = await peer.next()
                assert isinstance(answer, HeartbeatResponse)
                assert answer.throttle_time_ms == number
            assert service.connection.is_broker

    run(scenario)


def test_refused_login_is_answered_and_closed(run: Run) -> None:
    async def scenario() -> None:
        for username, password in ((CLUSTER_USER, Secret("guess")), ("alice", PASSWORD)):
            async with logins() as (service, peer):
                _, proof = await peer.challenged(username, password)
                connection = service.connection
                peer.send(SaslAuthenticateRequest(auth_bytes=proof))
                peer.send(heartbeat(1))
                answer = await peer.next()
                assert isinstance(answer, SaslAuthenticateResponse)
                assert (answer.error_code, answer.auth_bytes) == (REFUSED, b"")
                assert "invalid credentials" in (answer.error_message or "")
                assert await peer.is_closed()
                assert not connection.is_broker
                assert "Heartbeat" not in service.served
                assert service.listener.closed == {CloseReason.UNAUTHENTICATED: 1}

    run(scenario)


def test_refusal_waits_for_the_delay(run: Run) -> None:
    async def scenario() -> None:
        async with logins(delay_ms=100) as (_, peer):
            assert await peer.handshake() == 0
            began_s = asyncio.get_running_loop().time()
            assert (await peer.authenticate(b"rubbish")).error_code == REFUSED
            assert asyncio.get_running_loop().time() - began_s >= 0.09
            assert await peer.is_closed()

    run(scenario)


def test_client_that_leaves_during_the_delay_is_forgotten(run: Run) -> None:
    async def scenario() -> None:
        async with logins(delay_ms=60_000) as (service, peer):
            assert await peer.handshake() == 0
            peer.send(SaslAuthenticateRequest(auth_bytes=b"rubbish"))
            await peer.writer.drain()
            while service.state is State.AUTHENTICATING:
                await asyncio.sleep(0)
            assert service.state is State.SERVING
            (connection,) = service.listener.connections
            peer.writer.transport.abort()
            connection.abort()
            while service.listener.connections:
                await asyncio.sleep(0)
            assert connection._task is None  # pyright: ignore[reportPrivateUsage]

    run(scenario)


@pytest.mark.parametrize("step", ["after the handshake", "after the challenge"])
def test_other_request_during_a_login_closes_the_connection(run: Run, step: str) -> None:
    requests = (
        heartbeat(7),
        ProduceRequest(acks=1, timeout_ms=1, topic_data=()),
        SaslHandshakeRequest(mechanism=CLUSTER_MECHANISM),
    )

    async def scenario() -> None:
        for request in requests:
            async with logins() as (service, peer):
                if step == "after the handshake":
                    assert await peer.handshake() == 0
                else:
                    await peer.challenged()
                connection, served, raw = (
                    service.connection,
                    len(service.served),
                    service.raw_frames,
                )
                peer.send(request)
                assert await peer.is_closed()
                assert (len(service.served), service.raw_frames) == (served, raw)
                assert not connection.is_broker
                assert service.listener.closed == {CloseReason.VIOLATION: 1}

    run(scenario)


def test_request_sent_with_the_handshake_is_not_served(run: Run) -> None:
    async def scenario() -> None:
        async with logins() as (service, peer):
            peer.send(SaslHandshakeRequest(mechanism=CLUSTER_MECHANISM))
            peer.send(heartbeat(1))
            assert isinstance(await peer.next(), SaslHandshakeResponse)
            assert await peer.is_closed()
            assert service.served == ["SaslHandshake"]

    run(scenario)


@pytest.mark.parametrize(
    "mechanism", ["PLAIN", "SCRAM-SHA-512", "scram-sha-256", "", "OAUTHBEARER"]
)
def test_other_mechanisms_get_kafkas_answer(run: Run, mechanism: str) -> None:
    """As on Kafka's plaintext listeners, the connection stays open."""

    async def scenario() -> None:
        async with logins() as (service, peer):
            assert await peer.handshake(mechanism) == ILLEGAL
            assert (await peer.authenticate(b"\0alice\0secret")).error_code == ILLEGAL
            peer.send(heartbeat(1))
            assert isinstance(await peer.next(), HeartbeatResponse)
            assert service.state is State.READY

    run(scenario)


def test_large_frame_during_a_login_closes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with logins() as (service, peer):
            assert await peer.handshake() == 0
            peer.writer.write((LOGIN_BYTES_MAX + 1).to_bytes(4, "big"))
            assert await peer.is_closed()
            assert service.listener.closed == {CloseReason.VIOLATION: 1}
        async with logins() as (service, peer):
            assert await peer.handshake() == 0
            most = LOGIN_BYTES_MAX - 100
            assert (await peer.authenticate(bytes(most))).error_code == REFUSED
        async with logins() as (service, peer):
            await peer.log_in()
            member = heartbeat(3)
            member.member_id = "m" * 20_000  # larger than a frame of a login
            peer.send(member)
            assert isinstance(await peer.next(), HeartbeatResponse)

    run(scenario)


def test_stalled_login_is_closed(run: Run) -> None:
    async def scenario() -> None:
        for part in (b"", b"\0\0\1"):
            async with logins() as (service, peer):
                await peer.challenged()
                peer.writer.write(part)
                await peer.writer.drain()
                service.clock.ahead_s += LOGIN_SECONDS / 2
                service.listener.close_idle_and_slow()
                assert service.listener.connections
                service.clock.ahead_s += LOGIN_SECONDS / 2 + 0.1
                service.listener.close_idle_and_slow()
                assert await peer.is_closed()
                assert service.listener.closed == {CloseReason.OVERDUE: 1}

    run(scenario)


def test_complete_login_has_no_deadline(run: Run) -> None:
    async def scenario() -> None:
        async with logins() as (service, peer):
            await peer.log_in()
            service.clock.ahead_s += 10 * LOGIN_SECONDS
            service.listener.close_idle_and_slow()
            peer.send(heartbeat(1))
            assert isinstance(await peer.next(), HeartbeatResponse)

    run(scenario)


def test_client_that_does_not_read_during_a_login_is_not_served(run: Run) -> None:
    async def scenario() -> None:
        async with logins() as (service, peer):
            _, proof = await peer.challenged()
            connection = service.connection
            connection.pause_writing()
            assert service.state is State.AUTHENTICATING_BLOCKED
            served = len(service.served)
            peer.send(SaslAuthenticateRequest(auth_bytes=proof))
            await peer.writer.drain()
            await asyncio.sleep(0.02)
            assert len(service.served) == served
            connection.resume_writing()
            answer = await peer.next()
            assert isinstance(answer, SaslAuthenticateResponse)
            assert answer.error_code == 0
            assert connection.is_broker

    run(scenario)


def test_closing_listener_does_not_wait_for_a_login(run: Run) -> None:
    async def scenario() -> None:
        async with logins() as (service, peer):
            await peer.challenged()
            await asyncio.wait_for(service.listener.close(grace_s=20), 5)
            assert await peer.is_closed()

    run(scenario)


def test_secrets_are_not_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        async with logins() as (service, peer):
            await peer.log_in()
            assert PASSWORD.reveal() not in repr(service.credential)
            assert PASSWORD.reveal() not in repr(service.credential.credentials)
            assert PASSWORD.reveal() not in repr(service.credential.login())
        async with logins() as (service, peer):
            _, proof = await peer.challenged(password=Secret("guess"))
            assert (await peer.authenticate(proof)).error_code == REFUSED
            assert await peer.is_closed()

    run(scenario)
    told = "\n".join(f"{one.getMessage()} {one.args}" for one in caplog.records)
    assert "the login was refused" in told
    assert PASSWORD.reveal() not in told
    assert "guess" not in told
