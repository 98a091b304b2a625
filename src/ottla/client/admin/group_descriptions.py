"""Group descriptions from the three requests that return them.

Invariant: member metadata is decoded only for consumers; what cannot be decoded is kept as bytes
and is not an error.
"""

from dataclasses import dataclass
from typing import Final

from ottla.client.admin.operations import Operation, operations
from ottla.client.calls.results import refused
from ottla.client.partitions import Partition, in_order
from ottla.errors import ErrorCode, ProtocolViolation, RequestError
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_embedded,
)
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    Member,
)
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.share_group_describe import Assignment as ShareAssignment
from ottla.protocol.messages.share_group_describe import Member as ShareMember
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeResponse

CONSUMER: Final = "consumer"
"""The protocol type of consumers."""

SHARE: Final = "share"

_DEAD: Final = "Dead"  # what brokers before 3.9 return for a group that does not exist


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[Partition, ...]
    target_assignment: tuple[Partition, ...] | None = None
    """The target assignment; only of KIP-848 groups."""

    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    rack: str | None = None
    epoch: int | None = None
    metadata: bytes = b""
    """As a classic member sent it; other protocol types than consumer are opaque."""

    assignment_data: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members."""

    id: str
    type: str
    """"classic" or "consumer" (KIP-848)."""

    state: str
    protocol_type: str
    assignor: str
    """The assignor; "" while the group has not chosen one."""

    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    operations: frozenset[Operation] | None = None
    """The operations that the caller may perform; None if not requested."""


def modern_described(
    answer: ConsumerGroupDescribeResponse | ShareGroupDescribeResponse, kind: str
) -> dict[str, GroupDescription | RequestError]:
    """Return groups whose state is at the coordinator: CONSUMER or SHARE."""
    return {
        one.group_id: refused(one.error_code, one.group_id, one.error_message)
        or GroupDescription(
            id=one.group_id,
            type=kind,
            state=one.group_state,
            protocol_type=kind,
            assignor=one.assignor_name,
            members=tuple(map(_modern, one.members)),
            epoch=one.group_epoch,
            assignment_epoch=one.assignment_epoch,
            operations=operations(one.authorized_operations),
        )
        for one in answer.groups
    }


def _modern(told: Member | ShareMember) -> MemberDescription:
    consumer = told if isinstance(told, Member) else None
    return MemberDescription(
        id=told.member_id,
        instance_id=consumer and consumer.instance_id,
        client_id=told.client_id,
        host=told.client_host,
        assignment=_assigned(told.assignment),
        target_assignment=consumer and _assigned(consumer.target_assignment),
        topics=tuple(sorted(told.subscribed_topic_names)),
        topic_pattern=(consumer and consumer.subscribed_topic_regex) or None,
        rack=told.rack_id,
        epoch=told.member_epoch,
    )


def _assigned(told: Assignment | ShareAssignment) -> tuple[Partition, ...]:
    return in_order((one.topic_name, one.partitions) for one in told.topic_partitions)


def classic_described(
    answer: DescribeGroupsResponse,
) -> dict[str, GroupDescription | RequestError]:
    """Return classic groups."""
    return {one.group_id: _classic(one) for one in answer.groups}


def _classic(told: DescribedGroup) -> GroupDescription | RequestError:
    error = refused(told.error_code, told.group_id, told.error_message)
    if error is None and told.group_state == _DEAD:
        error = refused(ErrorCode.GROUP_ID_NOT_FOUND, told.group_id)
    return error or GroupDescription(
        id=told.group_id,
        type="classic",
        state=told.group_state,
        protocol_type=told.protocol_type,
        assignor=told.protocol_data,
        members=tuple(
            _member(one, is_consumer=told.protocol_type == CONSUMER) for one in told.members
        ),
        operations=operations(told.authorized_operations),
    )


def _member(told: DescribedGroupMember, *, is_consumer: bool) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assignment: tuple[Partition, ...] = ()
    if is_consumer:
        try:
            if told.member_metadata:
                subscription = decode_embedded(
                    ConsumerProtocolSubscription, told.member_metadata, 0
                )
                topics = tuple(sorted(subscription.topics))
            if told.member_assignment:
                assigned = decode_embedded(ConsumerProtocolAssignment, told.member_assignment, 0)
                assignment = in_order(
                    (one.topic, one.partitions) for one in assigned.assigned_partitions
                )
        except ProtocolViolation:
            pass  # kept as bytes
    return MemberDescription(
        id=told.member_id,
        instance_id=told.group_instance_id,
        client_id=told.client_id,
        host=told.client_host,
        assignment=assignment,
        topics=topics,
        metadata=told.member_metadata,
        assignment_data=told.member_assignment,
    )
