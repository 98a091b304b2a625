"""The state that a KIP-848 member reports in its heartbeats.

Invariant: a heartbeat contains a field exactly if the coordinator does not know it yet. When
joining and after a failure it contains everything.
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

TargetAssignment: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id."""

_JOINING = 0


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    """Everything that changes during a membership."""

    topics: frozenset[str]
    pattern: str | None
    assignor: str | None
    owned: TargetAssignment


def by_topic(owned: Mapping[TopicPartition, Uuid]) -> TargetAssignment:
    """Group partitions by topic id."""
    indexes: dict[Uuid, set[int]] = {}
    for one, topic in owned.items():
        indexes.setdefault(topic, set()).add(one.partition)
    return {topic: frozenset(found) for topic, found in indexes.items()}


def heartbeat_request(
    rules: GroupConfig, member: GroupMember, now: HeartbeatState, known: HeartbeatState | None
) -> ConsumerGroupHeartbeatRequest:
    """Build the heartbeat for state `now` when the coordinator knows `known`."""
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
        # Without a pattern before, null means none; to remove a pattern, an empty one is sent.
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
