"""The sticky assignors: as even as possible, with as few moves as possible.

Invariant: every partition goes to one of its subscribers. The cooperative assignor leaves a
partition unassigned while another member owns it: the owner sees that it is missing and revokes it,
and the next rebalance assigns it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.groups.assignors.constrained_sticky import ConstrainedAssignment
from ottla.groups.assignors.general_sticky import GeneralAssignment
from ottla.groups.assignors.previous_owners import (
    Claim,
    all_subscribe_alike,
    latest_earlier_owners,
    settle,
)
from ottla.groups.assignors.racks import racks_of
from ottla.groups.assignors.subscription import (
    NO_GENERATION,
    Assignment,
    AssignmentInput,
    Subscription,
    TopicLayout,
    ask,
)
from ottla.groups.assignors.user_data import read_cooperative, read_sticky
from ottla.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class StickyOutcome:
    """An assignment, and the newest generation seen so far."""

    assignment: Assignment
    generation_max: int


@dataclass(frozen=True, slots=True)
class _Distribution:
    assigned: dict[str, list[TopicPartition]]
    transferred: Mapping[TopicPartition, str]
    generation_max: int


def assign_sticky(
    topics: Mapping[str, TopicLayout],
    members: Mapping[str, Subscription],
    generation_max: int = NO_GENERATION,
) -> StickyOutcome:
    """Assign, based on the previous assignments in user data; the members have revoked them."""
    question = ask(topics, members)
    claims = {key: read_sticky(each.user_data) for key, each in question.members.items()}
    found = _distribute(question, claims, generation_max)
    return StickyOutcome(_frozen(found.assigned), found.generation_max)


def assign_cooperatively(
    topics: Mapping[str, TopicLayout],
    members: Mapping[str, Subscription],
    generation_max: int = NO_GENERATION,
) -> StickyOutcome:
    """Assign, based on owned partitions; leave out those that change their owner."""
    question = ask(topics, members)
    claims = {key: _owned(each) for key, each in question.members.items()}
    found = _distribute(question, claims, generation_max)
    for partition, member_id in found.transferred.items():
        found.assigned[member_id].remove(partition)
    return StickyOutcome(_frozen(found.assigned), found.generation_max)


def _owned(subscription: Subscription) -> Claim:
    """Return the partitions a member owns; old clients send the generation in user data."""
    generation = subscription.generation
    if generation < 0:
        generation = read_cooperative(subscription.user_data)
    return Claim(subscription.owned, generation)


def _distribute(
    question: AssignmentInput, claims: Mapping[str, Claim], generation_max: int
) -> _Distribution:
    if not question.members:
        return _Distribution({}, {}, generation_max)
    generation_max = max(generation_max, *(claim.generation for claim in claims.values()))
    holdings = settle(question, claims)
    racks = racks_of(question)
    if all_subscribe_alike(question.members):
        filling = ConstrainedAssignment(question, holdings, racks)
        filling.fill()
        return _Distribution(filling.assigned, filling.transferred, generation_max)
    earlier_owners = latest_earlier_owners(question, claims, generation_max)
    balancing = GeneralAssignment(question, holdings, racks, earlier_owners)
    balancing.balance()
    transferred = _transferred(question.members, balancing.assigned)
    return _Distribution(balancing.assigned, transferred, generation_max)


def _transferred(
    members: Mapping[str, Subscription], assigned: Mapping[str, list[TopicPartition]]
) -> dict[TopicPartition, str]:
    """Return the partitions that get a new owner while the old one still has them."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member_id, partitions in assigned.items():
        owned = frozenset(members[member_id].owned)
        added.update({each: member_id for each in partitions if each not in owned})
        revoked |= owned.difference(partitions)
    return {partition: member_id for partition, member_id in added.items() if partition in revoked}


def _frozen(assigned: Mapping[str, list[TopicPartition]]) -> Assignment:
    return {member_id: tuple(partitions) for member_id, partitions in assigned.items()}
