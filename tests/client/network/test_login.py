"""Logins at a scripted broker: refusals, how soon they are reported, and hidden secrets."""

import asyncio
import logging

import pytest

from client.scenario_runner import run
from client.scripted_broker import ScriptedBroker
from ottla.access.scram_client import HASHES
from ottla.client.network.connections import ConnectionConfig, Connections
from ottla.client.network.login import login_with_password
from ottla.client.network.metadata import Metadata, MetadataConfig
from ottla.client.producer.producer import Producer
from ottla.clock import SystemClock
from ottla.errors import ErrorCode
from ottla.protocol.apis import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.messages.api_versions import ApiVersion
from ottla.protocol.messages.metadata import (
    MetadataRequest,
)
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.settings.config_types import Secret
from ottla.settings.credentials import Credentials
from ottla.settings.invalid_settings import InvalidSettings
from ottla.transport.backoff import Backoff
from ottla.transport.failures import AuthenticationFailed, Disconnected
from ottla.transport.login import Login
from ottla.transport.network import TcpNetwork

HOST = "127.0.0.1"
BACKOFF = Backoff(0.01, 0.05, lambda: 0.5)
ALICE = Credentials("alice", Secret("hunter2"))
LOGIN = login_with_password("PLAIN", ALICE, lambda: "nonce")


class LoginBroker(ScriptedBroker):
    """A broker that checks a password; its metadata lists only itself."""

    def __init__(self) -> None:
        greeting = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
        super().__init__(
            {
                SaslHandshakeRequest: lambda _: greeting,
                SaslAuthenticateRequest: lambda asked: self._judge(bytes(asked.auth_bytes)),
            }
        )
        self.keys: tuple[int, ...] = (METADATA.key, SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key)
        self.password = "hunter2"
        self.lifetime_ms = 0
        self.scram_answers: list[bytes] = []
        self.logins = 0

    def _offered(self) -> list[ApiVersion]:
        return [ApiVersion(api_key=key, min_version=1, max_version=1) for key in self.keys]

    def _judge(self, said: bytes) -> SaslAuthenticateResponse:
        if self.scram_answers:
            return SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=self.scram_answers.pop(0)
            )
        self.logins += 1
        code = 0 if said == b"\0alice\0" + self.password.encode() else 58
        return SaslAuthenticateResponse(
            error_code=code,
            error_message=None,
            auth_bytes=b"",
            session_lifetime_ms=self.lifetime_ms,
        )


def connections(door: LoginBroker, login: Login = LOGIN) -> Connections:
    rules = ConnectionConfig([door.place], "test", ("ottla", "0"), BACKOFF, login=login)
    return Connections(rules, TcpNetwork(), SystemClock(), lambda: 0.5)


def test_connection_is_authenticated_before_use() -> None:
    async def scenario() -> None:
        async with LoginBroker() as door:
            ours = connections(door)
            assert (await ours.any([])).is_open
            assert door.logins == 1
            await ours.close()

    run(scenario())


def test_broker_without_sasl_is_reported() -> None:
    async def scenario() -> None:
        async with LoginBroker() as door:
            door.keys = (METADATA.key,)
            ours = connections(door)
            with pytest.raises(AuthenticationFailed, match="this listener does not use SASL"):
                await ours.any([])
            await ours.close()

    run(scenario())


def test_server_with_an_invalid_signature_is_refused() -> None:
    async def scenario() -> None:
        login = login_with_password("SCRAM-SHA-256", ALICE, lambda: "nonce")
        assert "SCRAM-SHA-256" in HASHES
        async with LoginBroker() as door:
            door.scram_answers = [b"r=noncemore,s=AAAA,i=4096", b"v=AAAA"]
            ours = connections(door, login)
            with pytest.raises(AuthenticationFailed, match="failed to prove that it knows"):
                await ours.any([])
            await ours.close()

    run(scenario())


