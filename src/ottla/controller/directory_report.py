"""What a broker reports of its data directories: replicas in failed and in full ones (rule C6).

The report is an AssignReplicasToDirs request with two directory ids, LOST and FULL. A broker builds
it, and the controller reads it.

Invariant: a report names topics by their ids. So a replica of a deleted topic does not count for a
new topic of the same name (rule B12).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ottla.cluster.image import ClusterImage
from ottla.ids import BrokerEpoch, BrokerId, PartitionIndex, TopicPartition, Uuid
from ottla.protocol.messages.assign_replicas_to_dirs import (
    FULL,
    LOST,
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)


@dataclass(frozen=True, slots=True)
class DirectoryReport:
    """The replicas of a broker that are in failed and in full directories."""

    failed: Collection[TopicPartition] = ()
    full: Collection[TopicPartition] = ()

    def __bool__(self) -> bool:
        return bool(self.failed or self.full)


def request_of(
    report: DirectoryReport, image: ClusterImage, broker: BrokerId, epoch: BrokerEpoch
) -> AssignReplicasToDirsRequest:
    """Return the request of a broker; partitions that its image does not have are left out."""
    return AssignReplicasToDirsRequest(
        broker_id=broker,
        broker_epoch=epoch,
        directories=[
            DirectoryData(id=directory, topics=_topics(image, partitions))
            for directory, partitions in ((LOST, report.failed), (FULL, report.full))
            if partitions
        ],
    )


def _topics(image: ClusterImage, partitions: Iterable[TopicPartition]) -> list[TopicData]:
    by_topic: defaultdict[Uuid, list[PartitionData]] = defaultdict(list)
    for name, index in partitions:
        if (topic := image.topics.get(name)) is not None:
            by_topic[topic.id].append(PartitionData(partition_index=index))
    return [
        TopicData(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic.items()
    ]


def report_of(request: AssignReplicasToDirsRequest, image: ClusterImage) -> DirectoryReport:
    """Return the report of a request, without partitions that do not exist."""
    found: defaultdict[Uuid, list[TopicPartition]] = defaultdict(list)
    for directory in request.directories:
        for one in directory.topics:
            topic = image.topic_of_id(one.topic_id)
            if topic is not None:
                found[directory.id] += [
                    TopicPartition(topic.name, PartitionIndex(row.partition_index))
                    for row in one.partitions
                    if topic.partition(row.partition_index) is not None
                ]
    return DirectoryReport(found[LOST], found[FULL])
