"""Connection config from the settings that all clients have.

It converts the milliseconds of the settings to seconds.
"""

import re
from collections.abc import Callable
from ssl import SSLContext
from typing import TYPE_CHECKING, Final

from ottla.client.lifecycle.retry_policy import RetryPolicy
from ottla.client.network.connections import Address, ConnectionConfig
from ottla.client.network.metadata import MetadataConfig
from ottla.clock import Clock, SystemClock
from ottla.release import RELEASE
from ottla.settings import connection, consumer, producer, security
from ottla.settings.config import Config
from ottla.settings.consumer import CONSUMER
from ottla.settings.invalid_settings import InvalidSettings, Problem, quoted
from ottla.settings.producer import PRODUCER
from ottla.transport.backoff import Backoff

if TYPE_CHECKING:
    from ottla.client.network.tokens import TokenFunction
    from ottla.transport.login import Login

DEFAULT_PORT: Final = 9092

_SCHEME: Final = re.compile(r"\A[0-9A-Za-z+._-]+://")
_NOT_IN_HOSTS: Final = re.compile(r"[^\w.:%-]")

ADMIN_IDLE_S: Final = 300.0
"""An administrator forgets a topic that it has not used for this long."""


def parse_address(text: str) -> Address:
    """Parse host:port, [v6]:port or a host; raises InvalidSettings.

    A scheme before the host, as in PLAINTEXT://host:port, has no meaning, as in Kafka's clients.
    """
    given = _SCHEME.sub("", text.strip())
    host, colon, port = given.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = given, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not is_port or not _is_host(host):
        what = f"invalid value {quoted(text)}: expected host:port, such as 127.0.0.1:9092"
        raise InvalidSettings([Problem(connection.BOOTSTRAP_SERVERS.name, what)])
    return Address(host, int(port))


def _is_host(text: str) -> bool:
    """Whether it can be a host name or an address."""
    if _NOT_IN_HOSTS.search(text):
        return False
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def connection_config(
    config: Config,
    random: Callable[[], float],
    *,
    token: "TokenFunction | None" = None,
    clock: Clock | None = None,
) -> ConnectionConfig:
    """Return how a client connects; raises InvalidSettings if SASL or TLS settings are missing."""
    return ConnectionConfig(
        seeds=[parse_address(text) for text in config[connection.BOOTSTRAP_SERVERS]],
        client_id=config[connection.CLIENT_ID] or "ottla",
        software=("ottla", RELEASE),
        backoff=Backoff(
            config[connection.RECONNECT_BACKOFF_MS] / 1000,
            config[connection.RECONNECT_BACKOFF_MAX_MS] / 1000,
            random,
        ),
        setup_timeout_s=config[connection.SOCKET_CONNECTION_SETUP_TIMEOUT_MS] / 1000,
        setup_timeout_max_s=config[connection.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS] / 1000,
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        idle_s=config[connection.CONNECTIONS_MAX_IDLE_MS] / 1000,
        rebootstraps=config[connection.METADATA_RECOVERY_STRATEGY].lower() == "rebootstrap",
        tls=_tls(config),
        login=_login(config, random, token, clock),
    )


def _tls(config: Config) -> SSLContext | None:
    if not config[security.SECURITY_PROTOCOL].endswith("SSL"):
        return None
    from ottla.transport.tls import client_tls

    return client_tls(config)


def _login(
    config: Config, random: Callable[[], float], token: "TokenFunction | None", clock: Clock | None
) -> "Login | None":
    if not config[security.SECURITY_PROTOCOL].startswith("SASL"):
        return None
    from ottla.client.network.login import login

    return login(config, random, token, clock or SystemClock())


def retry_backoff(config: Config, random: Callable[[], float]) -> Backoff:
    """Return the backoff between two attempts of a request."""
    return Backoff(
        config[connection.RETRY_BACKOFF_MS] / 1000,
        config[connection.RETRY_BACKOFF_MAX_MS] / 1000,
        random,
    )


def metadata_config(config: Config, random: Callable[[], float]) -> MetadataConfig:
    """Return how fresh metadata is."""
    creates, idle_s = True, None
    if config.table is PRODUCER:
        idle_s = config[producer.METADATA_MAX_IDLE_MS] / 1000
    elif config.table is CONSUMER:
        creates = config[consumer.ALLOW_AUTO_CREATE_TOPICS]
    else:
        creates, idle_s = False, ADMIN_IDLE_S
    return MetadataConfig(
        backoff=retry_backoff(config, random),
        max_age_s=config[connection.METADATA_MAX_AGE_MS] / 1000,
        max_idle_s=idle_s,
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        may_create_topics=creates,
    )


def retry_policy(config: Config, random: Callable[[], float]) -> RetryPolicy:
    """Return the retry policy of calls."""
    return RetryPolicy(
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        call_timeout_s=config[connection.DEFAULT_API_TIMEOUT_MS] / 1000,
        retries=config[connection.RETRIES],
        backoff=retry_backoff(config, random),
    )
