"""The effective settings of a broker and its topics, from all config sources.

`ReplicaRoles.set_broker_configs` applies what has changed to the parts of a running broker.

Invariant: the source with the highest precedence that has a value decides. Synonyms list all
sources that have a value, in the order of Kafka's DescribeConfigs. No text contains a secret.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ottla.settings import ignored, security
from ottla.settings.broker import (
    BROKER,
    LOG_CLEANER_THREADS,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
    NUM_REPLICA_FETCHERS,
)
from ottla.settings.config import Config, Given, ListenerName, split_listener_name
from ottla.settings.config_def import READ_ONLY, Fallback, Setting
from ottla.settings.config_parser import checked
from ottla.settings.invalid_settings import Problem
from ottla.settings.topic import TOPIC


class ConfigSource(IntEnum):
    """The source of a value, numbered as in DescribeConfigs; a lower number has precedence."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class ConfigSynonym(NamedTuple):
    """A value in one source: as text, and converted to the unit of the described setting.

    log.retention.hours=168 has the text "168"; for retention.ms it is converted to "604800000".
    Both are None for a secret.
    """

    name: str
    text: str | None
    source: ConfigSource
    converted: str | None


class ConfigEntry(NamedTuple):
    """One setting in a DescribeConfigs response; `setting` is None for a name without a type."""

    name: str
    setting: Setting[Any] | None
    text: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    read_only: bool
    sensitive: bool


# Settings with one meaning and different units. One that is set in a source hides the others of
# sources with lower precedence.
_GROUPS: Final[tuple[tuple[Fallback, ...], ...]] = tuple(
    row.falls_back for row in TOPIC.settings.values() if len(row.falls_back) > 1
)
_GROUP_OF: Final[Mapping[str, tuple[Fallback, ...]]] = {
    fallback.setting.name: group for group in _GROUPS for fallback in group
}


