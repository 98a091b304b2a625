"""What a broker that is alone is told, be it ours or the judge.

Invariant: both are told the same, so that what differs is theirs.
"""

from collections.abc import Mapping
from typing import Final

ALONE: Final[Mapping[str, object]] = {
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
"""One broker is enough for the internal topics, and nothing waits for company."""
