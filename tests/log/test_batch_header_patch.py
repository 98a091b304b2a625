"""The header that the leader writes for a produced batch, compared with patching a copy."""

from cases import each_case
from log.logs import made
from ottla.log.batch_header_patch import patched_batch
from ottla.records.batch import Batch, TimestampType, assign_offset, assign_timestamp
from ottla.records.compression import Compression
from ottla.records.validation import ValidationConfig, validate


@each_case("timestamp_type", list(TimestampType))
@each_case("wrong_maximum", [True, False])
@each_case("compression", [Compression.NONE, Compression.LZ4])
def test_header_is_replaced_without_copying_records(
    timestamp_type: TimestampType, wrong_maximum: bool, compression: Compression
) -> None:
    data = bytearray(made([b"a", b"bc" * 100], timestamp=100, compression=compression))
    if wrong_maximum:
        assign_timestamp(data, TimestampType.CREATE_TIME, 7_000)
    data = bytes(data)
    rules = ValidationConfig(timestamp_type=timestamp_type)
    valid = validate(data, rules, now_ms=5_000, produce_version=11)
    view = memoryview(data)
    buffers = patched_batch(valid, view, 2**40, 17)

    expected = bytearray(data)
    assign_offset(expected, 2**40, 17)
    assign_timestamp(expected, timestamp_type, valid.max_timestamp)
    written = b"".join(buffers)
    assert written == expected
    assert Batch(written).crc_ok
    assert isinstance(buffers[-1], memoryview)
    assert buffers[-1].obj is data
    assert data == bytes(view)
