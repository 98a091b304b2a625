"""DescribeConfigs: every config of topics and brokers, with the source of its value.

A broker also returns its version and its traffic, which Kafka's protocol has no fields for, as
read-only configs. They are not among all configs: a client must ask for them by their names.
"""

from collections.abc import Iterable
from itertools import dropwhile
from typing import Final

from ottla.broker.configs import broker_named, without_settings
from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.traffic_window import TrafficWindow
from ottla.cluster.traffic import TRAFFIC_CONFIG, format_traffic
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

LONG_VALUES: Final = 4  # the first version in which a value can have more than 32 KB

TIMEOUT_S: Final = 10.0  # of a request to another broker


def _reported(name: str, value: str) -> ConfigEntry:
    """Return something that a broker reports about itself as a config."""
    source = ConfigSource.STATIC_BROKER_CONFIG
    return ConfigEntry(name, None, value, source, (), read_only=True, sensitive=False)


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
        traffic: TrafficWindow,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._metadata_cache = metadata_cache
        self._scheduler = scheduler
        self._channels = channels
        self._traffic = traffic

    def handle(self, request: Request, connection: Connection) -> Response | DeferredResponse:
        """Describe each resource."""
        message = request.message
        assert isinstance(message, DescribeConfigsRequest)
        if request.version < LONG_VALUES:
            message = DescribeConfigsRequest(
                resources=[*map(_without_traffic, message.resources)],
                include_synonyms=message.include_synonyms,
                include_documentation=message.include_documentation,
            )
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
            if keys and asked.resource_type == BROKER:
                configs += [_setting(message, one) for one in self._reports(keys)]
        except RequestError as error:
            code, text = error.code, error.message
        return DescribeConfigsResult(
            error_code=int(code),
            error_message=text,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=configs,
        )

    def _reports(self, names: Iterable[str]) -> Iterable[ConfigEntry]:
        for name in names:
            if name == VERSION_CONFIG:
                yield _reported(name, RELEASE)
            elif name == TRAFFIC_CONFIG:
                traffic = self._traffic
                yield _reported(name, format_traffic(traffic.seconds, traffic.rates()))

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


def _without_traffic(asked: DescribeConfigsResource) -> DescribeConfigsResource:
    """Return what an older client asks for: the traffic can be too long for its version."""
    keys = asked.configuration_keys
    if not keys:
        return asked
    return DescribeConfigsResource(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        # Without any key, the broker would describe all configs.
        configuration_keys=["" if one == TRAFFIC_CONFIG else one for one in keys],
    )


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
