"""The client's TLS and SASL against Apache Kafka, and their failures."""

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from client.scenario_runner import run
from judges.kafka_broker import KafkaBroker
from ottla.client.network.connections import RENEWED_AFTER
from ottla.client.network.tokens import Token
from ottla.client.producer.producer import Producer
from ottla.errors import ErrorCode, RequestError
from ottla.transport.failures import AuthenticationFailed, Disconnected
from ottla.transport.network import TcpNetwork
from shared_kafka import (
    LISTENERS,
    MECHANISMS,
    PASSWORD,
    SCRAM_PASSWORD,
    SESSION_MS,
    SharedKafka,
)

JAAS = "org.apache.kafka.common.security"
# A session takes seconds: `make test` renews the sessions of one mechanism.
SESSIONS = [
    pytest.param(one, marks=[] if one == "OAUTHBEARER" else pytest.mark.judge) for one in MECHANISMS
]


class Site:
    """A broker with a listener of each kind, and the certificates for it."""

    def __init__(self, kafka: KafkaBroker, authority: Authority, client: Path) -> None:
        self.kafka = kafka
        self.authority = authority
        self.client = client

    def at(self, listener: str, protocol: str | None = None, **settings: object) -> dict[str, Any]:
        port = self.kafka.port if listener == "PLAINTEXT" else self.kafka.ports[listener]
        protocol = protocol or LISTENERS.get(listener, "PLAINTEXT")
        named: dict[str, object] = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": protocol,
            "reconnect.backoff.ms": 20,
            "retry.backoff.ms": 20,
            "max.block.ms": 20_000,
        }
        if protocol.endswith("SSL"):
            named["ssl.truststore.location"] = str(self.authority.path)
        named |= {name.replace("_", "."): value for name, value in settings.items()}
        return named


@pytest.fixture
def site(shared_kafka: SharedKafka) -> Site:
    return Site(shared_kafka.broker, shared_kafka.authority, shared_kafka.client)


class Counting(TcpNetwork):
    """Counts the connections, and knows the age of the newest."""

    made = 0
    made_s = 0.0

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        self.made += 1
        self.made_s = time.monotonic()
        await super().connect(protocol, host, port)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.made_s


def jwt(lifetime_s: float, subject: str = "alice") -> str:
    def part(value: dict[str, Any]) -> str:
        return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now_s = time.time()
    claims = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s}
    return f"{part({'alg': 'none'})}.{part(claims)}."


async def an_hour() -> str:
    return jwt(3600)


def credentials(mechanism: str) -> dict[str, Any]:
    given: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "PLAIN":
        given |= {"sasl_username": "alice", "sasl_password": PASSWORD}
    elif mechanism != "OAUTHBEARER":
        given |= {"sasl_username": "alice", "sasl_password": SCRAM_PASSWORD}
    return given


async def written(producer: Producer, count: int = 3) -> None:
    async with producer:
        for number in range(count):
            await (await producer.send("secured", b"%d" % number))


async def refused(settings: dict[str, Any], **arguments: Any) -> RequestError:
    """Return the error of a producer that cannot connect: at once when it is final."""
    began_s = time.monotonic()
    with pytest.raises(RequestError) as raised:
        await written(Producer(settings, **arguments))
    if isinstance(raised.value, AuthenticationFailed):
        assert time.monotonic() - began_s < 10
        assert not raised.value.retriable
    return raised.value


@pytest.mark.parametrize("listener", ["PLAINTEXT", "TLS", "MUTUAL"])
def test_records_are_sent_over_tls(site: Site, listener: str) -> None:
    more = {"ssl_keystore_location": str(site.client)} if listener == "MUTUAL" else {}
    run(written(Producer(site.at(listener, **more))))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
def test_records_are_sent_after_a_login(site: Site, listener: str, mechanism: str) -> None:
    token = an_hour if mechanism == "OAUTHBEARER" else None
    run(written(Producer(site.at(listener, **credentials(mechanism)), token=token)))


