"""The `range` assignor: each topic is split into one range per subscriber.

Invariant: of every topic a subscriber gets the same number of partitions, or one more. Topics with
the same number of partitions and the same subscribers are split alike, also by racks.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.groups.assignors.hash_order import partition_order, text_order
from ottla.groups.assignors.racks import racks_count
from ottla.groups.assignors.subscription import (
    Assignment,
    AssignmentInput,
    Subscription,
    TopicLayout,
    ask,
)
from ottla.ids import PartitionIndex, TopicPartition

_Taken = dict[str, list[TopicPartition]]


def seniority(member_id: str, subscription: Subscription) -> tuple[bool, bytes]:
    """Return a sort key: static members first, by instance id, then the others by member id."""
    instance_id = subscription.group_instance_id
    return instance_id is None, text_order(member_id if instance_id is None else instance_id)


def assign_ranges(
    topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]
) -> Assignment:
    """Split each topic into ranges, rack-aware where racks matter."""
    question = ask(topics, members)
    taken: _Taken = {member_id: [] for member_id in question.members}
    ranges = _topic_ranges(question, taken)
    rack_aware = any(each.racks_count for each in ranges)
    if rack_aware:
        _take_near(ranges)
    for each in ranges:
        each.take(lambda _member_id, _index: True)
    if rack_aware:
        for partitions in taken.values():
            partitions.sort(key=partition_order)
    return {member_id: tuple(partitions) for member_id, partitions in taken.items()}


def _topic_ranges(question: AssignmentInput, taken: _Taken) -> list["_TopicRanges"]:
    seniors = sorted(question.members.items(), key=lambda item: seniority(*item))
    racks_by_topic: dict[str, dict[str, str | None]] = {topic: {} for topic in question.topics}
    for member_id, subscription in seniors:
        for topic in subscription.topics:
            if topic in racks_by_topic:
                racks_by_topic[topic][member_id] = subscription.rack or None
    return [
        _TopicRanges(topic, layout, racks_by_topic[topic], taken)
        for topic, layout in question.topics.items()
    ]


def _take_near(ranges: Sequence["_TopicRanges"]) -> None:
    """Assign partitions with a replica on the member's rack; equal topics move together."""
    alike: defaultdict[tuple[frozenset[str], int], list[_TopicRanges]] = defaultdict(list)
    for each in ranges:
        alike[frozenset(each.rack_of), len(each.racks)].append(each)
    for group in alike.values():
        if len(group) > 1:
            _take_together(group)
        elif group[0].racks_count:
            group[0].take(group[0].near)


def _take_together(group: Sequence["_TopicRanges"]) -> None:
    """Assign each index of all topics to the first member whose rack matches all of them."""
    waiting = list(group[0].rack_of)
    for index in range(len(group[0].racks)):
        for member_id in waiting:
            if all(each.near(member_id, index) and each.room(member_id) for each in group):
                break
        else:
            continue
        for each in group:
            each.give(member_id, [index])
        if not any(each.room(member_id) for each in group):
            waiting.remove(member_id)


class _TopicRanges:
    """The state of one topic during the assignment."""

    def __init__(
        self, topic: str, layout: TopicLayout, rack_of: Mapping[str, str | None], taken: _Taken
    ) -> None:
        self.topic: Final = topic
        self.rack_of: Final = rack_of  # by subscriber, in the order of assignment
        member_racks = {rack for rack in rack_of.values() if rack}
        indexes = range(layout.partitions)
        self.racks: Final = [layout.racks_of(index) for index in indexes] if member_racks else []
        self.racks_count: Final = racks_count(member_racks, self.racks)
        self._taken = taken
        self._left = dict.fromkeys(indexes)
        self._count = dict.fromkeys(rack_of, 0)
        self._share, self._extras = divmod(layout.partitions, len(rack_of))

    def near(self, member_id: str, index: int) -> bool:
        """Whether a member has no rack, or the partition has a replica on it."""
        rack = self.rack_of[member_id]
        return rack is None or (index < len(self.racks) and rack in self.racks[index])

    def room(self, member_id: str) -> int:
        """Return how many more partitions a member may have."""
        return max(0, self._share + (self._extras > 0) - self._count[member_id])

    def give(self, member_id: str, indexes: Sequence[int]) -> None:
        """Assign partitions to a member."""
        self._taken[member_id] += [TopicPartition(self.topic, PartitionIndex(i)) for i in indexes]
        self._count[member_id] += len(indexes)
        if self._count[member_id] > self._share:
            self._extras -= 1
        for index in indexes:
            del self._left[index]

    def take(self, may_have: Callable[[str, int], bool]) -> None:
        """Assign the remaining partitions that `may_have` allows, member by member."""
        for member_id in self.rack_of:
            fitting = [index for index in self._left if may_have(member_id, index)]
            indexes = fitting[: self.room(member_id)]
            if indexes:
                self.give(member_id, indexes)
