"""Settings of replication throttles."""

from ottla.cli.partition.throttles import (
    Copying,
    broker_throttles,
    copies,
    no_throttles,
    topic_throttles,
)
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.reassignments import Reassignment
from ottla.client.partitions import Partition

MOVED: Partition = ("moved", 0)
OTHER: Partition = ("other", 10)


def test_copies_of_old_and_new_reassignments() -> None:
    moving = {OTHER: Reassignment((1, 2, 3), adding=(3,), removing=(1,))}
    found = copies(moving, {MOVED: [2, 3], OTHER: [4, 2]}, {MOVED: [1, 2], OTHER: [1, 2, 3]})
    assert found == {
        OTHER: Copying(frozenset({1, 2}), frozenset({4})),
        MOVED: Copying(frozenset({1, 2}), frozenset({3})),
    }


def test_throttles_name_sources_and_destinations() -> None:
    found = {
        ("t", 10): Copying(frozenset({2, 1}), frozenset({3})),
        ("t", 9): Copying(frozenset({1}), frozenset()),
    }
    assert topic_throttles(found) == {
        ConfigResource.topic("t"): {
            "leader.replication.throttled.replicas": "10:1,10:2,9:1",  # as Kafka's tool sorts them
            "follower.replication.throttled.replicas": "10:3",
        }
    }
    rates = broker_throttles(found, 5000)
    assert [one.name for one in rates] == ["1", "2", "3"]
    assert {*rates[ConfigResource.broker(3)].values()} == {"5000"}


def test_all_throttles_are_removed() -> None:
    changes = no_throttles(["b", "a", "a"], [2, 1])
    assert [str(one) for one in changes] == ["broker 1", "broker 2", "topic a", "topic b"]
    assert all(value is None for one in changes.values() for value in one.values())
    assert len(changes[ConfigResource.broker(1)]) == 3
