"""Metadata: the brokers, the topics and the leaders of partitions."""

from collections.abc import Sequence

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.apis import METADATA
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    boolean,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
    uuid,
)


class MetadataRequestTopic(Struct):
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    name: str | None = nullable_string("0+", nullable="10+")


class MetadataRequest(Message, api=METADATA):
    topics: Sequence[MetadataRequestTopic] | None = nullable_array(
        MetadataRequestTopic, "0+", nullable="1+"
    )
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = nullable_string("1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: Sequence[int] = array(INT32S, "0+")
    isr_nodes: Sequence[int] = array(INT32S, "0+")
    offline_replicas: Sequence[int] = array(INT32S, "5+", default=(), ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = nullable_string("0+", nullable="12+")
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = boolean("1+", default=False, ignorable=True)
    partitions: Sequence[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Message, api=METADATA):
    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    brokers: Sequence[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = nullable_string("2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: Sequence[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", default=0, ignorable=True)
