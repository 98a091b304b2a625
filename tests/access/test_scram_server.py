"""The server side of SCRAM: the examples of the RFCs, our client side, and attackers."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.access.scram_client import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, Exchange, scram
from ottla.access.scram_server import (
    CLIENT_NONCE_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    LoginRefused,
    ScramServer,
    ScramUsers,
    ScramVerifier,
)
from ottla.settings.config_types import Secret

PENCIL = Secret("pencil")
SHA_256 = "SCRAM-SHA-256"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
USERS = ScramUsers(SHA_256, {"user": ScramVerifier.of(SHA_256, PENCIL, SALT)}, b"decoy" * 8)


def challenged(first: bytes = CLIENT_FIRST) -> ScramServer:
    server = USERS.begin(SERVER_NONCE)
    server.reply(first)
    return server


def refuse(server: ScramServer, message: bytes) -> None:
    """Check that the message is refused, with the one error, and that nothing works after it."""
    for again in (message, CLIENT_FIRST, CLIENT_FINAL):
        with pytest.raises(LoginRefused) as refused:
            server.reply(again)
        assert refused.value.args == LoginRefused().args
        assert server.is_refused
        assert server.username is None


def logged_in(client: Exchange, server: ScramServer) -> None:
    first = server.reply(next(client))
    final = server.reply(client.send(first))
    with pytest.raises(StopIteration):
        client.send(final)


def test_example_of_rfc_7677() -> None:
    server = USERS.begin(SERVER_NONCE)
    assert server.reply(CLIENT_FIRST) == SERVER_FIRST
    assert server.username is None
    assert server.reply(CLIENT_FINAL) == SERVER_FINAL
    assert server.username == "user"


def test_example_of_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example uses SHA-1, which no mechanism of Kafka has; the steps are the same."""
    monkeypatch.setitem(HASHES, "SCRAM-SHA-1", "sha1")
    verifier = ScramVerifier.of("SCRAM-SHA-1", PENCIL, b64decode("QSXCR+Q6sek8bf92"))
    server = ScramUsers("SCRAM-SHA-1", {"user": verifier}, b"").begin("3rfcNHYJY1ZVvWVs7j")
    assert server.reply(b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL") == (
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    )
    assert (
        server.reply(
            b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
        )
        == b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="
    )


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_NONCE = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","),
    min_size=16,
    max_size=60,
)


@pytest.mark.parametrize("mechanism", [*HASHES])
@given(
    username=_TEXT.filter(bool),
    password=_TEXT,
    salt=st.binary(min_size=1),
    nonces=st.tuples(_NONCE, _NONCE),
)
def test_our_client_logs_in_with_any_name_and_password(
    mechanism: str, username: str, password: str, salt: bytes, nonces: tuple[str, str]
) -> None:
    verifier = ScramVerifier.of(mechanism, Secret(password), salt)
    server = ScramUsers(mechanism, {username: verifier}, b"decoy").begin(nonces[0])
    logged_in(scram(mechanism, username, Secret(password), nonces[1]), server)
    assert server.username == username


@given(_TEXT.filter(lambda text: text != "pencil"))
def test_wrong_password_is_refused(password: str) -> None:
    server = USERS.begin(SERVER_NONCE)
    client = scram(SHA_256, "user", Secret(password), "0123456789abcdef")
    refuse(server, client.send(server.reply(next(client))))


@each_case("password", ["pencil", "", "anything"])
def test_unknown_user_is_refused_at_the_same_step(password: str) -> None:
    for name in ("nobody", "User", "user ", "us\xe9r"):
        server = USERS.begin(SERVER_NONCE)
        client = scram(SHA_256, name, Secret(password), "0123456789abcdef")
        first = server.reply(next(client))
        assert len(first) == len(USERS.begin(SERVER_NONCE).reply(b"n,,n=user,r=0123456789abcdef"))
        refuse(server, client.send(first))


def test_salt_of_an_unknown_user_does_not_change() -> None:
    salts = {
        USERS.begin(nonce).reply(b"n,,n=nobody,r=abc").split(b",")[1]
        for nonce in ("x" * 16, "y" * 16)
    }
    assert len(salts) == 1
    assert salts != {USERS.begin("x" * 16).reply(b"n,,n=another,r=abc").split(b",")[1]}
    other = replace(USERS, decoy_key=b"of another process")
    assert salts != {other.begin("x" * 16).reply(b"n,,n=nobody,r=abc").split(b",")[1]}


