"""TLS of the client: its settings, and its errors about servers and stores that it refuses."""

import asyncio
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

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
    """A threaded server that answers ApiVersions; asyncio's server closes without a TLS alert."""

    tls: ssl.SSLContext | None = None


class ApiVersionsHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        conversation = ServerConversation()
        answer = ApiVersionsResponse(
            error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        )
        with suppress(OSError, ProtocolViolation), self._secured() as line:
            while data := line.recv(1 << 16):
                for request in conversation.receive(data):
                    line.sendall(b"".join(conversation.send(request, answer)))
        # Closing with unread data would send a reset, which can overtake the alert.
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
async def tls_server(
    certificate: Path | None,
    clients: Path | None = None,
    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
) -> AsyncGenerator[int]:
    with Listener((HOST, 0), ApiVersionsHandler) as listener:
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
            # The event loop closes the client's sockets, so it must keep running.
            await asyncio.to_thread(listener.shutdown)
            await asyncio.to_thread(listener.server_close)
            thread.join()


async def connect(port: int, tls: ssl.SSLContext | None, host: str = HOST) -> Channel:
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
def test_client_connects_to_a_trusted_server(authority: Authority, server: Path, host: str) -> None:
    async def scenario() -> None:
        async with tls_server(server) as port:
            tls = context({"ssl.truststore.location": str(authority.path)})
            channel = await connect(port, tls, host)
            assert channel.is_open
            channel.close()

    run(scenario())


def test_certificates_can_be_given_as_pem_text(authority: Authority, server: Path) -> None:
    own = authority.issue("texts")
    key, _, chain = own.read_text().partition("-----BEGIN CERTIFICATE")
    chain = "-----BEGIN CERTIFICATE" + chain
    trusted = authority.path.read_text()

    async def scenario() -> None:
        async with tls_server(server, clients=authority.path) as port:
            for blank in ("\n", " "):
                tls = context(
                    {
                        "ssl.truststore.certificates": trusted.replace("\n", blank),
                        "ssl.keystore.key": key.replace("\n", blank),
                        "ssl.keystore.certificate.chain": chain.replace("\n", blank),
                    }
                )
                (await connect(port, tls)).close()

    before = len(os.listdir("/proc/self/fd"))
    run(scenario())
    assert len(os.listdir("/proc/self/fd")) == before


def test_encrypted_key_is_decrypted_with_its_password(authority: Authority, server: Path) -> None:
    locked = authority.issue("locked", password="hunter2")

    async def scenario() -> None:
        async with tls_server(server, clients=authority.path) as port:
            tls = context(
                {
                    "ssl.truststore.location": str(authority.path),
                    "ssl.keystore.location": str(locked),
                    "ssl.key.password": "hunter2",
                }
            )
            (await connect(port, tls)).close()

    run(scenario())


# Connections that are refused.


async def connection_error(port: int, tls: ssl.SSLContext | None, kind: type[RequestError]) -> str:
    with pytest.raises(RequestError) as raised:
        await connect(port, tls)
    assert type(raised.value) is kind, raised.value
    assert raised.value.retriable == (kind is not AuthenticationFailed)
    return str(raised.value)


