"""What a controller tells one broker: the replicas that it has, and the metadata of the cluster.

A broker applies an update through one function, whether it comes from the controller in its own
process or in LeaderAndIsr, StopReplica and UpdateMetadata requests.

Invariant: an update carries the controller epoch in which it was decided and the broker epoch for
which it is meant, so that a broker can refuse what is out of date (rule B4).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from ottla.cluster.image import ClusterImage, PartitionState
from ottla.errors import RequestError
from ottla.ids import BrokerEpoch, BrokerId, ControllerEpoch, PartitionIndex, TopicPartition, Uuid


class ReplicaState(Struct, frozen=True):
    """A partition of which the broker has a replica."""

    topic: str
    topic_id: Uuid
    index: PartitionIndex
    state: PartitionState
    is_new: bool = False  # the partition has just been created, and no replica has a log

    @property
    def partition(self) -> TopicPartition:
        """The topic and the partition number."""
        return TopicPartition(self.topic, self.index)


class StoppedReplica(Struct, frozen=True):
    """A partition of which the broker has no replica any more."""

    partition: TopicPartition
    delete: bool  # with all its records


Configs = Mapping[str, Mapping[str, str]]
"""The configs of topics."""

BrokerConfigs = Mapping[BrokerId | None, Mapping[str, str]]
"""The dynamic configs of brokers; None is the cluster-wide default."""

Failures = Mapping[TopicPartition, RequestError]
"""The partitions that a broker could not lead, follow or stop, and why."""


class ControlUpdate(Struct, frozen=True, kw_only=True):
    """Changes for one broker, applied in the order of the fields."""

    controller: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    topic_configs: Configs = field(default_factory=lambda: MappingProxyType({}))
    broker_configs: BrokerConfigs = field(default_factory=lambda: MappingProxyType({}))
    deleted: Sequence[str] = ()  # topics, with all their records and committed offsets
    stopped: Sequence[StoppedReplica] = ()
    replicas: Sequence[ReplicaState] = ()
    is_full: bool = False  # `replicas` are all that the broker has
    image: ClusterImage | None = None
    changed: Sequence[str] | None = None  # the topics that differ from the image before; None: all
