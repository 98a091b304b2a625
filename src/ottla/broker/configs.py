"""Changes dynamic configs: of topics, of brokers, and cluster-wide defaults.

Invariant: a change is validated as a whole before any of it is stored. It takes effect when it is
stored and survives a restart. Passwords are not stored in plain text where others can read them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias, TypeVar

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.topics import ConfigChange, Topics
from ottla.controller.propagation import Propagation, Updates
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, topic_name_problem
from ottla.settings.broker import BROKER, MAX_CONNECTIONS_PER_IP_OVERRIDES
from ottla.settings.config_def import ConfigDef, Setting
from ottla.settings.config_parser import DYNAMIC_SETTINGS_MAX
from ottla.settings.config_types import LIST
from ottla.settings.topic import TOPIC

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
_WITHOUT_SETTINGS: Final = {8: "loggers", 16: "clients' metrics", 32: "groups"}

TOPIC_CONFIGS_MAX: Final = 200
"""Configs that a request may give for a topic: several times as many as there are."""

TIMEOUT_MS: Final = 20_000  # the requests have none; most clients wait 30 s for a response

# These names also with a listener prefix.
NOT_ZERO: Final = ("max.connections", "max.connections.per.ip", "max.connection.creation.rate")

OVERRIDES: Final = MAX_CONNECTIONS_PER_IP_OVERRIDES.name

FROM_FILE_ONLY: Final = ("ssl.keystore.location", "ssl.truststore.location", "sasl.jaas.config")


class Change(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Changes = list[tuple[str, int, str | None]]
"""Names, operations and values."""

Outcome: TypeAlias = tuple[ErrorCode, str | None]
"""The error code and message of a resource in a response."""


class Resource(Protocol):
    """A resource whose configs a request alters."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[object]:
        """The configs to alter."""
        ...


R = TypeVar("R", bound=Resource)


class ConfigAdminManager:
    """Alters the configs of topics and brokers for AlterConfigs and IncrementalAlterConfigs."""

    def __init__(self, *, node_id: BrokerId, metadata_cache: MetadataCache, topics: Topics) -> None:
        self._node_id = node_id
        self._metadata_cache = metadata_cache
        self._topics = topics

    async def alter_all(
        self,
        resources: Sequence[R],
        values_of: Callable[[R], Mapping[str, str] | Changes],
        scheduler: CooperativeScheduler,
        *,
        validate_only: bool,
    ) -> list[Outcome]:
        """Alter the configs of each resource independently, and return the outcomes in order.

        A resource that is given more than once is not altered. `values_of` raises RequestError if
        the values are invalid.
        """
        times = Counter((one.resource_type, one.resource_name) for one in resources)
        propagation = self._topics.propagation(TIMEOUT_MS)
        outcomes: list[Outcome] = []
        stored: list[tuple[int, Updates]] = []  # and the brokers that have not applied it yet

        async def alter(one: R) -> None:
            if times[one.resource_type, one.resource_name] > 1:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, "The resource is given more than once."
                )
            check_count(one.resource_type, one.configs)
            await self._alter(one, values_of(one), propagation, validate_only=validate_only)

        async def alter_each() -> None:
            async for one in scheduler.new_loop().over(resources):
                try:
                    await alter(one)
                except RequestError as error:
                    outcomes.append((error.code, error.message or error.code.text))
                else:
                    stored.append((len(outcomes), propagation.late))
                    outcomes.append((ErrorCode.NONE, None))

        await propagation.carry_out(alter_each())
        for at, updates in stored:
            if (
                error := await propagation.timed_out("the configs are stored", updates)
            ) is not None:
                outcomes[at] = error.code, error.message
        return outcomes

    async def _alter(
        self,
        resource: Resource,
        values: Mapping[str, str] | Changes,
        propagation: Propagation,
        *,
        validate_only: bool,
    ) -> None:
        """Replace the configs of a resource, or change some of them; raises RequestError."""
        resource_type, name = resource.resource_type, resource.resource_name
        if resource_type == TOPIC_RESOURCE:
            if not name:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
                )
            if problem := topic_name_problem(name):
                raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if name not in self._metadata_cache.image.topics:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            change = _change(values, TOPIC, self._topics.required_config(name))
            await self._topics.set_config(name, change, propagation, validate_only=validate_only)
        elif resource_type == BROKER_RESOURCE:
            whose = broker_named(name, self._node_id, self._metadata_cache)
            _check_harmless(values)
            await self._topics.set_broker_config(
                _change(values, BROKER), propagation, whose=whose, validate_only=validate_only
            )
        else:
            raise without_settings(resource_type)


