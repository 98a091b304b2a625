"""A partition that this broker leads, its log, and its followers.

Invariant: `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`. Consumers
read below the high watermark (rule A6), or below the last stable offset; followers read up to the
log end offset. With one replica the high watermark is the log end offset. With several it starts
where this replica's own was, and never falls while this broker leads (rule A4). With
flush.messages=1 it covers only records that are on the leader's device (rule C5).

Producers with acks=all wait on the high watermark: see `commit_waiters`. When the broker stops
leading, `resign` fails them before the log is truncated, so that a reused offset cannot acknowledge
them.

A sequence number and a position above the log end offset are refused for good only while this
broker certainly leads (rules D5 and A18). After such a refusal producers renumber a batch, and
consumers go back to the first record, although another leader may have the batch or the position.

A StorageFailure of the log takes its data directory offline; the client gets KAFKA_STORAGE_ERROR.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.clock import Clock, SystemClock
from ottla.cluster.image import INTERNAL_TOPICS, Broker, PartitionState
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import (
    NO_BROKER,
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicPartition,
    Uuid,
)
from ottla.log.appender import Appended
from ottla.log.cached_reads import RecordSlice
from ottla.log.flusher import GroupCommit
from ottla.log.loading import HostedLog
from ottla.log.log_manager import LogManager
from ottla.log.names import LOG_START_OFFSETS
from ottla.log.offset_waiters import OffsetWaiters
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.timestamps import FoundOffset
from ottla.metrics import TrafficCounts
from ottla.records.batch import TRANSACTIONAL, BatchHeader
from ottla.records.recompression import recompress
from ottla.records.validation import ValidationConfig, ValidBatch, validate
from ottla.replication.fetch_purgatory import FetchWaiter, ReplicaWatch
from ottla.replication.in_sync_replicas import (
    LAG_SECONDS,
    Eligible,
    InSyncReplicas,
    IsrProposal,
    effective_min,
)

NO_TRANSACTIONS: Final = "transactions are not supported by this broker"

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


_ROUNDS: Final = 2
"""Fetches of each follower that prove the leadership: the first may have been sent earlier."""

_REFUSALS_MAX: Final = 1000
"""Producers and positions per partition whose refusals are remembered."""


Propose = Callable[["Partition", IsrProposal], None]
"""Asks the controller for a change of the ISR; the outcome goes to `Partition.isr_answered`."""


class LeaderMoved(RequestError):
    """The broker does not lead the partition any more; another one may (KIP-951)."""

    def __init__(
        self,
        leader: BrokerId = NO_BROKER,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        broker: Broker | None = None,
    ) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.broker = broker  # the leader with its addresses, if it is known to be alive


class _Refusal(NamedTuple):
    """The first batch of a producer, or a position, that was refused, and the proof since then."""

    what: tuple[int, ...]  # the producer epoch and the sequence number of the batch
    since_s: float
    rounds: int = 0  # in which every in-sync follower has fetched


def check_epoch(known: int, leader_epoch: LeaderEpoch) -> None:
    """Fence a request with another leader epoch (rule A3); -1 means that it has none."""
    if known < 0 or known == leader_epoch:
        return
    if known < leader_epoch:
        raise RequestError(ErrorCode.FENCED_LEADER_EPOCH)
    raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH)


class Partition:
    """A partition that this broker leads."""

    __slots__ = (
        "_clock",
        "_flush",
        "_hosted",
        "_in_sync_min",
        "_is_alive",
        "_is_eligible",
        "_lag_s",
        "_logs",
        "_low_watermarks",
        "_propose",
        "_refusals",
        "_resigned",
        "_uncommitted_bytes",
        "commit_waiters",
        "epoch_start",
        "high_watermark",
        "in_sync",
        "in_sync_count",
        "in_sync_min",
        "internal",
        "leader_epoch",
        "log",
        "node_id",
        "rules",
        "topic_id",
        "traffic",
        "waiting",
        "watches",
    )

    def __init__(
        self,
        logs: LogManager,
        hosted: HostedLog,
        topic_id: Uuid,
        leader_epoch: LeaderEpoch,
        rules: ValidationConfig,
        in_sync_min: int,
        traffic: TrafficCounts | None = None,
        *,
        state: PartitionState | None = None,
        node_id: BrokerId = NO_BROKER,
        clock: Clock | None = None,
        propose: Propose | None = None,
        lag_s: float = LAG_SECONDS,
        is_eligible: Eligible = lambda broker_id, epoch: True,
        is_alive: Callable[[BrokerId], bool] = lambda broker_id: True,
    ) -> None:
        """A partition whose log has begun `leader_epoch`; without `state` it has one replica."""
        self._logs = logs
        self._hosted = hosted
        self.log: PartitionLog = hosted.log
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.rules = rules
        self._in_sync_min = in_sync_min  # as configured
        self.in_sync_min = in_sync_min  # the effective minimum (rule A8)
        self.traffic = traffic or TrafficCounts()
        self.internal = hosted.partition.topic in INTERNAL_TOPICS
        self.waiting: dict[FetchWaiter, None] = {}  # consumers
        self.watches: dict[ReplicaWatch, None] = {}  # the fetch sessions of followers
        self.commit_waiters = OffsetWaiters()  # finished by the high watermark
        self._low_watermarks = OffsetWaiters()  # finished by the log start offsets of all replicas
        self._clock = clock or SystemClock()
        self.node_id = node_id
        self._propose = propose
        self._lag_s = lag_s
        self._is_eligible = is_eligible
        self._is_alive = is_alive
        self._resigned: LeaderMoved | None = None
        self._flush: _OwnFlush | None = None  # that the high watermark waits for
        self._refusals: dict[tuple[str, int], _Refusal] = {}  # by producer id or offset
        self._uncommitted_bytes = 0  # about the size of the records above the high watermark
        self.epoch_start = self._start_of_epoch()
        self.in_sync: InSyncReplicas | None = None  # None: one replica
        self.in_sync_count = 1  # the size of the committed ISR
        self.high_watermark = hosted.log.log_end_offset
        if state is not None and len(state.replicas) > 1:
            self.high_watermark = self._own_high_watermark()
            self._replicate(state)
        elif state is not None:
            self.in_sync_min = effective_min(in_sync_min, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, epoch {self.leader_epoch})"

    @property
    def name(self) -> TopicPartition:
        """The topic and the partition number."""
        return self._hosted.partition

    def _start_of_epoch(self) -> Offset:
        latest = self.log.epochs.latest
        if latest is not None and latest.epoch == self.leader_epoch:
            return latest.start_offset
        return self.log.log_end_offset

    def _own_high_watermark(self) -> Offset:
        """The high watermark of this replica so far, within the log."""
        log = self.log
        return min(max(self._hosted.high_watermark, log.log_start_offset), log.log_end_offset)

    # Leadership and the ISR.

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are not in sync; those that a reassignment adds do not count."""
        if self.in_sync is None:
            return False
        state = self.in_sync.state
        return len(state.in_sync) < len(state.replicas) - len(state.adding)

    def _replicate(self, state: PartitionState) -> None:
        """Begin to track followers."""
        self.in_sync = InSyncReplicas(
            state,
            self.node_id,
            in_sync_min=self._in_sync_min,
            epoch_start=self.epoch_start,
            now_s=self._clock.elapsed_s(),
            lag_s=self._lag_s,
            is_eligible=self._is_eligible,
        )
        self._isr_changed()

    def update(self, state: PartitionState) -> None:
        """Take over a newer state in which this broker still leads; older ones are ignored.

        A new leader epoch keeps the requests that wait.
        """
        in_sync = self.in_sync
        if state.leader_epoch < self.leader_epoch:
            return
        if in_sync is not None and state.version <= in_sync.state.version:
            return
        if state.leader_epoch > self.leader_epoch:
            self.log.begin_epoch(state.leader_epoch)  # before anything is served in it (rule A1)
            self.leader_epoch = state.leader_epoch
            self.epoch_start = self._start_of_epoch()
            self._mark_watches(0)
            for watch in self.watches:
                watch.wake()  # its follower fetches with the epoch before
        if len(state.replicas) <= 1:
            self.in_sync, self.in_sync_count = None, 1
            self.in_sync_min = effective_min(self._in_sync_min, 1)
            self._advance_high_watermark()
            self._check_low_watermark()
        elif in_sync is None:
            self._replicate(state)
        else:
            in_sync.update(state, self.epoch_start, self._clock.elapsed_s())
            self._isr_changed()
            self.expand_isr()

    def set_in_sync_min(self, in_sync_min: int) -> None:
        """Take over a changed min.insync.replicas."""
        self._in_sync_min = in_sync_min
        if self.in_sync is None:
            self.in_sync_min = effective_min(in_sync_min, 1)
        else:
            self.in_sync.in_sync_min = in_sync_min
            self._isr_changed()

    def _isr_changed(self) -> None:
        """Fail the producers that wait if the committed ISR is too small (rule A8)."""
        in_sync = self.in_sync
        assert in_sync is not None
        self.in_sync_min = in_sync.effective_min
        self.in_sync_count = len(in_sync.committed)
        if in_sync.is_below_min:
            self.commit_waiters.fail_all(RequestError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        else:
            self._advance_high_watermark()
        self._check_low_watermark()

    def resign(self, state: PartitionState | None = None, leader: Broker | None = None) -> None:
        """End the leadership before the log is truncated; `state` names the next leader.

        Producers that wait get NOT_LEADER_OR_FOLLOWER: the outcome of their records is unknown.
        `leader` is the broker of the next leader, whose address they get.
        """
        self._hosted.high_watermark = self.high_watermark
        moved = LeaderMoved()
        if state is not None:
            moved = LeaderMoved(state.leader, state.leader_epoch, leader)
        self._resigned = moved
        self.commit_waiters.fail_all(moved)
        self._low_watermarks.fail_all(moved)
        self.wake_all()

    def follower_fetched(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        log_start_offset: Offset,
        now_s: float,
    ) -> None:
        """Note that a follower has every record below an offset; raises RequestError.

        The caller has checked the leader epoch (rule A3), that the logs do not diverge below the
        offset (rule A2), and that the offset is in the log.
        """
        in_sync = self._checked_replica(broker_id)
        if not in_sync.fetched(
            broker_id,
            broker_epoch,
            offset,
            log_start_offset,
            leader_end_offset=self.log.log_end_offset,
            now_s=now_s,
        ):
            raise RequestError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has a newer broker epoch"
            )
        if broker_id not in in_sync.committed:
            proposal = in_sync.expand(broker_id, self.high_watermark)
            if proposal is not None and self._propose is not None:
                self._propose(self, proposal)
        if offset > self.high_watermark:
            self._advance_high_watermark(now_s)
        if self._low_watermarks:
            self._check_low_watermark()

    def expand_isr(self) -> None:
        """Propose a follower that has caught up, but could not join the ISR when it fetched.

        Then another change was in flight, its broker was not known to be registered, or the
        controller refused. An idle follower does not name the partition again. Called after one of
        the first two has changed, and periodically (rule A10).
        """
        in_sync = self.in_sync
        if in_sync is None or self._propose is None or self._resigned:
            return
        proposal = in_sync.expand_caught_up(
            self.high_watermark, self.log.log_end_offset, self._clock.elapsed_s()
        )
        if proposal is not None:
            self._propose(self, proposal)

    def check_replica(self, broker_id: BrokerId, known_epoch: int) -> None:
        """Refuse a fetch of a broker that is not a replica, as far as is known (rule A3)."""
        if self.in_sync is None or broker_id not in self.in_sync.followers:
            # With an epoch, the broker may know of a newer assignment than this leader.
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
            raise RequestError(code if known_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _checked_replica(self, broker_id: BrokerId) -> InSyncReplicas:
        self.check_replica(broker_id, self.leader_epoch)
        assert self.in_sync is not None
        return self.in_sync

    def check_isr(self, now_s: float) -> None:
        """Propose to remove slow followers from the ISR (rule A9), or to add those that caught up.

        Called periodically.
        """
        in_sync = self.in_sync
        if in_sync is None or self._propose is None:
            return
        # An idle follower fetches without naming the partition: its session has the time.
        for watch in self.watches:
            self._note_unchanged(watch)
        proposal = in_sync.shrink(self.log.log_end_offset, now_s)
        if proposal is not None:
            self._propose(self, proposal)
        else:
            # A slow follower that was about to join the ISR does not hold up the watermark.
            self._advance_high_watermark(now_s)
            self.expand_isr()

    @property
    def proposed_isr(self) -> IsrProposal | None:
        """The change of the ISR whose outcome is not known, if this broker still leads."""
        return None if self.in_sync is None or self._resigned else self.in_sync.proposed

    def isr_answered(
        self,
        outcome: PartitionState | ErrorCode | None,
        proposal: IsrProposal | None = None,
    ) -> None:
        """Take the outcome of a proposal: the new state, an error, or None if it is unknown.

        With an unknown outcome the proposal stays until newer metadata arrives (rule A11). An
        error of a proposal that is not the current one is ignored.
        """
        in_sync = self.in_sync
        if isinstance(outcome, PartitionState):
            if outcome.leader_epoch == self.leader_epoch and outcome.leader == self.node_id:
                self.update(outcome)
        elif outcome is not None and in_sync is not None:
            is_current = proposal is None or proposal is in_sync.proposed
            if is_current and in_sync.refuse(outcome):
                self._advance_high_watermark()

    # Appends.

    def append(
        self, records: memoryview, *, produce_version: int, acks: int, now_ms: int
    ) -> Appended:
        """Validate and append a batch of a client (rules A8 and D1).

        Raises WouldBlock before any change if the work belongs in a thread: see `append_in_thread`.
        """
        if self.internal or self.in_sync_min > self.in_sync_count:
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
        in_sync = self.in_sync_count
        if acks == -1 and self.in_sync_min > in_sync:
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas is {self.in_sync_min}, "
                f"{in_sync} replica{' is' if in_sync == 1 else 's are'} in sync",
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
        except RequestError as error:
            if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._check_proven(error, valid.header)
            raise
        if not appended.duplicate:
            traffic = self.traffic
            traffic.bytes_in += len(records)
            traffic.records_in += appended.last_offset - appended.base_offset + 1
            if self.in_sync is None and self.log.config.flush_messages != 1:
                self.high_watermark = Offset(appended.last_offset + 1)
                if self.waiting:
                    for one in [*self.waiting]:
                        one.note(len(records))
            else:
                self.note_appended(len(records))
        return appended

    def _check_proven(self, error: RequestError, header: BatchHeader) -> None:
        """Let a producer try again until this broker certainly leads (rule D5).

        A leader that was replaced and does not know it yet lacks the batches that the next leader
        has acknowledged.
        """
        batch = header.producer_epoch, header.base_sequence
        if not self._is_certain(("producer", header.producer_id), batch):
            why = "this broker is not certain yet that it leads the partition"
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"{error.message}; {why}") from error

    def check_out_of_range(self, offset: int) -> None:
        """Let a consumer try again until this broker certainly leads (rule A18)."""
        if offset > self.log.log_end_offset and not self._is_certain(("offset", offset)):
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _is_certain(self, whose: tuple[str, int], what: tuple[int, ...] = ()) -> bool:
        """Whether this broker has certainly led since it first refused something."""
        in_sync = self.in_sync
        if in_sync is None or len(in_sync.maximal) == 1:
            return True
        for watch in self.watches:
            self._note_unchanged(watch)
        now_s = self._clock.elapsed_s()
        first = _Refusal(what, now_s)
        known = self._refusals.pop(whose, first)
        if known.what != what:
            known = first
        elif in_sync.have_fetched_since(known.since_s):
            known = known._replace(since_s=now_s, rounds=known.rounds + 1)
        if known.rounds == _ROUNDS:
            return True
        self._refusals[whose] = known
        if len(self._refusals) > _REFUSALS_MAX:
            del self._refusals[next(iter(self._refusals))]
        self._mark_watches(0)
        for watch in self.watches:
            watch.wake()
        return False

    def note_appended(self, size: int) -> None:
        """Notify the followers after an append; a leader that is alone commits it."""
        in_sync = self.in_sync
        self._uncommitted_bytes += size
        if self.watches:
            self._mark_watches(size)
        if in_sync is None or len(in_sync.maximal) == 1:
            self._advance_high_watermark()

    def _mark_watches(self, appended_bytes: int) -> None:
        for watch in [*self.watches]:
            self._note_unchanged(watch)
            watch.mark(self, appended_bytes)

    def _note_unchanged(self, watch: ReplicaWatch) -> None:
        """Count the fetches of a session that did not have to name this partition (rule A9)."""
        in_sync = self.in_sync
        if in_sync is not None and not watch.is_marked(self):
            follower = in_sync.followers.get(watch.broker_id)
            if follower is not None and follower.log_end_offset is not None:
                follower.note_unchanged(watch.fetched_s)

    def _advance_high_watermark(self, now_s: float | None = None) -> None:
        """Raise the high watermark as far as the replicas allow (rules A4 and C5)."""
        log = self.log
        end = log.log_end_offset
        if log.config.flush_messages == 1 and log.recovery_point < end:
            if self._flush is None:
                self._flush = _OwnFlush(end, self._flushed)
                self.commit.add(self._flush)
            end = log.recovery_point
        if self.in_sync is not None:
            now_s = self._clock.elapsed_s() if now_s is None else now_s
            end = self.in_sync.high_watermark(self.high_watermark, end, now_s)
        self._set_high_watermark(end)

    def _flushed(self, failure: Exception | None) -> None:
        """Count what is on the leader's device now, or fail the producers that waited for it."""
        flush, self._flush = self._flush, None
        if flush is None or self._resigned is not None:
            return
        if failure is not None:
            if isinstance(failure, StorageFailure):
                failure = self.storage_error(failure)
            self.commit_waiters.finish_up_to(flush.offset, failure)
            if not self.commit_waiters:
                return  # the next append flushes again
        self._advance_high_watermark()

    def _set_high_watermark(self, offset: Offset) -> None:
        """Make records readable; notify the fetches and the producers that wait for them."""
        before = self.high_watermark
        if offset <= before:
            return
        end = self.log.log_end_offset
        committed = self._uncommitted_bytes
        if offset < end:
            committed = committed * (offset - before) // (end - before)
        self._uncommitted_bytes -= committed
        self.high_watermark = offset
        if self.waiting:
            for one in [*self.waiting]:
                one.note(max(committed, 1))
        if self.commit_waiters:
            self.commit_waiters.finish_up_to(offset)
        if self.watches:
            self._mark_watches(0)

    def is_committed(self, offset: int) -> bool:
        """Whether the records below an offset are committed; raises if the wait has ended."""
        if self.high_watermark >= offset:
            return True
        if self._resigned is not None:
            raise self._resigned
        if self.in_sync_min > self.in_sync_count:
            raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return False

    async def committed(self, offset: int) -> None:
        """Return when every in-sync replica has the records below an offset; raises RequestError.

        For appends of the broker itself. With one replica it returns at once.
        """
        if not self.is_committed(offset):
            waiter = _FutureWaiter(offset)
            self.commit_waiters.add(waiter)
            try:
                await waiter.future
            finally:
                self.commit_waiters.remove(waiter)

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
        if known >= 0 and known != self.leader_epoch:
            check_epoch(known, self.leader_epoch)

    @property
    def last_stable_offset(self) -> Offset:
        """The upper bound for read_committed consumers (rule E7)."""
        return self.log.last_stable_offset(self.high_watermark)

    def upper_offset(self, *, committed: bool) -> Offset:
        """The upper bound for a consumer (rule A6)."""
        return self.last_stable_offset if committed else self.high_watermark

    def read_cached(self, offset: int, bytes_max: int, *, committed: bool) -> RecordSlice:
        """The records from an offset on; NotCached if the device must be read.

        Between the high watermark and the log end offset there is nothing to read yet.
        """
        return self.log.read_cached(offset, self.upper_offset(committed=committed), bytes_max)

    async def read(self, offset: int, bytes_max: int, *, committed: bool) -> RecordSlice:
        """Do the same, and wait for the device."""
        return await self.log.read(offset, self.upper_offset(committed=committed), bytes_max)

    async def find(
        self, timestamp: int, *, committed: bool, by_replica: bool = False
    ) -> FoundOffset | None:
        """Find the offset for a ListOffsets timestamp, or for one of its special values.

        A new leader's high watermark may be lower than that of the leader before. Until it has
        reached the start of the epoch, offsets near the end are not available (rule A7). Followers
        get the offsets of the whole log.
        """
        upper = self.upper_offset(committed=committed)
        is_behind = self.high_watermark < self.epoch_start
        if by_replica:
            upper, is_behind = self.log.log_end_offset, False
        epochs = self.log.epochs
        if timestamp == LATEST:
            if is_behind:
                raise RequestError(ErrorCode.OFFSET_NOT_AVAILABLE)
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
        if found is not None and found.offset < upper:
            return found
        if is_behind:
            raise RequestError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return None

    async def delete_records(self, offset: int) -> Offset:
        """Raise the log start offset; -1 is the high watermark. Stored when this returns.

        The other replicas follow with their next fetch: see `low_watermark`.
        """
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
        if self.watches:
            self._mark_watches(0)
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start offset of the live replicas: no live replica has records below."""
        start = self.log.log_start_offset
        return start if self.in_sync is None else self.in_sync.low_watermark(start, self._is_alive)

    async def deleted(self, offset: int) -> None:
        """Return when every live replica has deleted the records below an offset (rule A17)."""
        if self._resigned is not None:
            raise self._resigned
        if self.low_watermark < offset:
            waiter = _FutureWaiter(offset)
            self._low_watermarks.add(waiter)
            try:
                await waiter.future
            finally:
                self._low_watermarks.remove(waiter)

    def _check_low_watermark(self) -> None:
        if self._low_watermarks:
            self._low_watermarks.finish_up_to(self.low_watermark)

    def wake_all(self) -> None:
        """Wake every waiting fetch: the partition changes its leader or is deleted."""
        for one in [*self.waiting]:
            one.wake()
        for watch in [*self.watches]:
            watch.mark(self, 0)
            watch.wake()


class _OwnFlush:
    """Waits for a flush of the leader's log."""

    __slots__ = ("_flushed", "offset")

    def __init__(self, offset: int, flushed: Callable[[Exception | None], None]) -> None:
        self.offset = offset
        self._flushed = flushed

    def finish(self, failure: Exception | None) -> None:
        self._flushed(failure)


class _FutureWaiter:
    """Lets a coroutine wait for an offset."""

    __slots__ = ("future", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(self, failure: Exception | None) -> None:
        if self.future.done():
            return
        if failure is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(failure)


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
