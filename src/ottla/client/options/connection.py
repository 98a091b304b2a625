"""Rules of connections, out of the settings that every client has.

Invariant: a setting is read in this folder and nowhere else in the client, so that its unit is
changed once: milliseconds outside, seconds inside.
"""

import secrets
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Final

from ottla.client.connecting.connections import ConnectionRules, Place
from ottla.client.connecting.login import Login, login_with_password, login_with_token
from ottla.client.connecting.metadata import MetadataRules
from ottla.client.connecting.token_endpoint import TokenEndpoint, is_safe
from ottla.client.connecting.tokens import RefreshRules, TokenFunction, Tokens
from ottla.client.waiting.backoff import Backoff
from ottla.client.waiting.patience import Patience
from ottla.clock import Clock, SystemClock
from ottla.settings import connection, consumer, producer, security
from ottla.settings.config import Config
from ottla.settings.consumer import CONSUMER
from ottla.settings.credentials import credentials
from ottla.settings.jaas import read_jaas
from ottla.settings.problems import InvalidSettings, Problem, quoted
from ottla.settings.producer import PRODUCER
from ottla.settings.values import BadValue, Secret
from ottla.transport.tls import client_tls

DEFAULT_PORT: Final = 9092

ADMIN_IDLE_S: Final = 300.0
"""An administrator forgets a topic that it was not asked about for so long."""


def place(text: str) -> Place:
    """A host and a port out of host:port, [v6]:port, or a host alone; else InvalidSettings."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = text.strip(), str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        what = f"found {quoted(text)}, valid: host:port"
        raise InvalidSettings([Problem(connection.BOOTSTRAP_SERVERS.name, what)])
    return Place(host, int(port))


def connection_rules(
    config: Config,
    chance: Callable[[], float],
    *,
    token: TokenFunction | None = None,
    clock: Clock | None = None,
) -> ConnectionRules:
    """How a client connects; InvalidSettings when it has not what its login or TLS needs."""
    return ConnectionRules(
        seeds=[place(text) for text in config[connection.BOOTSTRAP_SERVERS]],
        client_id=config[connection.CLIENT_ID] or "ottla",
        software=("ottla", version("ottla")),
        backoff=Backoff(
            config[connection.RECONNECT_BACKOFF_MS] / 1000,
            config[connection.RECONNECT_BACKOFF_MAX_MS] / 1000,
            chance,
        ),
        setup_timeout_s=config[connection.SOCKET_CONNECTION_SETUP_TIMEOUT_MS] / 1000,
        setup_timeout_max_s=config[connection.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS] / 1000,
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        idle_s=config[connection.CONNECTIONS_MAX_IDLE_MS] / 1000,
        rebootstraps=config[connection.METADATA_RECOVERY_STRATEGY].lower() == "rebootstrap",
        tls=client_tls(config) if config[security.SECURITY_PROTOCOL].endswith("SSL") else None,
        login=_login(config, chance, token, clock or SystemClock()),
    )


def _login(
    config: Config, chance: Callable[[], float], token: TokenFunction | None, clock: Clock
) -> Login | None:
    """How a client tells who it is."""
    mechanism = config[security.SASL_MECHANISM]
    if not config[security.SECURITY_PROTOCOL].startswith("SASL") or mechanism is None:
        return None
    if mechanism != "OAUTHBEARER":
        given = credentials(config)
        assert given is not None, "the settings are checked"
        return login_with_password(mechanism, given, secrets.token_urlsafe)
    if token is None:
        token = _token_endpoint(config, clock).fetch
    rules = RefreshRules(
        config[security.SASL_LOGIN_REFRESH_WINDOW_FACTOR],
        config[security.SASL_LOGIN_REFRESH_WINDOW_JITTER],
        config[security.SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS],
        config[security.SASL_LOGIN_REFRESH_BUFFER_SECONDS],
    )
    timeout_s = config[connection.REQUEST_TIMEOUT_MS] / 1000
    return login_with_token(Tokens(token, rules, clock, chance, timeout_s))


def _token_endpoint(config: Config, clock: Clock) -> TokenEndpoint:
    """Where the settings say that tokens come from; InvalidSettings when they do not."""
    url_setting = security.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL
    url, file = config[url_setting], config[security.SASL_OAUTHBEARER_ASSERTION_FILE]
    if url is None:
        what = (
            "OAUTHBEARER needs a function that gives tokens: hand it to the client as token=, "
            f"or set {url_setting.name}"
        )
        raise InvalidSettings([Problem(security.SASL_MECHANISM.name, what)])
    if not is_safe(url):
        what = "credentials are sent over https, or by http to this machine alone"
        raise InvalidSettings([Problem(url_setting.name, what)])
    jaas = config[security.SASL_JAAS_CONFIG]
    given: Mapping[str, str] = {}
    try:
        if jaas is not None:
            given = read_jaas(jaas.reveal())
    except BadValue as bad:
        name = security.SASL_JAAS_CONFIG.name
        raise InvalidSettings([Problem(name, f"cannot be read ({bad.note})")]) from None
    id_setting = security.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID
    secret_setting = security.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET
    secret = config[secret_setting]
    if secret is None and "clientSecret" in given:
        secret = Secret(given["clientSecret"])
    client_id = config[id_setting] or given.get("clientId")
    if file is None and (client_id is None or secret is None):
        what = f"needs {id_setting.name} and {secret_setting.name}, or an assertion file"
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


def retry_backoff(config: Config, chance: Callable[[], float]) -> Backoff:
    """The pauses between two tries of a request."""
    return Backoff(
        config[connection.RETRY_BACKOFF_MS] / 1000,
        config[connection.RETRY_BACKOFF_MAX_MS] / 1000,
        chance,
    )


def metadata_rules(config: Config, chance: Callable[[], float]) -> MetadataRules:
    """How fresh metadata are."""
    creates, idle_s = True, None
    if config.table is PRODUCER:
        idle_s = config[producer.METADATA_MAX_IDLE_MS] / 1000
    elif config.table is CONSUMER:
        creates = config[consumer.ALLOW_AUTO_CREATE_TOPICS]
    else:
        creates, idle_s = False, ADMIN_IDLE_S
    return MetadataRules(
        backoff=retry_backoff(config, chance),
        max_age_s=config[connection.METADATA_MAX_AGE_MS] / 1000,
        max_idle_s=idle_s,
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        may_create_topics=creates,
    )


def patience(config: Config, chance: Callable[[], float]) -> Patience:
    """How long a call is tried."""
    return Patience(
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        call_timeout_s=config[connection.DEFAULT_API_TIMEOUT_MS] / 1000,
        retries=config[connection.RETRIES],
        backoff=retry_backoff(config, chance),
    )
