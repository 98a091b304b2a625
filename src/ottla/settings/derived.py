"""Effective values that depend on several settings.

Every rule of precedence between settings is here or in the `falls_back` of a topic setting.
"""

from typing import TypeVar, cast

from ottla.settings import broker, connection, producer
from ottla.settings.config import Config
from ottla.settings.config_def import Setting

T = TypeVar("T")

# A broker recognises duplicates among the last five batches of a producer.
IDEMPOTENT_IN_FLIGHT_MAX = 5


def topic_default(config: Config, setting: Setting[T]) -> T:
    """Return the default of a topic setting in a broker's config.

    `topic_default(config, topic.RETENTION_MS)` is log.retention.ms, or else log.retention.minutes
    or log.retention.hours in milliseconds.
    """
    for fallback in setting.falls_back:
        value = config[fallback.setting]
        if value is not None:
            return cast("T", fallback.convert(value))
    return cast("T", setting.default)


def broker_id(config: Config) -> int | None:
    """Return node.id or broker.id; None if the broker generates its id."""
    node_id = config[broker.NODE_ID]
    if node_id is not None:
        return node_id
    return config[broker.BROKER_ID] if config[broker.BROKER_ID] >= 0 else None


def log_dirs(config: Config) -> tuple[str, ...]:
    """Return the data directories: log.dirs, or else log.dir."""
    return config[broker.LOG_DIRS] or config[broker.LOG_DIR]


def zookeeper_connection_timeout_ms(config: Config) -> int:
    """Return how long to wait for ZooKeeper at startup."""
    timeout_ms = config[broker.ZOOKEEPER_CONNECTION_TIMEOUT_MS]
    return config[broker.ZOOKEEPER_SESSION_TIMEOUT_MS] if timeout_ms is None else timeout_ms


def idempotence_conflict(config: Config) -> Setting[str] | Setting[int] | None:
    """Return the producer setting that conflicts with idempotence; None if there is none."""
    if config[producer.ACKS] != "all":
        return producer.ACKS
    if config[connection.RETRIES] == 0:
        return connection.RETRIES
    if config[producer.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION] > IDEMPOTENT_IN_FLIGHT_MAX:
        return producer.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION
    return None


def idempotence(config: Config) -> bool:
    """Whether a producer is idempotent: enabled, and no setting conflicts with it."""
    return config[producer.ENABLE_IDEMPOTENCE] and idempotence_conflict(config) is None


def delivery_timeout_ms(config: Config) -> int:
    """Return delivery.timeout.ms, but at least linger.ms plus request.timeout.ms."""
    least_ms = config[producer.LINGER_MS] + config[connection.REQUEST_TIMEOUT_MS]
    return max(config[producer.DELIVERY_TIMEOUT_MS], least_ms)
