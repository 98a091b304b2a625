"""TLS of a client: what its settings lead to, and what it says of servers and stores it refuses."""

import asyncio
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cases import each_case
from certificates import Authority, openssl
from ottla.errors import ProtocolViolation, RequestError
from ottla.protocol.conversation import ServerConversation
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.settings.config_parser import client_config
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.producer import PRODUCER
from ottla.transport.channel import Channel, TimedOut, open_channel
from ottla.transport.failures import AuthenticationFailed, Disconnected
from ottla.transport.network import TcpNetwork
from ottla.transport.tls import TlsNetwork, client_tls

HOST = "127.0.0.1"
SUITE = "ECDHE-ECDSA-AES128-GCM-SHA256"
IANA = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
NEWEST = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Path:
    return authority.issue("server", f"IP:{HOST}", "DNS:localhost")


def context(settings: Mapping[str, object]) -> ssl.SSLContext:
    return client_tls(client_config(PRODUCER, {"bootstrap.servers": "a:1", **settings}))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(bounded())


class Listener(socketserver.ThreadingTCPServer):
    """Tells its versions; a server in threads, because asyncio's leaves without an alert."""

    tls: ssl.SSLContext | None = None


class Greeting(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        conversation = ServerConversation()
        answer = ApiVersionsResponse(
            error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        )
        with suppress(OSError, ProtocolViolation), self._secured() as line:
            while data := line.recv(1 << 16):
                for request in conversation.receive(data):
                    line.sendall(b"".join(conversation.send(request, answer)))
        # To close before all is read would be a reset, which overtakes an alert.
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_WR)
            while self.request.recv(1 << 16):
                pass

    def _secured(self) -> socket.socket:
        assert isinstance(self.server, Listener)
        self.request.settimeout(10)
        line: socket.socket = self.request.dup()
        if self.server.tls is not None:
            line = self.server.tls.wrap_socket(line, server_side=True)
        return line


@asynccontextmanager
async def listening(
    certificate: Path | None,
    clients: Path | None = None,
    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
) -> AsyncGenerator[int]:
    with Listener((HOST, 0), Greeting) as listener:
        if certificate is not None:
            tls = listener.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            tls.minimum_version = least
            if clients is not None:
                tls.verify_mode = ssl.CERT_REQUIRED
                tls.load_verify_locations(clients)
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield listener.server_address[1]
        finally:
            # Our ends are closed by the event loop, which therefore goes on.
            await asyncio.to_thread(listener.shutdown)
            await asyncio.to_thread(listener.server_close)
            thread.join()


async def greeted(port: int, tls: ssl.SSLContext | None, host: str = HOST) -> Channel:
    network = TcpNetwork() if tls is None else TlsNetwork(TcpNetwork(), tls)
    return await open_channel(
        network,
        host,
        port,
        client_id="test",
        software=("test", "0"),
        setup_timeout_s=5,
        request_timeout_s=5,
        ended=lambda: None,
    )


@pytest.mark.parametrize("host", [HOST, "localhost"])
def test_a_trusted_server_is_greeted(authority: Authority, server: Path, host: str) -> None:
    async def scenario() -> None:
        async with listening(server) as port:
            tls = context({"ssl.truststore.location": str(authority.path)})
            channel = await greeted(port, tls, host)
            assert channel.is_open
            channel.close()

    run(scenario())


def test_certificates_can_be_given_as_text_even_on_one_line(
    authority: Authority, server: Path
) -> None:
    own = authority.issue("texts")
    key, _, chain = own.read_text().partition("-----BEGIN CERTIFICATE")
    chain = "-----BEGIN CERTIFICATE" + chain
    trusted = authority.path.read_text()

    async def scenario() -> None:
        async with listening(server, clients=authority.path) as port:
            for blank in ("\n", " "):
                tls = context(
                    {
                        "ssl.truststore.certificates": trusted.replace("\n", blank),
                        "ssl.keystore.key": key.replace("\n", blank),
                        "ssl.keystore.certificate.chain": chain.replace("\n", blank),
                    }
                )
                (await greeted(port, tls)).close()

    before = len(os.listdir("/proc/self/fd"))
    run(scenario())
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_locked_key_is_opened_by_its_password(authority: Authority, server: Path) -> None:
    locked = authority.issue("locked", password="hunter2")

    async def scenario() -> None:
        async with listening(server, clients=authority.path) as port:
            tls = context(
                {
                    "ssl.truststore.location": str(authority.path),
                    "ssl.keystore.location": str(locked),
                    "ssl.key.password": "hunter2",
                }
            )
            (await greeted(port, tls)).close()

    run(scenario())


