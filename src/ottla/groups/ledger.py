"""All groups of a coordinator with their offsets, as in the partition's log.

Invariant: replaying the same records and markers in order gives the same groups and offsets, apart
from sessions and requests. A group with offsets is known; a known group has members, offsets, a
record in the log, or an assigned member id.
"""

from ottla.groups.group import ClassicGroup, group_of
from ottla.groups.offsets import CommittedOffset, Offsets
from ottla.ids import NO_PRODUCER_ID, Offset, PartitionIndex, ProducerId, TopicPartition
from ottla.protocol.offsets_topic import (
    TYPES,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.primitives import Buffer


class Ledger:
    """The groups by id, and their committed offsets."""

    __slots__ = ("groups", "offsets")

    def __init__(self) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()

    def group(self, group_id: str) -> ClassicGroup:
        """Return a group; creates a simple one if necessary."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group

    def sweep(self, group_id: str) -> None:
        """Forget a group with nothing left."""
        group = self.groups.get(group_id)
        if group is not None and group.is_trace and not self.offsets.touches(group_id):
            del self.groups[group_id]

    # Log records.

    def replay(
        self,
        record_offset: Offset,
        key: Buffer | None,
        value: Buffer | None,
        producer_id: ProducerId = NO_PRODUCER_ID,
    ) -> None:
        """Apply a record; `producer_id` is that of a transactional batch.

        Records of other group types and of later releases are ignored. An unreadable record raises
        ProtocolViolation and changes nothing.
        """
        known = None if key is None else TYPES.decode_key(key)
        if not isinstance(known, GroupMetadataKey | OffsetCommitKey):
            return
        body = None if value is None else TYPES.decode_value(known, value)
        if isinstance(known, GroupMetadataKey):
            self._replay_group(known.group, body)
            return
        partition = TopicPartition(known.topic, PartitionIndex(known.partition))
        if body is None:
            self.delete(known.group, partition, record_offset)
        else:
            assert isinstance(body, OffsetCommitValue)
            offset = CommittedOffset.of_record(body, record_offset)
            self.commit(known.group, partition, offset, producer_id)

    def _replay_group(self, group_id: str, value: object) -> None:
        if value is None:
            self.groups.pop(group_id, None)
            if self.offsets.touches(group_id):
                self.group(group_id)
        else:
            assert isinstance(value, GroupMetadataValue)
            self.groups[group_id] = group_of(group_id, value)

    def commit(
        self,
        group_id: str,
        partition: TopicPartition,
        offset: CommittedOffset,
        producer_id: ProducerId = NO_PRODUCER_ID,
    ) -> None:
        """Apply a committed offset, final or of a transaction."""
        self.group(group_id)
        if producer_id == NO_PRODUCER_ID:
            self.offsets.commit(group_id, partition, offset)
        else:
            self.offsets.commit_pending(producer_id, group_id, partition, offset)

    def delete(self, group_id: str, partition: TopicPartition, record_offset: Offset) -> None:
        """Apply a tombstone of an offset."""
        self.offsets.delete(group_id, partition, record_offset)
        self.sweep(group_id)

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """Apply a transaction marker."""
        for group_id in self.offsets.end_transaction(producer_id, committed=committed):
            self.sweep(group_id)
