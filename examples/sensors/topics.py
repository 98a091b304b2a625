"""The topics of the example, and how they are made.

Invariant: all readings of a device are in one partition, in the order in which they came, because
they are keyed by it and the number of partitions stays.
"""

from typing import Final

from ottla.client.admin import NewTopic
from ottla.errors import ErrorCode
from ottla.ids import PartitionIndex, TopicPartition
from ottla.sync import Admin

READINGS: Final = "sensors.readings"
ALERTS: Final = "sensors.alerts"
DEAD_LETTERS: Final = "sensors.dead-letters"
PARTITIONS: Final = {READINGS: 4, ALERTS: 1, DEAD_LETTERS: 1}


def partitions(topic: str) -> list[TopicPartition]:
    """The partitions of a topic."""
    return [TopicPartition(topic, PartitionIndex(index)) for index in range(PARTITIONS[topic])]


def create(admin: Admin) -> None:
    """Make those that are not there yet."""
    made = admin.create_topics(NewTopic(name, count) for name, count in PARTITIONS.items())
    for error in made.failed.values():
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error