def test_unknown_user_is_refused_whatever_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that fits the decoy is refused, too."""
    known = USERS.verifiers["user"]
    monkeypatch.setattr(ScramUsers, "decoy", lambda users, username: known)  # pyright: ignore
    server = USERS.begin(SERVER_NONCE)
    client = scram(SHA_256, "nobody", PENCIL, "0123456789abcdef")
    refuse(server, client.send(server.reply(next(client))))


def test_observed_handshake_cannot_be_replayed() -> None:
    server = USERS.begin("another nonce of the server".replace(" ", "."))
    assert server.reply(CLIENT_FIRST) != SERVER_FIRST
    refuse(server, CLIENT_FINAL)


def test_proof_for_another_nonce_is_refused() -> None:
    """A proof that is valid for what it signs still has to name the nonces of this login."""
    for nonce in (
        "rOprNGfwEbeRWgbNEkqO",
        "rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE + "x",
        SERVER_NONCE,
    ):
        refuse(challenged(), final_with(b"c=biws,r=" + nonce.encode()))


def test_proof_for_another_header_is_refused() -> None:
    """A client that believes that it has channel binding is not talking to this server."""
    for header in (b"y,,", b"p=tls-unique,,", b"n,a=user,", b"n,,x"):
        nonce = b"rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE.encode()
        refuse(challenged(), final_with(b"c=" + b64encode(header) + b",r=" + nonce))


def final_with(without_proof: bytes) -> bytes:
    """The last message of a client that knows the password and signs what it likes."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    signed = b",".join((CLIENT_FIRST.removeprefix(b"n,,"), SERVER_FIRST, without_proof))
    signature = hmac.digest(stored_key, signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + b64encode(proof)


def test_helper_of_this_module_makes_the_right_proof() -> None:
    nonce = b"rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE.encode()
    assert final_with(b"c=biws,r=" + nonce) == CLIENT_FINAL
    assert challenged().reply(final_with(b"c=biws,r=%b,x=extension" % nonce)).startswith(b"v=")


@given(st.integers(0, 8 * len(CLIENT_FINAL) - 1))
def test_altered_proof_is_refused(bit: int) -> None:
    altered = bytearray(CLIENT_FINAL)
    altered[bit // 8] ^= 1 << bit % 8
    refuse(challenged(), bytes(altered))


@given(st.integers(0, 8 * len(CLIENT_FIRST) - 1))
def test_altered_first_message_is_refused_in_the_end(bit: int) -> None:
    altered = bytearray(CLIENT_FIRST)
    altered[bit // 8] ^= 1 << bit % 8
    server = USERS.begin(SERVER_NONCE)
    try:
        server.reply(bytes(altered))
    except LoginRefused:
        return
    refuse(server, CLIENT_FINAL)


def test_messages_after_a_login_are_refused() -> None:
    for message in (CLIENT_FIRST, CLIENT_FINAL):
        server = challenged()
        server.reply(CLIENT_FINAL)
        with pytest.raises(LoginRefused):
            server.reply(message)


def test_final_message_without_a_first_one_is_refused() -> None:
    refuse(USERS.begin(SERVER_NONCE), CLIENT_FINAL)


@each_case(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,r=abc,n=user",
        b"n,,m=mandatory,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=us=2cer,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=us\xffer,r=abc",
        b"n,,n=user,r=a\x7fc",
        b"n,,n=user,r=a\xc3\xa9c",
        b"n,,n=user,r=a c",
        b"n,,n=user,r=abc,",
        b"n,,n=user,r=abc,x",
        b"n,a=other,n=user,r=abc",
        b"n,a=,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"n,,n=user,r=abc\n",
        b"n,,n=user,r=" + b"a" * (CLIENT_NONCE_BYTES_MAX + 1),
        b"n,,n=" + b"u" * MESSAGE_BYTES_MAX + b",r=abc",
    ],
)
def test_malformed_first_message_is_refused(first: bytes) -> None:
    refuse(USERS.begin(SERVER_NONCE), first)


@each_case(
    "final",
    [
        b"",
        b"c=biws",
        CLIENT_FINAL.partition(b",p=")[0],
        CLIENT_FINAL.partition(b",p=")[0] + b",p=",
        CLIENT_FINAL.partition(b",p=")[0] + b",p=AAAA",
        CLIENT_FINAL.partition(b",p=")[0] + b",p=A",
        CLIENT_FINAL + b",x=after",
        CLIENT_FINAL + b"\n",
        CLIENT_FINAL[:-1],
        CLIENT_FINAL.replace(b"VQ=", b"VS="),  # the same bytes after decoding
        b"c=biws," + CLIENT_FINAL,
        CLIENT_FINAL.replace(b"c=biws", b"c=biws="),
        CLIENT_FINAL.replace(b",r=", b",x=y,r="),
        CLIENT_FINAL + b" " * MESSAGE_BYTES_MAX,
    ],
)
def test_malformed_final_message_is_refused(final: bytes) -> None:
    refuse(challenged(), final)


@each_case("first", [b"n,a=user,n=user,r=abc", b"y,,n=user,r=abc", b"n,,n=user,r=abc,tokenauth=no"])
def test_unusual_first_message_is_accepted(first: bytes) -> None:
    """As in Kafka the authorization id may be the user; unknown extensions are ignored."""
    assert USERS.begin(SERVER_NONCE).reply(first).startswith(b"r=abc" + SERVER_NONCE.encode())


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_any_bytes_raise_only_login_refused(messages: list[bytes]) -> None:
    server = USERS.begin(SERVER_NONCE)
    for message in messages:
        try:
            server.reply(message)
        except LoginRefused:
            assert server.is_refused
    assert server.username is None


@each_case("iterations", [0, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1])
def test_verifier_has_an_iteration_count_that_clients_accept(iterations: int) -> None:
    with pytest.raises(AssertionError, match="clients refuse this"):
        replace(USERS.verifiers["user"], iterations=iterations)


def test_keys_and_nonces_are_not_shown() -> None:
    verifier = USERS.verifiers["user"]
    shown = f"{USERS!r} {verifier!r} {challenged()!r}"
    for secret in (verifier.stored_key, verifier.server_key, USERS.decoy_key):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown


def test_short_nonce_of_the_server_is_an_error() -> None:
    with pytest.raises(AssertionError):
        USERS.begin("0123456789abcde")
