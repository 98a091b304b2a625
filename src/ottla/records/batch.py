"""Record batches of magic 2: a header of 61 bytes, and records that may be compressed.

Invariant: a Batch has exactly the bytes that its header declares. Records are decoded on demand.
The CRC covers everything from the attributes on. The leader can therefore write the base offset and
the leader epoch, which precede them, without computing the CRC again.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from ottla.ids import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
)
from ottla.protocol.primitives import Buffer
from ottla.records._kernel import (
    HEADER_SIZE,
    RecordReader,
    scan_batch_headers,
    split_batches,
)
from ottla.records.compression import Compression, decompress
from ottla.records.errors import CorruptRecords, UnsupportedMagic

MAGIC: Final = 2
NO_TIMESTAMP: Final = -1

# The default limit for the decompressed records of a batch; larger than a request may be.
DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024

# The fields of BatchHeader, in their order.
HEADER: Final = Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_SIZE

LENGTH_END: Final = 12  # base offset and length; the length counts the bytes after it
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16  # in all three formats
_BASE_OFFSET: Final = Struct(">q")
_LEADER_EPOCH: Final = Struct(">i")
_LEADER_EPOCH_AT: Final = 12
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
CRC_END: Final = 21  # the CRC covers everything from here on
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35

# Bits of the attributes. Kafka and Ottla ignore the other bits.
COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_INT64_MAX: Final = 0x7FFFFFFFFFFFFFFF
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class TimestampType(IntEnum):
    """Whether the producer or the broker sets the timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


# Indexed by number, because a lookup in an enum takes ten times as long.
_CODECS: Final = tuple(Compression)
_TIMESTAMP_TYPES: Final = tuple(TimestampType)


class BatchHeader(NamedTuple):
    """The fields of a batch header, as on disk. A tuple, because one struct unpack creates it."""

    base_offset: Offset
    length: int  # bytes after this field
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int  # of the first record, or the delete horizon if that flag is set
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: Sequence
    record_count: int

    @property
    def size(self) -> int:
        """Return the size of the batch in bytes."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> Offset:
        """Return the offset of the last record, even if compaction has removed it."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """Return the offset after the last record."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> Sequence:
        """Return the sequence of the last record; 2**31 - 1 is followed by 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return Sequence((self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK)

    @property
    def compression(self) -> Compression:
        """Return the compression codec; raise CorruptRecords for an unknown number."""
        code = self.attributes & COMPRESSION_MASK
        if code >= len(_CODECS):
            raise CorruptRecords(f"unknown compression codec {code}")
        return _CODECS[code]

    @property
    def timestamp_type(self) -> TimestampType:
        """Return whether the producer or the broker set the timestamps."""
        return _TIMESTAMP_TYPES[bool(self.attributes & LOG_APPEND_TIME)]

    @property
    def is_transactional(self) -> bool:
        """Return whether the records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return whether this is a control batch, which consumers do not see."""
        return bool(self.attributes & CONTROL)

    @property
    def has_producer(self) -> bool:
        """Return whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id >= 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return when compaction may delete its tombstones or markers; None if not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def append_timestamp(self) -> int | None:
        """Return the timestamp of all records under LogAppendTime; None under CreateTime."""
        return self.max_timestamp if self.attributes & LOG_APPEND_TIME else None


