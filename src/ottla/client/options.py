"""From a client's settings to the rules of its parts.

Invariant: a setting is read here and nowhere else in the client, so that its unit is changed once:
milliseconds outside, seconds inside.
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
from ottla.client.fetching.cursor import EARLIEST_MS, LATEST_MS
from ottla.client.fetching.fetcher import FetchRules
from ottla.client.membership.rules import GroupRules
from ottla.client.participation import ParticipationRules
from ottla.client.producing.delivery import SenderRules
from ottla.client.producing.outbox import OutboxRules
from ottla.client.producing.transactions import TransactionRules
from ottla.client.waiting.backoff import Backoff
from ottla.client.waiting.patience import Patience
from ottla.clock import Clock, SystemClock
from ottla.records import Compression
from ottla.settings import compression, connection, consumer, producer, security
from ottla.settings.config import Config
from ottla.settings.consumer import CONSUMER
from ottla.settings.credentials import credentials
from ottla.settings.derived import delivery_timeout_ms, idempotence
from ottla.settings.jaas import read_jaas
from ottla.settings.problems import InvalidSettings, Problem, quoted
from ottla.settings.producer import PRODUCER
from ottla.settings.valid import BY_DURATION, duration_ms
from ottla.settings.values import BadValue, Secret
from ottla.transport.tls import client_tls

ACKS: Final = {"all": -1, "1": 1, "0": 0}
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


def outbox_rules(config: Config) -> OutboxRules:
    """How records are put together."""
    return OutboxRules(
        # A record that is too large for a request does not fit a batch that is open either, and
        # one that begins a batch is measured: so no record passes unseen.
        batch_bytes=min(
            config[producer.BATCH_SIZE],
            config[producer.MAX_REQUEST_SIZE],
            config[producer.BUFFER_MEMORY],
        ),
        memory_bytes=config[producer.BUFFER_MEMORY],
        compression=Compression[config[producer.COMPRESSION_TYPE].upper()],
        level=_level(config),
    )


def _level(config: Config) -> int | None:
    """The level of the codec that is used, if it was given."""
    for setting in compression.LEVELS:
        _, codec, _ = setting.name.split(".")
        if codec == config[producer.COMPRESSION_TYPE] and config.is_set(setting):
            return config[setting]
    return None


def transaction_rules(config: Config, chance: Callable[[], float]) -> TransactionRules | None:
    """How transactions are made; None for a producer without them."""
    transactional_id = config[producer.TRANSACTIONAL_ID]
    if transactional_id is None:
        return None
    return TransactionRules(
        transactional_id=transactional_id,
        timeout_ms=config[producer.TRANSACTION_TIMEOUT_MS],
        block_s=config[producer.MAX_BLOCK_MS] / 1000,
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        backoff=retry_backoff(config, chance),
        is_two_phase=config[producer.TRANSACTION_TWO_PHASE_COMMIT_ENABLE],
    )


def sender_rules(config: Config, chance: Callable[[], float]) -> SenderRules:
    """How records are sent."""
    return SenderRules(
        acks=ACKS[config[producer.ACKS]],
        is_idempotent=idempotence(config),
        is_transactional=config[producer.TRANSACTIONAL_ID] is not None,
        linger_s=config[producer.LINGER_MS] / 1000,
        in_flight_max=config[producer.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION],
        request_bytes_max=config[producer.MAX_REQUEST_SIZE],
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        delivery_timeout_s=delivery_timeout_ms(config) / 1000,
        retries=config[connection.RETRIES],
        backoff=retry_backoff(config, chance),
    )


def is_modern_group(config: Config) -> bool:
    """Whether a consumer's group has the protocol of KIP-848."""
    return config[consumer.GROUP_PROTOCOL].lower() == "consumer"


def group_rules(config: Config, chance: Callable[[], float]) -> GroupRules:
    """How a consumer is a member of its group; it has a group.id."""
    group_id = config[consumer.GROUP_ID]
    assert group_id is not None
    return GroupRules(
        group_id=group_id,
        instance_id=config[consumer.GROUP_INSTANCE_ID],
        is_modern=is_modern_group(config),
        rack=config[consumer.CLIENT_RACK] or None,
        session_timeout_s=config[consumer.SESSION_TIMEOUT_MS] / 1000,
        heartbeat_interval_s=config[consumer.HEARTBEAT_INTERVAL_MS] / 1000,
        poll_interval_s=config[consumer.MAX_POLL_INTERVAL_MS] / 1000,
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        backoff=retry_backoff(config, chance),
        assignors=tuple(config[consumer.PARTITION_ASSIGNMENT_STRATEGY]),
        remote_assignor=config[consumer.GROUP_REMOTE_ASSIGNOR],
    )


def fetch_rules(config: Config, chance: Callable[[], float]) -> FetchRules:
    """How a consumer fetches."""
    return FetchRules(
        backoff=retry_backoff(config, chance),
        min_bytes=config[consumer.FETCH_MIN_BYTES],
        max_wait_ms=config[consumer.FETCH_MAX_WAIT_MS],
        bytes_max=config[consumer.FETCH_MAX_BYTES],
        partition_bytes_max=config[consumer.MAX_PARTITION_FETCH_BYTES],
        isolation_level=int(config[consumer.ISOLATION_LEVEL] == "read_committed"),
        rack=config[consumer.CLIENT_RACK],
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        nearby_s=config[connection.METADATA_MAX_AGE_MS] / 1000,
    )


def reset_ms(config: Config, clock: Clock) -> Callable[[], int] | None:
    """Where to begin without an offset, as a timestamp of ListOffsets; None: nowhere."""
    where = config[consumer.AUTO_OFFSET_RESET].lower()
    if where == "none":
        return None
    if where.startswith(BY_DURATION):
        ago_ms = duration_ms(where.removeprefix(BY_DURATION))
        return lambda: clock.now_ms() - ago_ms
    fixed_ms = EARLIEST_MS if where == "earliest" else LATEST_MS
    return lambda: fixed_ms


def participation_rules(config: Config) -> ParticipationRules:
    """How a consumer takes part in its group."""
    commits = config[consumer.ENABLE_AUTO_COMMIT]
    return ParticipationRules(
        auto_commit_s=config[consumer.AUTO_COMMIT_INTERVAL_MS] / 1000 if commits else None,
        poll_interval_s=config[consumer.MAX_POLL_INTERVAL_MS] / 1000,
        commit_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        excludes_internal=config[consumer.EXCLUDE_INTERNAL_TOPICS],
    )


def patience(config: Config, chance: Callable[[], float]) -> Patience:
    """How long a call is tried."""
    return Patience(
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        call_timeout_s=config[connection.DEFAULT_API_TIMEOUT_MS] / 1000,
        retries=config[connection.RETRIES],
        backoff=retry_backoff(config, chance),
    )
