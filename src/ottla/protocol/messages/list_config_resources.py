"""ListConfigResources: the resources that have configs."""

from collections.abc import Sequence

from ottla.protocol.apis import LIST_CONFIG_RESOURCES
from ottla.protocol.message import Message
from ottla.protocol.schema import INT8S, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, api=LIST_CONFIG_RESOURCES):
    resource_types: Sequence[int] = array(INT8S, "1+", default=())


class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api=LIST_CONFIG_RESOURCES):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: Sequence[ConfigResource] = array(ConfigResource, "0+")
