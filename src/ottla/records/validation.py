"""Validates a produced batch by Kafka's rules, with Kafka's error codes.

`validate` changes nothing, and returns only if no rule is violated. The kernel parses every record,
also of a compressed batch. Nothing is allocated per record.

| rule | violated by | code |
|---|---|---|
| one | no batch, a truncated batch, or bytes after the first batch | INVALID_RECORD |
| size | more bytes than max.message.bytes | MESSAGE_TOO_LARGE |
| shape | a length smaller than a header, a magic above 2 | CORRUPT_MESSAGE |
| magic | message format 0 or 1 | INVALID_RECORD |
| crc | a CRC that does not match | CORRUPT_MESSAGE |
| base | a base offset other than 0 | INVALID_RECORD |
| count | a count that is not lastOffsetDelta + 1, or not above 0 | INVALID_RECORD |
| control | a control batch | INVALID_RECORD |
| producer | a producer id with a negative epoch or sequence | INVALID_RECORD |
| transaction | transactional without a producer id | INVALID_RECORD |
| codec | an unknown codec; zstd before Produce 7 | UNSUPPORTED_COMPRESSION_TYPE |
| append time | LogAppendTime, which only the broker sets | INVALID_TIMESTAMP |
| bomb | more decompressed bytes than allowed | MESSAGE_TOO_LARGE |
| stream | records that cannot be decompressed | INVALID_RECORD |
| records | corrupt records, or offset deltas other than 0 to n-1 | INVALID_RECORD |
| key | a record without a key for a compacted topic | INVALID_RECORD, per record |
| clock | CreateTime too far from the broker's clock, except -1 | INVALID_TIMESTAMP, per record |

A wrong max timestamp in the header is not an error: the result has the correct one, which the
caller writes. A base sequence without a producer id is ignored, because some clients send 0.
Undefined attribute bits and the attributes of a record are ignored.

Ottla is stricter than Kafka. Kafka truncates trailing bytes (one) and renumbers records (records).
It accepts a null length below -1 (records), more than 65,535 headers in a record (records), a
negative epoch (producer), and LogAppendTime set by a client on a CreateTime topic (append time).
For records that cannot be decompressed and for an unknown codec Kafka returns a server error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from ottla.errors import ErrorCode
from ottla.protocol.primitives import Buffer
from ottla.records._kernel import (
    HEADER_SIZE,
    REASONS,
    check_records,
    find_invalid_records,
)
from ottla.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_END,
    HEADER,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    Batch,
    BatchHeader,
    TimestampType,
    unpack_header,
)
from ottla.records.builder import MAX_MESSAGE_BYTES
from ottla.records.compression import Compression
from ottla.records.errors import (
    CorruptCompression,
    CorruptRecords,
    DecompressionLimitExceeded,
    InvalidRecords,
    UnsupportedMagic,
    WouldBlock,
    described_errors,
)

ZSTD_PRODUCE_VERSION_MIN: Final = 7  # KIP-110

# The invalid records that a response lists, at most: a batch of 1 MB could have 150,000 of them.
RECORD_ERRORS_MAX: Final = 1000

# The limit for the decompressed records of a produced batch: the default of
# max.decompressed.message.bytes. Readers allow more, because a log may come from another broker.
PRODUCED_BYTES_MAX: Final = 32 * 1024 * 1024

# What can be decompressed in about half a millisecond, without blocking the event loop for long.
NONBLOCKING_DECOMPRESS_BYTES: Final[Mapping[Compression, int]] = MappingProxyType(
    {
        Compression.GZIP: 64 * 1024,
        Compression.ZSTD: 256 * 1024,
        Compression.SNAPPY: 512 * 1024,
        Compression.LZ4: 1024 * 1024,
    }
)

# The same for a batch that is recompressed, for which gzip needs a millisecond.
NONBLOCKING_RECOMPRESS_BYTES: Final = 32 * 1024

_INT64_MIN: Final = -0x8000000000000000
_INT64_MAX: Final = 0x7FFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class ValidationConfig:
    """The settings of a topic that validation needs; the defaults are Kafka's."""

    max_message_bytes: int = MAX_MESSAGE_BYTES
    compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = _INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    decompressed_bytes_max: int = PRODUCED_BYTES_MAX
    compression: Compression | None = None  # the codec of stored batches; None keeps the producer's
    compression_level: int | None = None


