"""The replica manager: the logs of this broker, and the partitions that it leads and follows.

Invariant: accessed only on the event loop. A partition is in `partitions` exactly while this broker
leads it, and in `followers` exactly while it follows it.
"""

from ottla.broker.metadata_cache import MetadataCache
from ottla.cluster.image import PartitionState
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER, Offset, PartitionIndex, TopicPartition
from ottla.log.log_manager import LogManager
from ottla.metrics import ReplicationCounts, TrafficCounts
from ottla.replication.follower import FollowerPartition
from ottla.replication.partition import Partition
from ottla.replication.quota import ReplicationQuota


class ReplicaManager:
    """The partitions of this broker."""

    __slots__ = (
        "_metadata_cache",
        "followers",
        "leader_quota",
        "logs",
        "partitions",
        "replication",
        "traffic",
    )

    def __init__(
        self,
        logs: LogManager,
        metadata_cache: MetadataCache,
        leader_quota: ReplicationQuota | None = None,
    ) -> None:
        self.logs = logs
        self.partitions: dict[TopicPartition, Partition] = {}
        self.followers: dict[TopicPartition, FollowerPartition] = {}
        # By topic and partition, from the first leadership until the topic is deleted.
        self.traffic: dict[str, dict[int, TrafficCounts]] = {}
        self.replication = ReplicationCounts()
        self.leader_quota = leader_quota  # of what is sent to followers
        self._metadata_cache = metadata_cache

    def leader_partition(self, topic: str, index: int) -> Partition:
        """Return a partition that this broker leads; raises RequestError."""
        partition = self.partitions.get(TopicPartition(topic, PartitionIndex(index)))
        if partition is not None:
            return partition
        if self._metadata_cache.image.state(topic, index) is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        hosted = self.logs.get(TopicPartition(topic, PartitionIndex(index)))
        if hosted is not None and hosted.directory.failure is not None:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(hosted.directory.failure))
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def traffic_of(self, topic: str, index: int) -> TrafficCounts:
        """Return the traffic counters of a partition; the metrics of its topic are their sums."""
        partitions = self.traffic.setdefault(topic, {})
        found = partitions.get(index)
        if found is None:
            found = partitions[index] = TrafficCounts()
        return found

    def leader_hint(self, topic: str, index: int) -> PartitionState | None:
        """Return the state that names the leader of a partition (KIP-951).

        A follower may know it before the image, which changes when an update is complete.
        """
        followed = self.followers.get(TopicPartition(topic, PartitionIndex(index)))
        return (
            self._metadata_cache.image.state(topic, index) if followed is None else followed.state
        )

    def high_watermark(self, partition: TopicPartition) -> Offset:
        """Return the high watermark of a partition that has a log here, led or not."""
        led = self.partitions.get(partition)
        return led.high_watermark if led else self.logs[partition].high_watermark

    @property
    def max_lag(self) -> int:
        """The largest lag of the partitions that are fetched from a leader."""
        followed = (one.lag for one in self.followers.values() if one.leader != NO_BROKER)
        return max(followed, default=0)

    def wake_all(self) -> None:
        """Wake the requests that wait for records of any partition."""
        for partition in self.partitions.values():
            partition.wake_all()
