"""Recompresses a produced batch with the codec of its topic, if compression.type names one.

Only the codec, the length and the CRC change. As in Kafka, a batch that has the codec of the topic
is not recompressed, whatever its level. A recompressed batch may be larger, so max.message.bytes is
checked again.
"""

from ottla.errors import ErrorCode
from ottla.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TimestampType,
    unpack_header,
    write_header,
)
from ottla.records.compression import compress
from ottla.records.errors import InvalidRecords
from ottla.records.validation import ValidationConfig, ValidBatch


def recompress(
    valid: ValidBatch, data: memoryview, rules: ValidationConfig
) -> tuple[ValidBatch, memoryview]:
    """Return the batch in the codec of its topic; raise InvalidRecords if it becomes too large."""
    header = valid.header
    target = rules.compression
    if target is None or header.attributes & COMPRESSION_MASK == target:
        return valid, data
    buffer = bytearray(HEADER_SIZE)
    buffer += compress(target, valid.record_bytes, rules.compression_level)
    if len(buffer) > rules.max_message_bytes:
        raise InvalidRecords(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(buffer)} bytes with compression {target.label}, "
            f"max.message.bytes of the topic is {rules.max_message_bytes}",
        )
    attributes = header.attributes & ~(COMPRESSION_MASK | LOG_APPEND_TIME) | target
    if valid.timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME
    write_header(
        buffer,
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=valid.max_timestamp,
        attributes=attributes,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return valid._replace(header=unpack_header(buffer), patch=False), memoryview(buffer)
