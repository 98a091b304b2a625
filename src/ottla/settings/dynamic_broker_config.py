"""Where a value comes from: topic, this broker, all brokers, file, default.

Invariant: the strongest source that has a value decides, and the synonyms list every source that
has one, strongest first, in the order of Kafka's DescribeConfigs. Nothing sensitive is in a text.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ottla.settings import security
from ottla.settings.broker import BROKER
from ottla.settings.config import Config, Given, ListenerName, split_listener_name
from ottla.settings.config_def import READ_ONLY, Fallback, Setting
from ottla.settings.config_parser import checked
from ottla.settings.topic import TOPIC


class ConfigSource(IntEnum):
    """Who gave a value, by the numbers of DescribeConfigs; a smaller number is stronger."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class ConfigSynonym(NamedTuple):
    """One source of a value: the text under its own name, and in the unit of the setting asked for.

    log.retention.hours=168 has text "168" and, asked for retention.ms, converted "604800000".
    Both are None for a secret.
    """

    name: str
    text: str | None
    source: ConfigSource
    converted: str | None


class ConfigEntry(NamedTuple):
    """One setting as DescribeConfigs tells it."""

    name: str
    setting: Setting[Any]
    text: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    read_only: bool
    sensitive: bool


# Settings of which the one that is set in the strongest source silences the others below it.
_GROUPS: Final[tuple[tuple[Fallback, ...], ...]] = tuple(
    row.falls_back for row in TOPIC.settings.values() if len(row.falls_back) > 1
)
_GROUP_OF: Final[Mapping[str, tuple[Fallback, ...]]] = {
    fallback.setting.name: group for group in _GROUPS for fallback in group
}


class DynamicBrokerConfig:
    """A broker's settings from all their sources: its file, the cluster's default, its own."""

    __slots__ = ("_sources", "config")

    def __init__(
        self,
        static: Config,
        *,
        cluster: Mapping[str, Given] | None = None,
        broker: Mapping[str, Given] | None = None,
    ) -> None:
        """Takes the file's configuration and the `given` of the two dynamic ones.

        Raises InvalidSettings when what counts in the end does not go together.
        """
        assert static.table is BROKER
        self._sources: Final[tuple[tuple[ConfigSource, Mapping[str, Given]], ...]] = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, broker or {}),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, cluster or {}),
            (ConfigSource.STATIC_BROKER_CONFIG, static.given),
        )
        self.config: Final = checked(Config(BROKER, self._merged()))

    def _merged(self) -> dict[str, Given]:
        merged: dict[str, Given] = {}
        for _, given in reversed(self._sources):
            for name in given:
                for weaker in _GROUP_OF.get(name, ()):
                    merged.pop(weaker.setting.name, None)
            merged.update(given)
        return merged

    def topic(self, overrides: Config) -> Config:
        """A topic's configuration in full: its own values, then what the broker gives.

        They may not go together: each was right when it was set, and one that a topic inherits
        changes without it. `check_topic` tells.
        """
        assert overrides.table is TOPIC
        given: dict[str, Given] = {}
        for setting in TOPIC.settings.values():
            if own := overrides.given.get(setting.name):
                given[setting.name] = own
            elif found := next(self._found(setting.falls_back), None):
                _, fallback, value = found
                given[setting.name] = Given(fallback.convert(value))
        return Config(TOPIC, given)

    def check_topic(self, overrides: Config) -> None:
        """Raise InvalidSettings when a topic's own values do not go with each other or the rest."""
        checked(self.topic(overrides))

    def describe_topic(self, overrides: Config) -> tuple[ConfigEntry, ...]:
        """Every setting of a topic, with its value and all its sources."""
        effective = self.topic(overrides)
        return tuple(
            self._described_topic(setting, overrides, effective)
            for setting in TOPIC.settings.values()
        )

    def describe_broker(self) -> tuple[ConfigEntry, ...]:
        """Every setting of the broker, those of single listeners after the others."""
        names = [*BROKER.settings, *(name for name in self.config.given if _parts(name))]
        return tuple(map(self._described_broker, names))

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
        setting = BROKER.settings[parts.setting if parts else name]
        group = _GROUP_OF.get(name, (Fallback(setting),))
        synonyms = list(self._own(name, setting)) if parts else []
        synonyms += self._synonyms(setting, group)
        # Described is one name of the group, so what is stronger than that name is not its own.
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
        """What the sources say, strongest first: by source, within one in the order given."""
        for source, given in self._sources:
            for fallback in fallbacks:
                if own := given.get(fallback.setting.name):
                    yield source, fallback, own.value
        for fallback in fallbacks:
            if fallback.setting.default is not None:
                yield ConfigSource.DEFAULT_CONFIG, fallback, fallback.setting.default


def _parts(name: str) -> ListenerName | None:
    return split_listener_name(name, security.MECHANISMS)