class ValidBatch(NamedTuple):
    """A valid batch, and what the broker has to write into its header."""

    header: BatchHeader
    timestamp_type: TimestampType
    max_timestamp: int  # of the records; under LogAppendTime the broker's clock
    max_timestamp_delta: int  # offset delta of the record that has it; -1 if there is none
    patch: bool  # whether `assign_timestamp` has to change the header
    record_bytes: Buffer  # the encoded records, decompressed

    @property
    def record_count(self) -> int:
        """Return the number of records."""
        return self.header.record_count


def validate(
    data: Buffer,
    rules: ValidationConfig,
    *,
    now_ms: int,
    produce_version: int,
    nonblocking: bool = False,
) -> ValidBatch:
    """Validate the records of one partition in a Produce request.

    Raise InvalidRecords with an error code, a message and the invalid records. With `nonblocking`,
    raise WouldBlock if the check would take more than about a millisecond.
    """
    if (plain := _plain(data, rules, now_ms)) is not None:
        return plain
    batch = _only_batch(memoryview(data), rules.max_message_bytes)
    header = batch.header
    _check_header(header, produce_version)
    append_time = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    # Under LogAppendTime the timestamps of the records are overridden, so any value is valid.
    earliest = (
        _INT64_MIN if append_time else max(now_ms - rules.timestamp_before_max_ms, _INT64_MIN)
    )
    latest = _INT64_MAX if append_time else min(now_ms + rules.timestamp_after_max_ms, _INT64_MAX)
    section = (_section_at_once if nonblocking else _section)(batch, rules)
    reason, record, max_timestamp, max_delta, without_key, out_of_bounds = check_records(
        section, header.record_count, header.base_timestamp, earliest, latest
    )
    if reason:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, _describe(reason, record))
    if out_of_bounds >= 0 or (rules.compacted and without_key >= 0):
        raise _refused_records(section, header, earliest, latest, rules.compacted)
    if append_time:
        max_timestamp, max_delta = now_ms, header.last_offset_delta
    return ValidBatch(
        header,
        rules.timestamp_type,
        max_timestamp,
        max_delta,
        patch=append_time or header.max_timestamp != max_timestamp,
        record_bytes=section,
    )


def find_corruption(batch: Batch) -> str | None:
    """Check the structure of every record; return what is wrong with the first corrupt one.

    The batch must have all its records: offset deltas must be 0 to n - 1.
    """
    header = batch.header
    reason, record, *_ = check_records(
        batch.record_bytes(), header.record_count, header.base_timestamp, _INT64_MIN, _INT64_MAX
    )
    return _describe(reason, record) if reason else None


def _describe(reason: int, record: int) -> str:
    return f"record {record}: {REASONS[reason]}" if record >= 0 else REASONS[reason]


def _plain(data: Buffer, rules: ValidationConfig, now_ms: int) -> ValidBatch | None:
    """Check all rules in one step for the usual batch: not compressed, and valid.

    Return None for any other batch; `validate` then finds the violated rule. One function instead
    of many small calls saves the broker a large part of its CPU time.
    """
    size = len(data)
    if (
        size < HEADER_SIZE
        or rules.compression is not None
        or rules.timestamp_type is not TimestampType.CREATE_TIME
    ):
        return None
    header = BatchHeader._make(HEADER.unpack_from(data))
    count = header.record_count
    if (
        header.magic != MAGIC
        or header.length + LENGTH_END != size
        or size > rules.max_message_bytes
        or header.base_offset
        or header.attributes
        or not 0 < count == header.last_offset_delta + 1
        or (header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0))
    ):
        return None
    view = memoryview(data)
    if crc32c(view[CRC_END:]) != header.crc:
        return None
    section = view[HEADER_SIZE:]
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    reason, _, timestamp, max_delta, without_key, out_of_bounds = check_records(
        section,
        count,
        header.base_timestamp,
        earliest if earliest > _INT64_MIN else _INT64_MIN,
        latest if latest < _INT64_MAX else _INT64_MAX,
    )
    if reason or out_of_bounds >= 0 or (without_key >= 0 and rules.compacted):
        return None
    patch = header.max_timestamp != timestamp
    return ValidBatch(header, TimestampType.CREATE_TIME, timestamp, max_delta, patch, section)