class DynamicBrokerConfig:
    """A broker's settings: its file, the dynamic default of the cluster, its own dynamic ones."""

    __slots__ = ("_described", "_inherited", "_sources", "config")

    def __init__(
        self,
        static: Config,
        *,
        cluster: Mapping[str, Given] | None = None,
        broker: Mapping[str, Given] | None = None,
    ) -> None:
        """Combine the config of the file with the `given` of the two dynamic configs.

        Raises InvalidSettings if the effective values are inconsistent.
        """
        assert static.table is BROKER
        self._sources: Final[tuple[tuple[ConfigSource, Mapping[str, Given]], ...]] = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, broker or {}),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, cluster or {}),
            (ConfigSource.STATIC_BROKER_CONFIG, static.given),
        )
        self.config: Final = checked(Config(BROKER, self._merged()))
        # Of topics without configs of their own. Most topics have none, and resolving takes long.
        self._inherited: Config | None = None
        self._described: tuple[ConfigEntry, ...] = ()

    def _merged(self) -> dict[str, Given]:
        merged: dict[str, Given] = {}
        for _, given in reversed(self._sources):
            for name in given:
                for weaker in _GROUP_OF.get(name, ()):
                    merged.pop(weaker.setting.name, None)
            merged.update(given)
        return merged

    def topic(self, overrides: Config) -> Config:
        """Return a topic's effective config: its own values, then the broker's.

        The result can be inconsistent, because an inherited value can change after the topic set
        its own. `check_topic` checks it.
        """
        assert overrides.table is TOPIC
        if overrides.given:
            return self._resolved(overrides)
        if self._inherited is None:
            self._inherited = self._resolved(overrides)
        return self._inherited

    def _resolved(self, overrides: Config) -> Config:
        given: dict[str, Given] = {}
        for setting in TOPIC.settings.values():
            if own := overrides.given.get(setting.name):
                given[setting.name] = own
            elif found := next(self._found(setting.falls_back), None):
                _, fallback, value = found
                given[setting.name] = Given(fallback.convert(value))
        return Config(TOPIC, given)

    def check_topic(self, overrides: Config) -> None:
        """Raise InvalidSettings if a topic's values are inconsistent with the effective config."""
        checked(self.topic(overrides))

    def describe_topic(self, overrides: Config) -> tuple[ConfigEntry, ...]:
        """Describe every setting of a topic."""
        if self._described and not overrides.given:
            return self._described
        effective = self.topic(overrides)
        described = tuple(
            self._described_topic(setting, overrides, effective)
            for setting in TOPIC.settings.values()
        )
        if not overrides.given:
            self._described = described
        return described

    def describe_broker(self) -> tuple[ConfigEntry, ...]:
        """Describe every setting of the broker, then the other names that are set.

        These are settings of listeners, and names that Kafka 4.3 does not know.
        """
        others = [name for name in self.config.given if name not in BROKER.settings]
        return tuple(map(self._described_broker, [*BROKER.settings, *others]))

    def _described_topic(
        self, setting: Setting[Any], overrides: Config, effective: Config
    ) -> ConfigEntry:
        synonyms: list[ConfigSynonym] = []
        if setting.name in overrides.given:
            text = effective.text(setting)
            synonyms.append(
                ConfigSynonym(setting.name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG, text)
            )
        synonyms += self._synonyms(setting, setting.falls_back)
        return ConfigEntry(
            setting.name,
            setting,
            effective.text(setting),
            synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            tuple(synonyms),
            read_only=False,
            sensitive=setting.sensitive,
        )

    def _described_broker(self, name: str) -> ConfigEntry:
        parts = _parts(name)
        setting = BROKER.settings.get(parts.setting if parts else name)
        if setting is None:
            return self._described_unknown(name)
        group = _GROUP_OF.get(name, (Fallback(setting),))
        synonyms = list(self._own(name, setting)) if parts else []
        synonyms += self._synonyms(setting, group)
        # Synonyms before the described name belong to other names of the group.
        while synonyms and synonyms[0].name != name:
            del synonyms[0]
        given = self.config.given.get(name)
        value = given.value if given else setting.default
        return ConfigEntry(
            name,
            setting,
            None if setting.sensitive else setting.format(value),
            synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            tuple(synonyms),
            read_only=setting.dynamic is READ_ONLY,
            sensitive=setting.sensitive,
        )

    def _described_unknown(self, name: str) -> ConfigEntry:
        """Describe a name that Kafka 4.3 does not know; like Kafka, as a secret without a type."""
        synonyms = tuple(
            ConfigSynonym(name, None, source, None)
            for source, given in self._sources
            if name in given
        )
        return ConfigEntry(
            name, None, None, synonyms[0].source, synonyms, read_only=True, sensitive=True
        )

    def _own(self, name: str, setting: Setting[Any]) -> Iterator[ConfigSynonym]:
        for source, given in self._sources:
            if name in given:
                text = None if setting.sensitive else setting.format(given[name].value)
                yield ConfigSynonym(name, text, source, text)

    def _synonyms(
        self, asked: Setting[Any], fallbacks: tuple[Fallback, ...]
    ) -> Iterator[ConfigSynonym]:
        for source, fallback, value in self._found(fallbacks):
            setting = fallback.setting
            if setting.sensitive:
                yield ConfigSynonym(setting.name, None, source, None)
            else:
                converted = asked.format(fallback.convert(value)) if asked.falls_back else None
                text = setting.format(value)
                yield ConfigSynonym(setting.name, text, source, converted or text)

    def _found(
        self, fallbacks: tuple[Fallback, ...]
    ) -> Iterator[tuple[ConfigSource, Fallback, object]]:
        """Yield the values of the fallbacks by precedence: by source, then in the given order."""
        for source, given in self._sources:
            for fallback in fallbacks:
                if own := given.get(fallback.setting.name):
                    yield source, fallback, own.value
        for fallback in fallbacks:
            if fallback.setting.default is not None:
                yield ConfigSource.DEFAULT_CONFIG, fallback, fallback.setting.default


def _parts(name: str) -> ListenerName | None:
    return split_listener_name(name, security.MECHANISMS)


# A running broker changes these by at most a factor of two, as in Kafka.
_THREADS: Final = (
    LOG_CLEANER_THREADS,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
    NUM_REPLICA_FETCHERS,
    ignored.BACKGROUND_THREADS,
    ignored.NUM_IO_THREADS,
    ignored.NUM_NETWORK_THREADS,
)


def thread_problems(before: Config, after: Config) -> tuple[Problem, ...]:
    """Return the numbers of threads that a running broker must not change like this."""
    return tuple(
        Problem(setting.name, f'invalid value "{after[setting]}": expected {bound}')
        for setting in _THREADS
        if (bound := _violated_bound(before[setting], after[setting]))
    )


def _violated_bound(before: int, after: int) -> str:
    # A properties file may say 0 cleaner threads; a running broker does not stop its cleaner.
    if after < 1 <= before:
        return "at least 1"
    if after < before // 2:
        return f"at least half of the current value {before}"
    if after > before * 2:
        return f"at most double the current value {before}"
    return ""
