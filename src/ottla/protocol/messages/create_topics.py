"""CreateTopics: create topics, or validate the request only."""

from collections.abc import Sequence

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.apis import CREATE_TOPICS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
    uuid,
)


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32("0+")
    broker_ids: Sequence[int] = array(INT32S, "0+")


class CreatableTopicConfig(Struct):
    name: str = string("0+")
    value: str | None = nullable_string("0+")


class CreatableTopic(Struct):
    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: Sequence[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: Sequence[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


class CreateTopicsRequest(Message, api=CREATE_TOPICS):
    topics: Sequence[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+", default=False)


class CreatableTopicConfigs(Struct):
    name: str = string("5+")
    value: str | None = nullable_string("5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Struct):
    name: str = string("0+")
    topic_id: Uuid = uuid("7+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("1+", ignorable=True)
    topic_config_error_code: int = int16("5+", default=0, tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: Sequence[CreatableTopicConfigs] | None = nullable_array(
        CreatableTopicConfigs, "5+", default=(), ignorable=True
    )


class CreateTopicsResponse(Message, api=CREATE_TOPICS):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: Sequence[CreatableTopicResult] = array(CreatableTopicResult, "0+")
