"""The replicas of a cluster, their sizes and their traffic, for plans and for progress.

Invariant: a partition that is being reassigned has the replicas of its target.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ottla.client.admin.administration import Administration
from ottla.client.admin.cluster import BrokerDescription, ClusterCalls, ClusterDescription
from ottla.client.admin.configs import ConfigCalls, ConfigResource
from ottla.client.admin.log_dirs import LogDirCalls, LogDirs
from ottla.client.admin.reassignments import Reassignment, ReassignmentCalls
from ottla.client.admin.topic_descriptions import PartitionDescription, TopicDescription
from ottla.client.admin.topics import TopicCalls
from ottla.client.partitions import Partition
from ottla.cluster.balance import BrokerPlace, PartitionLoad
from ottla.cluster.traffic import TRAFFIC_CONFIG, Rates, parse_traffic, total_traffic
from ottla.ids import BrokerId

RESPONSE_SECONDS = 10.0


class MoveAdmin(
    Administration, ClusterCalls, TopicCalls, LogDirCalls, ConfigCalls, ReassignmentCalls
):
    """Describes and moves replicas."""


@dataclass(frozen=True, slots=True)
class ClusterReplicas:
    """What a cluster has; the brokers that did not respond have no directories."""

    cluster: ClusterDescription
    topics: Mapping[str, TopicDescription]
    moving: Mapping[Partition, Reassignment]
    directories: Mapping[int, LogDirs]
    traffic: Mapping[tuple[str, int], Rates] = field(default_factory=dict[tuple[str, int], Rates])

    @property
    def brokers(self) -> Sequence[BrokerDescription]:
        """The registered brokers."""
        return self.cluster.brokers

    def places(self, leaving: Collection[int] = ()) -> list[BrokerPlace]:
        """Return the brokers for a plan; those that are drained get no replicas."""
        away = {*leaving, *(one.id for one in self.brokers if self.is_drained(one.id))}
        known = {one.id: one.rack for one in self.brokers}
        return [
            BrokerPlace(BrokerId(one), known.get(one), one in away)
            for one in sorted({*known, *leaving})
        ]

    def is_drained(self, broker: int) -> bool:
        """Whether all directories of a broker get no new replicas."""
        found = self.directories.get(broker)
        if found is None or not found.succeeded:
            return False
        return all(one.is_cordoned for one in found.succeeded.values())

    def sizes(self) -> list[PartitionLoad]:
        """Return the partitions for a plan."""
        on_disk = self.replica_sizes()
        found: list[PartitionLoad] = []
        for topic in self.topics.values():
            for one in topic.partitions:
                name, index = topic.name, one.index
                replicas = tuple(map(BrokerId, self.target((name, index), one)))
                held = [on_disk.get((name, index, each), 0) for each in one.replicas]
                size = max(held, default=0)
                if one.leader is not None:
                    size = on_disk.get((name, index, one.leader), size)
                rates = self.traffic.get((name, index), Rates())
                found.append(PartitionLoad(name, index, replicas, size, *rates))
        return found

    def target(self, key: Partition, one: PartitionDescription) -> tuple[int, ...]:
        """Return the replicas of a partition when its reassignment is complete."""
        move = self.moving.get(key)
        if move is None:
            return one.replicas
        return tuple(each for each in move.replicas if each not in move.removing)

    def replica_sizes(self) -> dict[tuple[str, int, int], int]:
        """Return the bytes of each replica: topic, partition, broker."""
        return {
            (*key, broker): size.size_bytes
            for broker, found in self.directories.items()
            for directory in found.succeeded.values()
            for key, size in directory.replicas.items()
            if not size.is_future
        }


async def describe_replicas(
    admin: MoveAdmin, topics: Iterable[str] | None = None
) -> ClusterReplicas:
    """Describe the replicas of all topics or of some; raises if a topic does not exist."""
    cluster = await admin.describe_cluster()
    names = [*topics] if topics is not None else [*await admin.list_topics(include_internal=True)]
    described = (await admin.describe_topics(names)).or_raise() if names else {}
    moving = await admin.list_reassignments()
    told = await admin.describe_log_dirs(
        [one.id for one in cluster.brokers], timeout_s=RESPONSE_SECONDS
    )
    found = {str(name): one for name, one in described.items()}
    return ClusterReplicas(cluster, found, moving, told.succeeded)


async def with_traffic(admin: MoveAdmin, hosted: ClusterReplicas) -> ClusterReplicas:
    """Return them with the traffic that the brokers have measured.

    Brokers of an older version measure nothing.
    """
    told = await admin.describe_configs(
        [ConfigResource.broker(one.id) for one in hosted.brokers],
        names=[TRAFFIC_CONFIG],
        timeout_s=RESPONSE_SECONDS,
    )
    values = [
        value
        for entries in told.succeeded.values()
        if TRAFFIC_CONFIG in entries and (value := entries[TRAFFIC_CONFIG].value)
    ]
    return replace(hosted, traffic=total_traffic(map(parse_traffic, values)))
