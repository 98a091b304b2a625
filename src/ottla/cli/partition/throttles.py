"""Replication throttles of a reassignment: the settings of topics and brokers.

Invariant: the settings are those of Kafka's tool. A leader throttles what it sends to the new
replicas, and a new replica what it fetches. Replicas that are in sync already are not throttled.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.reassignments import Reassignment
from ottla.client.partitions import Partition

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

Changes = dict[ConfigResource, dict[str, str | None]]
"""Settings to change; None deletes."""


class Copying(NamedTuple):
    """The brokers that have a partition, and those that copy it."""

    sources: frozenset[int]
    destinations: frozenset[int]


def copies(
    moving: Mapping[Partition, Reassignment],
    wanted: Mapping[Partition, Sequence[int]],
    current: Mapping[Partition, Sequence[int]],
) -> dict[Partition, Copying]:
    """Return what is copied: the reassignments in progress, and the wanted ones."""
    found = {
        key: Copying(frozenset(one.replicas) - frozenset(one.adding), frozenset(one.adding))
        for key, one in moving.items()
    }
    for key, replicas in wanted.items():
        sources = found[key].sources if key in found else frozenset(current[key])
        found[key] = Copying(sources, frozenset(replicas) - sources)
    return found


def topic_throttles(found: Mapping[Partition, Copying]) -> Changes:
    """Return the settings of topics that name the throttled replicas."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for (topic, index), one in found.items():
        leaders.setdefault(topic, set()).update(f"{index}:{broker}" for broker in one.sources)
        added = followers.setdefault(topic, set())
        added.update(f"{index}:{broker}" for broker in one.destinations)
    return {
        ConfigResource.topic(topic): {
            LEADER_REPLICAS: ",".join(sorted(leaders[topic])),
            FOLLOWER_REPLICAS: ",".join(sorted(followers[topic])),
        }
        for topic in leaders
    }


def broker_throttles(found: Mapping[Partition, Copying], rate: int) -> Changes:
    """Return the settings of brokers with the rate, in bytes per second."""
    brokers = {broker for one in found.values() for broker in one.sources | one.destinations}
    rates: dict[str, str | None] = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    return {ConfigResource.broker(broker): rates for broker in sorted(brokers)}


def no_throttles(topics: Iterable[str], brokers: Iterable[int]) -> Changes:
    """Return the settings that remove all throttles of reassignments."""
    rates: dict[str, str | None] = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE))
    replicas: dict[str, str | None] = dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS))
    return {
        **{ConfigResource.broker(one): rates for one in sorted({*brokers})},
        **{ConfigResource.topic(one): replicas for one in sorted({*topics})},
    }
