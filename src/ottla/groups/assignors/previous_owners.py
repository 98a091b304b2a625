"""What the members of a group say they had, and who of them is believed.

Invariant: a partition has at most one believed owner, and it exists. Of two who claim it the later
generation is believed; if both are of one generation neither is, and the partition is disputed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.groups.assignors.subscription import NO_GENERATION, AssignmentInput, Subscription
from ottla.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member had, in which generation."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class PreviousOwners:
    """Who is believed to hold what, and which partitions nobody is believed about."""

    of_member: dict[str, list[TopicPartition]]
    disputed: set[TopicPartition]


def settle(question: AssignmentInput, claims: Mapping[str, Claim]) -> PreviousOwners:
    """Decide between the claims of all members, in the members' order.

    A partition that no longer exists, because its topic was made anew with fewer, is nobody's.
    Java's assignors keep it, and then fail or give other partitions to two members.
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
            # As in Java the other's generation is that of its subscription, not of its user data.
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
    """Who had a partition last, by the claims of generations before the newest.

    A member that no longer subscribes to the topic is not asked to take it back. Java's assignors
    do ask it: it gets a partition that it does not read.
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
    """Tell whether all members subscribe to the same; those before the first topic do not count."""
    first: set[str] = set()
    for subscription in members.values():
        if not first:
            first = set(subscription.topics)
        elif len(subscription.topics) != len(first) or not first.issuperset(subscription.topics):
            return False
    return True
