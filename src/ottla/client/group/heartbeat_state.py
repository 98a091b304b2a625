"""What a member of a group of KIP-848 states about itself in its heartbeats.

Invariant: a heartbeat has a field exactly if the coordinator does not know it already. Joining, and
after a failure, everything is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.client.group.config import GroupConfig
from ottla.client.group.interfaces import GroupMember
from ottla.ids import TopicPartition, Uuid
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

Wanted: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by the ids of their topics."""

_JOINING = 0


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    """All that changes while somebody is a member."""

    topics: frozenset[str]
    pattern: str | None
    assignor: str | None
    owned: Wanted


def by_topic(owned: Mapping[TopicPartition, Uuid]) -> Wanted:
    """Partitions by the ids of their topics."""
    indexes: dict[Uuid, set[int]] = {}
    for one, topic in owned.items():
        indexes.setdefault(topic, set()).add(one.partition)
    return {topic: frozenset(found) for topic, found in indexes.items()}


def heartbeat_request(
    rules: GroupConfig, member: GroupMember, now: HeartbeatState, known: HeartbeatState | None
) -> ConsumerGroupHeartbeatRequest:
    """The heartbeat of a member that states `now` to a coordinator that knows `known`."""
    is_new = known is None or member.generation == _JOINING
    request = ConsumerGroupHeartbeatRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        member_epoch=member.generation,
        instance_id=member.instance_id,
    )
    if is_new:
        request.rack_id = rules.rack
        request.rebalance_timeout_ms = int(rules.poll_interval_s * 1000)
    if known is None or is_new or now.topics != known.topics:
        request.subscribed_topic_names = sorted(now.topics)
    if known is None or is_new or now.pattern != known.pattern:
        # No pattern is how one begins; to take one back takes an empty one.
        had_one = known is not None and known.pattern is not None
        request.subscribed_topic_regex = "" if now.pattern is None and had_one else now.pattern
    if is_new:
        request.server_assignor = now.assignor
    if known is None or is_new or now.owned != known.owned:
        request.topic_partitions = [
            TopicPartitions(topic_id=topic, partitions=sorted(partitions))
            for topic, partitions in now.owned.items()
        ]
    return request