class Batch:
    """A header and the bytes of its batch; the bytes are not copied."""

    __slots__ = ("data", "header")

    def __init__(self, data: Buffer, header: BatchHeader | None = None) -> None:
        self.data = memoryview(data)
        self.header = read_header(data) if header is None else header
        if self.header.size != len(self.data):
            raise CorruptRecords(
                f"the header declares a batch of {self.header.size} bytes, not {len(self.data)}"
            )

    def __repr__(self) -> str:
        return f"Batch({self.header})"

    @property
    def crc_ok(self) -> bool:
        """Return whether the CRC matches the bytes."""
        return crc32c(self.data[CRC_END:]) == self.header.crc

    def record_bytes(self, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
        """Return the encoded records, decompressed; the limit bounds their size."""
        raw = self.data[HEADER_SIZE:]
        compression = self.header.compression
        # A batch that compaction has emptied may keep its codec, with nothing to decompress.
        if compression is Compression.NONE or not (raw or self.header.record_count):
            return raw
        return decompress(compression, raw, decompressed_bytes_max)

    def records(
        self,
        *,
        from_offset: int = 0,
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> RecordReader:
        """Return an iterator over the records; its `read_all` returns them as a list.

        The iterator raises CorruptRecords when it reaches the corrupt record.
        """
        header = self.header
        return RecordReader(
            self.record_bytes(decompressed_bytes_max),
            header.record_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            header.append_timestamp,
            from_offset,
        )


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at a position; raise CorruptRecords if its offsets are not those of a log.

    The caller checks that the batch is complete and that its CRC matches.
    """
    header = unpack_header(data, position)
    if header.last_offset_delta < 0 or not (
        0 <= header.base_offset <= _INT64_MAX - header.last_offset_delta - 1
    ):
        raise CorruptRecords(
            f"invalid offsets: base offset {header.base_offset}, "
            f"last offset delta {header.last_offset_delta}"
        )
    return header


def unpack_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at a position; only its magic and length are checked."""
    if len(data) - position < HEADER_SIZE:
        if 0 <= _peek_magic(data, position) < MAGIC:
            raise UnsupportedMagic(_peek_magic(data, position))
        raise CorruptRecords("the batch header is truncated")
    header = BatchHeader._make(HEADER.unpack_from(data, position))
    if header.magic != MAGIC:
        raise _wrong_magic(header.magic)
    if header.length < HEADER_SIZE - LENGTH_END:
        raise CorruptRecords(f"a batch length of {header.length} bytes is less than a header")
    return header


def _peek_magic(data: Buffer, position: int) -> int:
    """Return the magic of the batch at a position; -1 if it is truncated."""
    at = position + _MAGIC_AT
    return data[at] if at < len(data) else -1


def _wrong_magic(magic: int) -> CorruptRecords:
    if 0 <= magic < MAGIC:
        return UnsupportedMagic(magic)
    return CorruptRecords(f"unknown message format {magic}")


def batches(data: Buffer, *, lenient: bool = False) -> Iterator[Batch]:
    """Iterate over consecutive batches.

    A batch that is truncated at the end raises CorruptRecords. In lenient mode it ends the
    iteration, because a fetch response may end within a batch. Other bytes raise in both modes.
    """
    view = memoryview(data)
    position, end = 0, len(view)
    while position < end:
        left = end - position
        if left < HEADER_SIZE or left < LENGTH_END + _length(view, position):
            if lenient and _is_truncated_batch(view, position):
                return
            read_header(view, position)
            raise CorruptRecords("the record batch is truncated")
        header = read_header(view, position)
        size = header.size
        yield Batch(view[position : position + size], header)
        position += size


def complete_batches(data: Buffer) -> list[Batch]:
    """Return the batches of a fetch response, as `batches` in lenient mode does, but faster."""
    view = memoryview(data)
    found, position = split_batches(view, Batch, BatchHeader)
    if position < len(view):
        found += batches(view[position:], lenient=True)  # usually a truncated one
    return found


def _length(view: memoryview, position: int) -> int:
    return _LENGTH.unpack_from(view, position + _LENGTH_AT)[0]


def _is_truncated_batch(view: memoryview, position: int) -> bool:
    """Return whether the remaining bytes can be the start of a batch."""
    left = len(view) - position
    if left >= LENGTH_END and _length(view, position) < HEADER_SIZE - LENGTH_END:
        return False
    return left <= _MAGIC_AT or _peek_magic(view, position) == MAGIC


def scan_headers(
    data: Buffer, position: int, *, expected: int, limit: int
) -> tuple[list[BatchHeader], int]:
    """Read the headers of consecutive valid batches, and return the position after them.

    A batch is valid if it is complete, its CRC matches, its base offset follows the batch before it
    (`expected` for the first), and its last offset is below `limit`.
    """
    return scan_batch_headers(data, position, expected, limit, BatchHeader, crc32c)


def assign_offset(
    buffer: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0
) -> None:
    """Write the base offset and the leader epoch, which the CRC does not cover."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def assign_timestamp(
    buffer: bytearray | memoryview,
    timestamp_type: TimestampType,
    max_timestamp: int,
    position: int = 0,
) -> bool:
    """Write the timestamp type and max timestamp, and the CRC; return whether anything changed."""
    header = read_header(buffer, position)
    if header.timestamp_type is timestamp_type and header.max_timestamp == max_timestamp:
        return False
    attributes = header.attributes & ~LOG_APPEND_TIME
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(buffer, position + CRC_END, attributes)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp)
    with memoryview(buffer) as whole, whole[position : position + header.size] as batch:
        _CRC.pack_into(buffer, position + _CRC_AT, crc32c(batch[CRC_END:]))
    return True


def write_header(
    buffer: bytearray | memoryview,
    *,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> None:
    """Write the header and its CRC to the first 61 bytes of a buffer; the records follow them."""
    HEADER.pack_into(
        buffer,
        0,
        base_offset,
        len(buffer) - LENGTH_END,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _CRC.pack_into(buffer, _CRC_AT, crc32c(memoryview(buffer)[CRC_END:]))


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch without its records; it keeps the offsets and the producer's sequence."""
    buffer = bytearray(HEADER_SIZE)
    write_header(
        buffer,
        record_count=0,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        attributes=header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return bytes(buffer)
