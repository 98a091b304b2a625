"""OAUTHBEARER tokens from a token endpoint (RFC 6749, 7523).

Invariant: credentials go only to the configured endpoint, over TLS or to this machine, and never
follow a redirect. A response is bounded in size and time. No error message contains a credential, a
token or the provider's own error text.
"""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from ottla.client.network.tokens import Token, expiry_ms
from ottla.errors import RequestError
from ottla.settings.config_types import Secret
from ottla.transport.failures import AuthenticationFailed, Disconnected

ANSWER_BYTES_MAX: Final = 1 << 20
ASSERTION_BYTES_MAX: Final = 1 << 16
_BY_ASSERTION: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_REFUSED: Final = frozenset({400, 401, 403})
_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The token endpoint, with a client id and secret or a signed assertion."""

    url: str
    client_id: str | None
    secret: Secret | None
    scope: str | None
    timeout_s: float
    now_ms: Callable[[], int] = field(repr=False)
    assertion_file: str | None = None
    is_header_encoded: bool = False
    """Whether id and secret are URL-encoded before they are joined."""

    async def fetch(self) -> Token:
        """Return a new token; raises RequestError."""
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> Token:
        try:
            answer: object = json.loads(self._answer())
            assert isinstance(answer, dict)
            told = cast("dict[str, object]", answer)
            text, lasts_s = told["access_token"], told.get("expires_in")
            assert isinstance(text, str)
            assert text
        except (ValueError, KeyError, AssertionError):
            raise Disconnected(f"{self._place} responded without a valid token") from None
        expires_ms = expiry_ms(text)
        if expires_ms is None and isinstance(lasts_s, int | float):
            expires_ms = self.now_ms() + int(lasts_s * 1000)
        return Token(text, expires_ms)

    def _answer(self) -> bytes:
        request = Request(self.url, self._form(), {"Accept": "application/json"}, method="POST")
        if self.client_id is not None and self.secret is not None:
            request.add_unredirected_header("Authorization", f"Basic {self._basic()}")
        deadline_s = time.monotonic() + self.timeout_s
        try:
            # An HTTPS proxy sees only encrypted data; requests to this machine use no proxy.
            proxy = ProxyHandler() if self.url.startswith("https:") else ProxyHandler({})
            opener = build_opener(_NoRedirect, proxy)
            with opener.open(request, timeout=self.timeout_s) as answer:
                return _bounded(answer, deadline_s)
        except HTTPError as error:
            with error:
                raise self._refused(error, deadline_s) from None
        except (OSError, URLError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            what = type(reason).__name__
            raise Disconnected(f"{self._place} returned no token: {what}") from None

    def _form(self) -> bytes:
        fields = {"grant_type": "client_credentials"}
        if self.assertion_file is not None:
            try:
                with Path(self.assertion_file).open("rb") as file:
                    assertion = file.read(ASSERTION_BYTES_MAX).decode("ascii").strip()
            except (OSError, ValueError) as error:
                what = type(error).__name__
                name = self.assertion_file
                raise AuthenticationFailed(
                    f"cannot read the assertion file {name}: {what}"
                ) from None
            fields = {"grant_type": _BY_ASSERTION, "assertion": assertion}
        if self.scope:
            fields["scope"] = self.scope
        return urlencode(fields).encode()

    def _basic(self) -> str:
        assert self.client_id is not None
        assert self.secret is not None
        pair = (self.client_id, self.secret.reveal())
        if self.is_header_encoded:
            pair = (quote_plus(pair[0]), quote_plus(pair[1]))
        return b64encode(":".join(pair).encode()).decode()

    def _refused(self, error: HTTPError, deadline_s: float) -> RequestError:
        """Return the error of a provider's response: its code, if known, without its text."""
        code = ""
        try:
            told = json.loads(_bounded(error, deadline_s))["error"]
            if isinstance(told, str) and told.isascii() and told.replace("_", "").isalpha():
                code = f" ({told[:40]})"
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            pass
        message = f"{self._place} responded with {error.code}{code}"
        if error.code in _REFUSED:
            hint = "check the client id and the client secret, or the assertion, and the scope"
            return AuthenticationFailed(message, hint)
        return Disconnected(message)

    @property
    def _place(self) -> str:
        return f"the token endpoint at {urlsplit(self.url).netloc.rpartition('@')[2]}"


def is_safe(url: str) -> bool:
    """Whether credentials may be sent to this URL: TLS, or this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        return bool(host)
    try:
        return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        return False


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        """Do not follow redirects: a redirect is an error like any other status."""


def _bounded(answer: Any, deadline_s: float) -> bytes:
    found = b""
    while piece := answer.read1(_PIECE):
        found += piece
        if len(found) > ANSWER_BYTES_MAX or time.monotonic() > deadline_s:
            raise OSError("the response is too large or too slow")
    return found
