"""Recompression changes the codec and nothing else that a reader can see."""

from dataclasses import replace
from itertools import product

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each_case
from ottla.errors import ErrorCode
from ottla.records.batch import COMPRESSION_MASK, Batch, BatchHeader, TimestampType
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.errors import InvalidRecords
from ottla.records.recompression import recompress
from ottla.records.validation import ValidationConfig, ValidBatch, validate
from records.drawing import Drawn, build, drawn_batches
from sampling import examples

NOW = 1_700_000_000_000
RULES = ValidationConfig(
    max_message_bytes=2**31 - 1, timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=2**63 - 1
)
OTHERS = [(one, two) for one, two in product(Compression, Compression) if one is not two]
TEXT = [Drawn(NOW + i, b"key", b"many words, many words " * 40, (("h", b"1"),)) for i in range(50)]


def stored(data: bytes, rules: ValidationConfig) -> tuple[ValidBatch, Batch]:
    """A batch as it is stored in the log of a topic with this configuration."""
    valid = validate(data, rules, now_ms=NOW, produce_version=9)
    valid, view = recompress(valid, memoryview(data), rules)
    return valid, Batch(view)


def without_codec(header: BatchHeader) -> BatchHeader:
    return header._replace(length=0, crc=0, attributes=header.attributes & ~COMPRESSION_MASK)


@each_case(("source", "target"), OTHERS)
@given(drawn=drawn_batches, transactional=st.booleans())
@settings(max_examples=examples(3, usual=5))
def test_recompression_keeps_records_and_header(
    source: Compression, target: Compression, drawn: list[Drawn], transactional: bool
) -> None:
    builder = BatchBuilder(2**31 - 1, source)
    for record in drawn:
        assert builder.append(record.timestamp & 0xFFFFFFFFFFF, *record[1:])
    before = builder.build(
        producer_id=7, producer_epoch=3, base_sequence=2**31 - 2, transactional=transactional
    )
    valid, after = stored(before, replace(RULES, compression=target))
    header = Batch(before).header
    assert after.header.compression is target
    assert after.crc_ok
    assert without_codec(after.header) == without_codec(header)
    assert list(after.records()) == list(Batch(before).records())
    assert (valid.header, valid.patch) == (after.header, False)
    assert valid.max_timestamp == header.max_timestamp


@each_case("target", Compression)
def test_aiokafka_reads_recompressed_batches(target: Compression) -> None:
    source = Compression.GZIP if target is not Compression.GZIP else Compression.LZ4
    _, after = stored(build(TEXT, source), replace(RULES, compression=target))
    peer = DefaultRecordBatch(bytes(after.data))
    assert peer.validate_crc()
    assert peer.compression_type == target
    read = [(one.timestamp, one.key, one.value, tuple(one.headers)) for one in peer]
    assert read == [tuple(one) for one in TEXT]


@each_case("codec", Compression)
def test_batch_with_the_topic_codec_is_unchanged(codec: Compression) -> None:
    data = memoryview(build(TEXT, codec))
    for target in (codec, None):
        rules = replace(RULES, compression=target)
        valid = validate(data, rules, now_ms=NOW, produce_version=9)
        assert recompress(valid, data, rules) == (valid, data)
        assert recompress(valid, data, rules)[1] is data


@each_case(
    ("codec", "low", "high"),
    [(Compression.GZIP, 1, 9), (Compression.LZ4, 1, 12), (Compression.ZSTD, -100, 19)],
)
def test_recompression_uses_the_level(codec: Compression, low: int, high: int) -> None:
    sizes = [
        len(stored(build(TEXT), replace(RULES, compression=codec, compression_level=level))[1].data)
        for level in (low, high)
    ]
    assert sizes[1] < sizes[0]


def test_recompression_writes_log_append_time() -> None:
    rules = replace(
        RULES, compression=Compression.ZSTD, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    _, after = stored(build([Drawn(5, b"k", b"v", ())]), rules)
    assert after.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (after.header.max_timestamp, after.header.base_timestamp) == (NOW, 5)
    assert [record.timestamp for record in after.records()] == [NOW]
    assert after.crc_ok


def test_recompression_corrects_the_max_timestamp() -> None:
    data = bytearray(build(TEXT))
    data[35:43] = (0).to_bytes(8)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
    _, after = stored(bytes(data), replace(RULES, compression=Compression.LZ4))
    assert after.header.max_timestamp == NOW + 49


def test_recompressed_batch_above_the_limit_is_rejected() -> None:
    data = build(TEXT, Compression.ZSTD)
    rules = replace(RULES, compression=Compression.NONE, max_message_bytes=len(data))
    with pytest.raises(InvalidRecords, match="with compression none") as failure:
        stored(data, rules)
    assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_decompression_bomb_is_not_recompressed() -> None:
    data = build([Drawn(NOW, None, bytes(1 << 20), ())], Compression.ZSTD)
    rules = replace(RULES, compression=Compression.LZ4, decompressed_bytes_max=1 << 19)
    with pytest.raises(InvalidRecords, match="more than") as failure:
        stored(data, rules)
    assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE
