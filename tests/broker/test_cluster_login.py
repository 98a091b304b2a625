"""Logins of brokers at a broker, and what nobody else may do."""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

from broker.nodes import Client, RunningBroker, broker, closed, run
from ottla.access.scram_client import scram
from ottla.access.scram_server import ScramServer
from ottla.broker import dispatch
from ottla.broker.broker_only import BROKER_ONLY, REFUSABLE
from ottla.broker.large_requests import Handler
from ottla.broker.node import _dispatch_when  # pyright: ignore[reportPrivateUsage]
from ottla.broker.response_errors import ResponseErrors
from ottla.cluster.image import Broker
from ottla.controller.credential import CLUSTER_MECHANISM, CLUSTER_USER, ClusterCredential
from ottla.errors import ErrorCode
from ottla.ids import BrokerEpoch, BrokerId
from ottla.protocol import apis
from ottla.protocol.conversation import Request, Response
from ottla.protocol.headers import RequestHeader
from ottla.protocol.message import Api, Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.settings.config_types import Secret
from ottla.transport.backoff import Backoff
from ottla.transport.broker_channels import BrokerChannels, ChannelsConfig
from ottla.transport.channel import Channel, open_channel
from ottla.transport.connection import Connection, DeferredResponse, Served
from ottla.transport.failures import AuthenticationFailed
from ottla.transport.login import BrokerLogin
from ottla.transport.network import TcpNetwork
from protocol_values import example

# Any: these clients have no types.
kafka_python: Any = kafka
confluent: Any = confluent_kafka.admin

REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
OF_DECISION_24 = {
    "LeaderAndIsr", "StopReplica", "UpdateMetadata", "AlterPartition", "ControlledShutdown",
    "AllocateProducerIds", "WriteTxnMarkers", "Envelope", "AssignReplicasToDirs",
}  # fmt: skip


