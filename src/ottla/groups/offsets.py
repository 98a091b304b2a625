"""The committed offsets of a coordinator's groups.

Invariant: the committed offset of a partition is that of the latest log record, apart from open
transactions (rule F7). Of two commits the later record wins, and a deletion removes only what was
committed before it. A partition is unstable while a commit is being appended or waits for its
transaction.
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
    """The committed offset of a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None = None  # None: the broker's retention applies
    topic_id: Uuid = ZERO_UUID
    record_offset: Offset = _NOT_YET  # of the record in the log

    @classmethod
    def of_request(
        cls, asked: OffsetToCommit, now_ms: int, retention_ms: int | None
    ) -> "CommittedOffset":
        """Return what a client commits now."""
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
        """Return what a log record says."""
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
        """Whether it has expired; an expiry given by the client takes precedence."""
        if self.expires_ms is not None:
            return now_ms >= self.expires_ms
        return now_ms - idle_since_ms >= retention_ms


def _in_time(time_ms: int) -> int:
    """Clamp a time to what a record can hold."""
    return min(max(time_ms, 0), LONG_MAX)


def metadata_fits(metadata: str | None, length_max: int) -> bool:
    """Whether the metadata is not too long; Kafka counts UTF-16 units."""
    if metadata is None:
        return True
    return len(metadata.encode("utf-16-le", "surrogatepass")) <= 2 * length_max


class Offsets:
    """Committed and pending offsets of a coordinator's groups."""

    __slots__ = ("_committed", "_in_flight", "_open", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # Being appended.
        self._in_flight: dict[str, Counter[TopicPartition]] = {}
        # Of open transactions: by producer, and the producers that a partition waits for.
        self._pending: dict[ProducerId, dict[tuple[str, TopicPartition], CommittedOffset]] = {}
        self._open: dict[str, dict[TopicPartition, set[ProducerId]]] = {}

    def of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group."""
        return self._committed.get(group_id, _NOTHING)

    def touches(self, group_id: str) -> bool:
        """Whether a group has offsets, or will have."""
        return group_id in self._committed or self.is_pending(group_id)

    def is_pending(self, group_id: str) -> bool:
        """Whether commits of a group are pending."""
        return group_id in self._in_flight or group_id in self._open

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a commit for a partition is pending (rule E9)."""
        return partition in self._in_flight.get(group_id, ()) or partition in self._open.get(
            group_id, ()
        )

    def known_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions for which a group deletion writes tombstones.

        Pending ones count: their records will be before the tombstones.
        """
        known = dict.fromkeys(self.of(group_id))
        known.update(dict.fromkeys(self._in_flight.get(group_id, ())))
        known.update(dict.fromkeys(self._open.get(group_id, ())))
        return list(known)

    def committed_for(
        self, partitions: frozenset[TopicPartition]
    ) -> list[tuple[str, TopicPartition]]:
        """Return where offsets are committed or pending for deleted partitions."""
        return [(group_id, one) for group_id, one in self._everywhere() if one in partitions]

    def of_topics(self, names: Collection[str]) -> frozenset[TopicPartition]:
        """Return the partitions of topics with committed or pending offsets."""
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
        """Return the offsets of some or all partitions; a recreated topic has none."""
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

    # Pending commits.

    def send(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that records of these partitions are being appended."""
        self._in_flight.setdefault(group_id, Counter()).update(partitions)

    def settle(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that the append has a result."""
        flying = self._in_flight[group_id]
        for partition in partitions:
            flying[partition] -= 1
            if not flying[partition]:
                del flying[partition]
        if not flying:
            del self._in_flight[group_id]

    # Log records.

    def commit(self, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        """Apply a committed offset."""
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
        """Apply an offset of a transaction, decided by its end."""
        self._pending.setdefault(producer_id, {})[group_id, partition] = offset
        waiting = self._open.setdefault(group_id, {})
        waiting.setdefault(partition, set()).add(producer_id)

    def delete(self, group_id: str, partition: TopicPartition, record_offset: Offset) -> None:
        """Apply a tombstone, also to pending offsets."""
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
        """Apply a transaction marker; returns the affected groups."""
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
    """Whether the topic was recreated since the commit."""
    if topic_id is None or ZERO_UUID in (topic_id, known.topic_id):
        return False
    return known.topic_id != topic_id
