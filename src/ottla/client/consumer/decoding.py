"""Decodes batches into records with deserialized keys and values.

Invariant: an error names topic, partition and offset. A record is skipped only if the application
says so. The records before it in the batch are handed out first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from fastcrc.crc32 import iscsi as crc32c

from ottla.client.consumer.record import Record
from ottla.client.serializers import DeserializationFailed, Deserializer, deserialize
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.records import DECOMPRESSED_BYTES_MAX, Batch, TimestampType, read_record_tuples
from ottla.records.errors import UNREADABLE

K = TypeVar("K")
V = TypeVar("V")

_TIMESTAMP_TYPES: Final = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)

# The constructor of a NamedTuple takes its fields one by one, which is slower by half.
_new: Final = cast(
    "Callable[[type[Record[Any, Any]], tuple[object, ...]], Record[Any, Any]]",
    cast("Any", tuple).__new__,
)


class Corrupt(RequestError):
    """A batch of a partition is corrupt; the application may seek past it or stop.

    `next_offset` is None if the broker did not send the batch, because it knows of the damage.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, next_offset: int | None, why: str
    ) -> None:
        named = f"the batch at offset {offset} "
        if why.startswith(named):  # do not name it twice
            why = f"it {why.removeprefix(named)}"
        end = "" if next_offset is None else f"; the next batch starts at offset {next_offset}"
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"{partition}: the batch at offset {offset} cannot be read: {why}{end}",
        )
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset

    @property
    def hint(self) -> str:
        """What to do."""
        return "The stored records are damaged. Seek past them, or restore them from a copy."


def corrupt(partition: TopicPartition, batch: Batch, error: Exception) -> Corrupt:
    """Return the error for a batch that cannot be read."""
    return Corrupt(partition, batch.header.base_offset, batch.header.next_offset, str(error))


@dataclass(frozen=True, slots=True)
class Decoder(Generic[K, V]):
    """Makes records; without a deserializer they have bytes."""

    key: Deserializer[K] | None
    value: Deserializer[V] | None
    checks_crc: bool
    bad_record: Callable[[DeserializationFailed], object] | None
    """Called with a deserialization error; if it returns, the record is skipped."""

    def records(
        self,
        partition: TopicPartition,
        batches: Sequence[Batch],
        from_offset: int,
        records_min: int,
        bytes_min: int,
    ) -> tuple[list[Record[K, V]], int]:
        """Return the records of the next batches from an offset on, and the offset after them.

        Batches are decoded together until they have `records_min` records or `bytes_min` bytes.
        Each batch is decoded alone if functions of the application deserialize its records. An
        error is raised only if no record is before it; otherwise the records end before it.
        """
        kind: type[Record[Any, Any]] = Record
        try:
            records, until = read_record_tuples(
                kind,
                *partition,
                _TIMESTAMP_TYPES,
                batches,
                from_offset,
                records_min if self.is_plain else 0,
                bytes_min,
                crc32c if self.checks_crc else None,
                DECOMPRESSED_BYTES_MAX,
            )
        except UNREADABLE as error:
            raise corrupt(partition, batches[0], error) from error
        return (records, until) if self.is_plain else self._deserialized(partition, records, until)

    def _deserialized(
        self, partition: TopicPartition, raw: list[Record[bytes, bytes]], until: int
    ) -> tuple[list[Record[K, V]], int]:
        new = _new
        made: list[Record[Any, Any]] = []
        for record in raw:
            topic, index, offset, time_ms, time_type, key, value, headers, epoch = record
            try:
                if self.key is not None:
                    key = deserialize(self.key, *partition, offset, "key", key)
                if self.value is not None:
                    value = deserialize(self.value, *partition, offset, "value", value)
            except DeserializationFailed as failed:
                if self.bad_record is not None:
                    self.bad_record(failed)
                    continue
                if not made:
                    raise
                return made, offset
            place = (topic, index, offset, time_ms, time_type)
            made.append(new(Record, (*place, key, value, headers, epoch)))
        return made, until

    @property
    def is_plain(self) -> bool:
        """Whether it calls no function of the application."""
        return self.key is None and self.value is None
