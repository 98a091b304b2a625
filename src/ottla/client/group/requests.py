"""The requests of a member of a classic group.

Invariant: the identity is written as the version requires; assignors are in the order of the
settings, the preferred one first.
"""

from collections.abc import Iterable
from typing import Final

from ottla.client.group.config import GroupConfig
from ottla.client.group.interfaces import GroupMember
from ottla.groups.assignors.assignor import Assignor
from ottla.groups.assignors.messages import subscription_bytes
from ottla.groups.assignors.subscription import Subscription
from ottla.ids import TopicPartition
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PROTOCOL_TYPE: Final = "consumer"

_REASON_CHARACTERS_MAX: Final = 255
_MEMBERS_SINCE: Final = 3  # the first version of LeaveGroup with several members


def join_request(
    rules: GroupConfig,
    member: GroupMember,
    assignors: Iterable[Assignor],
    topics: frozenset[str],
    owned: frozenset[TopicPartition],
    why: str,
) -> JoinGroupRequest:
    """Build a JoinGroup request."""
    protocols = [
        JoinGroupRequestProtocol(
            name=each.name,
            metadata=subscription_bytes(
                Subscription(
                    topics=tuple(topics),
                    owned=tuple(owned),
                    generation=member.generation,
                    user_data=each.user_data(),
                    rack=rules.rack,
                )
            ),
        )
        for each in assignors
    ]
    return JoinGroupRequest(
        group_id=rules.group_id,
        session_timeout_ms=int(rules.session_timeout_s * 1000),
        rebalance_timeout_ms=int(rules.poll_interval_s * 1000),
        member_id=member.member_id,
        group_instance_id=rules.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=why[:_REASON_CHARACTERS_MAX],
    )


def sync_request(
    member: GroupMember, protocol: str | None, assignments: list[SyncGroupRequestAssignment]
) -> SyncGroupRequest:
    """Build a SyncGroup request; the leader includes all assignments."""
    return SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=assignments,
    )


def heartbeat_request(member: GroupMember) -> HeartbeatRequest:
    """Build a Heartbeat request."""
    return HeartbeatRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
    )


def leave_request(member: GroupMember, why: str, version: int) -> LeaveGroupRequest:
    """Build a LeaveGroup request."""
    if version < _MEMBERS_SINCE:
        return LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
    reason = why[:_REASON_CHARACTERS_MAX]
    leaving = MemberIdentity(member_id=member.member_id, reason=reason)
    return LeaveGroupRequest(group_id=member.group_id, members=[leaving])