def test_jaas_config_logs_in(site: Site) -> None:
    jaas = f'{JAAS}.plain.PlainLoginModule required username="alice" password="{PASSWORD}";'
    run(written(Producer(site.at("SASL", sasl_mechanism="PLAIN", sasl_jaas_config=jaas))))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_wrong_password_is_reported_at_once(site: Site, mechanism: str, user: str) -> None:
    async def scenario() -> None:
        error = await refused(
            site.at("SASL", sasl_mechanism=mechanism, sasl_username=user, sasl_password="hunter2")
        )
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert f"rejected the {mechanism} authentication" in str(error)
        assert "check the user name and the password" in error.hint
        assert "hunter2" not in repr(error)

    run(scenario())


def test_refused_token_is_reported_at_once(site: Site) -> None:
    async def forged() -> Token:
        return Token("no.jwt.at-all", int(time.time() * 1000) + 60_000)

    async def scenario() -> None:
        error = await refused(site.at("SASL", sasl_mechanism="OAUTHBEARER"), token=forged)
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "no.jwt" not in repr(error)

    run(scenario())


def test_unknown_mechanism_is_reported_with_the_known_ones(site: Site) -> None:
    async def scenario() -> None:
        error = await refused(site.at("SCRAMONLY", **credentials("PLAIN")))
        assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert "SCRAM-SHA-256, SCRAM-SHA-512" in error.hint

    run(scenario())


def test_untrusted_authority_is_reported_at_once(site: Site, tmp_path: Path) -> None:
    async def scenario() -> None:
        other = Authority(tmp_path, "other")
        error = await refused(site.at("TLS", ssl_truststore_location=str(other.path)))
        assert "is not trusted" in str(error)
        assert "ssl.truststore.location" in error.hint

    run(scenario())


def test_certificate_of_another_host_is_reported_at_once(site: Site) -> None:
    async def scenario() -> None:
        error = await refused(site.at("ELSEWHERE"))
        assert "is for another host" in str(error)
        await written(Producer(site.at("ELSEWHERE", ssl_endpoint_identification_algorithm="")))

    run(scenario())


def test_invalid_client_certificate_is_reported_at_once(site: Site, tmp_path: Path) -> None:
    async def scenario() -> None:
        foreign = Authority(tmp_path, "foreign").issue("client")
        for versions in ("TLSv1.2", "TLSv1.3"):
            for more in ({}, {"ssl_keystore_location": str(foreign)}):
                error = await refused(site.at("MUTUAL", ssl_enabled_protocols=versions, **more))
                assert isinstance(error, AuthenticationFailed)
                assert "ssl.keystore.location" in error.hint

    run(scenario())


def test_plaintext_client_on_a_tls_port_is_reported(site: Site) -> None:
    async def scenario() -> None:
        error = await refused(site.at("TLS", "PLAINTEXT", max_block_ms=2000))
        assert "security.protocol" in str(error)

    run(scenario())


def test_tls_client_on_a_plaintext_port_is_reported(site: Site) -> None:
    async def scenario() -> None:
        error = await refused(site.at("PLAINTEXT", "SSL", max_block_ms=2000))
        assert "security.protocol" in str(error)

    run(scenario())


def test_missing_login_is_reported(site: Site) -> None:
    async def scenario() -> None:
        error = await refused(site.at("SASL", "PLAINTEXT", max_block_ms=2000))
        assert isinstance(error, Disconnected)
        assert "requires SASL" in str(error)

    run(scenario())


def test_login_on_a_port_without_sasl_is_reported_at_once(site: Site) -> None:
    async def scenario() -> None:
        error = await refused(site.at("PLAINTEXT", "SASL_PLAINTEXT", **credentials("PLAIN")))
        assert isinstance(error, AuthenticationFailed)
        assert "does not use SASL" in error.hint

    run(scenario())


async def written_for(producer: Producer, seconds: float) -> None:
    """Produce for some time, and check that all records are there in order."""
    end_s = time.monotonic() + seconds
    await written_until(producer, lambda: time.monotonic() >= end_s)


