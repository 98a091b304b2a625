"""The committed offsets of the groups of one coordinator.

Invariant: what is committed for a partition is the latest record of the log, pending ones of open
transactions aside (rule F7): of two commits that are carried out in another order the later record
wins, and a deletion removes only what was committed before it. A partition is unstable while a
commit for it is on its way to the log or waits for the end of its transaction.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.errors import ErrorCode
from ottla.groups.responses import FetchedOffset
from ottla.groups.types import OffsetToCommit
from ottla.ids import ZERO_UUID, Offset, ProducerId, TopicPartition, Uuid
from ottla.protocol.offsets_topic import OffsetCommitValue
from ottla.settings.config_types import LONG_MAX

_NOT_YET: Offset = Offset(-1)
_NOTHING: Mapping[TopicPartition, "CommittedOffset"] = MappingProxyType({})


class CommittedOffset(NamedTuple):
    """How far a group has come in a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None = None  # None: the retention of the broker holds
    topic_id: Uuid = ZERO_UUID
    record_offset: Offset = _NOT_YET  # of the record that says so

    @classmethod
    def of_request(
        cls, asked: OffsetToCommit, now_ms: int, retention_ms: int | None
    ) -> "CommittedOffset":
        """What a client commits now."""
        return cls(
            offset=asked.offset,
            leader_epoch=asked.leader_epoch,
            metadata=asked.metadata or "",
            committed_ms=now_ms,
            expires_ms=None if retention_ms is None else _in_time(now_ms + retention_ms),
            topic_id=asked.topic_id,
        )

    @classmethod
    def of_record(cls, value: OffsetCommitValue, record_offset: Offset) -> "CommittedOffset":
        """What the log says."""
        expires_ms = value.expire_timestamp
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            committed_ms=value.commit_timestamp,
            expires_ms=None if expires_ms < 0 else expires_ms,
            topic_id=value.topic_id,
            record_offset=record_offset,
        )

    def expired(self, idle_since_ms: int, now_ms: int, retention_ms: int) -> bool:
        """True when nobody needs it any more; a time that the client gave counts before all."""
        if self.expires_ms is not None:
            return now_ms >= self.expires_ms
        return now_ms - idle_since_ms >= retention_ms


def _in_time(time_ms: int) -> int:
    """A time that a record can hold, whatever the client thinks of."""
    return min(max(time_ms, 0), LONG_MAX)


def metadata_fits(metadata: str | None, length_max: int) -> bool:
    """True when a note is not too long; Kafka counts UTF-16 units, not bytes."""
    if metadata is None:
        return True
    return len(metadata.encode("utf-16-le", "surrogatepass")) <= 2 * length_max


