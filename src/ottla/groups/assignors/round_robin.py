"""The `roundrobin` assignor: all partitions of all topics are dealt out like cards.

Invariant: every partition goes to the next member in the round that subscribes to its topic. Where
all subscribe to the same, no two members differ by more than one partition.
"""

from collections.abc import Mapping
from itertools import cycle

from ottla.groups.assignors.hash_order import text_order
from ottla.groups.assignors.ranges import seniority
from ottla.groups.assignors.subscription import Assignment, Subscription, TopicLayout, ask
from ottla.ids import TopicPartition


def deal_round(
    topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
) -> Assignment:
    """Deal the partitions, in the order of their names, to the members in theirs."""
    question = ask(topics, members)
    hands: dict[str, list[TopicPartition]] = {member_id: [] for member_id in question.members}
    seniors = sorted(question.members.items(), key=lambda item: seniority(*item))
    players = cycle([(member_id, frozenset(each.topics)) for member_id, each in seniors])
    for topic in sorted(question.topics, key=text_order):
        for partition in question.partitions_of(topic):
            # A topic of the question has a subscriber, so the round comes to one.
            member_id = next(member_id for member_id, wanted in players if topic in wanted)
            hands[member_id].append(partition)
    return {member_id: tuple(partitions) for member_id, partitions in hands.items()}
