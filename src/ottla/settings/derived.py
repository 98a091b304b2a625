"""Values that follow from several settings: which of them counts, and in which unit.

Invariant: each rule of precedence stands here or in a topic row's `falls_back`, and nowhere else.
"""

from typing import TypeVar, cast

from ottla.settings import broker, connection, producer
from ottla.settings.config import Config
from ottla.settings.config_def import Setting

T = TypeVar("T")

# Kafka's brokers remember the last five batches of a producer, so more in flight could repeat.
IDEMPOTENT_IN_FLIGHT_MAX = 5


def topic_default(config: Config, setting: Setting[T]) -> T:
    """What a broker's configuration gives to topics without a value of their own.

    `topic_default(config, topic.RETENTION_MS)` is log.retention.ms, or the minutes, or the hours,
    in milliseconds.
    """
    for fallback in setting.falls_back:
        value = config[fallback.setting]
        if value is not None:
            return cast("T", fallback.convert(value))
    return cast("T", setting.default)


def broker_id(config: Config) -> int | None:
    """The broker's id by either of its names; None when the broker may choose."""
    node_id = config[broker.NODE_ID]
    if node_id is not None:
        return node_id
    return config[broker.BROKER_ID] if config[broker.BROKER_ID] >= 0 else None


def log_dirs(config: Config) -> tuple[str, ...]:
    """The directories of the data: log.dirs, or else log.dir."""
    return config[broker.LOG_DIRS] or config[broker.LOG_DIR]


def zookeeper_connection_timeout_ms(config: Config) -> int:
    """How long to wait for ZooKeeper at start."""
    timeout_ms = config[broker.ZOOKEEPER_CONNECTION_TIMEOUT_MS]
    return config[broker.ZOOKEEPER_SESSION_TIMEOUT_MS] if timeout_ms is None else timeout_ms


def idempotence_hindrance(config: Config) -> Setting[str] | Setting[int] | None:
    """The producer setting whose value idempotence cannot live with, if there is one."""
    if config[producer.ACKS] != "all":
        return producer.ACKS
    if config[connection.RETRIES] == 0:
        return connection.RETRIES
    if config[producer.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION] > IDEMPOTENT_IN_FLIGHT_MAX:
        return producer.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION
    return None


def idempotence(config: Config) -> bool:
    """Whether a producer is idempotent: unless it was turned off, or is in the way of a setting."""
    return config[producer.ENABLE_IDEMPOTENCE] and idempotence_hindrance(config) is None


def delivery_timeout_ms(config: Config) -> int:
    """How long a producer tries: its setting, but never less than one wait and one request."""
    least_ms = config[producer.LINGER_MS] + config[connection.REQUEST_TIMEOUT_MS]
    return max(config[producer.DELIVERY_TIMEOUT_MS], least_ms)
