"""The default limits on hostile input, each with its number."""

import pytest

from cases import each_case
from ottla.errors import ErrorCode
from ottla.records import decode
from ottla.records._kernel import ColumnBuilder, write_varint
from ottla.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    Batch,
    empty_batch,
    read_header,
    write_header,
)
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression, compress, decompress
from ottla.records.control import read_control
from ottla.records.errors import (
    CorruptCompression,
    CorruptRecords,
    DecompressionLimitExceeded,
    InvalidRecords,
)
from ottla.records.validation import (
    PRODUCED_BYTES_MAX,
    RECORD_ERRORS_MAX,
    ValidationConfig,
    validate,
)

NOW_MS = 1_700_000_000_000
HEADERS_MAX = 65_535


def batch_of(
    section: bytes, compression: Compression, count: int = 1, attributes: int = 0
) -> bytes:
    buffer = bytearray(HEADER_SIZE) + compress(compression, section)
    write_header(
        buffer,
        record_count=count,
        last_offset_delta=count - 1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        attributes=attributes | compression,
    )
    return bytes(buffer)


def record_with_headers(count: int) -> bytes:
    body = b"\0\0\0\x01\x01" + write_varint(count) + b"\0\x01" * count
    return write_varint(len(body)) + body


def test_default_limits() -> None:
    assert PRODUCED_BYTES_MAX == 32 * 2**20
    assert DECOMPRESSED_BYTES_MAX == 128 * 2**20
    assert RECORD_ERRORS_MAX == 1000
    assert ValidationConfig().decompressed_bytes_max == PRODUCED_BYTES_MAX


def test_record_has_at_most_65535_headers() -> None:
    most = batch_of(record_with_headers(HEADERS_MAX), Compression.ZSTD)
    validate(most, ValidationConfig(), now_ms=NOW_MS, produce_version=9)
    assert len(next(Batch(most).records()).headers) == HEADERS_MAX
    more = batch_of(record_with_headers(HEADERS_MAX + 1), Compression.ZSTD)
    with pytest.raises(InvalidRecords, match="header count"):
        validate(more, ValidationConfig(), now_ms=NOW_MS, produce_version=9)
    with pytest.raises(CorruptRecords, match="header count"):
        next(Batch(more).records())
    with pytest.raises(CorruptRecords, match="header count"):
        decode(more)


@each_case("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_produced_batch_decompresses_to_32_mib_at_most(codec: Compression) -> None:
    bomb = batch_of(bytes(PRODUCED_BYTES_MAX + 1), codec)
    with pytest.raises(InvalidRecords) as raised:
        validate(bomb, ValidationConfig(), now_ms=NOW_MS, produce_version=9)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_reader_decompresses_128_mib_at_most() -> None:
    with pytest.raises(DecompressionLimitExceeded):
        Batch(batch_of(bytes(DECOMPRESSED_BYTES_MAX + 1), Compression.ZSTD)).records()


def test_error_lists_at_most_1000_records() -> None:
    builder = BatchBuilder()
    for _ in range(RECORD_ERRORS_MAX + 5):
        builder.append(NOW_MS, None, b"v")
    with pytest.raises(InvalidRecords) as raised:
        validate(
            builder.build(), ValidationConfig(compacted=True), now_ms=NOW_MS, produce_version=9
        )
    assert len(raised.value.record_errors) == RECORD_ERRORS_MAX


def test_large_control_batch_is_not_decompressed() -> None:
    body = b"\0\0\0\x08\0\0\0\0" + write_varint(10_000) + bytes(10_000) + b"\0"
    bloated = batch_of(write_varint(len(body)) + body, Compression.ZSTD, attributes=0x20)
    with pytest.raises(DecompressionLimitExceeded):
        read_control(Batch(bloated))


def test_false_record_count_reserves_no_rows() -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k", bytes(63))
    raw = bytearray(builder.build())
    raw[57:61] = (2**31 - 1).to_bytes(4, "big")
    columns = ColumnBuilder()
    with pytest.raises(CorruptRecords, match="more records than its bytes can hold"):
        columns.append_batches([Batch(raw)], 0, 2**63 - 1, None, 0)
    assert len(columns.offsets) == (len(raw) - HEADER_SIZE) // 7 * 8


def test_empty_batch_keeps_its_timestamp_type() -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k", b"v")
    raw = batch_of(builder.build()[HEADER_SIZE:], Compression.NONE, attributes=LOG_APPEND_TIME)
    left = read_header(empty_batch(read_header(raw)))
    assert left.attributes & LOG_APPEND_TIME
    assert left.max_timestamp == NOW_MS


ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def test_zstd_frame_size_is_bounded_by_its_blocks() -> None:
    claim = (1 << 20).to_bytes(4, "little")
    frame = ZSTD_MAGIC + b"\xa0" + claim + b"\x01\0\0"  # one empty block
    with pytest.raises(CorruptCompression, match="declares more than it can hold"):
        decompress(Compression.ZSTD, frame, 2 << 20)


def test_many_empty_zstd_blocks_are_rejected() -> None:
    frame = ZSTD_MAGIC + b"\0\x58" + b"\0\0\0" * 1001 + b"\1\0\0"
    with pytest.raises(CorruptCompression, match="empty blocks"):
        decompress(Compression.ZSTD, frame, 1 << 20)
    few = ZSTD_MAGIC + b"\0\x58" + b"\0\0\0" * 10 + b"\1\0\0"
    assert decompress(Compression.ZSTD, few, 1 << 20) == b""
