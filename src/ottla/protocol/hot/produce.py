"""Hand-written codecs of Produce requests and responses, in the flexible versions.

A request is plain if it has no tagged fields and all its partitions have records. A response is
plain if it has no error messages. Both have fewer than 127 topics, fewer than 127 partitions per
topic and names below 127 bytes, so that their lengths take one byte.

Partitions of a plain response have one size, so one call unpacks all of a topic. Objects are made
without their constructors, which would cost as much as the rest of the reading.
"""

from struct import Struct as Layout
from typing import Any, Final

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.hot.fallback import HEAD_BYTES_MAX, READ_ERRORS, WRITE_ERRORS, NotPlain
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.primitives import ONE_BYTE, Buffer, read_uvarint_rest, uvarint
from ottla.protocol.reader import Reader
from ottla.protocol.schema import Struct
from ottla.protocol.writer import Writer

IDS_SINCE: Final = 13

_new: Final = object.__new__
_NONE: Final = ()
_new_bytes: Final = bytes.__new__

# Length of the transactional id, acks, timeout, number of topics; the second one follows an id.
_HEAD: Final = Layout(">BhiB")
_HEAD_AFTER_ID: Final = Layout(">hiB")
_TOPIC: Final = Layout(">16sB")
_INDEX: Final = Layout(">i")
# An index and a length of up to three bytes (2 MiB).
_PARTITION: Final = Layout(">iBBB")
# Five numbers, no record errors, no error message, no tagged fields.
_RESPONSE: Final = Layout(">ihqqqBxx")
_RESPONSE_END: Final = Layout(">ix")
_ROW: Final = Layout(">ihqqq3s")  # the same, for reading
_ROW_END: Final = b"\1\0\0"
_THROTTLE: Final = Layout(">iB")


def request_reader(version: int, compiled: Reader) -> Reader:
    """Return the reader of requests."""
    by_id = version >= IDS_SINCE
    unpack_topic, unpack_partition = _TOPIC.unpack_from, _PARTITION.unpack_from

    def read(data: Any, start: int, budget: int) -> tuple[Struct, int]:
        try:
            message = _new(ProduceRequest)
            size, message.acks, message.timeout_ms, count = _HEAD.unpack_from(data, start)
            pos = start + 8
            message.transactional_id = None
            if size:
                pos = start + size
                message.transactional_id = str(data[start + 1 : pos], "utf-8")
                message.acks, message.timeout_ms, count = _HEAD_AFTER_ID.unpack_from(data, pos)
                pos += 7
            left = budget + 1 - count
            if not 0 < count < 128 or size > 127:
                raise NotPlain
            topics: list[TopicProduceData] = []
            for _ in range(count - 1):
                topic = _new(TopicProduceData)
                if by_id:
                    raw, count = unpack_topic(data, pos)
                    topic.name, topic.topic_id = "", _new_bytes(Uuid, raw)
                    pos += 17
                else:
                    size = data[pos]
                    stop = pos + size
                    topic.name, topic.topic_id = str(data[pos + 1 : stop], "utf-8"), ZERO_UUID
                    count = data[stop]  # for a null name this reads its length, 0
                    pos = stop + 1
                    if size > 127:
                        raise NotPlain
                left += 1 - count
                if not 0 < count < 128 or left < 0:
                    raise NotPlain
                partitions: list[PartitionProduceData] = []
                for _ in range(count - 1):
                    partition = _new(PartitionProduceData)
                    partition.index, size, second, third = unpack_partition(data, pos)
                    pos += 5
                    if size < 128:
                        if not size:
                            raise NotPlain
                    elif 0 < second < 128:
                        size += (second << 7) - 0x80
                        pos += 1
                    elif second and 0 < third < 128:
                        size += (second << 7) + (third << 14) - 0x4080
                        pos += 2
                    else:
                        size, pos = read_uvarint_rest(size, data, pos)
                    stop = pos + size - 1
                    partition.records = data[pos:stop]
                    if data[stop]:
                        raise NotPlain
                    pos = stop + 1
                    partitions.append(partition)
                topic.partition_data = tuple(partitions)
                topics.append(topic)
                if data[pos]:
                    raise NotPlain
                pos += 1
            message.topic_data = tuple(topics)
            if data[pos]:
                raise NotPlain
        except READ_ERRORS:
            return compiled(data, start, budget)
        return message, pos + 1

    return read


