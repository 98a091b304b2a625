"""Encoding of subscriptions and assignments.

Invariant: the encoding is that of Kafka's Java client in its newest version; every version can be
decoded. An assignment is decoded grouped by topic, in the order in which the topics first appear.
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
    """Encode a subscription for JoinGroup, which has its own field for the group instance id."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics, key=text_order),
        user_data=subscription.user_data,
        owned_partitions=_by_topic(sorted(subscription.owned, key=partition_order)),
        generation_id=max(-1, subscription.generation),
        rack_id=subscription.rack or None,
    )
    return encode_embedded(message, message.VERSIONS.high)


def read_subscription(data: Buffer, group_instance_id: str | None = None) -> Subscription:
    """Decode a member's subscription from the JoinGroup response of the leader."""
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
    """Encode a member's assignment for SyncGroup."""
    message = ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions))
    return encode_embedded(message, message.VERSIONS.high)


def read_assignment(data: Buffer) -> tuple[Partition, ...]:
    """Decode an assignment from the SyncGroup response; empty bytes are an empty assignment."""
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
