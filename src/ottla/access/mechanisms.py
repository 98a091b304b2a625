"""Client side of the SASL mechanisms PLAIN and OAUTHBEARER.

Invariant: every message conforms to the mechanism's RFC, whatever the user names, passwords and
tokens are. A value that the RFC does not allow raises LoginFailed before anything is sent.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from ottla.access.scram_client import Exchange, LoginFailed
from ottla.settings.config_types import Secret

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")  # RFC 7628
_EXTENSION_VALUE: Final = re.compile(r"[!-~ \t\r\n]+")
_REASON_CHARACTERS_MAX: Final = 200


def plain(username: str, password: Secret) -> Exchange:
    """Log in with PLAIN (RFC 4616): user name and password in clear text."""
    if "\0" in username or "\0" in password.reveal():
        raise LoginFailed("PLAIN cannot send a user name or password that contains a zero byte")
    yield f"\0{username}\0{password.reveal()}".encode()


def oauthbearer(token: Secret, extensions: Mapping[str, str]) -> Exchange:
    """Log in with OAUTHBEARER (RFC 7628), with a token and SASL extensions (KIP-342)."""
    if not _TOKEN.fullmatch(token.reveal()):
        raise LoginFailed("the token is empty or has characters that bearer tokens cannot have")
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
            raise LoginFailed(f"invalid SASL extension name {name!r}")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise LoginFailed(
                f"the value of the SASL extension {name} is empty or has invalid characters"
            )
    pairs = {"auth": f"Bearer {token.reveal()}", **extensions}
    parts = ["n,,", *(f"{name}={value}" for name, value in pairs.items()), "", ""]
    answer = yield "\1".join(parts).encode()
    if answer:
        # RFC 7628: the client acknowledges the server's error, then the server ends the login.
        yield b"\1"
        raise LoginFailed(f"the server rejected the token: {_reason(answer)}")


def _reason(answer: bytes) -> str:
    """Return the status from a server's JSON error."""
    try:
        told: object = json.loads(answer)
    except ValueError:
        told = None
    if isinstance(told, dict):
        status = cast("dict[str, object]", told).get("status")
        if isinstance(status, str) and status.isprintable():
            return status[:_REASON_CHARACTERS_MAX]
    return "no reason given"
