"""Previous assignments as the members claim them, and which claims are accepted.

Invariant: an accepted claim is for an existing partition, and a partition has at most one. Of two
claims the later generation wins. If both have the same generation neither is accepted, and the
partition is disputed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.groups.assignors.subscription import NO_GENERATION, AssignmentInput, Subscription
from ottla.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """A member's partitions and their generation."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class PreviousOwners:
    """Accepted owners, and the disputed partitions."""

    of_member: dict[str, list[TopicPartition]]
    disputed: set[TopicPartition]


def settle(question: AssignmentInput, claims: Mapping[str, Claim]) -> PreviousOwners:
    """Decide between the claims of all members, in the members' order.

    A partition that no longer exists, because its topic was recreated with fewer, has no owner.
    Java's assignors keep it, and then fail or assign other partitions twice.
    """
    holdings = PreviousOwners({}, set())
    owner_of: dict[TopicPartition, str] = {}
    for member_id in question.members:
        claim = claims[member_id]
        held = holdings.of_member[member_id] = list[TopicPartition]()
        for partition in filter(question.has, claim.partitions):
            other_id = owner_of.get(partition)
            if other_id is None:
                held.append(partition)
                owner_of[partition] = member_id
                continue
            # As in Java, the other member's generation is that of its subscription, not of its user
            # data.
            other = max(NO_GENERATION, question.members[other_id].generation)
            if claim.generation < other:
                continue
            if claim.generation == other:
                holdings.disputed.add(partition)
            else:
                held.append(partition)
            if partition in holdings.of_member[other_id]:
                holdings.of_member[other_id].remove(partition)
            owner_of[partition] = member_id
    return holdings


def latest_earlier_owners(
    question: AssignmentInput, claims: Mapping[str, Claim], generation_max: int
) -> dict[TopicPartition, str]:
    """Return the last owner of each partition by the claims of earlier generations.

    A member that no longer subscribes to the topic is ignored. Java's assignors do not ignore it
    and assign it a partition that it does not read.
    """
    found: dict[TopicPartition, tuple[str, int]] = {}
    for member_id in question.members:
        claim = claims[member_id]
        if claim.generation >= generation_max:
            continue
        for partition in claim.partitions:
            before = found.get(partition)
            if before is None or claim.generation > before[1]:
                found[partition] = (member_id, claim.generation)
    return {
        partition: member_id
        for partition, (member_id, _) in found.items()
        if partition.topic in question.members[member_id].topics
    }


def all_subscribe_alike(members: Mapping[str, Subscription]) -> bool:
    """Whether all subscriptions are equal; members before the first with a topic are ignored."""
    first: set[str] = set()
    for subscription in members.values():
        if not first:
            first = set(subscription.topics)
        elif len(subscription.topics) != len(first) or not first.issuperset(subscription.topics):
            return False
    return True
