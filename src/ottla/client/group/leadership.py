"""What the leader of a classic group does: it divides the partitions among the members.

Invariant: the leader divides what it knows of all topics that any member subscribed to, and
remembers that; when it changes, the group has to be divided anew. A cooperative assignment gives
nobody what another member has still.
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
    """What each member told, in the order of JoinGroup's answer."""
    return {
        one.member_id: read_subscription(one.metadata, one.group_instance_id) for one in members
    }


def topics_of(members: Mapping[str, Subscription]) -> frozenset[str]:
    """All topics that somebody subscribed to."""
    return frozenset(topic for one in members.values() for topic in one.topics)


def layouts(
    view: ClusterView, topics: Iterable[str], *, with_racks: bool
) -> dict[str, TopicLayout]:
    """How many partitions the topics have that exist, and on which racks."""
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
    """What each member gets, as SyncGroup has it."""
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
    """Refuse what would let two members have a partition at once; ours never do."""
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
                f"the assignor {assignor.name} gives {early} to {member} while {kept[early]} has "
                "it still: a cooperative one leaves it out until it was given up",
            )
