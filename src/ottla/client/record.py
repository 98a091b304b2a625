"""A record as a consumer gives it: where it was, when it was made, and what it says.

Invariant: a value that never changes. It is a tuple, because nothing that Python makes one by one
is made faster, and a consumer makes millions.
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
    """Milliseconds since 1970; -1 when it has none."""

    timestamp_type: TimestampType
    """Who set the time: the producer, or the broker when it appended."""

    key: K | None
    value: V | None
    headers: RecordHeaders
    leader_epoch: int
    """Of the leader that appended it; -1 when that is not known."""

    @property
    def place(self) -> TopicPartition:
        """The partition it is in."""
        return TopicPartition(self.topic, self.partition)