# What is refused.


async def said(port: int, tls: ssl.SSLContext | None, kind: type[RequestError]) -> str:
    with pytest.raises(RequestError) as told:
        await greeted(port, tls)
    assert type(told.value) is kind, told.value
    assert told.value.retriable == (kind is not AuthenticationFailed)
    return str(told.value)


def test_a_server_of_an_unknown_authority_is_refused(server: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listening(server) as port:
            for trust in ({"ssl.truststore.location": str(Authority(tmp_path).path)}, {}):
                words = await said(port, context(trust), AuthenticationFailed)
                assert "is not trusted" in words
                assert "ssl.truststore.location" in words

    run(scenario())


def test_a_server_of_another_name_is_refused(authority: Authority) -> None:
    async def scenario() -> None:
        other = authority.issue("other", "DNS:other.example")
        async with listening(other) as port:
            trust = {"ssl.truststore.location": str(authority.path)}
            words = await said(port, context(trust), AuthenticationFailed)
            assert "for another host" in words
            unchecked = {**trust, "ssl.endpoint.identification.algorithm": ""}
            (await greeted(port, context(unchecked))).close()

    run(scenario())


def test_a_server_that_has_expired_is_refused(authority: Authority) -> None:
    async def scenario() -> None:
        old = authority.issue("old", f"IP:{HOST}", days=0)
        async with listening(old) as port:
            trust = {"ssl.truststore.location": str(authority.path)}
            words = await said(port, context(trust), AuthenticationFailed)
            assert "not valid now (certificate has expired)" in words
            assert "clock" in words

    run(scenario())


def test_without_the_certificate_it_wants_a_server_refuses(
    authority: Authority, server: Path, tmp_path: Path
) -> None:
    async def scenario() -> None:
        foreign = Authority(tmp_path, "foreign").issue("foreign")
        trust = {"ssl.truststore.location": str(authority.path)}
        async with listening(server, clients=authority.path) as port:
            for version in ("TLSv1.2", "TLSv1.3"):
                for own in ({}, {"ssl.keystore.location": str(foreign)}):
                    tls = context({**trust, **own, "ssl.enabled.protocols": version})
                    words = await said(port, tls, AuthenticationFailed)
                    assert "ssl.keystore.location" in words

    run(scenario())


def test_ends_without_a_version_in_common_part(authority: Authority, server: Path) -> None:
    async def scenario() -> None:
        trust = {"ssl.truststore.location": str(authority.path)}
        async with listening(server, least=ssl.TLSVersion.TLSv1_3) as port:
            tls = context({**trust, "ssl.enabled.protocols": "TLSv1.2"})
            words = await said(port, tls, AuthenticationFailed)
            assert "ssl.enabled.protocols" in words

    run(scenario())


def test_who_does_not_speak_tls_is_told_from_who_does(authority: Authority, server: Path) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What Java's TLS says to a request in the clear."""
        await reader.read(10)
        writer.write(b"\x15\x03\x03\0\2\2\x50")
        writer.close()

    async def scenario() -> None:
        tls = context({"ssl.truststore.location": str(authority.path)})
        async with listening(None) as port:
            words = await said(port, tls, Disconnected)
            assert "if this port does not use TLS" in words
        async with await asyncio.start_server(alert, HOST, 0) as listener:
            words = await said(listener.sockets[0].getsockname()[1], None, AuthenticationFailed)
            assert "set security.protocol to SSL" in words
        async with listening(server) as port:
            assert "set security.protocol" in await said(port, None, Disconnected)
        async with await asyncio.start_server(http, HOST, 0) as listener:
            words = await said(listener.sockets[0].getsockname()[1], tls, AuthenticationFailed)
            assert "does not use TLS" in words

    run(scenario())


def test_a_handshake_that_does_not_end_is_given_up_and_leaves_no_socket(
    authority: Authority,
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.set_result(await reader.read(-1))
        writer.transport.abort()

    async def scenario() -> None:
        nonlocal ended
        ended = asyncio.get_running_loop().create_future()
        tls = context({"ssl.truststore.location": str(authority.path)})
        async with await asyncio.start_server(silent, HOST, 0) as listener:
            with pytest.raises(TimedOut, match="did not accept a connection"):
                await open_channel(
                    TlsNetwork(TcpNetwork(), tls),
                    HOST,
                    listener.sockets[0].getsockname()[1],
                    client_id="test",
                    software=("test", "0"),
                    setup_timeout_s=0.1,
                    request_timeout_s=5,
                    ended=lambda: None,
                )
            async with asyncio.timeout(5):
                await asyncio.wait((ended,))

    ended: asyncio.Future[bytes]
    run(scenario())


# What is wrong with settings.


def problem(settings: Mapping[str, object]) -> str:
    with pytest.raises(InvalidSettings) as told:
        context(settings)
    assert "hunter2" not in str(told.value)
    assert "PRIVATE" not in str(told.value)
    return str(told.value)


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        said = problem({name: str(tmp_path / "none.pem")})
        assert said.startswith(f"{name}: cannot read ")
        assert said.endswith("none.pem: No such file or directory")


def test_a_store_of_java_is_known_and_can_be_converted(server: Path, tmp_path: Path) -> None:
    packed = tmp_path / "store.p12"
    openssl("pkcs12", "-export", "-in", server, "-out", packed, "-passout", "pass:hunter2")
    assert f"openssl pkcs12 -in {packed} -out store.pem" in problem(
        {"ssl.keystore.location": str(packed)}
    )
    jks = tmp_path / "store.jks"
    if shutil.which("keytool"):
        subprocess.run(
            ["keytool", "-importkeystore", "-srckeystore", packed, "-srcstoretype", "PKCS12",
             "-srcstorepass", "hunter2", "-destkeystore", jks, "-deststoretype", "JKS",
             "-deststorepass", "hunter2"],
            check=True, capture_output=True,
        )  # fmt: skip
    else:
        jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    assert f"keytool -importkeystore -srckeystore {jks}" in problem(
        {"ssl.truststore.location": str(jks)}
    )


def test_what_is_no_pem_or_the_wrong_one_is_told(
    authority: Authority, server: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    assert "it contains no PEM block" in problem({"ssl.truststore.location": str(empty)})
    key, _, chain = server.read_text().partition("-----BEGIN CERTIFICATE")
    chain = "-----BEGIN CERTIFICATE" + chain
    only_key, only_chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    only_key.write_text(key)
    only_chain.write_text(chain)
    assert "contains no certificate" in problem({"ssl.truststore.location": str(only_key)})
    assert "contains no certificate" in problem({"ssl.keystore.location": str(only_key)})
    assert "contains no private key" in problem({"ssl.keystore.location": str(only_chain)})
    broken = chain.replace("MII", "AAA", 1)
    assert "unreadable" in problem({"ssl.truststore.certificates": broken})
    other = authority.issue("another").read_text().partition("-----BEGIN CERTIFICATE")[0]
    assert "does not match the certificate" in problem(
        {"ssl.keystore.key": other, "ssl.keystore.certificate.chain": chain}
    )


def test_a_locked_key_needs_the_right_password(authority: Authority) -> None:
    locked = str(authority.issue("locked", password="right"))
    assert problem({"ssl.keystore.location": locked}).startswith("ssl.key.password: required")
    assert "does not decrypt" in problem(
        {"ssl.keystore.location": locked, "ssl.key.password": "hunter2"}
    )


@each_case(
    ("suites", "versions", "least", "most"),
    [
        (SUITE, "TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        (IANA, "TLSv1.2", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        (f"{IANA},{NEWEST}", "TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        (NEWEST, "TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
    ],
)
def test_only_the_suites_that_are_named_are_used(
    suites: str, versions: str, least: ssl.TLSVersion, most: ssl.TLSVersion
) -> None:
    tls = context({"ssl.cipher.suites": suites, "ssl.enabled.protocols": versions})
    assert (tls.minimum_version, tls.maximum_version) == (least, most)
    older = {one["name"] for one in tls.get_ciphers() if one["protocol"] != "TLSv1.3"}
    assert least is ssl.TLSVersion.TLSv1_3 or older == {SUITE}


@each_case(
    ("suites", "versions", "what"),
    [
        ("NO-SUCH-SUITE", "TLSv1.2", "OpenSSL does not support cipher suite NO-SUCH-SUITE"),
        (
            f"{SUITE},NO-SUCH-SUITE",
            "TLSv1.2",
            "OpenSSL does not support cipher suite NO-SUCH-SUITE",
        ),
        ("TLS_AES_128_GCM_SHA256", "TLSv1.3", "only be enabled together"),
        (SUITE, "TLSv1.3", "no suite matches a version in ssl.enabled.protocols"),
    ],
)
def test_suites_that_cannot_be_had_are_told(suites: str, versions: str, what: str) -> None:
    assert what in problem({"ssl.cipher.suites": suites, "ssl.enabled.protocols": versions})
