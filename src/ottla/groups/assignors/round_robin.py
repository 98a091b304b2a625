"""The `roundrobin` assignor: partitions of all topics are assigned in turn.

Invariant: every partition goes to the next member in the round that subscribes to its topic. If all
members have the same subscription, their counts differ by at most one.
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
    """Assign partitions in the order of topic names to members in their order."""
    question = ask(topics, members)
    hands: dict[str, list[TopicPartition]] = {member_id: [] for member_id in question.members}
    seniors = sorted(question.members.items(), key=lambda item: seniority(*item))
    players = cycle([(member_id, frozenset(each.topics)) for member_id, each in seniors])
    for topic in sorted(question.topics, key=text_order):
        for partition in question.partitions_of(topic):
            # Every topic here has a subscriber, so the round reaches one.
            member_id = next(member_id for member_id, wanted in players if topic in wanted)
            hands[member_id].append(partition)
    return {member_id: tuple(partitions) for member_id, partitions in hands.items()}
