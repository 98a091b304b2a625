"""Decodes batches into records with deserialized keys and values.

Invariant: an error names topic, partition and offset. A record is skipped only if the application
says so. The records before it in the batch are handed out first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from ottla.client.consumer.record import Record
from ottla.client.serializers import DeserializationFailed, Deserializer, deserialize
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.records import Batch, CorruptRecords
from ottla.records import Record as Raw

K = TypeVar("K")
V = TypeVar("V")

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


@dataclass(frozen=True, slots=True)
class Decoder(Generic[K, V]):
    """Makes records; without a deserializer they have bytes."""

    key: Deserializer[K] | None
    value: Deserializer[V] | None
    checks_crc: bool
    bad_record: Callable[[DeserializationFailed], object] | None
    """Called with a deserialization error; if it returns, the record is skipped."""

    def records(
        self, partition: TopicPartition, batch: Batch, from_offset: int
    ) -> tuple[list[Record[K, V]], RequestError | None]:
        """Return the records of a batch from an offset on, and the error that ended them early."""
        header = batch.header
        time, epoch = header.timestamp_type, header.leader_epoch
        topic, index = partition
        new = _new
        made: list[Record[Any, Any]] = []
        try:
            if self.checks_crc and not batch.crc_ok:
                raise CorruptRecords("wrong CRC")
            reader = batch.records(from_offset=from_offset)
            if self.is_plain:
                return reader.read_tuples(Record, topic, index, time, epoch), None
            raw = reader.read_all()
        except CorruptRecords as error:
            corrupt = Corrupt(partition, header.base_offset, header.next_offset, str(error))
            corrupt.__cause__ = error
            return [], corrupt
        for r in raw:
            try:
                key, value = self._key(partition, r), self._value(partition, r)
            except DeserializationFailed as failed:
                if self.bad_record is None:
                    return made, failed
                self.bad_record(failed)
                continue
            place = (topic, index, r.offset, r.timestamp, time)
            made.append(new(Record, (*place, key, value, r.headers, epoch)))
        return made, None

    @property
    def is_plain(self) -> bool:
        """Whether it calls no function of the application."""
        return self.key is None and self.value is None

    def _key(self, partition: TopicPartition, raw: Raw) -> object:
        if self.key is None:
            return raw.key
        return deserialize(self.key, *partition, raw.offset, "key", raw.key)

    def _value(self, partition: TopicPartition, raw: Raw) -> object:
        if self.value is None:
            return raw.value
        return deserialize(self.value, *partition, raw.offset, "value", raw.value)
