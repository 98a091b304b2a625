"""Decodes batches into columns and encodes columns into batches.

A column has the buffers of an Arrow array; pyarrow is not needed. There is one row per record, in
offset order, and no Python object per record.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from fastcrc.crc32 import iscsi as crc32c

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
    write_header,
)
from ottla.records.compression import Compression, compress

_OFFSET_MAX: Final = 0x7FFFFFFFFFFFFFFF
_SEQUENCE_MASK: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The buffers of an Arrow array of binary or string.

    Row i is data[offsets[start + i] : offsets[start + i + 1]].

    The offsets have 32 bits, or 64 bits if `large`, in native byte order. Bit start + i of
    `validity` is 0 for a null. Without validity there are no nulls.
    """

    offsets: Buffer
    data: Buffer
    validity: Buffer | None
    length: int
    start: int = 0
    large: bool = False

    def kernel(self) -> BinaryColumn:
        """Return the column for the kernel; raise ValueError if a buffer is too short."""
        return BinaryColumn(
            self.offsets, self.data, self.validity, self.length, self.start, self.large
        )


@dataclass(frozen=True, slots=True, eq=False)
class Headers:
    """The buffers of an Arrow array of lists; row i has headers from offsets[start + i] on."""

    offsets: Buffer
    validity: Buffer | None
    keys: Column
    values: Column
    length: int
    start: int = 0
    large: bool = False

    def kernel(self) -> HeaderColumn:
        """Return the column for the kernel; raise ValueError if a buffer is too short."""
        return HeaderColumn(
            self.offsets,
            self.validity,
            self.keys.kernel(),
            self.values.kernel(),
            self.length,
            self.start,
            self.large,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """One row per record. `offsets` and `timestamps` (in ms) are 64-bit integers.

    Records to encode need no offsets. If `keys`, `values` or `headers` is None, no record has one.
    """

    rows: int
    timestamps: Buffer
    keys: Column | None
    values: Column | None
    headers: Headers | None = None
    offsets: Buffer | None = None
    timestamp_types: Sequence[tuple[TimestampType, int]] = ()
    """For decoded records: the timestamp type of each run of rows, and the number of rows."""


class Rows:
    """Columns in the form that the kernel encodes; ValueError if a buffer is too short."""

    __slots__ = ("_headers", "_keys", "_timestamps", "_values", "count")

    def __init__(self, columns: Columns) -> None:
        self.count = columns.rows
        self._keys = None if columns.keys is None else columns.keys.kernel()
        self._values = None if columns.values is None else columns.values.kernel()
        self._headers = None if columns.headers is None else columns.headers.kernel()
        self._timestamps = TimestampColumn(columns.timestamps, columns.rows)

    def append_to(self, appender: RecordAppender, start: int, stop: int) -> int:
        """Append rows from `start` on while they fit; return the row after the last one."""
        parts = (self._keys, self._values, self._headers, self._timestamps)
        return appender.append_rows(*parts, start, stop)

    def find_oversized(self, start: int, stop: int, limit: int) -> tuple[int, int] | None:
        """Find the first row that may exceed `limit` bytes in a batch of its own, with its size.

        Raise ValueError for a row that cannot be encoded, such as one with a null header key.
        """
        parts = (self._keys, self._values, self._headers)
        row, size = find_oversized_row(*parts, start, stop, limit)
        return (row, size) if row < stop else None


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch to send, and its rows [first_row, next_row)."""

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
    """Decode the records of consecutive batches whose offsets are in [from_offset, to_offset).

    Control batches are skipped. `lenient` is passed to `batches`. Raise ColumnsTooLarge if the
    keys, the values or the headers exceed 2 GiB.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        source = batches(cast("Buffer", source), lenient=lenient)
    builder = ColumnBuilder()
    runs = builder.append_batches(
        [*source], from_offset, to_offset, crc32c if check_crc else None, decompressed_bytes_max
    )
    builder.finish()
    types = [
        (TimestampType.LOG_APPEND_TIME if flag else TimestampType.CREATE_TIME, rows)
        for flag, rows in runs
    ]
    return _columns(builder, types)


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
    """Encode rows into batches of at most `limit` bytes each, before compression.

    A row that is larger gets a batch of its own. Sequences continue from batch to batch. Without
    `base_offset` every batch has base offset 0, as brokers require of clients. With it, offsets
    continue from batch to batch.
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
        write_header(
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
    """Return the partition of each key by murmur2, as 32-bit integers; -1 for a null key."""
    return memoryview(kernel_partitions(keys.kernel(), count)).cast("i")
