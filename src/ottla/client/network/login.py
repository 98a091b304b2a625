"""How clients log in: with a password or with a token, by their settings.

Imported only by clients that authenticate: tokens import HTTP.
"""

import secrets
from collections.abc import Callable, Mapping

from ottla.access.mechanisms import oauthbearer, plain
from ottla.access.scram_client import Exchange, scram
from ottla.client.network.token_endpoint import TokenEndpoint, is_safe
from ottla.client.network.tokens import RefreshConfig, TokenFunction, Tokens
from ottla.clock import Clock
from ottla.settings import connection, security
from ottla.settings.config import Config
from ottla.settings.config_types import BadValue, Secret
from ottla.settings.credentials import Credentials, credentials
from ottla.settings.invalid_settings import InvalidSettings, Problem
from ottla.settings.jaas import read_jaas
from ottla.transport.login import Login


def login(
    config: Config, random: Callable[[], float], token: TokenFunction | None, clock: Clock
) -> Login | None:
    """Return how a client authenticates."""
    mechanism = config[security.SASL_MECHANISM]
    if mechanism is None:
        return None
    if mechanism != "OAUTHBEARER":
        given = credentials(config)
        assert given is not None, "the settings are checked"
        return login_with_password(mechanism, given, secrets.token_urlsafe)
    if token is None:
        token = _token_endpoint(config, clock).fetch
    rules = RefreshConfig(
        config[security.SASL_LOGIN_REFRESH_WINDOW_FACTOR],
        config[security.SASL_LOGIN_REFRESH_WINDOW_JITTER],
        config[security.SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS],
        config[security.SASL_LOGIN_REFRESH_BUFFER_SECONDS],
    )
    timeout_s = config[connection.REQUEST_TIMEOUT_MS] / 1000
    return _login_with_token(Tokens(token, rules, clock, random, timeout_s))


def login_with_password(mechanism: str, given: Credentials, nonce: Callable[[], str]) -> Login:
    """Authenticate with user name and password."""

    async def exchange() -> Exchange:
        if mechanism == "PLAIN":
            return plain(*given)
        return scram(mechanism, *given, nonce())

    return Login(mechanism, exchange)


def _login_with_token(tokens: Tokens) -> Login:
    """Authenticate with OAUTHBEARER."""

    async def exchange() -> Exchange:
        token = await tokens.current()
        return oauthbearer(Secret(token.text), token.extensions)

    return Login("OAUTHBEARER", exchange)


def _token_endpoint(config: Config, clock: Clock) -> TokenEndpoint:
    """Return the token endpoint of the settings; raises InvalidSettings."""
    url_setting = security.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL
    file_setting = security.SASL_OAUTHBEARER_ASSERTION_FILE
    url, file = config[url_setting], config[file_setting]
    if url is None:
        what = (
            "OAUTHBEARER requires a token function: pass it to the client as token=, or set "
            f"{url_setting.name}"
        )
        raise InvalidSettings([Problem(security.SASL_MECHANISM.name, what)])
    if not is_safe(url):
        what = "the client sends credentials only to an https URL, or an http URL of this machine"
        raise InvalidSettings([Problem(url_setting.name, what)])
    jaas = config[security.SASL_JAAS_CONFIG]
    given: Mapping[str, str] = {}
    try:
        if jaas is not None:
            given = read_jaas(jaas.reveal())
    except BadValue as bad:
        name = security.SASL_JAAS_CONFIG.name
        raise InvalidSettings([Problem(name, f"invalid value ({bad.note})")]) from None
    id_setting = security.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID
    secret_setting = security.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET
    secret = config[secret_setting]
    if secret is None and "clientSecret" in given:
        secret = Secret(given["clientSecret"])
    client_id = config[id_setting] or given.get("clientId")
    if file is None and (client_id is None or secret is None):
        what = f"requires {id_setting.name} and {secret_setting.name}, or {file_setting.name}"
        raise InvalidSettings([Problem(url_setting.name, what)])
    limits_ms = (
        config[connection.REQUEST_TIMEOUT_MS],
        config[security.SASL_LOGIN_CONNECT_TIMEOUT_MS],
        config[security.SASL_LOGIN_READ_TIMEOUT_MS],
    )
    return TokenEndpoint(
        url=url,
        client_id=client_id,
        secret=secret,
        scope=config[security.SASL_OAUTHBEARER_SCOPE] or given.get("scope"),
        timeout_s=min(limit_ms for limit_ms in limits_ms if limit_ms) / 1000,
        now_ms=clock.now_ms,
        assertion_file=file,
        is_header_encoded=config[security.SASL_OAUTHBEARER_HEADER_URLENCODE],
    )