async def written_until(producer: Producer, is_over: Callable[[], bool]) -> None:
    """Produce until a condition is true, and check that all records are there in order."""
    async with producer:
        acknowledged = [await (await producer.send("sessions", b"first", partition=0))]
        while not is_over():
            sent = [await producer.send("sessions", b"next", partition=0) for _ in range(20)]
            acknowledged += [await one for one in sent]
    offsets = [one.offset for one in acknowledged]
    assert offsets == [*range(offsets[0], offsets[0] + len(offsets))]


@pytest.fixture
def in_good_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew earlier: real sessions leave seconds for a renewal, those of the tests a tenth of a
    second.
    """
    assert sum(RENEWED_AFTER) < 1
    monkeypatch.setattr("ottla.client.network.connections.RENEWED_AFTER", (0.5, 0.1))


@pytest.mark.usefixtures("in_good_time")
@pytest.mark.parametrize("mechanism", SESSIONS)
def test_session_is_renewed_on_its_connection(site: Site, mechanism: str) -> None:
    """Kafka closes a connection whose session has expired, so only a renewed one gets this old.

    A session that is renewed too late, on a busy machine, does not count.
    """
    tokens: list[str] = []

    async def short() -> str:
        tokens.append(jwt(2 * SESSION_MS / 1000))
        return tokens[-1]

    async def scenario() -> None:
        network = Counting()
        token = short if mechanism == "OAUTHBEARER" else None
        settings = site.at("BRIEF", **credentials(mechanism))
        producer = Producer(settings, network=network, token=token)
        await written_until(producer, lambda: network.age_s > 2.2 * SESSION_MS / 1000)
        if token is not None:
            assert len(tokens) > network.made, "the first token had expired"

    run(scenario())


@pytest.mark.usefixtures("in_good_time")
def test_short_session_is_not_renewed_within_a_second(site: Site) -> None:
    """Half of it is less than a second, and a second login within a second is refused."""

    async def for_one_login() -> Token:
        return Token(jwt(1.6))

    async def scenario() -> None:
        settings = site.at("BRIEF", **credentials("OAUTHBEARER"))
        await written_for(Producer(settings, token=for_one_login), 4.0)

    run(scenario())


def test_session_that_is_not_renewed_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the test itself: without renewal the connections do not last."""
    monkeypatch.setattr("ottla.client.network.connections.RENEWED_AFTER", (1000.0, 0.0))

    async def scenario() -> None:
        network = Counting()
        oldest_s = 0.0

        def is_over() -> bool:
            nonlocal oldest_s
            oldest_s = max(oldest_s, network.age_s)
            return network.made > 2

        settings = site.at("BRIEF", **credentials("SCRAM-SHA-256"))
        await written_until(Producer(settings, network=network), is_over)
        assert oldest_s < 2.2 * SESSION_MS / 1000

    run(scenario())


@pytest.mark.usefixtures("in_good_time")
def test_session_of_an_idle_connection_is_renewed(site: Site) -> None:
    async def scenario() -> None:
        network = Counting()
        settings = site.at("BRIEF", **credentials("SCRAM-SHA-512"))
        async with Producer(settings, network=network) as producer:
            made = 0
            while made != network.made:  # once is enough: a late renewal does not count
                await (await producer.send("idle", b"before"))
                made = network.made
                await asyncio.sleep(1.5 * SESSION_MS / 1000)
                await (await producer.send("idle", b"after"))

    run(scenario())


def test_security_works_on_uvloop(site: Site, tmp_path: Path) -> None:
    """uvloop has its own TLS implementation, whose errors must lead to the same messages."""
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> None:
        await written(Producer(site.at("MUTUAL", ssl_keystore_location=str(site.client))))
        await written(Producer(site.at("BOTH", **credentials("SCRAM-SHA-512"))))
        other = Authority(tmp_path, "other")
        untrusted = await refused(site.at("TLS", ssl_truststore_location=str(other.path)))
        assert "is not trusted" in str(untrusted)
        assert "is for another host" in str(await refused(site.at("ELSEWHERE")))
        assert "ssl.keystore.location" in (await refused(site.at("MUTUAL"))).hint
        for listener, protocol in (("TLS", "PLAINTEXT"), ("PLAINTEXT", "SSL")):
            error = await refused(site.at(listener, protocol, max_block_ms=1000))
            assert "security.protocol" in str(error)

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())
