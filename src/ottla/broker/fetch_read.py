"""Reads the partitions of a Fetch within the limits of the request.

Invariant: a partition returns whole batches, not copied until they are sent. All partitions
together return at most `bytes_max` bytes, and each at most its own limit. The first batch of the
first partition that has one is the exception: it is returned whole, so that the consumer makes
progress.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.broker.fetch_sessions import FetchPartition
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.replica_requests import Replica
from ottla.broker.replica_selection import FollowerReads
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import BrokerId, Offset, PartitionIndex, TopicPartition
from ottla.log.cached_reads import NotCached, PinnedRecords, RecordSlice
from ottla.log.disk import Reader
from ottla.log.epochs import EpochEnd
from ottla.log.segment.txn_index import AbortedTransaction
from ottla.metrics import ApiCounts
from ottla.protocol.primitives import Buffer
from ottla.records import count_records
from ottla.replication.fetch_purgatory import ReplicaWatch
from ottla.replication.partition import Partition

READ_COMMITTED: Final = 1

PINNED_BYTES_MIN: Final = 64 * 1024
"""The size from which sendfile costs less than a copy."""


def cached_records(
    found: RecordSlice, reader: Reader, *, by_sendfile: bool
) -> Buffer | PinnedRecords | None:
    """Return records where they are in the file, or their bytes; None if they are not cached."""
    if by_sendfile and found.size >= PINNED_BYTES_MIN:
        pinned = found.pinned(reader)
        if pinned is not None:
            return pinned
    return found.cached()


@dataclass(slots=True)
class PartitionRead:
    """What one partition returns."""

    wanted: FetchPartition
    topic: str
    partition: Partition | FollowerReads | None = None
    error: ErrorCode = ErrorCode.NONE
    records: Buffer | PinnedRecords = b""
    aborted: Sequence[AbortedTransaction] | None = None
    diverging: EpochEnd | None = None
    preferred_replica: BrokerId | None = None  # the consumer should read from it
    mark: int = 0  # the last mark of a follower's session, when the partition was read
    is_throttled: bool = False  # the follower's records count for the quota of this broker
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1


class Limits(NamedTuple):
    """The limits of a request."""

    bytes_max: int
    committed: bool


@dataclass(slots=True)
class ReplicaFetch:
    """The Fetch of a follower."""

    replica: Replica
    watch: ReplicaWatch
    now_s: float  # when the request arrived
    is_noted: bool = False  # the leader has noted its offsets; it does so once per request


@dataclass(slots=True)
class FetchRead:
    """The partitions of one Fetch and what they return together."""

    replica_manager: ReplicaManager
    counts: ApiCounts  # of Fetch
    limits: Limits
    by_sendfile: bool = False  # large records are sent from their files
    by_replica: ReplicaFetch | None = None
    from_followers: bool = False  # partitions that this broker follows are read, too
    prefer: Callable[[Partition, int], BrokerId | None] | None = None  # by the consumer's rack
    found: list[PartitionRead] = field(default_factory=list[PartitionRead])
    size: int = 0
    available: int = (
        0  # like `size`, but a partition with more data than its limit counts with its limit
    )
    failed: bool = False
    _cold: list[PartitionRead] = field(default_factory=list[PartitionRead])

    def take(self, wanted: FetchPartition, topic: str | None) -> None:
        """Read cached records of a partition; remember it if it has to be read from disk."""
        one = PartitionRead(wanted, topic or "")
        self.found.append(one)
        try:
            if topic is None:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = one.partition = (
                self._followed_or_led(topic, wanted.key[1])
                if self.from_followers
                else self.replica_manager.leader_partition(topic, wanted.key[1])
            )
            partition.check_epoch(wanted.current_leader_epoch)
            by_replica = self.by_replica
            if by_replica is not None:
                self._check_replica(one, partition, by_replica)
            elif self.prefer is not None and self._is_elsewhere(one, partition, self.prefer):
                return
            if self._is_diverging(one, partition):
                return
            if by_replica is not None:
                self._note_replica(one, partition, by_replica)
                if self._is_held_back(one, partition, by_replica):
                    self._give(one, partition, b"")
                    return
            upper = self._upper_offset(partition)
            room = self._room(wanted)
            found = partition.log.read_cached(wanted.offset, upper, room)
            is_given = self.size == 0 or found.size <= room
            data = (
                cached_records(found, self.reader, by_sendfile=self.by_sendfile)
                if is_given
                else b""
            )
            if data is None:
                self._cold.append(one)
            else:
                self._note_available(found, upper, room, is_given=is_given)
                if self.limits.committed:
                    self._note_aborted(one, partition, found)
                self._give(one, partition, data)
        except NotCached:
            self._cold.append(one)
        except (RequestError, StorageFailure) as error:
            self._fail(one, error)

    def _followed_or_led(self, topic: str, index: int) -> Partition | FollowerReads:
        manager = self.replica_manager
        followed = manager.followers.get(TopicPartition(topic, PartitionIndex(index)))
        if followed is None:
            return manager.leader_partition(topic, index)
        return FollowerReads(followed, manager.logs, manager.traffic_of(topic, index))

    def _is_elsewhere(
        self,
        one: PartitionRead,
        partition: Partition | FollowerReads,
        prefer: Callable[[Partition, int], BrokerId | None],
    ) -> bool:
        """Whether the consumer should read from a replica in its rack (KIP-392)."""
        if isinstance(partition, Partition):
            one.preferred_replica = prefer(partition, one.wanted.offset)
        if one.preferred_replica is None:
            return False
        self._give(one, partition, b"")
        self.failed = True  # there is nothing to wait for
        return True

    def _upper_offset(self, partition: Partition | FollowerReads) -> Offset:
        """Followers read up to the log end offset, consumers up to the high watermark (A6)."""
        if self.by_replica is not None:
            return partition.log.log_end_offset
        return partition.upper_offset(committed=self.limits.committed)

    def _check_replica(
        self, one: PartitionRead, partition: Partition | FollowerReads, fetch: ReplicaFetch
    ) -> None:
        assert isinstance(partition, Partition)
        partition.check_replica(fetch.replica.id, one.wanted.current_leader_epoch)
        fetch.watch.register(partition, one.wanted.key)

    def _note_replica(
        self, one: PartitionRead, partition: Partition | FollowerReads, fetch: ReplicaFetch
    ) -> None:
        """Note the offset of a follower, unless it is outside the log (rule A17).

        A follower whose log diverges does not get here: its offset counts for nothing (rule A2).
        """
        assert isinstance(partition, Partition)
        wanted, log = one.wanted, partition.log
        if not fetch.is_noted and log.log_start_offset <= wanted.offset <= log.log_end_offset:
            partition.follower_fetched(
                fetch.replica.id,
                fetch.replica.epoch,
                Offset(wanted.offset),
                Offset(wanted.log_start_offset),
                fetch.now_s,
            )
        one.mark = fetch.watch.marked.get(wanted.key, 0)

    def _is_held_back(
        self, one: PartitionRead, partition: Partition | FollowerReads, fetch: ReplicaFetch
    ) -> bool:
        """Whether the follower has to wait for its records, because it exceeds its quota.

        The partition stays marked, so the next Fetch of the follower visits it again.
        """
        quota = self.replica_manager.leader_quota
        if quota is None or not quota.is_limited:
            return False
        assert isinstance(partition, Partition)
        one.is_throttled = quota.is_throttled(partition.name)
        in_sync = partition.in_sync
        is_in_sync = in_sync is not None and fetch.replica.id in in_sync.state.in_sync
        return one.is_throttled and not is_in_sync and quota.is_exceeded

    @property
    def reader(self) -> Reader:
        """For whom the disk is read."""
        return Reader.CLIENT if self.by_replica is None else Reader.FOLLOWER

    @property
    def is_cold(self) -> bool:
        """Whether some partitions have to be read from disk."""
        return bool(self._cold)

    @property
    def is_outdated(self) -> bool:
        """Whether a partition has more records by now."""
        return any(
            one.partition is not None and one.partition.high_watermark != one.high_watermark
            for one in self.found
        )

    def has_unread_marks(self, watch: ReplicaWatch) -> bool:
        """Whether a partition of a follower's session was marked after it was read."""
        read = {one.wanted.key: one.mark for one in self.found}
        return any(read.get(key) != mark for key, mark in watch.marked.items())

    @property
    def cold_bytes(self) -> int:
        """The bytes that reading from disk may return, apart from the first batch."""
        return min(sum(self._room(one.wanted) for one in self._cold), self._left)

    def drop(self) -> None:
        """Drop the records: a Fetch that waits reads them again."""
        for one in self.found:
            one.records = b""
        self.size = self.available = 0

    def narrow(self, bytes_max: int) -> None:
        """Lower the limit of the whole request."""
        if bytes_max < self.limits.bytes_max:
            self.limits = self.limits._replace(bytes_max=bytes_max)

    async def take_cold(self, reserve: Callable[[int], None]) -> None:
        """Read the other partitions from disk; `reserve` gets the total size before each read."""
        cold, self._cold = self._cold, []
        for one in cold:
            partition = one.partition
            assert partition is not None
            try:
                upper = self._upper_offset(partition)
                found = await partition.log.read(
                    one.wanted.offset, upper, self._room(one.wanted), self.reader
                )
                room = self._room(one.wanted)
                is_given = self.size == 0 or found.size <= room
                self._note_available(found, self._upper_offset(partition), room, is_given=is_given)
                # Before the read: what the cleaner does while the disk is read is not in these
                # bytes.
                if self.limits.committed:
                    self._note_aborted(one, partition, found)
                data: Buffer = b""
                if is_given:
                    reserve(self.size + found.size)
                    data = await found.read(self.reader)
                self._give(one, partition, data)
            except (RequestError, StorageFailure) as error:
                self._fail(one, error)

    def count(self, one: PartitionRead) -> None:
        """Count the records that are sent, or the error; called once per partition."""
        if one.error is not ErrorCode.NONE:
            self.counts.note_error(one.error)
        elif (size := len(one.records)) and one.partition is not None:
            traffic, records = one.partition.traffic, one.records
            if self.by_replica is not None:
                self.replica_manager.replication.bytes_out += len(records)
                if one.is_throttled and (quota := self.replica_manager.leader_quota) is not None:
                    quota.record(len(records))
                    self.replica_manager.replication.throttled_bytes_out += len(records)
                return
            traffic.bytes_out += size
            is_pinned = isinstance(records, PinnedRecords)
            traffic.records_out += records.records if is_pinned else count_records(records)

    def _room(self, wanted: FetchPartition) -> int:
        return max(0, min(wanted.bytes_max, self._left))

    @property
    def _left(self) -> int:
        return self.limits.bytes_max - self.size

    def _note_available(
        self, found: RecordSlice, upper: Offset, room: int, *, is_given: bool
    ) -> None:
        """Update `available`; `upper` is the upper bound of the partition, `room` its limit.

        Records are not given if even the first batch is over the limit, while others have returned
        something. This is known before the read, so nothing is read in vain.

        Whole batches rarely fill a limit exactly. A consumer whose min.bytes equals the limit would
        otherwise wait although there are records.
        """
        given = found.size if is_given else 0
        has_more = not is_given or found.upper_offset < upper
        self.available += max(given, room) if has_more else given

    def _note_aborted(
        self, one: PartitionRead, partition: Partition | FollowerReads, found: RecordSlice
    ) -> None:
        """Set the aborted transactions that a read_committed consumer has to skip."""
        one.aborted = partition.log.aborted_transactions(one.wanted.offset, found.upper_offset)

    def _give(
        self,
        one: PartitionRead,
        partition: Partition | FollowerReads,
        data: Buffer | PinnedRecords,
    ) -> None:
        self.size += len(data)
        one.records = data
        one.high_watermark = partition.high_watermark
        one.last_stable_offset = partition.last_stable_offset
        one.log_start_offset = partition.log.log_start_offset

    def _is_diverging(self, one: PartitionRead, partition: Partition | FollowerReads) -> bool:
        """Whether the consumer's last fetched epoch diverges from this log (rule A12)."""
        epoch = one.wanted.last_fetched_epoch
        if epoch < 0:
            return False
        end = partition.log.end_offset(epoch)
        if end is None:
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if end.epoch < epoch or end.end_offset < one.wanted.offset:
            one.diverging = end
            one.high_watermark = partition.high_watermark
            one.last_stable_offset = partition.last_stable_offset
            one.log_start_offset = partition.log.log_start_offset
            self.failed = True  # there is nothing to wait for
            return True
        return False

    def _fail(self, one: PartitionRead, error: RequestError | StorageFailure) -> None:
        partition = one.partition
        if isinstance(error, StorageFailure):
            assert partition is not None
            error = partition.storage_error(error)
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE and self.by_replica is None:
            assert partition is not None
            try:
                partition.check_out_of_range(one.wanted.offset)
            except RequestError as uncertain:
                error = uncertain
        one.error = error.code
        self.failed = True
