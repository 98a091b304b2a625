"""DescribeConfigs: settings with their values, sources and documentation."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_CONFIGS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    STRINGS,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class DescribeConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: Sequence[str] | None = nullable_array(STRINGS, "0+")


class DescribeConfigsRequest(Message, api=DESCRIBE_CONFIGS):
    resources: Sequence[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+", default=False)
    include_documentation: bool = boolean("3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: str = string("1+")
    value: str | None = nullable_string("1+")
    source: int = int8("1+")


class DescribeConfigsResourceResult(Struct):
    name: str = string("0+")
    value: str | None = nullable_string("0+")
    read_only: bool = boolean("0+")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("0+")
    synonyms: Sequence[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", default=0, ignorable=True)
    documentation: str | None = nullable_string("3+", default="", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: Sequence[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0+")


class DescribeConfigsResponse(Message, api=DESCRIBE_CONFIGS):
    throttle_time_ms: int = int32("0+")
    results: Sequence[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")
