"""A record as a consumer returns it.

It is an immutable tuple, because a consumer makes millions and Python makes nothing faster.
"""

from typing import Generic, NamedTuple, TypeAlias, TypeVar

from ottla.ids import TopicPartition
from ottla.records import TimestampType

K = TypeVar("K")
V = TypeVar("V")

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple, Generic[K, V]):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 if it has none."""

    timestamp_type: TimestampType
    """Who set the timestamp: the producer, or the broker on append."""

    key: K | None
    value: V | None
    headers: RecordHeaders
    leader_epoch: int
    """The epoch of the leader that appended it; -1 if unknown."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the record."""
        return TopicPartition(self.topic, self.partition)
