"""The replica that a consumer reads from: the leader, or one in its rack (KIP-392).

The leader names the preferred replica in its response, and the consumer fetches from there. It
reads below the high watermark of that follower (rule A6).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.cluster.image import Broker
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import BrokerId, Offset
from ottla.log.log_manager import LogManager
from ottla.log.partition_log import PartitionLog
from ottla.metrics import TrafficCounts
from ottla.replication.follower import FollowerPartition
from ottla.replication.partition import Partition, check_epoch


class ReplicaView(NamedTuple):
    """A replica that a consumer may read from."""

    id: BrokerId
    rack: str | None
    log_end_offset: int
    caught_up_s: float


def replica_in_rack(
    rack: str, leader_rack: str | None, followers: Iterable[ReplicaView]
) -> BrokerId | None:
    """Return the follower to read from; None for the leader.

    The leader is preferred if it is in the rack of the consumer. Otherwise it is the follower of
    that rack with the most records, and of equal ones the one that caught up last.
    """
    if leader_rack == rack:
        return None
    near = [one for one in followers if one.rack == rack]
    if not near:
        return None
    return max(near, key=lambda one: (one.log_end_offset, one.caught_up_s, one.id)).id


def preferred_replica(
    partition: Partition,
    offset: int,
    rack: str,
    node_id: BrokerId,
    broker: Callable[[BrokerId], Broker | None],
) -> BrokerId | None:
    """Return the live in-sync follower that a consumer in a rack should read an offset from."""
    in_sync = partition.in_sync
    if in_sync is None:
        return None

    def views() -> Iterable[ReplicaView]:
        for broker_id in in_sync.committed:
            follower, found = in_sync.followers.get(broker_id), broker(broker_id)
            if follower is None or found is None:
                continue
            end, start = follower.log_end_offset, follower.log_start_offset
            if end is not None and start is not None and start <= offset <= end:
                yield ReplicaView(broker_id, found.rack, end, follower.caught_up_s)

    leader = broker(node_id)
    return replica_in_rack(rack, None if leader is None else leader.rack, views())


class FollowerReads:
    """A partition that this broker follows, as consumers read it."""

    __slots__ = ("_followed", "_logs", "log", "traffic", "waiting")

    def __init__(
        self, followed: FollowerPartition, logs: LogManager, traffic: TrafficCounts
    ) -> None:
        self._followed = followed
        self._logs = logs
        self.log: PartitionLog = followed.log
        self.waiting = followed.waiting
        self.traffic = traffic

    def check_epoch(self, known: int) -> None:
        """Fence a consumer with another leader epoch (rule A3)."""
        check_epoch(known, self._followed.leader_epoch)

    def check_out_of_range(self, offset: int) -> None:
        """Send a consumer to the leader: only that knows which offsets exist (rule A18)."""
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def high_watermark(self) -> Offset:
        """The upper bound for consumers (rules A5 and A6)."""
        return self._followed.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The upper bound for read_committed consumers (rule E7)."""
        return self._followed.last_stable_offset

    def upper_offset(self, *, committed: bool) -> Offset:
        """The upper bound for a consumer."""
        return self.last_stable_offset if committed else self.high_watermark

    def storage_error(self, failure: StorageFailure) -> RequestError:
        """Take the data directory offline; return the error for the client."""
        self._logs.fail(self._followed.hosted.directory, failure)
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
