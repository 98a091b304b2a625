"""OAuth token endpoint: requests, accepted responses, and secrets that are never shown."""

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from cases import each_case
from client.network.test_tokens import jwt
from ottla.client.network.config import connection_config
from ottla.client.network.token_endpoint import TokenEndpoint, is_safe
from ottla.errors import RequestError
from ottla.settings.config_parser import client_config
from ottla.settings.config_types import Secret
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.producer import PRODUCER
from ottla.transport.failures import AuthenticationFailed, Disconnected

SECRET = "se:cret/%"
NOW_MS = 1_000_000


class Provider(ThreadingHTTPServer):
    """A token endpoint with scripted responses; `came` has the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.answer: bytes = json.dumps({"access_token": "opaque", "expires_in": 60}).encode()
        self.location: str | None = None
        self.came: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        provider: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        provider.came.append((self.path, dict(self.headers), parse_qs(body)))
        self.send_response(provider.status)
        if provider.location:
            self.send_header("Location", provider.location)
        self.end_headers()
        self.wfile.write(provider.answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
        """Log nothing."""


@contextmanager
def provider() -> Generator[Provider]:
    with Provider() as made:
        serving = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield made
        finally:
            made.shutdown()
            serving.join()


def endpoint(url: str, **more: Any) -> TokenEndpoint:
    given: dict[str, Any] = {
        "client_id": "id",
        "secret": Secret(SECRET),
        "scope": None,
        "timeout_s": 20.0,
        "now_ms": lambda: NOW_MS,
        **more,
    }
    return TokenEndpoint(url, **given)


def fetch_error(made: TokenEndpoint) -> RequestError:
    with pytest.raises(RequestError) as caught:
        asyncio.run(made.fetch())
    assert SECRET not in repr(made)
    for told in (str(caught.value), repr(caught.value)):
        assert SECRET not in told
        assert "opaque" not in told
    assert caught.value.__cause__ is None
    return caught.value


def test_client_credentials_are_exchanged_for_a_token() -> None:
    with provider() as there:
        token = asyncio.run(endpoint(there.url, scope="read write").fetch())
        assert (token.text, token.expires_ms) == ("opaque", NOW_MS + 60_000)
        [(path, headers, form)] = there.came
        assert path == "/token"
        assert headers["Authorization"] == f"Basic {b64encode(f'id:{SECRET}'.encode()).decode()}"
        assert form == {"grant_type": ["client_credentials"], "scope": ["read write"]}
        there.answer = json.dumps({"access_token": jwt(exp=5000)}).encode()
        token = asyncio.run(endpoint(there.url, is_header_encoded=True).fetch())
        assert token.expires_ms == 5_000_000, "the token contains its expiry"
        encoded = b64encode(b"id:se%3Acret%2F%25").decode()
        assert there.came[1][1]["Authorization"] == f"Basic {encoded}"
        assert there.came[1][2] == {"grant_type": ["client_credentials"]}


def test_assertion_file_is_read_for_each_token(tmp_path: Path) -> None:
    file = tmp_path / "assertion"
    with provider() as there:
        made = endpoint(there.url, client_id=None, secret=None, assertion_file=str(file))
        assert isinstance(fetch_error(made), AuthenticationFailed)
        for text in ("first", "second"):
            file.write_text(f"{text}\n")
            asyncio.run(made.fetch())
        assert [form["assertion"] for _, _, form in there.came] == [["first"], ["second"]]
        assert "Authorization" not in there.came[0][1]
        assert there.came[0][2]["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]


@each_case(
    ("status", "answer", "kind", "told"),
    [
        (401, b'{"error": "invalid_client"}', AuthenticationFailed, r"401 \(invalid_client\)"),
        (400, b'{"error": "se:cret/% opaque"}', AuthenticationFailed, "responded with 400"),
        (403, b"not json", AuthenticationFailed, "responded with 403"),
        (503, b'["x"]', Disconnected, "responded with 503"),
        (200, b"not json", Disconnected, "without a valid token"),
        (200, b'{"access_token": ""}', Disconnected, "without a valid token"),
        (200, b'{"token": "opaque"}', Disconnected, "without a valid token"),
        (200, b"[]", Disconnected, "without a valid token"),
        (200, b'{"access_token": "' + b"x" * (1 << 20) + b'"}', Disconnected, "OSError"),
    ],
)
def test_invalid_token_response_error_hides_secrets(
    status: int, answer: bytes, kind: type[RequestError], told: str
) -> None:
    with provider() as there:
        there.status, there.answer = status, answer
        error = fetch_error(endpoint(there.url))
        assert type(error) is kind
        with pytest.raises(kind, match=told):
            raise error
        assert error.retriable is (kind is Disconnected)


def test_credentials_do_not_follow_a_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    with provider() as there, provider() as other:
        there.status, there.location = 302, other.url
        assert "responded with 302" in str(fetch_error(endpoint(there.url)))
        assert not other.came
        monkeypatch.setenv("http_proxy", other.url)
        there.status = 200
        asyncio.run(endpoint(there.url).fetch())
        assert not other.came, "credentials for localhost are not sent elsewhere"


def test_unreachable_endpoint_is_retriable() -> None:
    with provider() as there:
        url = there.url
    error = fetch_error(endpoint(url))
    assert isinstance(error, Disconnected)
    assert error.retriable


def test_credentials_are_sent_only_to_safe_urls() -> None:
    for url in ("https://provider/x", "http://localhost:8/x", "http://127.0.0.9/", "http://[::1]/"):
        assert is_safe(url)
    for url in ("http://provider/", "http://10.0.0.1/", "ftp://localhost/", "https:///x"):
        assert not is_safe(url)


def test_settings_select_the_token_source() -> None:
    sasl = "sasl.oauthbearer."
    base = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    by_secret = {
        f"{sasl}client.credentials.client.id": "id",
        f"{sasl}client.credentials.client.secret": SECRET,
    }
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = {"sasl.jaas.config": f'{module} required clientId="id" clientSecret="{SECRET}";'}

    def login(**more: object) -> Any:
        return connection_config(client_config(PRODUCER, {**base, **more}), lambda: 0.0).login

    with provider() as there:
        url = {f"{sasl}token.endpoint.url": there.url}
        for given in (by_secret, jaas):
            exchange = asyncio.run(login(**url, **given).exchange())
            assert b"opaque" in next(exchange)
        assert SECRET not in repr(login(**url, **by_secret))
        for bad, told in (
            (url, r"client\.id and"),
            ({**by_secret, f"{sasl}token.endpoint.url": "http://provider/x"}, "https"),
            ({**url, "sasl.jaas.config": "nonsense"}, r"sasl\.jaas\.config: invalid value"),
            ({}, "as token="),
        ):
            with pytest.raises(InvalidSettings, match=told) as caught:
                login(**bad)
            assert SECRET not in str(caught.value)