def test_session_is_renewed_until_it_is_refused() -> None:
    async def scenario() -> None:
        async with LoginBroker() as door:
            door.lifetime_ms = 20
            ours = connections(door)
            channel = await ours.any([])
            used_s = channel.last_used_s
            while door.logins < 4:
                await asyncio.sleep(0.005)
            assert door.accepted == 1
            while channel.last_used_s != used_s:  # a login in progress counts as use until it ends
                await asyncio.sleep(0)
            door.password = "another"
            while channel.is_open:
                await asyncio.sleep(0.005)
            with pytest.raises(AuthenticationFailed):
                channel.send(MetadataRequest(topics=[]), 5)
            with pytest.raises(AuthenticationFailed):
                await ours.any([])
            await ours.close()

    run(scenario())


def test_login_refusal_outranks_a_connection_failure() -> None:
    async def scenario() -> None:
        async with LoginBroker() as gone:
            down = gone.place
        async with LoginBroker() as door:
            door.password = "another"
            for seeds in ([door.place, down], [down, door.place]):
                rules = ConnectionConfig(seeds, "test", ("ottla", "0"), BACKOFF, login=LOGIN)
                ours = Connections(rules, TcpNetwork(), SystemClock(), lambda: 0.5)
                with pytest.raises(AuthenticationFailed):
                    await ours.any([])
                await ours.close()

    run(scenario())


def test_login_refusal_fails_metadata_at_once() -> None:
    async def scenario() -> None:
        async with LoginBroker() as door:
            door.password = "another"
            ours = connections(door)
            known = Metadata(ours, MetadataConfig(BACKOFF), SystemClock(), lambda: None)
            running = asyncio.create_task(known.run())
            waiting = [asyncio.create_task(known.topic("t", 20)) for _ in range(5)]
            given_up = asyncio.create_task(known.refreshed(20))
            await asyncio.sleep(0)
            given_up.cancel()
            async with asyncio.timeout(10):
                for one in waiting:
                    with pytest.raises(AuthenticationFailed):
                        await one
            tries = door.logins
            await asyncio.sleep(0.3)
            assert door.logins == tries <= 2
            # A caller that needs the broker tries again, and may succeed.
            door.password = "hunter2"
            assert (await known.refreshed(5)).brokers
            assert known.failure is None
            running.cancel()
            await asyncio.gather(running, given_up, return_exceptions=True)
            await ours.close()

    run(scenario())


def test_secrets_are_not_in_logs_reprs_or_exceptions(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with LoginBroker() as door:
            door.password = "another"
            settings = {
                "bootstrap.servers": f"{HOST}:{door.place.port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "hunter2",
            }
            producer = Producer(settings)
            shown = [repr(producer), repr(vars(producer)), repr(LOGIN), repr(connections(door))]
            async with producer:
                with pytest.raises(AuthenticationFailed) as raised:
                    await producer.send("t", b"v")
            error: BaseException | None = raised.value
            while error is not None:
                shown += [str(error), repr(error), repr(error.args)]
                error = error.__cause__ or error.__context__
            shown.append(repr(SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2")))
            assert not [text for text in shown if "hunter2" in text]

    with caplog.at_level(logging.DEBUG):
        run(scenario())
    assert "hunter2" not in caplog.text


def test_failed_token_function_is_retried() -> None:
    async def scenario() -> None:
        async def failing() -> str:
            raise ValueError

        async with LoginBroker() as door:
            settings = {
                "bootstrap.servers": f"{HOST}:{door.place.port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "max.block.ms": 200,
            }
            async with Producer(settings, token=failing) as producer:
                with pytest.raises(Disconnected, match="token function failed: ValueError"):
                    await producer.send("t", b"v")
            assert door.accepted > 1
            with pytest.raises(
                InvalidSettings, match=r"as token=, or set sasl\.oauthbearer\.token"
            ):
                Producer(settings)

    run(scenario())


def test_authentication_errors_are_never_retriable() -> None:
    error = AuthenticationFailed("no", "do this", ErrorCode.NETWORK_EXCEPTION)
    assert error.code.retriable
    assert not error.retriable
    assert error.hint == "do this"
    assert AuthenticationFailed("no").hint == ErrorCode.SASL_AUTHENTICATION_FAILED.text
