"""ConsumerGroupDescribe: members, epochs and assignments of consumer groups (KIP-848)."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import CONSUMER_GROUP_DESCRIBE
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    STRINGS,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_string,
    string,
    struct,
    uuid,
)


class ConsumerGroupDescribeRequest(Message, api=CONSUMER_GROUP_DESCRIBE):
    group_ids: Sequence[str] = array(STRINGS, "0+")
    include_authorized_operations: bool = boolean("0+")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class Assignment(Struct):
    topic_partitions: Sequence[TopicPartitions] = array(TopicPartitions, "0+")


class Member(Struct):
    member_id: str = string("0+")
    instance_id: str | None = nullable_string("0+", default=None)
    rack_id: str | None = nullable_string("0+", default=None)
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: Sequence[str] = array(STRINGS, "0+")
    subscribed_topic_regex: str | None = nullable_string("0+", default=None)
    assignment: Assignment = struct(Assignment, "0+")
    target_assignment: Assignment = struct(Assignment, "0+")
    member_type: int = int8("1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: Sequence[Member] = array(Member, "0+")
    authorized_operations: int = int32("0+", default=-2147483648)


class ConsumerGroupDescribeResponse(Message, api=CONSUMER_GROUP_DESCRIBE):
    throttle_time_ms: int = int32("0+")
    groups: Sequence[DescribedGroup] = array(DescribedGroup, "0+")
