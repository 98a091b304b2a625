"""The settings of a single broker, the same for Ottla and for Kafka.

Invariant: both brokers have the same settings, so that every difference is their own.
"""

from collections.abc import Mapping
from typing import Final

SINGLE_NODE: Final[Mapping[str, object]] = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
}
"""Internal topics have one replica, and groups do not wait for more members."""
