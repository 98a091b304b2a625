"""Client side of SCRAM (RFC 5802, RFC 7677): both ends prove the password without sending it.

Invariant: the client sends no proof to a server whose nonce does not continue its own, or whose
iteration count is outside the limits. Too few iterations would let a thief of the proof guess the
password; too many would block the client. A login succeeds only after the server has proved that it
knows the password too.

As in Kafka, user names and passwords are UTF-8 bytes without SASLprep.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Generator
from functools import lru_cache
from typing import Final, TypeAlias

from ottla.errors import OttlaError
from ottla.settings.config_types import Secret

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Hash function by mechanism."""

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1 << 17
"""Kafka allows at most 16,384; this many block the event loop for a tenth of a second."""

Exchange: TypeAlias = Generator[bytes, bytes, None]
"""The client side of a login: yields messages to send and receives the replies. It ends after the
server's last message, or raises LoginFailed."""

_NO_BINDING: Final = b"n,,"  # no channel binding and no authorization id
_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{0,8})(,.*)?"
)
_FINAL: Final = re.compile(rb"v=(?P<signature>[A-Za-z0-9+/=]+)(,.*)?")
_ERROR: Final = re.compile(rb"e=(?P<error>[!-+\--~]+)(,.*)?")


class LoginFailed(OttlaError):
    """The server did not prove its identity or violated the mechanism."""


@lru_cache(maxsize=32)
def _salted(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Derive the key of a login; a client that logs in again does not derive it again.

    The derivation takes milliseconds on purpose, which the event loop would wait for each time.
    """
    return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)


def scram(mechanism: str, username: str, password: Secret, nonce: str) -> Exchange:
    """Log in with a SCRAM mechanism; `nonce` must be unpredictable and unique."""
    hash_name = HASHES[mechanism]
    client_first = b"n=%b,r=%b" % (_escaped(username), nonce.encode("ascii"))
    server_first = yield _NO_BINDING + client_first
    found = _parsed(_FIRST, server_first)
    server_nonce, iterations = found["nonce"], int(found["iterations"])
    if not server_nonce.startswith(nonce.encode("ascii")) or len(server_nonce) == len(nonce):
        raise LoginFailed("the server's nonce does not continue the client's")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise LoginFailed(
            f"the server requests {iterations} iterations, allowed are {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX}"
        )
    salted = _salted(hash_name, password.reveal().encode(), _decoded(found["salt"]), iterations)
    without_proof = b"c=%b,r=%b" % (b64encode(_NO_BINDING), server_nonce)
    signed = b",".join((client_first, server_first, without_proof))
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server_final = yield b"%b,p=%b" % (without_proof, b64encode(proof))
    theirs = _decoded(_parsed(_FINAL, server_final)["signature"])
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    if not hmac.compare_digest(theirs, hmac.digest(server_key, signed, hash_name)):
        raise LoginFailed("the server failed to prove that it knows the password")


def _escaped(username: str) -> bytes:
    """Return a user name with `=` and `,` escaped."""
    return username.replace("=", "=3D").replace(",", "=2C").encode()


def _parsed(form: re.Pattern[bytes], message: bytes) -> "re.Match[bytes]":
    if found := form.fullmatch(message):
        return found
    if refused := _ERROR.fullmatch(message):
        raise LoginFailed(f"the server rejected the login: {refused['error'].decode('ascii')}")
    raise LoginFailed("the server's message is not valid SCRAM")


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except NotBase64:
        raise LoginFailed("the server's message is not valid SCRAM") from None