class Handled:
    """Handlers of all broker-only APIs, which record what reached them."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def handler(self, api: Api) -> Callable[[dispatch.BrokerParts], Handler]:
        def handle(request: Request, connection: Connection) -> Response:
            assert connection.is_broker
            self.names.append(api.name)
            return example(api.response, request.version)

        return lambda parts: handle


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Handled:
    """Serve all APIs between brokers with a handler of the test."""
    found = Handled()
    for api in REFUSABLE:
        monkeypatch.setitem(dispatch.BROKER_HANDLERS, api, found.handler(api))
    return found


def test_table_has_the_apis_between_brokers() -> None:
    assert {api.name for api in REFUSABLE} == OF_DECISION_24
    assert REFUSABLE <= BROKER_ONLY
    assert BROKER_ONLY.isdisjoint(dispatch.HANDLERS)
    assert dispatch.BROKER_HANDLERS.keys() <= REFUSABLE


async def channel_to(running: RunningBroker) -> Channel:
    return await open_channel(
        TcpNetwork(),
        "127.0.0.1",
        running.port,
        client_id="broker-2",
        software=("ottla", "0"),
        setup_timeout_s=10,
        request_timeout_s=10,
        ended=lambda: None,
    )


def login(credential: ClusterCredential) -> BrokerLogin:
    return BrokerLogin(credential.login(), ("ottla", "0"), 10)


async def advertised(client: Client) -> set[int]:
    answer = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 2)
    return {one.api_key for one in answer.api_keys}


async def serves_clients(client: Client) -> bool:
    asked = MetadataRequest(topics=None)
    return bool((await client.ask(asked, MetadataResponse, 9)).brokers)


def requests() -> Generator[tuple[Message, int]]:
    """Every version of every broker-only request."""
    for api in sorted(REFUSABLE, key=lambda api: api.key):
        for version in api.versions:
            yield example(api.request, version), version


def test_client_is_refused_every_broker_only_request(tmp_path: Path, handled: Handled) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            assert not {api.key for api in BROKER_ONLY} & await advertised(client)
            for request, version in requests():
                assert request.API is not None
                answer = await client.ask(request, request.API.response, version)
                codes = [*ResponseErrors().of(answer)]
                assert codes, request
                assert set(codes) == {REFUSED}, request
            assert not handled.names
            assert await serves_clients(client)

    run(scenario)


def test_broker_only_request_between_others_is_refused(tmp_path: Path, handled: Handled) -> None:
    """Pipelined with other requests, and on a connection that others share nothing with."""

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            other = await channel_to(running)
            await login(running.parts.cluster_credential)(other)
            client = await running.client()
            ask = ControlledShutdownRequest(broker_id=1, broker_epoch=1)
            answers = await client.ask_all([ask] * 20, ControlledShutdownResponse, 3)
            assert {one.error_code for one in answers} == {REFUSED}
            assert not handled.names
            other.close()

    run(scenario)


def test_large_broker_only_request_is_refused(tmp_path: Path, handled: Handled) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topics = [
                WritableTxnMarkerTopic(name=f"t{number}", partition_indexes=(0, 1))
                for number in range(3000)
            ]
            marker = WritableTxnMarker(
                producer_id=7,
                producer_epoch=1,
                transaction_result=True,
                topics=topics,
                coordinator_epoch=3,
            )
            asked = WriteTxnMarkersRequest(markers=[marker])
            answer = await client.ask(asked, WriteTxnMarkersResponse, 1)
            assert [*ResponseErrors().of(answer)] == [REFUSED] * 6000
            assert not handled.names

    run(scenario)


def test_broker_is_served_after_its_login(tmp_path: Path, handled: Handled) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            channel = await channel_to(running)
            assert apis.LEADER_AND_ISR.key not in channel.versions
            await login(running.parts.cluster_credential)(channel)
            assert {api.key for api in REFUSABLE} <= channel.versions.keys()
            for request, version in requests():
                assert request.API is not None
                await channel.ask(request, request.API.response, 10, version=version)
            assert set(handled.names) == OF_DECISION_24
            channel.close()
            # The login counts for its connection alone.
            assert not {api.key for api in BROKER_ONLY} & await advertised(await running.client())

    run(scenario)


def test_channels_between_brokers_log_in(tmp_path: Path, handled: Handled) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            there = Broker(BrokerId(1), BrokerEpoch(1), running.node.addresses)

            async def serve(message: Message) -> Message:
                raise AssertionError("this broker sends nothing to itself")

            channels = BrokerChannels(
                BrokerId(2),
                ChannelsConfig(
                    client_id="broker-2",
                    listener="PLAINTEXT",
                    backoff=Backoff(0.01, 0.1, lambda: 0.5),
                ),
                network=TcpNetwork(),
                clock=running.parts.clock,
                broker=lambda broker_id: there,
                serve=serve,
                login=login(running.parts.cluster_credential),
            )
            asked = ControlledShutdownRequest(broker_id=2, broker_epoch=1)
            for _ in range(3):
                await channels.ask(BrokerId(1), asked, ControlledShutdownResponse, timeout_s=10)
            assert handled.names == ["ControlledShutdown"] * 3
            assert [one.is_broker for one in running.node.listeners[0].connections] == [True]
            await channels.close()

    run(scenario)


def test_credential_is_the_same_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            before = running.parts.cluster_credential
        async with broker(tmp_path) as running:
            channel = await channel_to(running)
            await login(before)(channel)
            assert running.parts.cluster_credential.credentials == before.credentials
            channel.close()
        async with broker(tmp_path / "other") as running:
            channel = await channel_to(running)
            with pytest.raises(AuthenticationFailed, match="rejected") as refused:
                await login(before)(channel)
            assert before.credentials.password.reveal() not in str(refused.value)
            channel.close()

    run(scenario)


def test_broker_without_the_credential_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process at a broker's address that accepts every proof cannot prove the credential."""

    def accept(login: ScramServer, challenge: object, message: bytes) -> bytes:
        login.username = CLUSTER_USER
        return b"v=" + b64encode(bytes(32))

    monkeypatch.setattr(ScramServer, "_final", accept)

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            channel = await channel_to(running)
            with pytest.raises(AuthenticationFailed, match="failed to prove"):
                await login(running.parts.cluster_credential)(channel)
            channel.close()

    run(scenario)


async def shaken(client: Client) -> None:
    answer = await client.ask(
        SaslHandshakeRequest(mechanism=CLUSTER_MECHANISM), SaslHandshakeResponse, 1
    )
    assert answer.error_code == 0


async def authenticate(client: Client, message: bytes) -> SaslAuthenticateResponse:
    request = SaslAuthenticateRequest(auth_bytes=message)
    return await client.ask(request, SaslAuthenticateResponse, 2)


@pytest.mark.parametrize(
    "password", ["", "admin", CLUSTER_USER, "0" * 44], ids=lambda text: text or "empty"
)
def test_guessed_password_is_refused(tmp_path: Path, handled: Handled, password: str) -> None:
    settings = "connection.failed.authentication.delay.ms=0"

    async def scenario() -> None:
        async with broker(tmp_path, settings) as running:
            client = await running.client()
            await shaken(client)
            exchange = scram(CLUSTER_MECHANISM, CLUSTER_USER, Secret(password), "0123456789")
            first = await authenticate(client, next(exchange))
            answer = await authenticate(client, exchange.send(bytes(first.auth_bytes)))
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            with pytest.raises((EOFError, ConnectionError)):
                await advertised(client)
            assert not handled.names
            assert await serves_clients(await running.client())

    run(scenario)


