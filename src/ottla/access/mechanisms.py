"""The SASL mechanisms that are only a message or two: PLAIN and OAUTHBEARER, the client's side.

Invariant: what an exchange sends is in the form of its RFC, whatever names, passwords and tokens
hold; a value that has no place in that form is LoginFailed before anything is sent.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from ottla.access.scram import Exchange, LoginFailed
from ottla.settings.config_types import Secret

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")  # RFC 7628
_EXTENSION_VALUE: Final = re.compile(r"[!-~ \t\r\n]+")
_REASON_CHARACTERS_MAX: Final = 200


def plain(username: str, password: Secret) -> Exchange:
    """Log in by PLAIN (RFC 4616): name and password, as they are."""
    if "\0" in username or "\0" in password.reveal():
        raise LoginFailed("a name or a password with a zero byte cannot be sent by PLAIN")
    yield f"\0{username}\0{password.reveal()}".encode()


def oauthbearer(token: Secret, extensions: Mapping[str, str]) -> Exchange:
    """Log in by OAUTHBEARER (RFC 7628) with a token and SASL extensions (KIP-342)."""
    if not _TOKEN.fullmatch(token.reveal()):
        raise LoginFailed("the token has characters that no bearer token has")
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
            raise LoginFailed(f"{name!r} is no name of a SASL extension")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise LoginFailed(f"the SASL extension {name} has a value that cannot be sent")
    pairs = {"auth": f"Bearer {token.reveal()}", **extensions}
    parts = ["n,,", *(f"{name}={value}" for name, value in pairs.items()), "", ""]
    answer = yield "\1".join(parts).encode()
    if answer:
        # The server tells why by this answer, and ends the login when it was heard.
        yield b"\1"
        raise LoginFailed(f"the server does not accept the token: {_reason(answer)}")


def _reason(answer: bytes) -> str:
    """The status in a server's refusal, which is JSON."""
    try:
        told: object = json.loads(answer)
    except ValueError:
        told = None
    if isinstance(told, dict):
        status = cast("dict[str, object]", told).get("status")
        if isinstance(status, str) and status.isprintable():
            return status[:_REASON_CHARACTERS_MAX]
    return "no reason given"
