"""The rules by which a broker rejects batches; each has a test that fails without it."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from fastcrc import crc32
from hypothesis import given

from cases import each_case
from ottla.errors import ErrorCode
from ottla.protocol.primitives import Buffer
from ottla.records import validation
from ottla.records.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    TimestampType,
    assign_timestamp,
    write_header,
)
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression, compress
from ottla.records.errors import InvalidRecords, WouldBlock
from ottla.records.validation import (
    NONBLOCKING_DECOMPRESS_BYTES,
    NONBLOCKING_RECOMPRESS_BYTES,
    RECORD_ERRORS_MAX,
    ValidationConfig,
    ValidBatch,
    validate,
)
from records.drawing import Drawn, build, drawn_batches

NOW = 1_700_000_000_000
HOUR = 3_600_000
RULES = ValidationConfig(max_message_bytes=2**31 - 1)

PRODUCED = build([Drawn(NOW + i, b"k", b"v", ()) for i in range(3)])


def produce(
    data: Buffer, rules: ValidationConfig = RULES, *, now_ms: int = NOW, produce_version: int = 9
) -> ValidBatch:
    return validate(data, rules, now_ms=now_ms, produce_version=produce_version)


def refused(data: Buffer, code: ErrorCode, match: str, *, produce_version: int = 9) -> None:
    with pytest.raises(InvalidRecords, match=match) as failure:
        produce(data, produce_version=produce_version)
    assert failure.value.code is code


def patched(at: int, layout: str, *values: int, data: bytes = PRODUCED) -> bytearray:
    """The batch with another value in its header, and a valid CRC."""
    batch = bytearray(data)
    struct.pack_into(layout, batch, at, *values)
    struct.pack_into(">I", batch, 17, crc32.iscsi(bytes(batch[21:])))
    return batch


def with_section(section: bytes, count: int = 1, attributes: int = 0) -> bytes:
    """A batch with any records section and a valid header."""
    buffer = bytearray(HEADER_SIZE) + section
    write_header(
        buffer,
        record_count=count,
        last_offset_delta=count - 1,
        base_timestamp=NOW,
        max_timestamp=NOW,
        attributes=attributes,
    )
    return bytes(buffer)


def test_valid_batch_passes() -> None:
    valid = produce(PRODUCED)
    assert valid.header == Batch(PRODUCED).header
    assert (valid.max_timestamp, valid.max_timestamp_delta) == (NOW + 2, 2)
    assert (valid.record_count, valid.patch) == (3, False)
    assert valid.timestamp_type is TimestampType.CREATE_TIME


@each_case("compression", Compression)
@given(drawn=drawn_batches)
def test_every_built_batch_passes(compression: Compression, drawn: list[Drawn]) -> None:
    anytime = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert produce(build(drawn, compression), anytime).record_count == len(drawn)


# The fast path and the slow path.

TOPICS = {
    "any": RULES,
    "compacted": replace(RULES, compacted=True),
    "small": replace(RULES, max_message_bytes=len(PRODUCED)),
    "smaller": replace(RULES, max_message_bytes=len(PRODUCED) - 1),
    "before": replace(RULES, timestamp_before_max_ms=0),
    "after": replace(RULES, timestamp_after_max_ms=1),
    "ever": replace(RULES, timestamp_after_max_ms=2**63 - 1),
    "append time": replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME),
    "gzip": replace(RULES, compression=Compression.GZIP),
}

# The fields of a header with their positions, except the CRC.
FIELDS = (
    *((0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i")),
    *((27, ">q"), (35, ">q"), (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i")),
)


def variants(data: bytes) -> list[bytes]:
    """Batches that differ in one header field or in one byte of the records."""
    found = [data, data[:-1], data + b"x", data[:60], b""]
    for at, layout in FIELDS:
        top = 2 ** (8 * struct.calcsize(layout) - 1)
        (value,) = struct.unpack_from(layout, data, at)
        others = {-top, -1, 0, 1, 2, 7, value - 1, value + 1, top - 1} - {value, top}
        found += [bytes(patched(at, layout, other, data=data)) for other in others]
    places = range(HEADER_SIZE, len(data))
    found += [bytes(patched(at, ">B", data[at] ^ 1, data=data)) for at in places]
    flipped = bytearray(data)
    flipped[-1] ^= 1
    return [*found, bytes(flipped)]


def outcome(data: bytes, rules: ValidationConfig) -> object:
    try:
        valid = produce(data, rules)
    except InvalidRecords as error:
        return error.code, str(error), error.record_errors
    return valid._replace(record_bytes=bytes(valid.record_bytes))


@each_case("rules", TOPICS.values(), ids=list(TOPICS))
def test_fast_path_equals_the_slow_path(
    rules: ValidationConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyless = build([Drawn(NOW, None, b"v", ()), Drawn(-1, b"k", None, (("h", b"x"),))])
    owned = bytes(patched(43, ">qhi", 7, 0, 5))
    given = [one for batch in (PRODUCED, keyless, owned) for one in variants(batch)]
    at_once = [outcome(one, rules) for one in given]

    def none_is_plain(data: Buffer, rules: ValidationConfig, now_ms: int) -> None:
        pass

    monkeypatch.setattr(validation, "_plain", none_is_plain)
    assert at_once == [outcome(one, rules) for one in given]
    assert any(isinstance(one, ValidBatch) for one in at_once) or rules is TOPICS["smaller"]


# one


def test_one_rejects_no_batch() -> None:
    refused(b"", ErrorCode.INVALID_RECORD, "no record batch")


@each_case("size", range(1, len(PRODUCED)))
def test_one_rejects_a_truncated_batch(size: int) -> None:
    refused(PRODUCED[:size], ErrorCode.INVALID_RECORD, "truncated")


@each_case("more", [b"\0", PRODUCED, PRODUCED[:30]])
def test_one_rejects_trailing_bytes(more: bytes) -> None:
    refused(PRODUCED + more, ErrorCode.INVALID_RECORD, "exactly one")


# size


def test_size_limit_is_exact() -> None:
    size = len(PRODUCED)
    assert produce(PRODUCED, ValidationConfig(max_message_bytes=size))
    with pytest.raises(
        InvalidRecords, match=f"{size} bytes, max.message.bytes of the topic is {size - 1}"
    ) as failure:
        produce(PRODUCED, ValidationConfig(max_message_bytes=size - 1))
    assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_size_default_equals_kafka() -> None:
    assert ValidationConfig().max_message_bytes == 1_048_588


# shape and magic


@each_case("length", [48, 0, -1, -(2**31)])
def test_shape_rejects_a_length_below_a_header(length: int) -> None:
    refused(patched(8, ">i", length), ErrorCode.CORRUPT_MESSAGE, "less than a header")


@each_case("magic", [3, 127, -1])
def test_shape_rejects_an_unknown_magic(magic: int) -> None:
    refused(patched(16, ">b", magic), ErrorCode.CORRUPT_MESSAGE, "unknown message format")


@each_case("magic", [0, 1])
@each_case("size", [20, len(PRODUCED)])
def test_magic_rejects_older_formats(magic: int, size: int) -> None:
    data = patched(16, ">b", magic)[:size]
    refused(data, ErrorCode.INVALID_RECORD, f"message format {magic} is not supported")


# crc


def test_crc_detects_a_flipped_bit() -> None:
    for at in range(21, len(PRODUCED)):
        data = bytearray(PRODUCED)
        data[at] ^= 0x10
        refused(data, ErrorCode.CORRUPT_MESSAGE, "CRC")


# base, count


@each_case("base_offset", [1, 2**40, 2**63 - 1, -1, -(2**63)])
def test_base_offset_of_a_client_must_be_0(base_offset: int) -> None:
    refused(patched(0, ">q", base_offset), ErrorCode.INVALID_RECORD, "base offset")


@each_case("count", [0, -1, 1, 2, 4, 2**31 - 1])
def test_count_must_match_the_offsets(count: int) -> None:
    refused(patched(57, ">i", count), ErrorCode.INVALID_RECORD, f"has {count} records")


@each_case("delta", [0, 1, 3, 2**31 - 1, -1, -(2**31)])
def test_offsets_must_match_the_count(delta: int) -> None:
    refused(patched(23, ">i", delta), ErrorCode.INVALID_RECORD, f"and {delta + 1} offsets")


def test_count_rejects_an_empty_batch() -> None:
    refused(with_section(b"", 0), ErrorCode.INVALID_RECORD, "has 0 records and 0 offsets")
    refused(with_section(b"", -1), ErrorCode.INVALID_RECORD, "has -1 records")


# control, producer, transaction


def test_control_batch_of_a_client_is_rejected() -> None:
    refused(patched(21, ">h", CONTROL), ErrorCode.INVALID_RECORD, "control")


@each_case(("epoch", "sequence"), [(0, -1), (-1, 0), (0, -(2**31)), (-5, -5)])
def test_producer_id_needs_epoch_and_sequence(epoch: int, sequence: int) -> None:
    data = patched(43, ">qhi", 7, epoch, sequence)
    refused(data, ErrorCode.INVALID_RECORD, "producer 7 has epoch")


@each_case(("epoch", "sequence"), [(0, 0), (-1, 5), (3, 2**31 - 1)])
def test_sequence_without_producer_id_is_ignored(epoch: int, sequence: int) -> None:
    assert produce(patched(43, ">qhi", -1, epoch, sequence))


def test_producer_with_all_three_passes() -> None:
    assert produce(patched(43, ">qhi", 0, 0, 0))


def test_transaction_needs_a_producer_id() -> None:
    refused(patched(21, ">h", TRANSACTIONAL), ErrorCode.INVALID_RECORD, "transactional")
    data = patched(43, ">qhi", 7, 0, 0)
    assert produce(patched(21, ">h", TRANSACTIONAL, data=bytes(data)))


# codec


@each_case("code", [5, 6, 7])
def test_codec_must_be_known(code: int) -> None:
    data = patched(21, ">h", code)
    refused(data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {code}")


@each_case("version", [3, 6])
def test_codec_zstd_needs_produce_7(version: int) -> None:
    data = build([Drawn(NOW, b"k", b"v", ())], Compression.ZSTD)
    refused(data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "version 7", produce_version=version)
    assert produce(data, produce_version=7)
    for other in Compression:
        if other is not Compression.ZSTD:
            assert produce(build([Drawn(NOW, b"k", b"v", ())], other), produce_version=version)


@each_case("bits", [0x40, 0x80, 0x4000, -0x8000])
def test_other_attribute_bits_are_ignored(bits: int) -> None:
    assert produce(patched(21, ">h", bits))


# append time


@each_case("timestamp_type", TimestampType)
def test_append_time_of_a_client_is_rejected(timestamp_type: TimestampType) -> None:
    data = patched(21, ">h", LOG_APPEND_TIME)
    with pytest.raises(InvalidRecords, match="LogAppendTime") as failure:
        produce(data, replace(RULES, timestamp_type=timestamp_type))
    assert failure.value.code is ErrorCode.INVALID_TIMESTAMP


# bomb, stream


@each_case("compression", [c for c in Compression if c])
def test_bomb_is_rejected(compression: Compression) -> None:
    data = build([Drawn(NOW, b"k", bytes(100_000), ())], compression)
    assert produce(data, replace(RULES, decompressed_bytes_max=100_100))
    with pytest.raises(InvalidRecords, match="more than 100000 bytes") as failure:
        produce(data, replace(RULES, decompressed_bytes_max=100_000))
    assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE


@each_case("compression", [c for c in Compression if c])
@each_case("section", [b"", b"not compressed", bytes(100)])
def test_stream_must_decompress(compression: Compression, section: bytes) -> None:
    data = with_section(section, attributes=compression)
    refused(data, ErrorCode.INVALID_RECORD, compression.label)


# records

SOUND = PRODUCED[HEADER_SIZE:]
LONGER = build([Drawn(NOW, b"k", b"a longer value", ())] * 3)[HEADER_SIZE:]
UNSOUND: Sequence[tuple[bytes, int, str]] = [
    (LONGER, 4, "record 3: the record length"),
    (SOUND, 4, "declares more records"),
    (SOUND, 2, "bytes follow the last record"),
    (SOUND + b"\0", 3, "bytes follow the last record"),
    (SOUND[:-1], 3, "record 2: the record length"),
    (SOUND[:9] * 3, 3, "record 1: the offset"),
    (SOUND[9:] + SOUND[:9], 3, "record 0: the offset"),
    (SOUND[:1], 1, "declares more records"),
    (SOUND, 2**30, "declares more records"),
    (bytes([16, 0, 0, 0, 2, 107, 3, 0, 0]), 1, "record 0: the value"),
]


@each_case("compression", Compression)
@each_case(("section", "count", "message"), UNSOUND)
def test_records_must_be_valid(
    section: bytes, count: int, message: str, compression: Compression
) -> None:
    data = with_section(compress(compression, section), count, attributes=compression)
    refused(data, ErrorCode.INVALID_RECORD, message)


def test_records_header_keys_may_be_any_bytes() -> None:
    section = bytes([20, 0, 0, 0, 1, 1, 2, 4, 0xFF, 0xFE, 1])
    assert produce(with_section(section))


# key


@each_case("compression", Compression)
def test_key_is_required_in_a_compacted_topic(compression: Compression) -> None:
    keys = [b"k", None, b"", None]
    data = build([Drawn(NOW, key, b"v", ()) for key in keys], compression)
    assert produce(data)
    with pytest.raises(InvalidRecords, match="the batch has invalid records: record") as failure:
        produce(data, replace(RULES, compacted=True))
    assert failure.value.code is ErrorCode.INVALID_RECORD
    message = "a compacted topic needs a key in every record"
    assert failure.value.record_errors == ((1, message), (3, message))


# clock


@each_case("compression", Compression)
def test_clock_rejects_distant_timestamps(compression: Compression) -> None:
    rules = replace(RULES, timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR)
    times = [NOW, NOW - HOUR, NOW + HOUR, -1, NOW - HOUR - 1, NOW + HOUR + 1]
    sound = build([Drawn(each, b"k", b"v", ()) for each in times[:4]], compression)
    assert produce(sound, rules)
    data = build([Drawn(each, b"k", b"v", ()) for each in times], compression)
    with pytest.raises(InvalidRecords, match="the batch has invalid records: record") as failure:
        produce(data, rules)
    assert failure.value.code is ErrorCode.INVALID_TIMESTAMP
    bounds = f"[{NOW - HOUR}, {NOW + HOUR}]"
    assert failure.value.record_errors == (
        (4, f"timestamp {NOW - HOUR - 1} is outside {bounds}"),
        (5, f"timestamp {NOW + HOUR + 1} is outside {bounds}"),
    )


def test_clock_default_is_one_hour_ahead() -> None:
    assert produce(build([Drawn(0, b"k", b"v", ())]), ValidationConfig())
    with pytest.raises(InvalidRecords):
        produce(build([Drawn(NOW + HOUR + 1, b"k", b"v", ())]), ValidationConfig())


def test_clock_is_ignored_under_log_append_time() -> None:
    rules = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert produce(build([Drawn(2**62, b"k", b"v", ()), Drawn(-(2**62), b"k", b"v", ())]), rules)


def test_first_invalid_record_decides_the_code() -> None:
    rules = replace(RULES, compacted=True)
    late, keyless = Drawn(2**62, b"k", b"v", ()), Drawn(NOW, None, b"v", ())
    for drawn, code in (
        ([late, keyless], ErrorCode.INVALID_TIMESTAMP),
        ([keyless, late], ErrorCode.INVALID_RECORD),
        ([Drawn(2**62, None, b"v", ())], ErrorCode.INVALID_RECORD),
    ):
        with pytest.raises(InvalidRecords) as failure:
            produce(build(drawn), rules)
        assert failure.value.code is code
        assert [index for index, _ in failure.value.record_errors] == list(range(len(drawn)))


def test_number_of_record_errors_is_limited() -> None:
    data = build([Drawn(NOW, None, None, ())] * (RECORD_ERRORS_MAX + 5))
    with pytest.raises(InvalidRecords) as failure:
        produce(data, replace(RULES, compacted=True))
    assert len(failure.value.record_errors) == RECORD_ERRORS_MAX


# Fields that the caller has to patch


@each_case("claimed", [NOW - 1, NOW + 3, -1, 2**63 - 1])
@each_case("compression", Compression)
def test_wrong_max_timestamp_is_corrected(claimed: int, compression: Compression) -> None:
    times = [NOW, NOW + 2, NOW + 2, NOW + 1]
    whole = build([Drawn(each, b"k", b"v", ()) for each in times], compression)
    data = patched(35, ">q", claimed, data=whole)
    valid = produce(data)
    assert (valid.max_timestamp, valid.max_timestamp_delta, valid.patch) == (NOW + 2, 1, True)
    assert assign_timestamp(data, valid.timestamp_type, valid.max_timestamp)
    assert bytes(data) == whole


def test_records_without_timestamps_have_no_max() -> None:
    valid = produce(build([Drawn(-1, b"k", b"v", ())]))
    assert (valid.max_timestamp, valid.max_timestamp_delta, valid.patch) == (-1, -1, False)


def test_log_append_time_max_is_now() -> None:
    valid = produce(PRODUCED, replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert (valid.max_timestamp, valid.max_timestamp_delta, valid.patch) == (NOW, 2, True)
    data = bytearray(PRODUCED)
    assert assign_timestamp(data, valid.timestamp_type, valid.max_timestamp)
    assert [record.timestamp for record in Batch(data).records()] == [NOW] * 3


def test_log_append_time_always_patches_the_header() -> None:
    data = build([Drawn(NOW, b"k", b"v", ())])
    valid = produce(data, replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert (valid.max_timestamp, valid.patch) == (NOW, True)


def test_validate_accepts_any_buffer() -> None:
    for data in (bytearray(PRODUCED), memoryview(PRODUCED), memoryview(b"x" + PRODUCED)[1:]):
        assert produce(data).record_count == 3


def test_validate_changes_nothing() -> None:
    data = bytearray(PRODUCED)
    produce(data, replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert data == PRODUCED


def test_full_builder_makes_a_valid_batch() -> None:
    builder = BatchBuilder()
    while builder.append(NOW, b"k", bytes(10_000)):
        pass
    assert produce(builder.build(), ValidationConfig())


def at_once(data: Buffer, rules: ValidationConfig = RULES) -> ValidBatch:
    return validate(data, rules, now_ms=NOW, produce_version=9, nonblocking=True)


@each_case("compression", NONBLOCKING_DECOMPRESS_BYTES)
def test_large_decompressed_batch_would_block(
    compression: Compression,
) -> None:
    most = NONBLOCKING_DECOMPRESS_BYTES[compression]
    fits = build([Drawn(NOW, b"k", bytes(most - 100), ())], compression)
    assert at_once(fits) == produce(fits)
    more = build([Drawn(NOW, b"k", bytes(most), ())], compression)
    assert len(more) < most // 10
    with pytest.raises(WouldBlock):
        at_once(more)
    assert produce(more).record_count == 1


@each_case("compression", NONBLOCKING_DECOMPRESS_BYTES)
def test_large_compressed_batch_would_block(compression: Compression) -> None:
    noise = Random(1).randbytes(NONBLOCKING_DECOMPRESS_BYTES[compression] // 2)
    with pytest.raises(WouldBlock):
        at_once(build([Drawn(NOW, b"k", noise, ())], compression))


@each_case("compression", NONBLOCKING_DECOMPRESS_BYTES)
def test_nonblocking_finds_a_bomb_under_a_small_limit(compression: Compression) -> None:
    bomb = build([Drawn(NOW, b"k", bytes(20_000), ())], compression)
    with pytest.raises(InvalidRecords, match="more than 10000 bytes"):
        at_once(bomb, replace(RULES, decompressed_bytes_max=10_000))


def test_uncompressed_batch_never_blocks() -> None:
    plain = build([Drawn(NOW, b"k", bytes(2_000_000), ())])
    assert at_once(plain) == produce(plain)


def test_recompression_blocks_earlier() -> None:
    size = NONBLOCKING_RECOMPRESS_BYTES
    rules = replace(RULES, compression=Compression.GZIP)
    plain, lz4 = (
        build([Drawn(NOW, b"k", bytes(size), ())], codec)
        for codec in (Compression.NONE, Compression.LZ4)
    )
    for large in (plain, lz4):
        with pytest.raises(WouldBlock):
            at_once(large, rules)
    same = build([Drawn(NOW, b"k", bytes(size), ())], Compression.GZIP)
    assert at_once(same, rules) == produce(same, rules)
    small = build([Drawn(NOW, b"k", bytes(size - 100), ())])
    assert at_once(small, rules) == produce(small, rules)


def test_nonblocking_rejects_damaged_streams() -> None:
    with pytest.raises(InvalidRecords) as failure:
        at_once(with_section(b"nonsense", attributes=Compression.GZIP))
    assert failure.value.code is ErrorCode.INVALID_RECORD
