"""The leader of a classic group: computes the assignment.

Invariant: the leader assigns the partitions of all topics that any member subscribed to, and
remembers them; when they change, the group rebalances. A cooperative assignment gives no member
what another one still owns.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.network.cluster_view import ClusterView, TopicView
from ottla.errors import ErrorCode, RequestError
from ottla.groups.assignors.assignor import Assignor, RebalanceProtocol
from ottla.groups.assignors.messages import assignment_bytes, read_subscription
from ottla.groups.assignors.subscription import Assignment, Subscription, TopicLayout
from ottla.ids import TopicPartition
from ottla.protocol.messages.join_group import JoinGroupResponseMember
from ottla.protocol.messages.sync_group import SyncGroupRequestAssignment


def subscriptions(members: Sequence[JoinGroupResponseMember]) -> dict[str, Subscription]:
    """Return the subscription of each member, in the order of the JoinGroup response."""
    return {
        one.member_id: read_subscription(one.metadata, one.group_instance_id) for one in members
    }


def topics_of(members: Mapping[str, Subscription]) -> frozenset[str]:
    """Return all subscribed topics."""
    return frozenset(topic for one in members.values() for topic in one.topics)


def layouts(
    view: ClusterView, topics: Iterable[str], *, with_racks: bool
) -> dict[str, TopicLayout]:
    """Return the partition counts and racks of the existing topics."""
    known = ((topic, view.topics.get(topic)) for topic in topics)
    return {
        topic: TopicLayout(len(found.partitions), _racks(view, found) if with_racks else ())
        for topic, found in known
        if found is not None and found.partitions
    }


def _racks(view: ClusterView, topic: TopicView) -> tuple[frozenset[str], ...]:
    brokers = view.brokers
    return tuple(
        frozenset(
            rack
            for broker in one.replicas
            if broker in brokers and (rack := brokers[broker].rack) is not None
        )
        for _, one in sorted(topic.partitions.items())
    )


def divide(
    assignor: Assignor,
    protocol: RebalanceProtocol,
    topics: Mapping[str, TopicLayout],
    members: Mapping[str, Subscription],
) -> list[SyncGroupRequestAssignment]:
    """Return the assignment of each member for SyncGroup."""
    assignment = assignor.assign(topics, members)
    if protocol is RebalanceProtocol.COOPERATIVE:
        _check(assignor, assignment, members)
    return [
        SyncGroupRequestAssignment(
            member_id=member, assignment=assignment_bytes(assignment.get(member, ()))
        )
        for member in members
    ]


def _check(assignor: Assignor, assignment: Assignment, members: Mapping[str, Subscription]) -> None:
    """Refuse an assignment that gives a partition to two members; built-in assignors never do."""
    kept = {
        partition: member
        for member, one in members.items()
        for partition in frozenset(one.owned) - frozenset(assignment.get(member, ()))
    }
    for member, partitions in assignment.items():
        owned = frozenset[TopicPartition](members[member].owned)
        early = next((one for one in partitions if one not in owned and one in kept), None)
        if early is not None:
            raise RequestError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"assignor {assignor.name} assigns {early} to {member} while {kept[early]} still "
                "owns it: a cooperative assignor must wait until the partition is revoked",
            )