class Offsets:
    """What the groups of a coordinator have committed, and what is on its way."""

    __slots__ = ("_committed", "_in_flight", "_open", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # Sent to the log, no outcome yet.
        self._in_flight: dict[str, Counter[TopicPartition]] = {}
        # Of open transactions: by producer, and which producers a partition waits for.
        self._pending: dict[ProducerId, dict[tuple[str, TopicPartition], CommittedOffset]] = {}
        self._open: dict[str, dict[TopicPartition, set[ProducerId]]] = {}

    def of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """What a group has committed."""
        return self._committed.get(group_id, _NOTHING)

    def touches(self, group_id: str) -> bool:
        """True when a group has offsets, or will have."""
        return group_id in self._committed or self.is_pending(group_id)

    def is_pending(self, group_id: str) -> bool:
        """True when commits of a group have no outcome yet."""
        return group_id in self._in_flight or group_id in self._open

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """True when a commit for a partition has no outcome yet (rule E9)."""
        return partition in self._in_flight.get(group_id, ()) or partition in self._open.get(
            group_id, ()
        )

    def known_partitions(self, group_id: str) -> list[TopicPartition]:
        """The partitions whose records a deletion of the group has to delete.

        Those on their way count: their records will stand before the tombstones.
        """
        known = dict.fromkeys(self.of(group_id))
        known.update(dict.fromkeys(self._in_flight.get(group_id, ())))
        known.update(dict.fromkeys(self._open.get(group_id, ())))
        return list(known)

    def committed_for(
        self, partitions: frozenset[TopicPartition]
    ) -> list[tuple[str, TopicPartition]]:
        """Where something is committed, or may be, for partitions that are gone."""
        return [(group_id, one) for group_id, one in self._everywhere() if one in partitions]

    def of_topics(self, names: Collection[str]) -> frozenset[TopicPartition]:
        """The partitions of some topics for which something is committed, or may be."""
        return frozenset(one for _, one in self._everywhere() if one.topic in names)

    def _everywhere(self) -> Iterator[tuple[str, TopicPartition]]:
        for group_id in dict.fromkeys([*self._committed, *self._open, *self._in_flight]):
            for partition in self.known_partitions(group_id):
                yield group_id, partition

    def fetch(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        topic_ids: Mapping[str, Uuid],
    ) -> dict[TopicPartition, FetchedOffset]:
        """What is committed for these partitions, or for all; a topic made anew has nothing."""
        committed = self.of(group_id)
        if partitions is None:
            partitions = self.known_partitions(group_id) if require_stable else tuple(committed)
        answer: dict[TopicPartition, FetchedOffset] = {}
        for partition in partitions:
            known = committed.get(partition)
            if require_stable and self.is_unstable(group_id, partition):
                answer[partition] = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            elif known is None or _of_another_topic(known, topic_ids.get(partition.topic)):
                answer[partition] = FetchedOffset()
            else:
                answer[partition] = FetchedOffset(
                    known.offset, known.leader_epoch, known.metadata, known.topic_id
                )
        return answer

    # Commits on their way.

    def send(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that records of these partitions are sent to the log."""
        self._in_flight.setdefault(group_id, Counter()).update(partitions)

    def settle(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that they have their outcome."""
        flying = self._in_flight[group_id]
        for partition in partitions:
            flying[partition] -= 1
            if not flying[partition]:
                del flying[partition]
        if not flying:
            del self._in_flight[group_id]

    # What the log says.

    def commit(self, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        """A record says how far a group has come."""
        offsets = self._committed.setdefault(group_id, {})
        known = offsets.get(partition)
        if known is None or known.record_offset < offset.record_offset:
            offsets[partition] = offset

    def commit_pending(
        self,
        producer_id: ProducerId,
        group_id: str,
        partition: TopicPartition,
        offset: CommittedOffset,
    ) -> None:
        """A record of a transaction says it; the transaction's end decides."""
        self._pending.setdefault(producer_id, {})[group_id, partition] = offset
        waiting = self._open.setdefault(group_id, {})
        waiting.setdefault(partition, set()).add(producer_id)

    def delete(self, group_id: str, partition: TopicPartition, record_offset: Offset) -> None:
        """A tombstone at this offset says that nothing is committed, pending or not."""
        offsets = self._committed.get(group_id, {})
        known = offsets.get(partition)
        if known is not None and known.record_offset < record_offset:
            del offsets[partition]
            if not offsets:
                del self._committed[group_id]
        for producer_id in tuple(self._open.get(group_id, {}).get(partition, ())):
            if self._pending[producer_id][group_id, partition].record_offset < record_offset:
                self._take_pending(producer_id, group_id, partition)

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> set[str]:
        """A marker says what becomes of a transaction's offsets; these groups had some."""
        ended = tuple(self._pending.get(producer_id, ()))
        for group_id, partition in ended:
            offset = self._take_pending(producer_id, group_id, partition)
            if committed:
                self.commit(group_id, partition, offset)
        return {group_id for group_id, _ in ended}

    def _take_pending(
        self, producer_id: ProducerId, group_id: str, partition: TopicPartition
    ) -> CommittedOffset:
        pending = self._pending[producer_id]
        offset = pending.pop((group_id, partition))
        if not pending:
            del self._pending[producer_id]
        waiting = self._open[group_id]
        waiting[partition].remove(producer_id)
        if not waiting[partition]:
            del waiting[partition]
        if not waiting:
            del self._open[group_id]
        return offset


def _of_another_topic(known: CommittedOffset, topic_id: Uuid | None) -> bool:
    """True when the topic was deleted and made anew since the commit."""
    if topic_id is None or ZERO_UUID in (topic_id, known.topic_id):
        return False
    return known.topic_id != topic_id
