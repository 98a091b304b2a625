"""AlterConfigs: replace the configs of topics or brokers."""

from collections.abc import Sequence

from ottla.protocol.apis import ALTER_CONFIGS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_string,
    string,
)


class AlterableConfig(Struct):
    name: str = string("0+")
    value: str | None = nullable_string("0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: Sequence[AlterableConfig] = array(AlterableConfig, "0+")


class AlterConfigsRequest(Message, api=ALTER_CONFIGS):
    resources: Sequence[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


class AlterConfigsResponse(Message, api=ALTER_CONFIGS):
    throttle_time_ms: int = int32("0+")
    responses: Sequence[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")