def _only_batch(view: memoryview, max_message_bytes: int) -> Batch:
    """Check the rules one, size, shape, magic and crc."""
    if not view:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "the request has no record batch")
    try:
        header = unpack_header(view)
    except UnsupportedMagic as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None
    except CorruptRecords as error:
        truncated = len(view) < HEADER_SIZE
        code = ErrorCode.INVALID_RECORD if truncated else ErrorCode.CORRUPT_MESSAGE
        raise InvalidRecords(code, str(error)) from None
    size = LENGTH_END + header.length
    if size > max_message_bytes:
        raise InvalidRecords(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, max.message.bytes of the topic is {max_message_bytes}",
        )
    if size > len(view):
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "the record batch is truncated")
    if size < len(view):
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD, "a request must have exactly one record batch per partition"
        )
    batch = Batch(view, header)
    if not batch.crc_ok:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, "the CRC does not match the batch")
    return batch


def _check_header(header: BatchHeader, produce_version: int) -> None:
    """Check the rules base, count, control, producer, transaction, codec and append time."""
    attributes = header.attributes
    codec = attributes & COMPRESSION_MASK
    problem = None
    code = ErrorCode.INVALID_RECORD
    if header.base_offset != 0:
        problem = f"the base offset is {header.base_offset}, a client must send 0"
    elif header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        problem = (
            f"the batch has {header.record_count} records and "
            f"{header.last_offset_delta + 1} offsets"
        )
    elif attributes & CONTROL:
        problem = "a client must not write control records"
    elif header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        problem = (
            f"producer {header.producer_id} has epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}"
        )
    elif attributes & TRANSACTIONAL and header.producer_id < 0:
        problem = "the batch is transactional and has no producer id"
    elif codec > Compression.ZSTD:
        problem = f"unknown compression codec {codec}"
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    elif codec == Compression.ZSTD and produce_version < ZSTD_PRODUCE_VERSION_MIN:
        problem = f"zstd needs version {ZSTD_PRODUCE_VERSION_MIN} of Produce or later"
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    elif attributes & LOG_APPEND_TIME:
        problem = "a client must not set the timestamp type to LogAppendTime"
        code = ErrorCode.INVALID_TIMESTAMP
    if problem is not None:
        raise InvalidRecords(code, problem)


def _section_at_once(batch: Batch, rules: ValidationConfig) -> Buffer:
    """Return the decompressed records; raise WouldBlock if that would block for long."""
    codec = batch.header.compression
    size = len(batch.data)
    if rules.compression is not None and rules.compression is not codec:
        most = NONBLOCKING_RECOMPRESS_BYTES
    elif codec is Compression.NONE:
        return _section(batch, rules)
    else:
        most = NONBLOCKING_DECOMPRESS_BYTES[codec]
        size *= 2  # records compress to half or less
    if size >= most:
        raise WouldBlock
    if codec is Compression.NONE or most >= rules.decompressed_bytes_max:
        return _section(batch, rules)
    try:
        return batch.record_bytes(most)
    except DecompressionLimitExceeded:
        raise WouldBlock from None
    except CorruptCompression as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None


def _section(batch: Batch, rules: ValidationConfig) -> Buffer:
    """Check the rules bomb and stream; return the decompressed records."""
    try:
        return batch.record_bytes(rules.decompressed_bytes_max)
    except DecompressionLimitExceeded as error:
        raise InvalidRecords(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except CorruptCompression as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None


def _refused_records(
    section: Buffer, header: BatchHeader, earliest: int, latest: int, compacted: bool
) -> InvalidRecords:
    """Return the error for the rules key and clock; the first invalid record decides the code."""
    found = find_invalid_records(
        section,
        header.record_count,
        header.base_timestamp,
        earliest,
        latest,
        compacted,
        RECORD_ERRORS_MAX,
    )
    errors = [
        (
            index,
            "a compacted topic needs a key in every record"
            if timestamp is None
            else f"timestamp {timestamp} is outside [{earliest}, {latest}]",
        )
        for index, timestamp in found
    ]
    code = ErrorCode.INVALID_RECORD if found[0][1] is None else ErrorCode.INVALID_TIMESTAMP
    return InvalidRecords(code, described_errors(errors), errors)
