"""Configs of topics, brokers, groups and client metrics: describe, alter, list.

Invariant: a change names the operation for each config; others stay.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from ottla.client.admin.calls import Calls
from ottla.client.admin.kinds import Kind
from ottla.client.arguments import many_of, mapping_of, settings_of
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Results, check, refused
from ottla.client.calls.targets import ByView
from ottla.errors import RequestError
from ottla.protocol.messages.alter_configs import AlterableConfig as Replacement
from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_KINDS_SINCE: Final = (
    1  # the first version of ListConfigResources with other types than client metrics
)
_DOCUMENTATION_SINCE: Final = 3

_OF_RESOURCES: Final = (
    'a mapping of resources such as {ConfigResource.topic("orders"): {"retention.ms": "1000"}}'
)


class ConfigKind(Kind):
    """The resource type of configs, as on the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(Kind):
    """The source of a value, as on the wire."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    FILE = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(Kind):
    """The type of a config, as on the wire."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource that has configs."""

    kind: ConfigKind
    name: str

    def __post_init__(self) -> None:
        is_broker = self.kind in (ConfigKind.BROKER, ConfigKind.BROKER_LOGGER)
        if is_broker and self.name and not self.name.isdecimal():
            raise ValueError(f"invalid broker name {self.name!r}: use the broker id, a number")

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        """A topic."""
        return cls(ConfigKind.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None) -> "ConfigResource":
        """One broker, or with None the cluster-wide default."""
        return cls(ConfigKind.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def broker_logger(cls, broker_id: int) -> "ConfigResource":
        """The loggers of a broker, whose configs are their levels."""
        return cls(ConfigKind.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, name: str) -> "ConfigResource":
        """A group."""
        return cls(ConfigKind.GROUP, name)

    @classmethod
    def client_metrics(cls, name: str) -> "ConfigResource":
        """A client metrics subscription."""
        return cls(ConfigKind.CLIENT_METRICS, name)

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name or 'defaults'}"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A place where a value may be set, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config and its value."""

    name: str
    value: str | None
    """None also for a sensitive value."""

    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source is ConfigSource.DEFAULT


