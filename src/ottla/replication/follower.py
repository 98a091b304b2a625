"""A partition that this broker follows, and its log.

Invariant: `log_start_offset <= high_watermark <= log_end_offset`. The high watermark is that of the
leader or the own log end offset, whichever is smaller (rule A5); it may decrease. The log changes
only by what the leader sent in the current leader epoch.
"""

from ottla.cluster.image import PartitionState
from ottla.ids import BrokerId, LeaderEpoch, Offset, TopicPartition, Uuid
from ottla.log.loading import HostedLog
from ottla.log.partition_log import PartitionLog
from ottla.protocol.primitives import Buffer
from ottla.replication.fetch_purgatory import FetchWaiter


class FollowerPartition:
    """A partition that this broker follows."""

    __slots__ = (
        "hosted",
        "leader",
        "leader_epoch",
        "leader_high_watermark",
        "log",
        "state",
        "topic_id",
        "waiting",
    )

    def __init__(self, hosted: HostedLog, topic_id: Uuid, state: PartitionState) -> None:
        self.hosted = hosted
        self.log: PartitionLog = hosted.log
        self.topic_id = topic_id
        self.state = state
        self.leader: BrokerId = state.leader
        self.leader_epoch: LeaderEpoch = state.leader_epoch
        self.leader_high_watermark = Offset(0)  # in its last response
        self.waiting: dict[FetchWaiter, None] = {}  # consumers that fetch from this follower
        self._set_high_watermark(hosted.high_watermark)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, leader {self.leader})"

    @property
    def name(self) -> TopicPartition:
        """The topic and the partition number."""
        return self.hosted.partition

    @property
    def high_watermark(self) -> Offset:
        """The upper bound for consumers that read here; its checkpoint is only a hint (rule A5)."""
        return self.hosted.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The upper bound for read_committed consumers (rule E7)."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def lag(self) -> int:
        """How many records the log is behind the high watermark of the leader."""
        return max(0, self.leader_high_watermark - self.log.log_end_offset)

    def update(self, state: PartitionState) -> None:
        """Take a newer state in which another broker leads; ReplicaFetchers.set comes next.

        Responses to requests of an older leader epoch are discarded from now on (rule A3).
        """
        assert state.leader_epoch >= self.leader_epoch, "leader epochs never decrease"
        self.state = state
        self.leader, self.leader_epoch = state.leader, state.leader_epoch

    def append(self, records: Buffer, *, fetched_offset: int, now_ms: int) -> None:
        """Append what the leader sent, unchanged (rule A16)."""
        self.log.append_replicated(records, fetched_offset=fetched_offset, now_ms=now_ms)

    def follow(self, *, high_watermark: int, log_start_offset: int) -> bool:
        """Follow the offsets of the leader; return whether the own log start offset has moved.

        Both are taken as far as the own log has got (rules A5 and A17).
        """
        self.leader_high_watermark = Offset(high_watermark)
        self._set_high_watermark(high_watermark)
        start = min(log_start_offset, self.hosted.high_watermark)
        if start <= self.log.state.log_start_offset:
            return False
        self.log.advance_log_start(Offset(start))
        return True

    def truncated(self) -> None:
        """Bound the high watermark by the offsets of the truncated log."""
        self._set_high_watermark(self.hosted.high_watermark)

    def wake_all(self) -> None:
        """Wake every waiting fetch: the high watermark moves, or this broker follows no more."""
        for one in [*self.waiting]:
            one.wake()

    def _set_high_watermark(self, offset: int) -> None:
        log = self.log.state
        bounded = Offset(max(log.log_start_offset, min(offset, log.log_end_offset)))
        if bounded != self.hosted.high_watermark:
            self.hosted.high_watermark = bounded
            if self.waiting:
                self.wake_all()
