"""A partition that this broker leads, and its log.

Invariant: `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`. Consumers
read below the high watermark (rule A6), or below the last stable offset. With one replica the high
watermark is the log end offset.

A StorageFailure of the log takes its data directory offline; the client gets KAFKA_STORAGE_ERROR.
"""

from collections.abc import Callable
from typing import Final

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import LeaderEpoch, Offset, TopicPartition, Uuid
from ottla.log.appender import Appended
from ottla.log.cached_reads import RecordSlice
from ottla.log.flusher import GroupCommit
from ottla.log.loading import HostedLog
from ottla.log.log_manager import LogManager
from ottla.log.names import LOG_START_OFFSETS
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.timestamps import FoundOffset
from ottla.metrics import TopicCounts
from ottla.records.batch import TRANSACTIONAL
from ottla.records.recompression import recompress
from ottla.records.validation import ValidationConfig, ValidBatch, validate
from ottla.replication.fetch_purgatory import DelayedFetch

NO_TRANSACTIONS: Final = "transactions are not supported by this broker"

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


class Partition:
    """A partition that this broker leads."""

    __slots__ = (
        "_hosted",
        "_logs",
        "high_watermark",
        "in_sync_min",
        "internal",
        "leader_epoch",
        "log",
        "rules",
        "topic_id",
        "traffic",
        "waiting",
    )

    def __init__(
        self,
        logs: LogManager,
        hosted: HostedLog,
        topic_id: Uuid,
        leader_epoch: LeaderEpoch,
        rules: ValidationConfig,
        in_sync_min: int,
        traffic: TopicCounts | None = None,
    ) -> None:
        self._logs = logs
        self._hosted = hosted
        self.log: PartitionLog = hosted.log
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.rules = rules
        self.in_sync_min = in_sync_min
        self.traffic = traffic or TopicCounts()  # shared by the partitions of the topic
        self.internal = hosted.partition.topic in INTERNAL_TOPICS
        self.high_watermark = hosted.log.log_end_offset
        self.waiting: dict[DelayedFetch, None] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, epoch {self.leader_epoch})"

    @property
    def name(self) -> TopicPartition:
        """The topic and the partition number."""
        return self._hosted.partition

    # Appends.

    def append(
        self, records: memoryview, *, produce_version: int, acks: int, now_ms: int
    ) -> Appended:
        """Validate and append a batch of a client (rules A8 and D1).

        Raises WouldBlock before any change if the work belongs in a thread: see `append_in_thread`.
        """
        if self.internal or self.in_sync_min > 1:
            self._check_taken(acks)
        valid, records = _stored(
            records, self.rules, produce_version=produce_version, now_ms=now_ms, nonblocking=True
        )
        return self.append_valid(valid, records, now_ms=now_ms)

    async def append_in_thread(
        self,
        records: memoryview,
        is_led: Callable[[], object],
        *,
        produce_version: int,
        acks: int,
        now_ms: int,
    ) -> Appended:
        """Do the same with the work in a thread; `is_led` raises if leadership was lost."""
        self._check_taken(acks)
        rules = self.rules
        valid, records = await self._logs.disk.working(
            lambda: _stored(records, rules, produce_version=produce_version, now_ms=now_ms)
        )
        is_led()
        return self.append_valid(valid, records, now_ms=now_ms)

    def _check_taken(self, acks: int) -> None:
        if self.internal:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{self.name.topic} is an internal topic: clients cannot produce to it",
            )
        if acks == -1 and self.in_sync_min > 1:
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas is {self.in_sync_min}, 1 replica is in sync",
            )

    def append_valid(
        self, valid: ValidBatch, records: memoryview, *, now_ms: int, from_client: bool = True
    ) -> Appended:
        """Append a validated batch, or a batch of this broker."""
        try:
            appended = self.log.append(
                valid,
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                from_client=from_client,
            )
        except StorageFailure as failure:
            raise self.storage_error(failure) from failure
        if not appended.duplicate:
            traffic = self.traffic
            traffic.bytes_in += len(records)
            traffic.records_in += appended.last_offset - appended.base_offset + 1
            self._advance_high_watermark(Offset(appended.last_offset + 1), len(records))
        return appended

    def _advance_high_watermark(self, offset: Offset, appended_bytes: int) -> None:
        """Make records readable, and notify the fetches that wait for them."""
        self.high_watermark = offset
        if self.waiting:
            for one in [*self.waiting]:
                one.note(appended_bytes)

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages delays the acknowledgement until a flush (rule C5)."""
        return self._hosted.commit.wanted(self.log.log_end_offset)

    @property
    def commit(self) -> GroupCommit:
        """Flushes the log for waiters, and finishes them when their offset is on the device."""
        return self._hosted.commit

    async def durable(self, offset: int) -> None:
        """Return when everything below an offset is on the device."""
        try:
            await self._hosted.commit.durable(offset)
        except StorageFailure as failure:
            raise self.storage_error(failure) from failure

    def storage_error(self, failure: StorageFailure) -> RequestError:
        """Take the data directory offline; return the error for the client."""
        self._logs.fail(self._hosted.directory, failure)
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))

    # Reads.

    def check_epoch(self, known: int) -> None:
        """Fence a client with another leader epoch (rule A3); -1 means that it knows none."""
        if known < 0 or known == self.leader_epoch:
            return
        if known < self.leader_epoch:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH)
        raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    @property
    def last_stable_offset(self) -> Offset:
        """The upper bound for read_committed consumers (rule E7)."""
        return self.log.last_stable_offset(self.high_watermark)

    def upper_offset(self, *, committed: bool) -> Offset:
        """The upper bound for a consumer (rule A6)."""
        return self.last_stable_offset if committed else self.high_watermark

    def read_cached(self, offset: int, bytes_max: int, *, committed: bool) -> RecordSlice:
        """The records from an offset on; NotCached if the device must be read."""
        return self.log.read_cached(offset, self.upper_offset(committed=committed), bytes_max)

    async def read(self, offset: int, bytes_max: int, *, committed: bool) -> RecordSlice:
        """Do the same, and wait for the device."""
        return await self.log.read(offset, self.upper_offset(committed=committed), bytes_max)

    async def find(self, timestamp: int, *, committed: bool) -> FoundOffset | None:
        """Find the offset for a ListOffsets timestamp, or for one of its special values."""
        upper = self.upper_offset(committed=committed)
        epochs = self.log.epochs
        if timestamp == LATEST:
            return FoundOffset(upper, -1, self.leader_epoch)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = self.log.log_start_offset
            epoch = epochs.epoch_of(start)
            return FoundOffset(start, -1, LeaderEpoch(-1 if epoch is None else epoch))
        try:
            if timestamp == MAX_TIMESTAMP:
                found = await self.log.find_max_timestamp()
            elif timestamp >= 0:
                found = await self.log.find_timestamp(timestamp)
            else:
                return None
        except StorageFailure as failure:
            raise self.storage_error(failure) from failure
        return found if found is not None and found.offset < upper else None

    async def delete_records(self, offset: int) -> Offset:
        """Raise the log start offset; -1 is the high watermark. Stored when this returns."""
        upto = self.high_watermark if offset == LATEST else offset
        if not 0 <= upto <= self.high_watermark:
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if not self.log.config.delete:
            raise RequestError(ErrorCode.POLICY_VIOLATION, "cleanup.policy does not include delete")
        try:
            self.log.advance_log_start(Offset(upto))
            await self._logs.store(LOG_START_OFFSETS, self._hosted.directory)
        except StorageFailure as failure:
            raise self.storage_error(failure) from failure
        return self.log.log_start_offset

    def wake_all(self) -> None:
        """Wake every waiting fetch: the partition changes its leader or is deleted."""
        for one in [*self.waiting]:
            one.wake()


def _stored(
    records: memoryview,
    rules: ValidationConfig,
    *,
    produce_version: int,
    now_ms: int,
    nonblocking: bool = False,
) -> tuple[ValidBatch, memoryview]:
    """Validate a produced batch; return it with the bytes to store."""
    valid = validate(
        records, rules, now_ms=now_ms, produce_version=produce_version, nonblocking=nonblocking
    )
    if valid.header.attributes & TRANSACTIONAL:
        # Nobody would end the transaction, so read_committed consumers would never read on.
        raise RequestError(ErrorCode.INVALID_TXN_STATE, NO_TRANSACTIONS)
    if rules.compression is None:
        return valid, records
    return recompress(valid, records, rules)
