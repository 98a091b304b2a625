"""DescribeConfigs: every config of topics and brokers, with the source of its value.

A broker also returns its version, which Kafka's protocol has no field for, as a read-only config.
It is not among all configs: a client must ask for it by its name.
"""

from collections.abc import Iterable
from itertools import dropwhile
from typing import Final

from ottla.broker.configs import broker_named, without_settings
from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.metadata_cache import MetadataCache
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, topic_name_problem
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.release import RELEASE, VERSION_CONFIG
from ottla.settings.dynamic_broker_config import ConfigEntry, ConfigSource
from ottla.transport.broker_channels import BrokerChannels
from ottla.transport.connection import Connection, DeferredResponse

TOPIC: Final = 2
BROKER: Final = 4
UNKNOWN_TYPE: Final = 0

TIMEOUT_S: Final = 10.0  # of a request to another broker

VERSION: Final = ConfigEntry(
    VERSION_CONFIG,
    None,
    RELEASE,
    ConfigSource.STATIC_BROKER_CONFIG,
    (),
    read_only=True,
    sensitive=False,
)
"""The version of this broker."""


class DescribeConfigsHandler:
    """Describes the configs of topics and brokers."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        settings: EffectiveConfig,
        metadata_cache: MetadataCache,
        scheduler: CooperativeScheduler,
        channels: BrokerChannels,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._metadata_cache = metadata_cache
        self._scheduler = scheduler
        self._channels = channels

    def handle(self, request: Request, connection: Connection) -> Response | DeferredResponse:
        """Describe each resource."""
        message = request.message
        assert isinstance(message, DescribeConfigsRequest)
        return DeferredResponse(self._answer(message))

    async def _answer(self, message: DescribeConfigsRequest) -> Response:
        return DescribeConfigsResponse(
            throttle_time_ms=0,
            results=[
                self._resource(message, one)
                if (other := self._other_broker(one)) is None
                else await self._ask(other, message, one)
                async for one in self._scheduler.new_loop().over(message.resources)
            ],
        )

    def _other_broker(self, asked: DescribeConfigsResource) -> BrokerId | None:
        """Return the broker that has to be asked, because only it knows its properties file."""
        if asked.resource_type != BROKER or asked.resource_name == str(self._node_id):
            return None
        try:
            return broker_named(asked.resource_name, self._node_id, self._metadata_cache)
        except RequestError:  # it is reported like other problems of the resource
            return None

    async def _ask(
        self, broker: BrokerId, message: DescribeConfigsRequest, asked: DescribeConfigsResource
    ) -> DescribeConfigsResult:
        request = DescribeConfigsRequest(
            resources=[asked],
            include_synonyms=message.include_synonyms,
            include_documentation=message.include_documentation,
        )
        try:
            response = await self._channels.ask(
                broker, request, DescribeConfigsResponse, timeout_s=TIMEOUT_S
            )
        except RequestError as error:
            return DescribeConfigsResult(
                error_code=int(error.code),
                error_message=str(error),
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=[],
            )
        (result,) = response.results
        return result

    def _resource(
        self, message: DescribeConfigsRequest, asked: DescribeConfigsResource
    ) -> DescribeConfigsResult:
        code, text, configs = ErrorCode.NONE, None, list[DescribeConfigsResourceResult]()
        try:
            keys = asked.configuration_keys
            configs = [
                _setting(message, one)
                for one in self._described(asked.resource_type, asked.resource_name)
                if not keys or one.name in keys
            ]
            if keys and VERSION.name in keys and asked.resource_type == BROKER:
                configs.append(_setting(message, VERSION))
        except RequestError as error:
            code, text = error.code, error.message
        return DescribeConfigsResult(
            error_code=int(code),
            error_message=text,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=configs,
        )

    def _described(self, resource_type: int, name: str) -> Iterable[ConfigEntry]:
        """Return the configs of a resource; raises RequestError if it does not exist."""
        settings = self._settings
        if resource_type == TOPIC:
            if problem := topic_name_problem(name):
                raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if name not in self._metadata_cache.image.topics:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return map(
                _led_by_its_name, settings.dynamic_config.describe_topic(settings.overrides(name))
            )
        if resource_type == BROKER:
            broker_named(name, self._node_id, self._metadata_cache)
            own = settings.dynamic_config.describe_broker()
            return own if name else _defaults_of_all(own)
        raise without_settings(resource_type)


def _led_by_its_name(one: ConfigEntry) -> ConfigEntry:
    """Drop the broker configs that take precedence over the one with the topic config's name.

    As in Kafka: while log.retention.ms is not set, log.retention.hours is not among the synonyms.
    """
    own = [synonym for synonym in one.synonyms if synonym.name == one.name]
    assert one.setting is not None, "topics have no settings without a type"
    first = one.setting.falls_back[0].setting.name if one.setting.falls_back else ""
    others = one.synonyms[len(own) :]
    told = (*own, *dropwhile(lambda synonym: synonym.name != first, others))
    return one._replace(
        synonyms=told, source=told[0].source if told else ConfigSource.DEFAULT_CONFIG
    )


def _defaults_of_all(described_broker: Iterable[ConfigEntry]) -> Iterable[ConfigEntry]:
    """Return the cluster-wide defaults; the broker's own values are ignored."""
    level = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    for one in described_broker:
        told = tuple(synonym for synonym in one.synonyms if synonym.source is level)
        if told and told[0].name == one.name:
            yield one._replace(text=told[0].text, source=level, synonyms=told)


def _setting(message: DescribeConfigsRequest, one: ConfigEntry) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=one.name,
        value=one.text,
        read_only=one.read_only,
        config_source=int(one.source),
        is_sensitive=one.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=two.name, value=two.text, source=int(two.source))
            for two in one.synonyms
        ]
        if message.include_synonyms
        else [],
        config_type=one.setting.kind.code if one.setting else UNKNOWN_TYPE,
        documentation=one.setting.doc if one.setting and message.include_documentation else None,
    )
