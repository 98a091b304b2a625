"""The settings that count now: the broker's, and each topic's.

Invariant: a topic's own values win over the broker's dynamic ones, those over the cluster's, those
over the file. What does not go together is refused before anything is changed. Only what a topic
inherits may come not to go with its own values, as with Kafka: both are obeyed as they are.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.errors import ErrorCode, RequestError
from ottla.log.log_config import LogConfig, readable_bytes_max
from ottla.records.batch import TimestampType
from ottla.records.compression import Compression
from ottla.records.validation import TopicRules
from ottla.settings import broker, topic
from ottla.settings.config import Config
from ottla.settings.endpoints import listeners
from ottla.settings.layers import Layers
from ottla.settings.problems import InvalidSettings
from ottla.settings.resolution import dynamic_config, topic_overrides
from ottla.settings.table import CLUSTER_WIDE, PER_BROKER, Setting, Table

# What compression.type says; None keeps what the producer chose.
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
    """What a broker and its topics obey."""

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
        self.layers = self._layered(self._cluster, self._own)
        self._overrides: dict[str, Config] = {}
        self._values: dict[str, dict[str, str]] = {}  # the same as texts
        # Of one topic: its partitions ask one after the other, and to resolve takes half a
        # millisecond; all of them would take a megabyte for each hundred topics.
        self._last: tuple[str, Config] | None = None

    def _layered(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> Layers:
        return Layers(
            self._static,
            cluster=dynamic_config(cluster, CLUSTER_WIDE).given,
            broker=dynamic_config(own, PER_BROKER).given,
        )

    @property
    def broker(self) -> Config:
        """All that counts for the broker."""
        return self.layers.config

    def broker_values(self, *, own: bool) -> Mapping[str, str]:
        """The dynamic settings of this broker, or those of all, as they were given."""
        return self._own if own else self._cluster

    def check_broker(self, values: Mapping[str, str], *, own: bool) -> None:
        """Refuse dynamic settings that may not be."""
        after = self._replaced(values, own).config[broker.LOG_CLEANER_THREADS]
        before = self.broker[broker.LOG_CLEANER_THREADS]
        # The rules and the words are Kafka's. A file may say 0; a broker that runs does not stop
        # cleaning.
        if after < 1 <= before:
            why = "Log cleaner threads should be at least 1"
        elif after < before // 2:
            why = "Log cleaner threads cannot be reduced to less than half the current value"
        elif after > before * 2:
            why = "Log cleaner threads cannot be increased to more than double the current value"
        else:
            return
        raise RequestError(ErrorCode.INVALID_REQUEST, why if after < 1 else f"{why} {before}")

    def set_broker(self, values: Mapping[str, str], *, own: bool) -> None:
        """Let dynamic settings count from now on."""
        self.layers = self._replaced(values, own)
        self._last = None
        if own:
            self._own = dict(values)
        else:
            self._cluster = dict(values)

    def _replaced(self, values: Mapping[str, str], own: bool) -> Layers:
        try:
            after = self._layered(*((self._cluster, values) if own else (values, self._own)))
        except InvalidSettings as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if listeners(after.config) != listeners(self._static):
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                "listeners are opened at the start: set them in the file and restart",
            )
        return after

    # Topics.

    def know(self, topics: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """Take over what topics set for themselves."""
        self._last = None
        for name, values in topics:
            self._overrides[name] = topic_overrides(dict(values))
            self._values[name] = dict(values)

    def topic_values(self, name: str) -> Mapping[str, str]:
        """What a topic sets for itself, as it was given."""
        return self._values.get(name, {})

    def forget(self, name: str) -> None:
        """A topic is gone."""
        self._last = None
        self._overrides.pop(name, None)
        self._values.pop(name, None)

    def overrides(self, name: str) -> Config:
        """What a topic sets for itself."""
        return self._overrides.get(name) or topic_overrides({})

    def checked_overrides(self, values: Mapping[str, str]) -> Config:
        """What a topic is to set for itself, or the reason why it may not."""
        try:
            overrides = topic_overrides(dict(values))
            self.layers.check_topic(overrides)
        except InvalidSettings as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return overrides

    def topic(self, name: str) -> Config:
        """All that counts for a topic."""
        if self._last is None or self._last[0] != name:
            self._last = (name, self.layers.topic(self.overrides(name)))
        return self._last[1]

    def log_config(self, name: str) -> LogConfig:
        """What the logs of a topic obey."""
        return LogConfig.of(self.topic(name), readable_bytes_max(self.broker))

    def topic_rules(self, name: str) -> TopicRules:
        """What is demanded of the batches produced to a topic."""
        config = self.topic(name)
        by_clock = config[topic.MESSAGE_TIMESTAMP_TYPE] == "LogAppendTime"
        compression = _STORED_AS[config[topic.COMPRESSION_TYPE]]
        level = None if compression is None else _LEVELS.get(compression)
        return TopicRules(
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
        """How many replicas have to be in sync for acks=all."""
        return self.topic(name)[topic.MIN_INSYNC_REPLICAS]


def described_changes(before: Mapping[str, str], after: Mapping[str, str], table: Table) -> str:
    """What is set anew and what is set no more; only what all may see is shown with its value."""

    def shown(name: str, value: str) -> str:
        row = table.find(name)
        return value if isinstance(row, Setting) and not row.sensitive else "(hidden)"

    changed = [
        f"{name}={shown(name, value)}" for name, value in after.items() if before.get(name) != value
    ]
    return ", ".join(changed + [f"{name} unset" for name in before if name not in after])