def check_count(resource_type: int, configs: Sequence[object]) -> None:
    """Refuse more configs than any resource has, before each of them takes time and memory."""
    most, code = DYNAMIC_SETTINGS_MAX, ErrorCode.INVALID_REQUEST
    if resource_type == TOPIC_RESOURCE:
        most, code = TOPIC_CONFIGS_MAX, ErrorCode.INVALID_CONFIG
    if len(configs) > most:
        raise RequestError(code, f"{len(configs)} configs exceed the maximum of {most}")


def broker_named(name: str, node_id: BrokerId, metadata_cache: MetadataCache) -> BrokerId | None:
    """Return the broker of a resource name, or None for the defaults of all; raises RequestError.

    It is this broker or another one that is registered.
    """
    if not name:
        return None
    for broker in (node_id, *metadata_cache.image.brokers):
        if name == str(broker):
            return broker
    raise RequestError(
        ErrorCode.INVALID_REQUEST,
        f"Unexpected broker id, expected {node_id} or empty string, but received {name}",
    )


def _change(
    values: Mapping[str, str] | Changes,
    table: ConfigDef,
    required: Mapping[str, str] = MappingProxyType({}),
) -> ConfigChange:
    """Return the change to apply; it runs under the lock, as others may change configs too.

    A replacement of all configs keeps the required ones.
    """
    if isinstance(values, list):
        return lambda present: changed(present, values, table)
    return lambda present: {
        **{name: present.get(name, value) for name, value in required.items()},
        **values,
    }


def without_settings(resource_type: int) -> RequestError:
    """Return the error for resource types that have configs in Kafka but not here."""
    whose = _WITHOUT_SETTINGS.get(resource_type)
    return RequestError(
        ErrorCode.INVALID_REQUEST,
        f"configs of {whose} are not supported"
        if whose is not None
        else f"there are no resources of type {resource_type}",
    )


def _check_harmless(values: Mapping[str, str] | Changes) -> None:
    """Refuse configs that name a file or a class of this machine (CVE-2023-25194 and similar).

    Also refuse those that lock out all clients, or the clients of an address.
    """
    given = (
        values.items()
        if isinstance(values, Mapping)
        else [(name, value or "") for name, _, value in values]
    )
    for name, value in given:
        if name.endswith(NOT_ZERO) and _is_zero(value):
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"{name} can be 0 only in the properties file: no client could connect any more",
            )
        if name == OVERRIDES and any(_is_zero(one.rpartition(":")[2]) for one in value.split(",")):
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"{name} can contain 0 only in the properties file: no client could connect from "
                "that address any more",
            )
        if name.endswith(FROM_FILE_ONLY):
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"{name} can only be set in the properties file: it names a file or class",
            )


def _is_zero(value: str) -> bool:
    try:
        return int(value) == 0
    except ValueError:
        return False


def changed(present: Mapping[str, str], changes: Changes, table: ConfigDef) -> dict[str, str]:
    """Apply incremental changes to the present configs; a name may occur once."""
    after = dict(present)
    seen: set[str] = set()
    for name, number, value in changes:
        if name in seen:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {name}"
            )
        seen.add(name)
        try:
            change = Change(number)
        except ValueError:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"{name}: unknown operation {number}"
            ) from None
        if change is Change.DELETE:
            after.pop(name, None)
            continue
        if value is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{name}: missing value")
        if change is Change.SET:
            after[name] = value
            continue
        row = table.find(name)
        if not isinstance(row, Setting) or row.kind is not LIST:
            raise RequestError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {change.name} to key {name} because its type is not LIST.",
            )
        words = _words(after.get(name, row.default_text or ""))
        given = _words(value)
        if change is Change.APPEND:
            words += [word for word in given if word not in words]
        else:
            words = [word for word in words if word not in given]
        after[name] = ",".join(words)
    return after


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
