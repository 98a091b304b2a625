"""What a controller tells one broker: the replicas that it has, and the metadata of the cluster.

A broker applies an update through one function, whether it comes from the controller in its own
process or in LeaderAndIsr, StopReplica and UpdateMetadata requests.

Invariant: an update carries the controller epoch in which it was decided and the broker epoch for
which it is meant, so that a broker can refuse what is out of date (rule B4).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct, field

from ottla.cluster.image import ClusterImage, PartitionState
from ottla.errors import ErrorCode, RequestError
from ottla.ids import (
    ZERO_UUID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
    Uuid,
)


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


EPOCH_DURING_DELETE: Final = LeaderEpoch(-2)  # the leader epoch of a deleted partition, as in Kafka
NO_EPOCH: Final = LeaderEpoch(-1)  # StopReplica without a leader epoch


class StoppedReplica(Struct, frozen=True):
    """A partition of which the broker has no replica any more."""

    partition: TopicPartition
    delete: bool  # with all its records
    leader_epoch: LeaderEpoch  # of the partition when this was decided


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
    # Topics, with all their records and committed offsets; ZERO_UUID if the id is not known.
    deleted: Mapping[str, Uuid] = field(default_factory=lambda: MappingProxyType({}))
    stopped: Sequence[StoppedReplica] = ()
    replicas: Sequence[ReplicaState] = ()
    is_full: bool = False  # `replicas` are all that the broker has
    image: ClusterImage | None = None
    changed: Sequence[str] | None = None  # the topics that differ from the image before; None: all


# Checks of a broker (rule B4). A request can be repeated, and one that was sent on an earlier
# connection can arrive after later ones.


def update_error(
    update: ControlUpdate, *, controller_epoch: ControllerEpoch, broker_epoch: BrokerEpoch
) -> ErrorCode:
    """Return why a broker refuses an update; NONE if it does not.

    `controller_epoch` is the highest that the broker has seen, and `broker_epoch` is the one of its
    registration. As in Kafka, a higher broker epoch is accepted: the controller may see a new
    registration before the broker itself knows the epoch (KIP-380).
    """
    if update.controller_epoch < controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if update.broker_epoch < broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def is_newer(known: PartitionState | None, told: PartitionState) -> bool:
    """Whether a broker has to apply the state of a partition.

    It ignores a request that is repeated, and one that has an older ISR than the leader knows: the
    response to the leader's AlterPartition request may arrive first. `known` is the last state that
    the broker applied for the same topic id.
    """
    return known is None or (
        told.version > known.version and told.leader_epoch >= known.leader_epoch
    )


def stop_error(known: PartitionState | None, leader_epoch: LeaderEpoch) -> ErrorCode:
    """Return why a broker refuses to stop a replica; NONE if it does not.

    The replica may have been added again since.
    """
    is_checked = leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH)
    if known is not None and is_checked and leader_epoch < known.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def is_same_topic(known: Uuid | None, told: Uuid) -> bool:
    """Whether a topic that a broker knows by name is the one that was deleted.

    Another topic of this name may have been created since.
    """
    return known is None or told in (known, ZERO_UUID)
