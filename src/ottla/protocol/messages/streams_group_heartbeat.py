"""StreamsGroupHeartbeat: join, stay in and leave a streams group."""

from collections.abc import Sequence

from ottla.protocol.apis import STREAMS_GROUP_HEARTBEAT
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT16S,
    INT32S,
    STRINGS,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    struct,
    uint16,
)


class KeyValue(Struct):
    key: str = string("0+")
    value: str = string("0+")


class TopicInfo(Struct):
    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: Sequence[KeyValue] = array(KeyValue, "0+")


class CopartitionGroup(Struct):
    source_topics: Sequence[int] = array(INT16S, "0+")
    source_topic_regex: Sequence[int] = array(INT16S, "0+")
    repartition_source_topics: Sequence[int] = array(INT16S, "0+")


class Subtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: Sequence[str] = array(STRINGS, "0+")
    source_topic_regex: Sequence[str] = array(STRINGS, "0+")
    state_changelog_topics: Sequence[TopicInfo] = array(TopicInfo, "0+")
    repartition_sink_topics: Sequence[str] = array(STRINGS, "0+")
    repartition_source_topics: Sequence[TopicInfo] = array(TopicInfo, "0+")
    copartition_groups: Sequence[CopartitionGroup] = array(CopartitionGroup, "0+")


class Topology(Struct):
    epoch: int = int32("0+")
    subtopologies: Sequence[Subtopology] = array(Subtopology, "0+")


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class Endpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


class TaskOffset(Struct):
    subtopology_id: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")


class StreamsGroupHeartbeatRequest(Message, api=STREAMS_GROUP_HEARTBEAT):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    endpoint_information_epoch: int = int32("0+")
    instance_id: str | None = nullable_string("0+", default=None)
    rack_id: str | None = nullable_string("0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology: Topology | None = nullable_struct(Topology, "0+", default=None)
    active_tasks: Sequence[TaskIds] | None = nullable_array(TaskIds, "0+", default=None)
    standby_tasks: Sequence[TaskIds] | None = nullable_array(TaskIds, "0+", default=None)
    warmup_tasks: Sequence[TaskIds] | None = nullable_array(TaskIds, "0+", default=None)
    process_id: str | None = nullable_string("0+", default=None)
    user_endpoint: Endpoint | None = nullable_struct(Endpoint, "0+", default=None)
    client_tags: Sequence[KeyValue] | None = nullable_array(KeyValue, "0+", default=None)
    task_offsets: Sequence[TaskOffset] | None = nullable_array(TaskOffset, "0+", default=None)
    task_end_offsets: Sequence[TaskOffset] | None = nullable_array(TaskOffset, "0+", default=None)
    shutdown_application: bool = boolean("0+", default=False)


class Status(Struct):
    status_code: int = int8("0+")
    status_detail: str = string("0+")


class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = struct(Endpoint, "0+")
    active_partitions: Sequence[TopicPartition] = array(TopicPartition, "0+")
    standby_partitions: Sequence[TopicPartition] = array(TopicPartition, "0+")


class StreamsGroupHeartbeatResponse(Message, api=STREAMS_GROUP_HEARTBEAT):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    acceptable_recovery_lag: int = int32("0+")
    task_offset_interval_ms: int = int32("0+")
    status: Sequence[Status] | None = nullable_array(Status, "0+")
    active_tasks: Sequence[TaskIds] | None = nullable_array(TaskIds, "0+", default=None)
    standby_tasks: Sequence[TaskIds] | None = nullable_array(TaskIds, "0+", default=None)
    warmup_tasks: Sequence[TaskIds] | None = nullable_array(TaskIds, "0+", default=None)
    endpoint_information_epoch: int = int32("0+")
    partitions_by_user_endpoint: Sequence[EndpointToPartitions] | None = nullable_array(
        EndpointToPartitions, "0+", default=None
    )