def test_observed_login_cannot_be_replayed(tmp_path: Path, handled: Handled) -> None:
    """An attacker has seen all bytes of a login, and sends them again."""
    settings = "connection.failed.authentication.delay.ms=0"

    async def scenario() -> None:
        async with broker(tmp_path, settings) as running:
            credential = running.parts.cluster_credential
            client = await running.client()
            await shaken(client)
            exchange = scram(CLUSTER_MECHANISM, *credential.credentials, credential.nonce())
            observed = [next(exchange)]
            first = await authenticate(client, observed[0])
            observed.append(exchange.send(bytes(first.auth_bytes)))
            assert (await authenticate(client, observed[1])).error_code == 0
            assert apis.LEADER_AND_ISR.key in await advertised(client)

            attacker = await running.client()
            await shaken(attacker)
            assert (await authenticate(attacker, observed[0])).error_code == 0
            answer = await authenticate(attacker, observed[1])
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            # Only the last message, or both at once, helps as little.
            for messages in (observed[1:], observed):
                attacker = await running.client()
                await shaken(attacker)
                for message in messages:
                    await attacker.send_only(SaslAuthenticateRequest(auth_bytes=message), 2)
                codes: list[int] = []
                try:
                    while True:
                        for one in await attacker.responses():
                            assert isinstance(one, SaslAuthenticateResponse)
                            codes.append(one.error_code)
                except (EOFError, ConnectionError):
                    pass
                assert codes[-1] == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert not handled.names

    run(scenario)


def test_half_a_login_serves_nothing(tmp_path: Path, handled: Handled) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            for api in (apis.PRODUCE, apis.FETCH, apis.LEADER_AND_ISR, apis.API_VERSIONS):
                client = await running.client()
                await shaken(client)
                version = api.versions.high
                await client.send_only(example(api.request, version), version)
                assert await closed(client._reader)  # pyright: ignore[reportPrivateUsage]
            assert not handled.names

    run(scenario)


def test_old_handshake_gets_kafkas_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for mechanism, version in ((CLUSTER_MECHANISM, 0), ("PLAIN", 0), ("PLAIN", 1)):
                asked = SaslHandshakeRequest(mechanism=mechanism)
                answer = await client.ask(asked, SaslHandshakeResponse, version)
                assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
                assert not answer.mechanisms
            assert await serves_clients(client)

    run(scenario)


def settings_of(running: RunningBroker) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{running.port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": CLUSTER_MECHANISM,
        "sasl.username": CLUSTER_USER,
        "sasl.password": running.parts.cluster_credential.credentials.password.reveal(),
    }


def test_librdkafka_logs_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            admin = confluent.AdminClient(settings_of(running))
            found = await asyncio.to_thread(admin.list_topics, timeout=20)
            assert set(found.brokers) == {1}
            assert all(one.is_broker for one in running.node.listeners[0].connections)

    run(scenario)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the client does not close all sockets
def test_kafka_python_logs_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            settings = settings_of(running)

            def topics() -> set[str]:
                consumer = kafka_python.KafkaConsumer(
                    bootstrap_servers=settings["bootstrap.servers"],
                    security_protocol=settings["security.protocol"],
                    sasl_mechanism=settings["sasl.mechanism"],
                    sasl_plain_username=settings["sasl.username"],
                    sasl_plain_password=settings["sasl.password"],
                )
                try:
                    return consumer.topics()
                finally:
                    consumer.close()

            assert await asyncio.to_thread(topics) == set()

    run(scenario)


def test_credential_is_not_in_the_files_of_the_log(tmp_path: Path) -> None:
    """Only the journal of coordination has it, and others of the machine cannot read that."""

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            password = running.parts.cluster_credential.credentials.password.reveal().encode()
        found = [
            one for one in tmp_path.rglob("*") if one.is_file() and password in one.read_bytes()
        ]
        assert [one.name for one in found] == ["coordination"]
        assert not found[0].stat().st_mode & 0o007

    run(scenario)


def test_logins_do_not_wait_for_the_controller() -> None:
    """The controller logs in to a broker to tell it what it leads."""

    async def scenario() -> None:
        informed, dispatched = asyncio.Event(), list[str]()

        def dispatch_one(request: Request, connection: Connection) -> None:
            dispatched.append(request.api.name)

        def send(api: Api) -> Served:
            header = RequestHeader(api.key, api.versions.high, 1, None)
            message = example(api.request, api.versions.high)
            request = Request(api, header, message, api.versions.high, 0)
            nobody = cast("Connection", None)
            return _dispatch_when(informed, informed, dispatch_one, request, nobody)

        at_once = {apis.API_VERSIONS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE, *BROKER_ONLY}
        for api in at_once:
            assert send(api) is None
        assert dispatched == [api.name for api in at_once]
        waiting = send(apis.METADATA)
        assert isinstance(waiting, DeferredResponse)
        assert "Metadata" not in dispatched
        informed.set()
        assert await waiting.response is None
        assert dispatched[-1] == "Metadata"

    run(scenario)
