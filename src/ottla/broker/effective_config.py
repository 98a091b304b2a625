"""The effective config of the broker and of each topic.

Invariant: a topic's own config overrides the broker's dynamic config, which overrides the
cluster-wide default, which overrides the properties file. A combination that is not valid is
refused before anything changes. One exception, as in Kafka: a value that a topic inherits may
conflict with its own values later; both are applied as they are.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.errors import ErrorCode, RequestError
from ottla.log.log_config import LogConfig, readable_bytes_max
from ottla.records.batch import TimestampType
from ottla.records.compression import Compression
from ottla.records.validation import ValidationConfig
from ottla.settings import broker, topic
from ottla.settings.config import Config
from ottla.settings.config_def import CLUSTER_WIDE, PER_BROKER, READ_ONLY, ConfigDef, Setting
from ottla.settings.config_parser import HINTS_MAX, dynamic_config, topic_overrides
from ottla.settings.dynamic_broker_config import DynamicBrokerConfig, thread_problems
from ottla.settings.endpoints import listeners
from ottla.settings.invalid_settings import InvalidSettings, Problem

_LOG = logging.getLogger(__name__)

# compression.type; None keeps the producer's codec.
_STORED_AS: Final[Mapping[str, Compression | None]] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_LEVELS: Final[Mapping[Compression, Setting[int]]] = {
    Compression.GZIP: topic.COMPRESSION_GZIP_LEVEL,
    Compression.LZ4: topic.COMPRESSION_LZ4_LEVEL,
    Compression.ZSTD: topic.COMPRESSION_ZSTD_LEVEL,
}


class EffectiveConfig:
    """The configs that a broker and its topics use now."""

    def __init__(
        self,
        static: Config,
        *,
        cluster: Mapping[str, str] | None = None,
        own: Mapping[str, str] | None = None,
    ) -> None:
        self._static = static
        self._cluster = dict(cluster or {})
        self._own = dict(own or {})
        self.dynamic_config = self._combined(self._cluster, self._own)
        self._overrides: dict[str, Config] = {}
        self._values: dict[str, dict[str, str]] = {}  # the same values as text
        # The last resolved topic. Its partitions ask one after the other, and resolving takes half
        # a millisecond. Keeping all topics would take a megabyte per hundred topics.
        self._last: tuple[str, Config] | None = None

    def _combined(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> DynamicBrokerConfig:
        return DynamicBrokerConfig(
            self._static,
            cluster=dynamic_config(cluster, CLUSTER_WIDE).given,
            broker=dynamic_config(own, PER_BROKER).given,
        )

    @property
    def broker(self) -> Config:
        """The broker's effective config."""
        return self.dynamic_config.config

    def broker_values(self, *, own: bool) -> Mapping[str, str]:
        """Return the dynamic configs of this broker, or the cluster-wide defaults, as text."""
        return self._own if own else self._cluster

    def warn_of_broker(self, before: Mapping[str, str], *, own: bool) -> None:
        """Log the warnings about dynamic configs that differ from those before."""
        values = self.broker_values(own=own)
        for notice in dynamic_config(values, PER_BROKER if own else CLUSTER_WIDE).notices:
            if before.get(notice.name) != values.get(notice.name, ""):
                log_notice(notice)

    def check_broker(self, values: Mapping[str, str], *, own: bool) -> None:
        """Raise if these dynamic configs are not valid."""
        after = self._replaced(values, own)
        if problems := thread_problems(self.broker, after.config):
            raise RequestError(ErrorCode.INVALID_REQUEST, str(InvalidSettings(problems)))

    def set_broker(self, values: Mapping[str, str], *, own: bool) -> None:
        """Apply dynamic configs."""
        self.dynamic_config = self._replaced(values, own)
        self._last = None
        if own:
            self._own = dict(values)
        else:
            self._cluster = dict(values)

    def _replaced(self, values: Mapping[str, str], own: bool) -> DynamicBrokerConfig:
        try:
            after = self._combined(*((self._cluster, values) if own else (values, self._own)))
        except InvalidSettings as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if listeners(after.config) != listeners(self._static):
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                "listeners cannot be changed at runtime: set them in the file and restart",
            )
        return after

    # Topic configs.

    def know(self, topics: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """Load the configs of topics."""
        self._last = None
        for name, values in topics:
            self._overrides[name] = topic_overrides(dict(values))
            self._values[name] = dict(values)

    def topic_values(self, name: str) -> Mapping[str, str]:
        """Return a topic's own configs as text."""
        return self._values.get(name, {})

    def forget(self, name: str) -> None:
        """Drop the configs of a deleted topic."""
        self._last = None
        self._overrides.pop(name, None)
        self._values.pop(name, None)

    def overrides(self, name: str) -> Config:
        """Return a topic's own configs."""
        return self._overrides.get(name) or topic_overrides({})

    def checked_overrides(self, values: Mapping[str, str], *, hints_max: int = HINTS_MAX) -> Config:
        """Parse and validate a topic's own configs; raises if they are not valid."""
        try:
            overrides = topic_overrides(dict(values), hints_max=hints_max)
            self.dynamic_config.check_topic(overrides)
        except InvalidSettings as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return overrides

    def topic(self, name: str) -> Config:
        """Return the effective config of a topic."""
        if self._last is None or self._last[0] != name:
            self._last = (name, self.dynamic_config.topic(self.overrides(name)))
        return self._last[1]

    def log_config(self, name: str) -> LogConfig:
        """Return the config of a topic's logs."""
        return LogConfig.of(self.topic(name), readable_bytes_max(self.broker))

    def topic_rules(self, name: str) -> ValidationConfig:
        """Return the validation rules for batches produced to a topic."""
        config = self.topic(name)
        by_clock = config[topic.MESSAGE_TIMESTAMP_TYPE] == "LogAppendTime"
        compression = _STORED_AS[config[topic.COMPRESSION_TYPE]]
        level = None if compression is None else _LEVELS.get(compression)
        return ValidationConfig(
            max_message_bytes=config[topic.MAX_MESSAGE_BYTES],
            compacted="compact" in config[topic.CLEANUP_POLICY],
            timestamp_type=TimestampType.LOG_APPEND_TIME if by_clock else TimestampType.CREATE_TIME,
            timestamp_before_max_ms=config[topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
            timestamp_after_max_ms=config[topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS],
            decompressed_bytes_max=self.broker[broker.MAX_DECOMPRESSED_MESSAGE_BYTES],
            compression=compression,
            compression_level=None if level is None else config[level],
        )

    def in_sync_min(self, name: str) -> int:
        """Return min.insync.replicas of a topic."""
        return self.topic(name)[topic.MIN_INSYNC_REPLICAS]

    def in_sync_min_with(self, name: str, overrides: Config) -> int:
        """Return min.insync.replicas of a topic if it had these configs of its own."""
        return self.dynamic_config.topic(overrides)[topic.MIN_INSYNC_REPLICAS]

    def in_sync_mins_after(self, names: Iterable[str], values: Mapping[str, str]) -> dict[str, int]:
        """Return min.insync.replicas of topics that cluster-wide defaults would change."""
        after = self._replaced(values, own=False)
        changed: dict[str, int] = {}
        for name in names:
            minimum = after.topic(self.overrides(name))[topic.MIN_INSYNC_REPLICAS]
            if minimum != self.in_sync_min(name):
                changed[name] = minimum
        return changed

    def unclean(self, name: str) -> bool:
        """Return unclean.leader.election.enable of a topic."""
        return self.topic(name)[topic.UNCLEAN_LEADER_ELECTION_ENABLE]


def without_read_only(stored: Mapping[str, str] | None, *, logged: bool = True) -> dict[str, str]:
    """Return stored dynamic configs, without those that only the properties file can set.

    An earlier release may have stored them. They must not prevent the start.
    """
    usable: dict[str, str] = {}
    for name, value in (stored or {}).items():
        row = broker.BROKER.find(name)
        if isinstance(row, Setting) and row.dynamic is READ_ONLY:
            if not logged:
                continue
            what = f"ignored the stored value {value}: set it in the properties file"
            log_notice(Problem(name, what))
        else:
            usable[name] = value
    return usable


def log_notice(notice: Problem) -> None:
    """Log the warning about a setting."""
    _LOG.warning("setting ignored or adjusted", {"name": notice.name, "note": str(notice)})


def described_changes(before: Mapping[str, str], after: Mapping[str, str], table: ConfigDef) -> str:
    """Describe which configs were set and unset; sensitive values are hidden."""

    def shown(name: str, value: str) -> str:
        row = table.find(name)
        return value if isinstance(row, Setting) and not row.sensitive else "(hidden)"

    changed = [
        f"{name}={shown(name, value)}" for name, value in after.items() if before.get(name) != value
    ]
    return ", ".join(changed + [f"{name} unset" for name in before if name not in after])
