"""Produce by hand in the versions before the flexible ones, which are 3 to 8.

Invariant: that of the package. Plain are requests whose records are there, and answers in which
nothing is wrong.

Partitions of a plain answer are of one size: one call unpacks all of a topic. Objects are made
without their constructors, which would cost as much as the rest of the reading.
"""

from struct import Struct as Layout
from typing import Any, Final

from ottla.ids import ZERO_UUID
from ottla.protocol.hot import PARTITIONS_MAX, PLAIN_BYTES, UNREAD, UNWRITTEN, Unplain
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.primitives import Buffer
from ottla.protocol.reader import Reader
from ottla.protocol.schema import Struct
from ottla.protocol.writer import Writer

LOG_START_SINCE: Final = 5
ERRORS_SINCE: Final = 8

_new: Final = object.__new__
_NONE: Final = ()

# The length of a transactional id, acks, a time, and the number of topics; the second of them
# follows an id.
_HEAD: Final = Layout(">hhii")
_HEAD_BEHIND_ID: Final = Layout(">hii")
_SHORT: Final = Layout(">h")
_COUNT: Final = Layout(">i")
_PARTITION: Final = Layout(">ii")
# What ends a partition of an answer since version 8: no errors of records, no text.
_NO_ERRORS: Final = b"\0\0\0\0\xff\xff"


def request_reader(version: int, compiled: Reader) -> Reader:
    """The reader of requests."""
    unpack_short, unpack_count, unpack_partition = (
        _SHORT.unpack_from,
        _COUNT.unpack_from,
        _PARTITION.unpack_from,
    )

    def read(data: Any, start: int, budget: int) -> tuple[Struct, int]:
        try:
            message = _new(ProduceRequest)
            size, message.acks, message.timeout_ms, count = _HEAD.unpack_from(data, start)
            pos = start + 12
            message.transactional_id = None
            if size != -1:
                pos = start + 2 + size
                message.transactional_id = str(data[start + 2 : pos], "utf-8")
                message.acks, message.timeout_ms, count = _HEAD_BEHIND_ID.unpack_from(data, pos)
                pos += 10
                if size < 0:
                    raise Unplain
            left = budget - count
            end = len(data)
            if count < 0 or left < 0:
                raise Unplain
            topics: list[TopicProduceData] = []
            for _ in range(count):
                topic = _new(TopicProduceData)
                (size,) = unpack_short(data, pos)
                stop = pos + 2 + size
                topic.name, topic.topic_id = str(data[pos + 2 : stop], "utf-8"), ZERO_UUID
                (count,) = unpack_count(data, stop)
                pos = stop + 4
                left -= count
                if size < 0 or count < 0 or left < 0:
                    raise Unplain
                partitions: list[PartitionProduceData] = []
                for _ in range(count):
                    partition = _new(PartitionProduceData)
                    partition.index, size = unpack_partition(data, pos)
                    pos += 8
                    stop = pos + size
                    if size < 0 or stop > end:
                        raise Unplain
                    partition.records = data[pos:stop]
                    pos = stop
                    partitions.append(partition)
                topic.partition_data = tuple(partitions)
                topics.append(topic)
            message.topic_data = tuple(topics)
        except UNREAD:
            return compiled(data, start, budget)
        return message, pos

    return read


def request_writer(version: int, compiled: Writer) -> Writer:
    """The writer of requests."""
    pack_short, pack_count, pack_partition = _SHORT.pack, _COUNT.pack, _PARTITION.pack

    def write(message: ProduceRequest, buffers: list[Buffer]) -> None:
        try:
            topics = message.topic_data
            if message.transactional_id is None:
                out = _HEAD.pack(-1, message.acks, message.timeout_ms, len(topics))
            else:
                raw = message.transactional_id.encode()
                out = (
                    pack_short(len(raw))
                    + raw
                    + _HEAD_BEHIND_ID.pack(message.acks, message.timeout_ms, len(topics))
                )
            for topic in topics:
                partitions = topic.partition_data
                name = topic.name.encode()
                if len(partitions) > PARTITIONS_MAX or len(out) > PLAIN_BYTES:
                    raise Unplain
                out += pack_short(len(name)) + name + pack_count(len(partitions))
                for partition in partitions:
                    records = partition.records
                    if not records:
                        raise Unplain
                    buffers += (out + pack_partition(partition.index, len(records)), records)
                    out = b""
            if out:
                buffers.append(out)
        except UNWRITTEN:
            buffers.clear()
            compiled(message, buffers)

    return write


