"""StreamsGroupDescribe: topology, members and tasks of streams groups."""

from collections.abc import Sequence

from ottla.protocol.apis import STREAMS_GROUP_DESCRIBE
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    STRINGS,
    Struct,
    array,
    boolean,
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


class StreamsGroupDescribeRequest(Message, api=STREAMS_GROUP_DESCRIBE):
    group_ids: Sequence[str] = array(STRINGS, "0+")
    include_authorized_operations: bool = boolean("0+")


class KeyValue(Struct):
    key: str = string("0+")
    value: str = string("0+")


class TopicInfo(Struct):
    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: Sequence[KeyValue] = array(KeyValue, "0+")


class Subtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: Sequence[str] = array(STRINGS, "0+")
    repartition_sink_topics: Sequence[str] = array(STRINGS, "0+")
    state_changelog_topics: Sequence[TopicInfo] = array(TopicInfo, "0+")
    repartition_source_topics: Sequence[TopicInfo] = array(TopicInfo, "0+")


class Topology(Struct):
    epoch: int = int32("0+")
    subtopologies: Sequence[Subtopology] | None = nullable_array(Subtopology, "0+", default=None)


class Endpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


class TaskOffset(Struct):
    subtopology_id: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class Assignment(Struct):
    active_tasks: Sequence[TaskIds] = array(TaskIds, "0+")
    standby_tasks: Sequence[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: Sequence[TaskIds] = array(TaskIds, "0+")


class Member(Struct):
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = nullable_string("0+", default=None)
    rack_id: str | None = nullable_string("0+", default=None)
    client_id: str = string("0+")
    client_host: str = string("0+")
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = nullable_struct(Endpoint, "0+", default=None)
    client_tags: Sequence[KeyValue] = array(KeyValue, "0+")
    task_offsets: Sequence[TaskOffset] = array(TaskOffset, "0+")
    task_end_offsets: Sequence[TaskOffset] = array(TaskOffset, "0+")
    assignment: Assignment = struct(Assignment, "0+")
    target_assignment: Assignment = struct(Assignment, "0+")
    is_classic: bool = boolean("0+")


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    topology: Topology | None = nullable_struct(Topology, "0+", default=None)
    members: Sequence[Member] = array(Member, "0+")
    authorized_operations: int = int32("0+", default=-2147483648)


class StreamsGroupDescribeResponse(Message, api=STREAMS_GROUP_DESCRIBE):
    throttle_time_ms: int = int32("0+")
    groups: Sequence[DescribedGroup] = array(DescribedGroup, "0+")
