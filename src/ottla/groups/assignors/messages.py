"""The bytes in which members tell their subscriptions and the leader tells assignments.

Invariant: they are those of Kafka's Java client, in the newest version, and those of every version
are read. An assignment comes back grouped by topic, in the order the topics first appear in it.
"""

from collections.abc import Iterable, Sequence

from ottla.groups.assignors.hash_order import partition_order, text_order
from ottla.groups.assignors.subscription import Subscription
from ottla.ids import PartitionIndex
from ottla.ids import TopicPartition as Partition
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_embedded,
    encode_embedded,
)
from ottla.protocol.primitives import Buffer


def subscription_bytes(subscription: Subscription) -> bytes:
    """What a member sends in JoinGroup; the group instance id has its place elsewhere there."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics, key=text_order),
        user_data=subscription.user_data,
        owned_partitions=_by_topic(sorted(subscription.owned, key=partition_order)),
        generation_id=max(-1, subscription.generation),
        rack_id=subscription.rack or None,
    )
    return encode_embedded(message, message.VERSIONS.high)


def read_subscription(data: Buffer, group_instance_id: str | None = None) -> Subscription:
    """What the leader finds in the answer to JoinGroup, for one member."""
    message = decode_embedded(ConsumerProtocolSubscription, data)
    return Subscription(
        topics=tuple(message.topics),
        owned=_partitions(message.owned_partitions),
        generation=message.generation_id,
        user_data=None if message.user_data is None else bytes(message.user_data),
        group_instance_id=group_instance_id,
        rack=message.rack_id or None,
    )


def assignment_bytes(partitions: Iterable[Partition]) -> bytes:
    """What the leader sends in SyncGroup for one member."""
    message = ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions))
    return encode_embedded(message, message.VERSIONS.high)


def read_assignment(data: Buffer) -> tuple[Partition, ...]:
    """What a member finds in the answer to SyncGroup; no bytes are an assignment of nothing."""
    if not data:
        return ()
    return _partitions(decode_embedded(ConsumerProtocolAssignment, data).assigned_partitions)


def _by_topic(partitions: Iterable[Partition]) -> list[TopicPartition]:
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return [TopicPartition(topic=topic, partitions=found) for topic, found in indexes.items()]


def _partitions(topics: Sequence[TopicPartition]) -> tuple[Partition, ...]:
    return tuple(
        Partition(each.topic, PartitionIndex(index)) for each in topics for index in each.partitions
    )
