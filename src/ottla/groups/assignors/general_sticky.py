"""Sticky assignment for different subscriptions: partitions move until the load is even.

Invariant: a partition always belongs to a subscriber of its topic. If all moves together do not
make the load more even, none is made.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.groups.assignors.hash_order import HashOrder, partition_hash, text_order
from ottla.groups.assignors.previous_owners import PreviousOwners
from ottla.groups.assignors.racks import Racks
from ottla.groups.assignors.subscription import AssignmentInput
from ottla.ids import TopicPartition


class GeneralAssignment:
    """Computes one assignment."""

    def __init__(
        self,
        question: AssignmentInput,
        holdings: PreviousOwners,
        racks: Racks,
        earlier_owners: Mapping[TopicPartition, str],
    ) -> None:
        self.assigned: Final = holdings.of_member
        self._question = question
        self._racks = racks
        self._earlier_owners = earlier_owners
        self._topics_of = {
            member_id: [topic for topic in each.topics if topic in question.topics]
            for member_id, each in question.members.items()
        }
        self._reads = {key: frozenset(topics) for key, topics in self._topics_of.items()}
        self._readers_of: dict[str, list[str]] = {topic: [] for topic in question.topics}
        for member_id, topics in self._topics_of.items():
            for topic in topics:
                self._readers_of[topic].append(member_id)
        self._owner_of: dict[TopicPartition, str] = {}
        self._ladder = Ladder(())
        self._movements = Movements()
        self._may_go_back = True
        self._balanced: bool | None = None  # None: unknown since the last move

    def balance(self) -> None:
        """Keep valid assignments, assign the rest, then move partitions to even out the load."""
        must_revoke = self._drop_invalid()
        everything = self._partitions_by_readers()
        unassigned = [partition for partition in everything if partition not in self._owner_of]
        self._ladder = Ladder((key, len(held)) for key, held in self.assigned.items())
        from_nothing = self._ladder.size_max == 0
        self._hand_out(unassigned)

        fixed = {
            member_id: held
            for member_id, held in self.assigned.items()
            if not self._can_change(member_id)
        }
        for member_id, held in fixed.items():
            self._ladder.remove(member_id, len(held))
            del self.assigned[member_id]
        before = {member_id: list(held) for member_id, held in self.assigned.items()}
        if not must_revoke:
            # Moving only the new partitions may suffice.
            self._even_out(p for p in unassigned if self._is_shared(p.topic))
        moved = self._even_out(p for p in everything if self._is_shared(p.topic))
        if moved and not from_nothing and unevenness(self.assigned) >= unevenness(before):
            self.assigned.update(before)
        self.assigned.update(fixed)

    def _drop_invalid(self) -> bool:
        """Drop partitions of unsubscribed topics or other racks; return whether there were any."""
        dropped = False
        for member_id, held in self.assigned.items():
            wanted = frozenset(self._question.members[member_id].topics)
            kept = [
                partition
                for partition in held
                if partition.topic in wanted and not self._racks.mismatch(member_id, partition)
            ]
            dropped = dropped or len(kept) < len(held)
            self.assigned[member_id] = kept
            self._owner_of.update(dict.fromkeys(kept, member_id))
        return dropped

    def _partitions_by_readers(self) -> list[TopicPartition]:
        """Return all partitions, those with the fewest possible readers first."""
        topics = sorted(
            self._readers_of, key=lambda topic: (len(self._readers_of[topic]), text_order(topic))
        )
        return [each for topic in topics for each in self._question.partitions_of(topic)]

    def _hand_out(self, unassigned: Iterable[TopicPartition]) -> None:
        """Assign each partition to the least loaded reader, preferably on one of its racks."""
        left = list(unassigned)
        if self._racks.of_member:
            left = [partition for partition in left if not self._hand_near(partition)]
        for partition in left:
            self._put(partition, self._least_loaded_reader(partition))

    def _hand_near(self, partition: TopicPartition) -> bool:
        for member_id in self._ladder:
            if partition.topic in self._reads[member_id] and not self._racks.mismatch(
                member_id, partition
            ):
                self._put(partition, member_id)
                return True
        return False

    def _least_loaded_reader(self, partition: TopicPartition) -> str:
        readers = (m for m in self._ladder if partition.topic in self._reads[m])
        return next(readers)

    def _put(self, partition: TopicPartition, member_id: str) -> None:
        held = self.assigned[member_id]
        self._ladder.remove(member_id, len(held))
        held.append(partition)
        self._ladder.add(member_id, len(held))
        self._owner_of[partition] = member_id

    # What can move.

    def _is_shared(self, topic: str) -> bool:
        return len(self._readers_of[topic]) >= 2

    def _can_change(self, member_id: str) -> bool:
        """Whether a member can gain or lose a partition."""
        held = self.assigned[member_id]
        return len(held) < self._size_max(member_id) or any(
            self._is_shared(partition.topic) for partition in held
        )

    def _size_max(self, member_id: str) -> int:
        """Return how many partitions a member could have."""
        topics = self._topics_of[member_id]
        # A member with as many topics as exist is assumed to subscribe to all of them.
        counted = self._question.topics if len(topics) == len(self._question.topics) else topics
        return sum(self._question.topics[topic].partitions for topic in counted)

    # Moves.

    def _even_out(self, partitions: Iterable[TopicPartition]) -> bool:
        """Move partitions until no move helps; return whether one was made.

        Moving a partition back instead of another one may take it from a member with few, so that
        after some passes the state repeats. Java's assignors then loop for ever. Here a repeated
        state stops moves back: every other move makes the load more even, so the loop ends.
        """
        partitions = list(partitions)
        moved = False
        modified = True
        seen: set[tuple[str, ...]] = set()
        while modified:
            modified = False
            owners = tuple(self._owner_of[partition] for partition in partitions)
            self._may_go_back = self._may_go_back and owners not in seen
            seen.add(owners)
            for partition in partitions:
                if self._is_balanced():
                    break
                taker = self._taker(partition)
                if taker is not None:
                    self._move(partition, taker)
                    moved = modified = True
        return moved

    def _taker(self, partition: TopicPartition) -> str | None:
        """Return the target of a move: the earlier owner or the least loaded reader."""
        size = len(self.assigned[self._owner_of[partition]])
        earlier = self._earlier_owners.get(partition)
        if earlier is not None and size > len(self.assigned[earlier]) + 1:
            return earlier
        if any(size > len(self.assigned[m]) + 1 for m in self._readers_of[partition.topic]):
            return self._least_loaded_reader(partition)
        return None

    def _move(self, wished: TopicPartition, taker: str) -> None:
        partition = wished
        if self._may_go_back:
            partition = self._movements.better(wished, self._owner_of[wished], taker)
        giver = self._owner_of[partition]
        self._movements.note(partition, giver, taker)
        held = self.assigned[giver]
        self._ladder.remove(giver, len(held))
        held.remove(partition)
        self._ladder.add(giver, len(held))
        self._put(partition, taker)
        self._balanced = None

    def _is_balanced(self) -> bool:
        if self._balanced is None:
            self._balanced = self._find_balanced()
        return self._balanced

    def _find_balanced(self) -> bool:
        """Whether no member can read a partition of a member that has at least two more."""
        if self._ladder.size_min >= self._ladder.size_max - 1:
            return True
        size_max_of = {
            topic: max(len(self.assigned[self._owner_of[each]]) for each in partitions)
            for topic in self._question.topics
            if self._is_shared(topic) and (partitions := self._question.partitions_of(topic))
        }
        return not any(
            len(held) + 1 < size_max_of.get(topic, 0)
            for member_id, held in self.assigned.items()
            if len(held) != self._size_max(member_id)
            for topic in self._topics_of[member_id]
        )


class Ladder:
    """Members ordered by their number of partitions, then by id."""

    def __init__(self, sizes: Iterable[tuple[str, int]]) -> None:
        self._rungs = sorted((size, text_order(key), key) for key, size in sizes)

    def __iter__(self) -> Iterator[str]:
        return (key for _, _, key in self._rungs)

    @property
    def size_min(self) -> int:
        """The smallest number of partitions of a member."""
        return self._rungs[0][0]

    @property
    def size_max(self) -> int:
        """The largest number of partitions of a member."""
        return self._rungs[-1][0]

    def add(self, member_id: str, size: int) -> None:
        """Add a member."""
        insort(self._rungs, (size, text_order(member_id), member_id))

    def remove(self, member_id: str, size: int) -> None:
        """Remove a member with this number of partitions."""
        del self._rungs[bisect_left(self._rungs, (size, text_order(member_id), member_id))]


class Movements:
    """The partition moves between members so far.

    A partition has at most one movement, from its first owner to its current one; a partition that
    moved back has none. So two partitions of a topic never swap places needlessly.
    """

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: dict[tuple[str, str, str], HashOrder[TopicPartition]] = {}

    def note(self, partition: TopicPartition, giver: str, taker: str) -> None:
        """Record a move."""
        ends = self._ends.pop(partition, None)
        if ends is not None:
            giver = ends[0]
            key = (partition.topic, *ends)
            self._moved[key].discard(partition)
            if not self._moved[key]:
                del self._moved[key]
            if giver == taker:
                return
        self._ends[partition] = (giver, taker)
        key = (partition.topic, giver, taker)
        if key not in self._moved:
            self._moved[key] = HashOrder(partition_hash)
        self._moved[key].add(partition)

    def better(self, partition: TopicPartition, giver: str, taker: str) -> TopicPartition:
        """Return the partition to move: preferably one that moved the opposite way before."""
        first, _ = self._ends.get(partition, (giver, taker))
        came = self._moved.get((partition.topic, taker, first))
        return partition if came is None else next(iter(came))


def unevenness(assigned: Mapping[str, list[TopicPartition]]) -> int:
    """Return the sum of the size differences over all pairs of members."""
    sizes = sorted(map(len, assigned.values()))
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))