def request_writer(version: int, compiled: Writer) -> Writer:
    """Return the writer of requests."""
    by_id = version >= IDS_SINCE
    pack_index = _INDEX.pack

    def write(message: ProduceRequest, buffers: list[Buffer]) -> None:
        try:
            topics = message.topic_data
            count = len(topics) + 1
            if count > 127:
                raise NotPlain
            out = _HEAD.pack(0, message.acks, message.timeout_ms, count)
            if message.transactional_id is not None:
                raw = message.transactional_id.encode()
                out = ONE_BYTE[len(raw) + 1] + raw + out[1:]
            for topic in topics:
                partitions = topic.partition_data
                count = len(partitions) + 1
                if count > 127 or len(out) > HEAD_BYTES_MAX:
                    raise NotPlain
                if by_id:
                    if len(topic.topic_id) != 16:
                        raise NotPlain
                    out += _TOPIC.pack(topic.topic_id, count)
                else:
                    name = topic.name.encode()
                    out += ONE_BYTE[len(name) + 1] + name + ONE_BYTE[count]
                for partition in partitions:
                    records = partition.records
                    if not records:
                        raise NotPlain
                    head = out + pack_index(partition.index) + uvarint(len(records) + 1)
                    buffers += (head, records)
                    out = b"\0"
                out += b"\0"
            buffers.append(out + b"\0")
        except WRITE_ERRORS:
            buffers.clear()
            compiled(message, buffers)

    return write


def response_writer(version: int, compiled: Writer) -> Writer:
    """Return the writer of responses."""
    by_id = version >= IDS_SINCE
    pack_partition = _RESPONSE.pack

    def write(message: ProduceResponse, buffers: list[Buffer]) -> None:
        try:
            topics = message.responses
            if message.node_endpoints is not _NONE:
                raise NotPlain
            out = ONE_BYTE[len(topics) + 1]
            for topic in topics:
                partitions = topic.partition_responses
                count = len(partitions) + 1
                if count > 127 or len(out) > HEAD_BYTES_MAX:
                    raise NotPlain
                if by_id:
                    if len(topic.topic_id) != 16:
                        raise NotPlain
                    out += _TOPIC.pack(topic.topic_id, count)
                else:
                    name = topic.name.encode()
                    out += ONE_BYTE[len(name) + 1] + name + ONE_BYTE[count]
                for partition in partitions:
                    if (
                        partition.record_errors is not _NONE
                        or partition.error_message is not None
                        or partition.current_leader is not None
                    ):
                        raise NotPlain
                    out += pack_partition(
                        partition.index,
                        partition.error_code,
                        partition.base_offset,
                        partition.log_append_time_ms,
                        partition.log_start_offset,
                        1,
                    )
                out += b"\0"
            buffers.append(out + _RESPONSE_END.pack(message.throttle_time_ms))
        except WRITE_ERRORS:
            compiled(message, buffers)

    return write


def response_reader(version: int, compiled: Reader) -> Reader:
    """Return the reader of responses."""
    by_id = version >= IDS_SINCE
    unpack_topic, rows_in = _TOPIC.unpack_from, _ROW.iter_unpack

    def read(data: bytes, start: int, budget: int) -> tuple[Struct, int]:
        try:
            message = _new(ProduceResponse)
            count, pos = data[start], start + 1
            left = budget + 1 - count
            if not 0 < count < 128:
                raise NotPlain
            topics: list[TopicProduceResponse] = []
            for _ in range(count - 1):
                topic = _new(TopicProduceResponse)
                if by_id:
                    raw, count = unpack_topic(data, pos)
                    topic.name, topic.topic_id = "", _new_bytes(Uuid, raw)
                    pos += 17
                else:
                    size = data[pos]
                    stop = pos + size
                    topic.name, topic.topic_id = data[pos + 1 : stop].decode(), ZERO_UUID
                    count = data[stop]  # for a null name this reads its length, 0
                    pos = stop + 1
                    if size > 127:
                        raise NotPlain
                left += 1 - count
                stop = pos + 33 * (count - 1)
                # A slice can be shorter than requested, so the byte after it is read first.
                if data[stop] or not 0 < count < 128 or left < 0:
                    raise NotPlain
                partitions: list[PartitionProduceResponse] = []
                for row in rows_in(data[pos:stop]):
                    partition = _new(PartitionProduceResponse)
                    (
                        partition.index,
                        partition.error_code,
                        partition.base_offset,
                        partition.log_append_time_ms,
                        partition.log_start_offset,
                        end,
                    ) = row
                    if end != _ROW_END:
                        raise NotPlain
                    partition.record_errors = ()
                    partition.error_message = partition.current_leader = None
                    partitions.append(partition)
                topic.partition_responses = tuple(partitions)
                topics.append(topic)
                pos = stop + 1
            message.responses = tuple(topics)
            message.throttle_time_ms, tags = _THROTTLE.unpack_from(data, pos)
            message.node_endpoints = ()
            if tags:
                raise NotPlain
        except READ_ERRORS:
            return compiled(data, start, budget)
        return message, pos + 5

    return read


ProduceRequest.register_codec(request_reader, request_writer)
ProduceResponse.register_codec(response_reader, response_writer)
