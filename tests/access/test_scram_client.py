"""SCRAM against the examples of its RFCs, a server, and malicious servers."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.access.scram_client import HASHES, ITERATIONS_MAX, Exchange, LoginFailed, scram
from ottla.settings.config_types import Secret

PENCIL = Secret("pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def finish(exchange: Exchange, message: bytes) -> None:
    with pytest.raises(StopIteration):
        exchange.send(message)


def test_example_of_rfc_7677() -> None:
    ours = scram("SCRAM-SHA-256", "user", PENCIL, NONCE)
    assert next(ours) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert ours.send(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    finish(ours, SERVER_FINAL)


def test_example_of_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example uses SHA-1, which no mechanism of Kafka has; the steps are the same."""
    monkeypatch.setitem(HASHES, "SCRAM-SHA-1", "sha1")
    ours = scram("SCRAM-SHA-1", "user", PENCIL, "fyko+d2lbbFgONRv9qkxdawL")
    assert next(ours) == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    assert ours.send(b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096") == (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    finish(ours, b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


class Server:
    """The server side, written from the RFC independently of the client side."""

    def __init__(self, hash_name: str, password: str, *, iterations: int = 4096) -> None:
        self.hash_name = hash_name
        self.iterations = iterations
        self.salt = b"salt of the server"
        self.salted = hashlib.pbkdf2_hmac(
            hash_name, password.encode(), self.salt, max(1, iterations)
        )
        self.name = ""
        self.signed = ""

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self.hash_name).digest()

    def first(self, client_first: bytes) -> bytes:
        bare = client_first.decode().removeprefix("n,,")
        name, _, nonce = bare.partition(",r=")
        self.name = name.removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
        said = f"r={nonce}more,s={b64encode(self.salt).decode()},i={self.iterations}"
        self.signed = f"{bare},{said}"
        return said.encode()

    def final(self, client_final: bytes) -> bytes:
        without, _, proof = client_final.decode().rpartition(",p=")
        signed = f"{self.signed},{without}".encode()
        client_key = self._hmac(self.salted, b"Client Key")
        stored = hashlib.new(self.hash_name, client_key).digest()
        signature = self._hmac(stored, signed)
        unmasked = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash_name, unmasked).digest() != stored:
            return b"e=invalid-proof"
        server_key = self._hmac(self.salted, b"Server Key")
        return b"v=" + b64encode(self._hmac(server_key, signed))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@given(
    username=st.text(min_size=1, max_size=20).filter(lambda name: max(name) < "\ud800"),
    password=st.text(max_size=20).filter(lambda text: not text or max(text) < "\ud800"),
)
def test_any_name_and_password_can_log_in(mechanism: str, username: str, password: str) -> None:
    server = Server(HASHES[mechanism], password)
    ours = scram(mechanism, username, Secret(password), "fresh")
    first = server.first(next(ours))
    assert server.name == username
    finish(ours, server.final(ours.send(first)))


def test_wrong_password_reports_the_servers_error() -> None:
    server = Server("sha512", "right")
    ours = scram("SCRAM-SHA-512", "u", Secret("wrong"), "fresh")
    refused = server.final(ours.send(server.first(next(ours))))
    with pytest.raises(LoginFailed, match="rejected the login: invalid-proof"):
        ours.send(refused)


def test_server_without_the_password_is_rejected() -> None:
    ours = scram("SCRAM-SHA-256", "user", PENCIL, NONCE)
    next(ours)
    ours.send(SERVER_FIRST)
    with pytest.raises(LoginFailed, match="failed to prove"):
        ours.send(b"v=" + b64encode(bytes(32)))


@each_case(
    "nonce", [NONCE.encode(), b"another" + NONCE.encode(), NONCE[:-1].encode() + b"Xmore", b"more"]
)
def test_wrong_server_nonce_gets_no_proof(nonce: bytes) -> None:
    ours = scram("SCRAM-SHA-256", "user", PENCIL, NONCE)
    next(ours)
    with pytest.raises(LoginFailed, match="nonce does not continue the client"):
        ours.send(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")


@each_case("iterations", [1, 4095, ITERATIONS_MAX + 1, 999_999_999])
def test_too_few_or_too_many_iterations_get_no_proof(iterations: int) -> None:
    ours = scram("SCRAM-SHA-256", "user", PENCIL, NONCE)
    next(ours)
    with pytest.raises(LoginFailed, match=f"requests {iterations} iterations"):
        ours.send(b"r=%bmore,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=%d" % (NONCE.encode(), iterations))


@each_case(
    "message",
    [
        b"",
        b"r=",
        b"s=AAAA,r=rOprNGfwEbeRWgbNEkqOmore,i=4096",
        b"m=mandatory,r=rOprNGfwEbeRWgbNEkqOmore,s=AAAA,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOmore,s=AAAA",
        b"r=rOprNGfwEbeRWgbNEkqOmore,s=AAAA,i=-1",
        b"r=rOprNGfwEbeRWgbNEkqOmore,s=AAAA,i=99999999999999999999",
        b"r=rOprNGfwEbeRWgbNEkqOmore,s=A,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOmore,s=,i=4096",
        b"\xff\xfe",
    ],
)
def test_malformed_server_message_gets_no_proof(message: bytes) -> None:
    ours = scram("SCRAM-SHA-256", "user", PENCIL, NONCE)
    next(ours)
    with pytest.raises(LoginFailed, match="is not valid SCRAM"):
        ours.send(message)


def test_optional_scram_extensions_are_ignored() -> None:
    ours = scram("SCRAM-SHA-256", "user", PENCIL, NONCE)
    next(ours)
    assert ours.send(SERVER_FIRST + b",x=unknown").startswith(b"c=biws,")
    with pytest.raises(LoginFailed, match="failed to prove"):
        ours.send(SERVER_FINAL)  # signed without the extension


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_server_message_raises_only_login_failed(first: bytes, final: bytes) -> None:
    ours = scram("SCRAM-SHA-256", "user", PENCIL, NONCE)
    next(ours)
    with pytest.raises(LoginFailed):
        ours.send(first)
    again = scram("SCRAM-SHA-256", "user", PENCIL, NONCE)
    next(again)
    again.send(SERVER_FIRST)
    with pytest.raises(LoginFailed):
        again.send(final)
