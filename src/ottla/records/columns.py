"""Records as columns: Arrow's buffers, with or without pyarrow.

Invariant: a Columns value describes one row per record, in the order of the log; its buffers are
laid out as Arrow has them and are never copied on the way to or from it. No Python object is made
per record.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from ottla.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.protocol.primitives import Buffer
from ottla.records._kernel import (
    HEADER_SIZE,
    BinaryColumn,
    ColumnBuilder,
    HeaderColumn,
    RecordAppender,
    TimestampColumn,
    encode_rows,
    find_oversized_row,
)
from ottla.records._kernel import partitions as kernel_partitions
from ottla.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    TRANSACTIONAL,
    Batch,
    TimestampType,
    batches,
    seal,
)
from ottla.records.compression import Compression, compress
from ottla.records.errors import CorruptRecords

_OFFSET_MAX: Final = 0x7FFFFFFFFFFFFFFF
_SEQUENCE_MASK: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Rows of bytes: row i is data[offsets[start + i]:offsets[start + i + 1]].

    `offsets` are 32-bit numbers of the machine's byte order, or 64-bit ones when `wide`. Bit
    start + i of `validity` is 0 for a null; without validity there is none.
    """

    offsets: Buffer
    data: Buffer
    validity: Buffer | None
    length: int
    start: int = 0
    wide: bool = False

    def kernel(self) -> BinaryColumn:
        """The kernel's view; ValueError when the buffers are too short for the rows."""
        return BinaryColumn(
            self.offsets, self.data, self.validity, self.length, self.start, self.wide
        )


