"""Server side of SCRAM (RFC 5802, RFC 7677): checks a login without knowing the password.

Invariant: a login is complete only after the client has proved that it knows the password, for the
nonces of this login. Every other outcome is the same LoginRefused: a user that does not exist, a
wrong password, and an altered, repeated or malformed message cannot be told apart. A user that does
not exist gets a salt of its own, the same one each time, and is refused at the same step.

As in Kafka, user names and passwords are UTF-8 bytes without SASLprep, a client acts only as itself
(the authorization id is empty or the user name), and there is no channel binding.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from ottla.access.scram_client import HASHES, ITERATIONS_MAX, ITERATIONS_MIN
from ottla.errors import OttlaError
from ottla.settings.config_types import Secret

MESSAGE_BYTES_MAX: Final = 4096
"""The largest message of a client that is parsed; usual ones have about 100 bytes."""

CLIENT_NONCE_BYTES_MAX: Final = 256
SERVER_NONCE_CHARACTERS_MIN: Final = 16
SALT_BYTES: Final = 16

_PRINTABLE: Final = rb"[!-+\--~]+"  # ASCII without the comma
_BASE64: Final = rb"[A-Za-z0-9+/]+={0,2}"
_NAME: Final = rb"(?:[^=,\0]|=2C|=3D)+"
_EXTENSIONS: Final = rb"(?:,[A-Za-z]+=[^,\0]+)*"
_FIRST: Final = re.compile(
    rb"(?P<header>[ny],(?:a=(?P<authorization_id>%b))?,)"
    rb"(?P<bare>n=(?P<username>%b),r=(?P<nonce>%b)%b)" % (_NAME, _NAME, _PRINTABLE, _EXTENSIONS)
)
_FINAL: Final = re.compile(
    rb"(?P<without_proof>c=(?P<header>%b),r=(?P<nonce>%b)%b),p=(?P<proof>%b)"
    % (_BASE64, _PRINTABLE, _EXTENSIONS, _BASE64)
)


class LoginRefused(OttlaError):
    """The client is not the user that it claims to be; the reason is never given."""

    def __init__(self) -> None:
        super().__init__("the login is refused")


@dataclass(frozen=True, slots=True)
class ScramVerifier:
    """What a server stores of a password: enough to check a proof, not enough to log in."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        assert ITERATIONS_MIN <= self.iterations <= ITERATIONS_MAX, "clients refuse this"

    @classmethod
    def of(
        cls, mechanism: str, password: Secret, salt: bytes, iterations: int = ITERATIONS_MIN
    ) -> Self:
        """Derive the verifier of a password; this takes about a millisecond."""
        hash_name = HASHES[mechanism]
        salted = hashlib.pbkdf2_hmac(hash_name, password.reveal().encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        return cls(
            salt,
            iterations,
            stored_key=hashlib.new(hash_name, client_key).digest(),
            server_key=hmac.digest(salted, b"Server Key", hash_name),
        )


@dataclass(frozen=True, slots=True)
class ScramUsers:
    """The users of a mechanism. `decoy_key` is random and never leaves the process."""

    mechanism: str
    verifiers: Mapping[str, ScramVerifier]
    decoy_key: bytes = field(repr=False)

    def begin(self, nonce: str) -> "ScramServer":
        """Begin a login; `nonce` must be unpredictable and unique."""
        return ScramServer(self, nonce)

    def decoy(self, username: str) -> ScramVerifier:
        """Return a verifier that no password fits, for a user that does not exist."""

        def derived(purpose: bytes) -> bytes:
            text = purpose + b"\0" + username.encode()
            return hmac.digest(self.decoy_key, text, HASHES[self.mechanism])

        return ScramVerifier(
            derived(b"salt")[:SALT_BYTES], ITERATIONS_MIN, derived(b"stored"), derived(b"server")
        )


class _Challenge(NamedTuple):
    """What the server remembers between the two messages of a client."""

    username: str
    verifier: ScramVerifier
    is_known: bool
    header: bytes  # of the client's first message; its last one repeats it
    nonce: bytes  # of both ends
    signed: bytes  # the first messages of both ends


class ScramServer:
    """One login: two messages of a client, each with a reply."""

    __slots__ = ("_challenge", "_nonce", "_users", "is_refused", "username")

    def __init__(self, users: ScramUsers, nonce: str) -> None:
        assert len(nonce) >= SERVER_NONCE_CHARACTERS_MIN
        self._users = users
        self._nonce = nonce
        self._challenge: _Challenge | None = None
        self.username: str | None = None  # the user, after the login is complete
        self.is_refused = False

    def reply(self, message: bytes) -> bytes:
        """Return the reply to the next message of the client, or raise LoginRefused for good."""
        challenge, self._challenge = self._challenge, None
        try:
            if self.is_refused or self.username is not None:
                raise LoginRefused
            if len(message) > MESSAGE_BYTES_MAX:
                raise LoginRefused
            return self._first(message) if challenge is None else self._final(challenge, message)
        except LoginRefused:
            self.is_refused = True
            raise

    def _first(self, message: bytes) -> bytes:
        found = _parsed(_FIRST, message)
        username = _unescaped(found["username"])
        authorization_id = found["authorization_id"]
        if authorization_id is not None and _unescaped(authorization_id) != username:
            raise LoginRefused
        if len(found["nonce"]) > CLIENT_NONCE_BYTES_MAX:
            raise LoginRefused
        decoy = self._users.decoy(username)  # always: an existing user takes as long
        known = self._users.verifiers.get(username)
        verifier = decoy if known is None else known
        nonce = found["nonce"] + self._nonce.encode("ascii")
        reply = b"r=%b,s=%b,i=%d" % (nonce, b64encode(verifier.salt), verifier.iterations)
        self._challenge = _Challenge(
            username,
            verifier,
            known is not None,
            found["header"],
            nonce,
            found["bare"] + b"," + reply,
        )
        return reply

    def _final(self, challenge: _Challenge, message: bytes) -> bytes:
        found = _parsed(_FINAL, message)
        verifier, hash_name = challenge.verifier, HASHES[self._users.mechanism]
        signed = challenge.signed + b"," + found["without_proof"]
        signature = hmac.digest(verifier.stored_key, signed, hash_name)
        proof = _decoded(found["proof"])
        if len(proof) != len(signature):
            raise LoginRefused
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        is_proved = hmac.compare_digest(
            hashlib.new(hash_name, client_key).digest(), verifier.stored_key
        )
        is_of_this_login = hmac.compare_digest(found["nonce"], challenge.nonce)
        has_same_header = hmac.compare_digest(found["header"], b64encode(challenge.header))
        if not (challenge.is_known and is_proved and is_of_this_login and has_same_header):
            raise LoginRefused
        self.username = challenge.username
        return b"v=" + b64encode(hmac.digest(verifier.server_key, signed, hash_name))


def _parsed(form: re.Pattern[bytes], message: bytes) -> "re.Match[bytes]":
    found = form.fullmatch(message)
    if found is None:
        raise LoginRefused
    return found


def _unescaped(name: bytes) -> str:
    try:
        return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
    except UnicodeDecodeError:
        raise LoginRefused from None


def _decoded(text: bytes) -> bytes:
    """Decode base64; the bits after the last byte must be 0, so that a value has one form."""
    try:
        decoded = b64decode(text, validate=True)
    except NotBase64:
        raise LoginRefused from None
    if b64encode(decoded) != text:
        raise LoginRefused
    return decoded
