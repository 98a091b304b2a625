"""A produced batch in the codec that its topic is stored in, where compression.type names one.

Invariant: records, offsets, timestamps, producer and flags stay what they are; only the codec,
the length and the CRC are others. Records are not looked into: their bytes are copied as they are.

A batch that has the topic's codec already is left alone whatever its level, as in Kafka. What
recompression makes of a batch may be larger than it was, so max.message.bytes is asked once more.
"""

from ottla.errors import ErrorCode
from ottla.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TimestampType,
    seal,
    unpack_header,
)
from ottla.records.compression import compress
from ottla.records.errors import InvalidRecords
from ottla.records.validation import TopicRules, ValidBatch


def recompressed(
    valid: ValidBatch, data: memoryview, rules: TopicRules
) -> tuple[ValidBatch, memoryview]:
    """The batch as its topic stores it, with its bytes; InvalidRecords when it grew too large."""
    header = valid.header
    target = rules.compression
    if target is None or header.attributes & COMPRESSION_MASK == target:
        return valid, data
    buffer = bytearray(HEADER_SIZE)
    buffer += compress(target, valid.section, rules.compression_level)
    if len(buffer) > rules.max_message_bytes:
        raise InvalidRecords(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(buffer)} bytes as {target.label}, "
            f"the topic takes {rules.max_message_bytes}",
        )
    attributes = header.attributes & ~(COMPRESSION_MASK | LOG_APPEND_TIME) | target
    if valid.timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME
    seal(
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