def test_unknown_certificate_authority_is_refused(server: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tls_server(server) as port:
            for trust in ({"ssl.truststore.location": str(Authority(tmp_path).path)}, {}):
                words = await connection_error(port, context(trust), AuthenticationFailed)
                assert "is not trusted" in words
                assert "ssl.truststore.location" in words

    run(scenario())


def test_certificate_for_another_host_is_refused(authority: Authority) -> None:
    async def scenario() -> None:
        other = authority.issue("other", "DNS:other.example")
        async with tls_server(other) as port:
            trust = {"ssl.truststore.location": str(authority.path)}
            words = await connection_error(port, context(trust), AuthenticationFailed)
            assert "for another host" in words
            unchecked = {**trust, "ssl.endpoint.identification.algorithm": ""}
            (await connect(port, context(unchecked))).close()

    run(scenario())


def test_expired_certificate_is_refused(authority: Authority) -> None:
    async def scenario() -> None:
        old = authority.issue("old", f"IP:{HOST}", days=0)
        async with tls_server(old) as port:
            trust = {"ssl.truststore.location": str(authority.path)}
            words = await connection_error(port, context(trust), AuthenticationFailed)
            assert "not valid now (certificate has expired)" in words
            assert "clock" in words

    run(scenario())


def test_missing_client_certificate_is_refused(
    authority: Authority, server: Path, tmp_path: Path
) -> None:
    async def scenario() -> None:
        foreign = Authority(tmp_path, "foreign").issue("foreign")
        trust = {"ssl.truststore.location": str(authority.path)}
        async with tls_server(server, clients=authority.path) as port:
            for version in ("TLSv1.2", "TLSv1.3"):
                for own in ({}, {"ssl.keystore.location": str(foreign)}):
                    tls = context({**trust, **own, "ssl.enabled.protocols": version})
                    words = await connection_error(port, tls, AuthenticationFailed)
                    assert "ssl.keystore.location" in words

    run(scenario())


def test_no_common_tls_version_is_reported(authority: Authority, server: Path) -> None:
    async def scenario() -> None:
        trust = {"ssl.truststore.location": str(authority.path)}
        async with tls_server(server, least=ssl.TLSVersion.TLSv1_3) as port:
            tls = context({**trust, "ssl.enabled.protocols": "TLSv1.2"})
            words = await connection_error(port, tls, AuthenticationFailed)
            assert "ssl.enabled.protocols" in words

    run(scenario())


def test_plaintext_and_tls_mismatch_is_reported(authority: Authority, server: Path) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the alert with which Java's TLS answers a plaintext request."""
        await reader.read(10)
        writer.write(b"\x15\x03\x03\0\2\2\x50")
        writer.close()

    async def scenario() -> None:
        tls = context({"ssl.truststore.location": str(authority.path)})
        async with tls_server(None) as port:
            words = await connection_error(port, tls, Disconnected)
            assert "if this port does not use TLS" in words
        async with await asyncio.start_server(alert, HOST, 0) as listener:
            words = await connection_error(
                listener.sockets[0].getsockname()[1], None, AuthenticationFailed
            )
            assert "set security.protocol to SSL" in words
        async with tls_server(server) as port:
            assert "set security.protocol" in await connection_error(port, None, Disconnected)
        async with await asyncio.start_server(http, HOST, 0) as listener:
            words = await connection_error(
                listener.sockets[0].getsockname()[1], tls, AuthenticationFailed
            )
            assert "does not use TLS" in words

    run(scenario())


@pytest.mark.parametrize("loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_connection_closed_in_the_handshake_is_only_an_error(
    authority: Authority, loop: Callable[[], asyncio.AbstractEventLoop] | None
) -> None:
    """asyncio calls connection_lost then without connection_made."""
    failures: list[dict[str, Any]] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.close()

    async def scenario() -> None:
        running = asyncio.get_running_loop()
        running.set_exception_handler(lambda _, failure: failures.append(failure))
        tls = context({"ssl.truststore.location": str(authority.path)})
        async with await asyncio.start_server(refuse, HOST, 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            words = await connection_error(port, tls, Disconnected)
            assert "if this port does not use TLS" in words

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())
    assert failures == []


def test_handshake_timeout_closes_the_socket(
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


# Invalid settings.


def settings_error(settings: Mapping[str, object]) -> str:
    with pytest.raises(InvalidSettings) as raised:
        context(settings)
    assert "hunter2" not in str(raised.value)
    assert "PRIVATE" not in str(raised.value)
    return str(raised.value)


def test_missing_store_is_named(tmp_path: Path) -> None:
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        error = settings_error({name: str(tmp_path / "none.pem")})
        assert error.startswith(f"{name}: cannot read ")
        assert error.endswith("none.pem: No such file or directory")


def test_java_keystore_error_shows_how_to_convert_it(server: Path, tmp_path: Path) -> None:
    packed = tmp_path / "store.p12"
    openssl("pkcs12", "-export", "-in", server, "-out", packed, "-passout", "pass:hunter2")
    assert f"openssl pkcs12 -in {packed} -out store.pem" in settings_error(
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
    assert f"keytool -importkeystore -srckeystore {jks}" in settings_error(
        {"ssl.truststore.location": str(jks)}
    )


def test_invalid_pem_contents_are_reported(
    authority: Authority, server: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    assert "it contains no PEM block" in settings_error({"ssl.truststore.location": str(empty)})
    key, _, chain = server.read_text().partition("-----BEGIN CERTIFICATE")
    chain = "-----BEGIN CERTIFICATE" + chain
    only_key, only_chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    only_key.write_text(key)
    only_chain.write_text(chain)
    assert "contains no certificate" in settings_error({"ssl.truststore.location": str(only_key)})
    assert "contains no certificate" in settings_error({"ssl.keystore.location": str(only_key)})
    assert "contains no private key" in settings_error({"ssl.keystore.location": str(only_chain)})
    broken = chain.replace("MII", "AAA", 1)
    assert "unreadable" in settings_error({"ssl.truststore.certificates": broken})
    other = authority.issue("another").read_text().partition("-----BEGIN CERTIFICATE")[0]
    assert "does not match the certificate" in settings_error(
        {"ssl.keystore.key": other, "ssl.keystore.certificate.chain": chain}
    )


def test_encrypted_key_needs_the_right_password(authority: Authority) -> None:
    locked = str(authority.issue("locked", password="right"))
    assert settings_error({"ssl.keystore.location": locked}).startswith(
        "ssl.key.password: required"
    )
    assert "does not decrypt" in settings_error(
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
def test_only_the_configured_cipher_suites_are_used(
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
def test_unavailable_cipher_suites_are_reported(suites: str, versions: str, what: str) -> None:
    assert what in settings_error({"ssl.cipher.suites": suites, "ssl.enabled.protocols": versions})
