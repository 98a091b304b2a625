"""Consumer config from its settings.

It converts the milliseconds of the settings to seconds.
"""

from collections.abc import Callable

from ottla.client.consumer.cursor import EARLIEST_MS, LATEST_MS
from ottla.client.consumer.fetcher import FetchConfig
from ottla.client.consumer.subscription_state import SubscriptionConfig
from ottla.client.group.config import GroupConfig
from ottla.client.network.config import retry_backoff
from ottla.clock import Clock
from ottla.settings import connection, consumer
from ottla.settings.config import Config
from ottla.settings.validators import BY_DURATION, duration_ms


def is_modern_group(config: Config) -> bool:
    """Whether the group uses the KIP-848 protocol."""
    return config[consumer.GROUP_PROTOCOL].lower() == "consumer"


def group_config(config: Config, random: Callable[[], float]) -> GroupConfig:
    """Return the group config of a consumer with a group.id."""
    group_id = config[consumer.GROUP_ID]
    assert group_id is not None
    return GroupConfig(
        group_id=group_id,
        instance_id=config[consumer.GROUP_INSTANCE_ID],
        is_modern=is_modern_group(config),
        rack=config[consumer.CLIENT_RACK] or None,
        session_timeout_s=config[consumer.SESSION_TIMEOUT_MS] / 1000,
        heartbeat_interval_s=config[consumer.HEARTBEAT_INTERVAL_MS] / 1000,
        poll_interval_s=config[consumer.MAX_POLL_INTERVAL_MS] / 1000,
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        backoff=retry_backoff(config, random),
        assignors=tuple(config[consumer.PARTITION_ASSIGNMENT_STRATEGY]),
        remote_assignor=config[consumer.GROUP_REMOTE_ASSIGNOR],
    )


def fetch_config(config: Config, random: Callable[[], float]) -> FetchConfig:
    """Return the fetch config."""
    return FetchConfig(
        backoff=retry_backoff(config, random),
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
    """Return where to start without an offset, as a timestamp of ListOffsets; None for none."""
    where = config[consumer.AUTO_OFFSET_RESET].lower()
    if where == "none":
        return None
    if where.startswith(BY_DURATION):
        ago_ms = duration_ms(where.removeprefix(BY_DURATION))
        return lambda: clock.now_ms() - ago_ms
    fixed_ms = EARLIEST_MS if where == "earliest" else LATEST_MS
    return lambda: fixed_ms


def subscription_config(config: Config) -> SubscriptionConfig:
    """Return the subscription config."""
    commits = config[consumer.ENABLE_AUTO_COMMIT]
    return SubscriptionConfig(
        auto_commit_s=config[consumer.AUTO_COMMIT_INTERVAL_MS] / 1000 if commits else None,
        poll_interval_s=config[consumer.MAX_POLL_INTERVAL_MS] / 1000,
        commit_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        excludes_internal=config[consumer.EXCLUDE_INTERNAL_TOPICS],
    )
