"""Entities with configs in `kafka-configs`: topics, brokers, groups, client metrics, loggers.

Invariant: one request both sets and deletes the configs of a run.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from ottla.cli.config.admin import ConfigAdmin
from ottla.cli.kafka.configs.entities import BROKERS, GROUPS, LOGGERS, METRICS, TOPICS, Entities
from ottla.cli.kafka.words import words
from ottla.cli.kafka.wrong_use import Illegal
from ottla.client.admin.cluster import ClusterCalls
from ottla.client.admin.configs import (
    ConfigAction,
    ConfigChange,
    ConfigEntry,
    ConfigKind,
    ConfigResource,
    ConfigSource,
)
from ottla.client.admin.groups import GroupCalls
from ottla.client.admin.topics import TopicCalls
from ottla.errors import OttlaError, RequestError

_KINDS: Final = {
    TOPICS: (ConfigKind.TOPIC, ConfigSource.TOPIC),
    BROKERS: (ConfigKind.BROKER, ConfigSource.BROKER),
    LOGGERS: (ConfigKind.BROKER_LOGGER, None),
    METRICS: (ConfigKind.CLIENT_METRICS, ConfigSource.CLIENT_METRICS),
    GROUPS: (ConfigKind.GROUP, ConfigSource.GROUP),
}

# Kafka's names of config sources.
_SOURCES: Final = {
    ConfigSource.UNKNOWN: "UNKNOWN",
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.ALL_BROKERS: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.FILE: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
    ConfigSource.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    ConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
}


class ResourceAdmin(ConfigAdmin, TopicCalls, ClusterCalls, GroupCalls):
    """Admin client for configs, which also lists their entities."""


class ResourceTool:
    """`kafka-configs` for entities that have configs."""

    def __init__(self, admin: ResourceAdmin) -> None:
        self._admin = admin

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Mapping[str, str]) -> AsyncGenerator["ResourceTool"]:
        """Open a tool with its own admin client."""
        async with ResourceAdmin(settings) as admin:
            yield cls(admin)

    async def describe(self, found: Entities, *, everything: bool) -> None:
        """Print the configs of one entity, or of all entities of a type."""
        names = await self._there(found) if not found.names else [found.names[0]]
        if found.names and found.names[0] and not everything:
            name = found.names[0]
            if name not in await self._there(found):
                print(
                    f"The {found.singular} '{name}' doesn't exist and doesn't have dynamic config."
                )
                return
        for name in names:
            print(_head(found, name, everything=everything))
            for entry in await self._entries(found.kind, name, everything=everything):
                print(line(entry))

    async def alter(self, found: Entities, configs: Mapping[str, str], gone: Sequence[str]) -> None:
        """Set and delete configs."""
        name = found.names[0]
        if found.kind == LOGGERS:
            present = {one.name for one in await self._entries(found.kind, name, everything=False)}
            if unknown := [one for one in (*gone, *configs) if one not in present]:
                raise Illegal(f"Invalid broker logger(s): {','.join(unknown)}")
        resource = _resource(found.kind, name)
        changes = [
            *(ConfigChange(one, "", ConfigAction.UNSET) for one in gone),
            *(ConfigChange(one, value) for one, value in configs.items()),
        ]
        _check((await self._admin.alter_configs({resource: changes})).failed)

    async def _there(self, found: Entities) -> list[str]:
        """Return the names of all entities of a type."""
        admin = self._admin
        match found.kind:
            case "topics":
                return sorted(await admin.list_topics(include_internal=True))
            case "brokers" | "broker-loggers":
                brokers = (await admin.describe_cluster()).brokers
                return [*(str(one.id) for one in brokers), ""]
            case "client-metrics":
                kinds = [ConfigKind.CLIENT_METRICS]
                return [one.name for one in await admin.list_config_resources(kinds)]
            case _:
                listed = [one.id for one in await admin.list_groups()]
                with_settings = await admin.list_config_resources([ConfigKind.GROUP])
                return [*dict.fromkeys([*listed, *(one.name for one in with_settings)])]

    async def _entries(self, kind: str, name: str, *, everything: bool) -> list[ConfigEntry]:
        resource = _resource(kind, name)
        told = await self._admin.describe_configs(resource, include_synonyms=True)
        _check(told.failed)
        source = ConfigSource.ALL_BROKERS if (kind, name) == (BROKERS, "") else _KINDS[kind][1]
        entries = sorted(told[resource].values(), key=lambda one: one.name)
        return [one for one in entries if everything or source in (None, one.source)]


def _resource(kind: str, name: str) -> ConfigResource:
    try:
        return ConfigResource(_KINDS[kind][0], name)
    except ValueError:
        raise Illegal(
            f"The entity name for {kind} must be a valid integer broker id, found: {name}"
        ) from None


def _check(failed: Mapping[ConfigResource, RequestError]) -> None:
    for resource, error in failed.items():
        raise OttlaError(words(error, resource))


def _head(found: Entities, name: str, *, everything: bool) -> str:
    if not name:
        return f"Default configs for {found.kind} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {found.singular} {name} are:"


def line(entry: ConfigEntry) -> str:
    """Return the line of a config with its synonyms."""
    places = ", ".join(
        f"{_SOURCES[one.source]}:{one.name}={_value(one.value)}" for one in entry.synonyms
    )
    secret = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={_value(entry.value)} sensitive={secret} synonyms={{{places}}}"


def _value(value: str | None) -> str:
    return "null" if value is None else value