class ConfigAction(IntEnum):
    """The operation on a config, as on the wire."""

    SET = 0
    UNSET = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one config; APPEND and SUBTRACT are for lists."""

    name: str
    value: str | None
    action: ConfigAction = ConfigAction.SET


class ConfigCalls(Calls):
    """Calls about configs."""

    async def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_s: float | None = None,
    ) -> Results[ConfigResource, Mapping[str, ConfigEntry]]:
        """Return the configs of each resource, all or the named ones."""
        form = 'a list of setting names such as ["retention.ms"]'
        keys = None if names is None else many_of(names, str, form)
        ones = [resources] if isinstance(resources, ConfigResource) else resources
        wanted = many_of(
            ones,
            ConfigResource,
            'a ConfigResource such as ConfigResource.topic("orders"), or a list of them',
        )
        question = ApiCall[ConfigResource, DescribeConfigsResponse, Mapping[str, ConfigEntry]](
            request=lambda ones, _: DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=one.kind, resource_name=one.name, configuration_keys=keys
                    )
                    for one in ones
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            ),
            answer=DescribeConfigsResponse,
            read=lambda _, answer: described(answer),
            since=_DOCUMENTATION_SINCE if include_documentation else 0,
        )
        return await self._asking.many(self._to_owner, wanted, question, timeout_s)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None] | Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Alter single configs: {name: value}, where None deletes, or a list of changes."""
        mapping_of(changes, ConfigResource, _OF_RESOURCES)
        listed = {resource: _changes(ones) for resource, ones in changes.items()}
        question = ApiCall(
            request=lambda ones, _: IncrementalAlterConfigsRequest(
                resources=[_altered(one, listed[one]) for one in ones],
                validate_only=validate_only,
            ),
            answer=IncrementalAlterConfigsResponse,
            read=lambda _, answer: _altered_outcomes(answer),
        )
        return await self._asking.many(self._to_owner, listed, question, timeout_s)

    async def replace_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Replace all configs of resources: those that are not named are deleted."""
        mapping_of(configs, ConfigResource, _OF_RESOURCES)
        for config in configs.values():
            settings_of(config)
        question = ApiCall(
            request=lambda ones, _: AlterConfigsRequest(
                resources=[_replaced(one, configs[one]) for one in ones],
                validate_only=validate_only,
            ),
            answer=AlterConfigsResponse,
            read=lambda _, answer: _altered_outcomes(answer),
        )
        return await self._asking.many(self._to_owner, configs, question, timeout_s)

    async def list_config_resources(
        self, kinds: Iterable[ConfigKind] = (), *, timeout_s: float | None = None
    ) -> tuple[ConfigResource, ...]:
        """Return all resources that have configs, or those of some types."""
        form = "a list of kinds such as [ConfigKind.TOPIC]"
        wanted = [int(kind) for kind in many_of(kinds, ConfigKind, form)]
        only_metrics = wanted == [ConfigKind.CLIENT_METRICS]
        return await self._asking.one(
            self._asking.to_any,
            lambda terms: ListConfigResourcesRequest(
                resource_types=wanted if terms.version >= _KINDS_SINCE else ()
            ),
            ListConfigResourcesResponse,
            resources_listed,
            timeout_s,
            since=0 if only_metrics else _KINDS_SINCE,
        )

    @property
    def _to_owner(self) -> ByView[ConfigResource]:
        """Route to the broker itself for its own configs, else to any broker."""
        return self._asking.to_broker(_owner)


def _owner(resource: ConfigResource) -> int | None:
    is_broker = resource.kind in (ConfigKind.BROKER, ConfigKind.BROKER_LOGGER)
    return int(resource.name) if is_broker and resource.name else None


def described(
    answer: DescribeConfigsResponse,
) -> dict[ConfigResource, Mapping[str, ConfigEntry] | RequestError]:
    """Return the configs of each resource."""
    return {
        (key := _resource(one)): refused(one.error_code, key, one.error_message)
        or {entry.name: _entry(entry) for entry in one.configs}
        for one in answer.results
    }


def _entry(told: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        told.name,
        told.value,
        ConfigSource(told.config_source),
        told.read_only,
        told.is_sensitive,
        ConfigType(told.config_type),
        tuple(
            ConfigSynonym(one.name, one.value, ConfigSource(one.source)) for one in told.synonyms
        ),
        told.documentation or None,
    )


def _changes(
    given: Mapping[str, str | None] | Sequence[ConfigChange],
) -> list[ConfigChange]:
    if not isinstance(given, Mapping):
        form = 'a mapping of settings such as {"retention.ms": "1000"}, or a list of ConfigChange'
        return many_of(given, ConfigChange, form)
    settings_of(given)
    return [
        ConfigChange(name, value, ConfigAction.UNSET if value is None else ConfigAction.SET)
        for name, value in given.items()
    ]


def _altered(resource: ConfigResource, changes: Sequence[ConfigChange]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configs=[
            AlterableConfig(name=one.name, config_operation=one.action, value=one.value)
            for one in changes
        ],
    )


def _replaced(resource: ConfigResource, config: Mapping[str, str]) -> ReplacedResource:
    return ReplacedResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configs=[Replacement(name=name, value=value) for name, value in config.items()],
    )


def _altered_outcomes(
    answer: IncrementalAlterConfigsResponse | AlterConfigsResponse,
) -> dict[ConfigResource, RequestError | None]:
    return {
        (key := _resource(one)): refused(one.error_code, key, one.error_message)
        for one in answer.responses
    }


def resources_listed(answer: ListConfigResourcesResponse) -> tuple[ConfigResource, ...]:
    """Return all resources."""
    check(answer.error_code, "config resources")
    return tuple(map(_resource, answer.config_resources))


class _Told(Protocol):
    resource_type: int
    resource_name: str


def _resource(told: _Told) -> ConfigResource:
    return ConfigResource(ConfigKind(told.resource_type), told.resource_name)