@dataclass(frozen=True, slots=True, eq=False)
class Headers:
    """Lists of headers: those of row i are rows offsets[start + i] to offsets[start + i + 1]."""

    offsets: Buffer
    validity: Buffer | None
    keys: Column
    values: Column
    length: int
    start: int = 0
    wide: bool = False

    def kernel(self) -> HeaderColumn:
        """The kernel's view of the lists and of both columns."""
        return HeaderColumn(
            self.offsets,
            self.validity,
            self.keys.kernel(),
            self.values.kernel(),
            self.length,
            self.start,
            self.wide,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """One row per record. `offsets` and `timestamps` (in ms) are 64-bit numbers.

    Records that are to be written need no offsets; a column of keys, values or headers that is
    None is null, or empty, throughout.
    """

    rows: int
    timestamps: Buffer
    keys: Column | None
    values: Column | None
    headers: Headers | None = None
    offsets: Buffer | None = None
    timestamp_types: Sequence[tuple[TimestampType, int]] = ()
    """Whose the timestamps of what was read are: of so many rows, one run after the other."""


class Rows:
    """Columns as the kernel reads them; ValueError when the buffers are too short for the rows."""

    __slots__ = ("_headers", "_keys", "_timestamps", "_values", "count")

    def __init__(self, columns: Columns) -> None:
        self.count = columns.rows
        self._keys = None if columns.keys is None else columns.keys.kernel()
        self._values = None if columns.values is None else columns.values.kernel()
        self._headers = None if columns.headers is None else columns.headers.kernel()
        self._timestamps = TimestampColumn(columns.timestamps, columns.rows)

    def append_to(self, appender: RecordAppender, start: int, stop: int) -> int:
        """Append rows from start on to a batch; the row behind the last that fitted."""
        parts = (self._keys, self._values, self._headers, self._timestamps)
        return appender.append_rows(*parts, start, stop)

    def larger(self, start: int, stop: int, limit: int) -> tuple[int, int] | None:
        """The first row that may take more than limit bytes in a batch of its own, and how many.

        ValueError when there is one that no batch can have, as with a header's key that is null.
        """
        parts = (self._keys, self._values, self._headers)
        row, size = find_oversized_row(*parts, start, stop, limit)
        return (row, size) if row < stop else None


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch as it goes to the broker, and the rows [first_row, next_row) that are in it."""

    data: Buffer
    first_row: int
    next_row: int


def decode(
    source: Buffer | Iterable[Batch],
    *,
    from_offset: int = 0,
    to_offset: int = _OFFSET_MAX,
    check_crc: bool = True,
    lenient: bool = False,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Columns:
    """Decode the records of a run of batches whose offsets are in [from_offset, to_offset).

    Control batches are passed over. `lenient` is that of `batches`, for bytes of a fetch.
    ColumnsTooLarge when keys or values are more than 2 GiB together.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        source = batches(cast("Buffer", source), lenient=lenient)
    wanted = [
        batch
        for batch in source
        if not batch.header.is_control
        and batch.header.next_offset > from_offset
        and batch.header.base_offset < to_offset
    ]
    builder = ColumnBuilder(*_expected(wanted))
    types: list[tuple[TimestampType, int]] = []
    for batch in wanted:
        before = builder.rows
        if check_crc and not batch.crc_ok:
            raise CorruptRecords(f"the CRC of the batch at {batch.header.base_offset} is wrong")
        header = batch.header
        builder.append_batch(
            batch.section(decompressed_bytes_max),
            header.record_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            header.append_timestamp,
            from_offset,
            to_offset,
        )
        rows = builder.rows - before
        if types and types[-1][0] is header.timestamp_type:
            rows += types.pop()[1]
        types.append((header.timestamp_type, rows))
    builder.finish()
    return _columns(builder, types)


def _expected(wanted: list[Batch]) -> tuple[int, int]:
    """Rows and bytes to make room for at once; what a header says counts only if it can be true."""
    rows = size = 0
    for batch in wanted:
        if not batch.header.attributes & 7:
            room = len(batch.data) - HEADER_SIZE
            size += room
            rows += max(0, min(batch.header.record_count, room // 7))
    return rows, size


def _columns(builder: ColumnBuilder, types: Sequence[tuple[TimestampType, int]]) -> Columns:
    rows, headers = builder.rows, builder.headers
    return Columns(
        rows,
        builder.timestamps,
        Column(
            builder.key_offsets,
            builder.key_data,
            builder.key_validity if builder.key_nulls else None,
            rows,
        ),
        Column(
            builder.value_offsets,
            builder.value_data,
            builder.value_validity if builder.value_nulls else None,
            rows,
        ),
        Headers(
            builder.header_offsets,
            None,
            Column(builder.header_key_offsets, builder.header_key_data, None, headers),
            Column(
                builder.header_value_offsets,
                builder.header_value_data,
                builder.header_value_validity if builder.header_value_nulls else None,
                headers,
            ),
            rows,
        ),
        builder.offsets,
        types,
    )


def encode(
    columns: Columns,
    *,
    limit: int,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    start: int = 0,
    stop: int | None = None,
    base_offset: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> list[EncodedBatch]:
    """Encode rows into batches of at most limit bytes each (before compression).

    A row that is larger has a batch of its own. Sequences run on from batch to batch. Without a
    base offset every batch has 0, as a broker demands of a client; with one, offsets run on.
    """
    stop = columns.rows if stop is None else stop
    keys = None if columns.keys is None else columns.keys.kernel()
    values = None if columns.values is None else columns.values.kernel()
    headers = None if columns.headers is None else columns.headers.kernel()
    timestamps = TimestampColumn(columns.timestamps, columns.rows)
    encoded: list[EncodedBatch] = []
    row = start
    while row < stop:
        buffer, after, base_timestamp, max_timestamp = encode_rows(
            keys, values, headers, timestamps, 0, row, stop, limit
        )
        if compression is not Compression.NONE:
            with memoryview(buffer) as whole, whole[HEADER_SIZE:] as records:
                compressed = compress(compression, records, level)
            buffer[HEADER_SIZE:] = compressed
        done = row - start
        seal(
            buffer,
            record_count=after - row,
            last_offset_delta=after - row - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            attributes=compression.value | (TRANSACTIONAL if transactional else 0),
            base_offset=0 if base_offset is None else base_offset + done,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence
            if base_sequence < 0
            else (base_sequence + done) & _SEQUENCE_MASK,
        )
        encoded.append(EncodedBatch(buffer, row, after))
        row = after
    return encoded


def partitions(keys: Column, count: int) -> memoryview:
    """The partition of each key by Kafka's murmur2, as 32-bit numbers; -1 where there is none."""
    return memoryview(kernel_partitions(keys.kernel(), count)).cast("i")