def response_writer(version: int, compiled: Writer) -> Writer:
    """The writer of answers."""
    with_log_start, with_errors = version >= LOG_START_SINCE, version >= ERRORS_SINCE
    pack_partition = Layout(
        ">ihqqqih" if with_errors else ">ihqqq" if with_log_start else ">ihqq"
    ).pack
    pack_short, pack_count = _SHORT.pack, _COUNT.pack

    def write(message: ProduceResponse, buffers: list[Buffer]) -> None:
        try:
            topics = message.responses
            if message.node_endpoints is not _NONE:
                raise Unplain
            out = pack_count(len(topics))
            for topic in topics:
                partitions = topic.partition_responses
                name = topic.name.encode()
                if len(partitions) > PARTITIONS_MAX or len(out) > PLAIN_BYTES:
                    raise Unplain
                out += pack_short(len(name)) + name + pack_count(len(partitions))
                for partition in partitions:
                    if partition.current_leader is not None:
                        raise Unplain
                    if with_errors:
                        if (
                            partition.record_errors is not _NONE
                            or partition.error_message is not None
                        ):
                            raise Unplain
                        out += pack_partition(
                            partition.index,
                            partition.error_code,
                            partition.base_offset,
                            partition.log_append_time_ms,
                            partition.log_start_offset,
                            0,
                            -1,
                        )
                    elif with_log_start:
                        out += pack_partition(
                            partition.index,
                            partition.error_code,
                            partition.base_offset,
                            partition.log_append_time_ms,
                            partition.log_start_offset,
                        )
                    else:
                        out += pack_partition(
                            partition.index,
                            partition.error_code,
                            partition.base_offset,
                            partition.log_append_time_ms,
                        )
            buffers.append(out + pack_count(message.throttle_time_ms))
        except UNWRITTEN:
            compiled(message, buffers)

    return write


def response_reader(version: int, compiled: Reader) -> Reader:
    """The reader of answers."""
    with_log_start, with_errors = version >= LOG_START_SINCE, version >= ERRORS_SINCE
    layout = Layout(">ihqqq6s" if with_errors else ">ihqqq" if with_log_start else ">ihqq")
    rows_in, size_of_row = layout.iter_unpack, layout.size
    unpack_short, unpack_count = _SHORT.unpack_from, _COUNT.unpack_from

    def read(data: bytes, start: int, budget: int) -> tuple[Struct, int]:
        try:
            message = _new(ProduceResponse)
            (count,) = unpack_count(data, start)
            pos = start + 4
            left = budget - count
            if count < 0 or left < 0:
                raise Unplain
            topics: list[TopicProduceResponse] = []
            for _ in range(count):
                topic = _new(TopicProduceResponse)
                (size,) = unpack_short(data, pos)
                stop = pos + 2 + size
                topic.name, topic.topic_id = data[pos + 2 : stop].decode(), ZERO_UUID
                (count,) = unpack_count(data, stop)
                pos = stop + 4
                left -= count
                stop = pos + size_of_row * count
                if size < 0 or count < 0 or left < 0 or stop > len(data):
                    raise Unplain
                partitions: list[PartitionProduceResponse] = []
                for row in rows_in(data[pos:stop]):
                    partition = _new(PartitionProduceResponse)
                    if with_errors:
                        (
                            partition.index,
                            partition.error_code,
                            partition.base_offset,
                            partition.log_append_time_ms,
                            partition.log_start_offset,
                            end,
                        ) = row
                        if end != _NO_ERRORS:
                            raise Unplain
                    elif with_log_start:
                        (
                            partition.index,
                            partition.error_code,
                            partition.base_offset,
                            partition.log_append_time_ms,
                            partition.log_start_offset,
                        ) = row
                    else:
                        (
                            partition.index,
                            partition.error_code,
                            partition.base_offset,
                            partition.log_append_time_ms,
                        ) = row
                        partition.log_start_offset = -1
                    partition.record_errors = ()
                    partition.error_message = partition.current_leader = None
                    partitions.append(partition)
                topic.partition_responses = tuple(partitions)
                topics.append(topic)
                pos = stop
            message.responses = tuple(topics)
            (message.throttle_time_ms,) = unpack_count(data, pos)
            message.node_endpoints = ()
        except UNREAD:
            return compiled(data, start, budget)
        return message, pos + 4

    return read


READERS: Final = {ProduceRequest: request_reader, ProduceResponse: response_reader}
WRITERS: Final = {ProduceRequest: request_writer, ProduceResponse: response_writer}
