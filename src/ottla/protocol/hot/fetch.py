"""Hand-written codecs of Fetch requests and responses, in the flexible versions.

A request is plain if it has no forgotten topics and no tagged fields except the replica state of a
follower. A response is plain if it has no tagged fields and no aborted transactions. Both have
fewer than 127 topics, and names and racks below 127 bytes.

Partitions of a request without tagged fields have one size, so one call unpacks all of a topic.
Objects are created without their constructors, which would cost as much as the rest.
"""

from struct import Struct as Layout
from typing import Any, Final

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.hot.fallback import HEAD_BYTES_MAX, READ_ERRORS, WRITE_ERRORS, NotPlain
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.primitives import ONE_BYTE, Buffer, read_uvarint_rest, uvarint
from ottla.protocol.reader import Reader
from ottla.protocol.schema import Struct
from ottla.protocol.writer import Writer

IDS_SINCE: Final = 13
REPLICA_TAGGED_SINCE: Final = 15
DIRECTORY_SINCE: Final = 17
HIGH_WATERMARK_SINCE: Final = 18

UNKNOWN_HIGH_WATERMARK: Final = 0x7FFF_FFFF_FFFF_FFFF

_new: Final = object.__new__
_NONE: Final = ()
_new_bytes: Final = bytes.__new__

# The fixed part of a request after the replica id, and the number of topics.
_REQUEST: Final = Layout(">iiibiiB")
_REPLICA: Final = Layout(">i")
_TOPIC: Final = Layout(">16sB")
_ROW: Final = Layout(">iiqiqix")  # a partition of a request, without tagged fields
# One tagged field, tag 1 with 13 bytes: replica id, epoch, no tagged fields inside.
_FOLLOWER: Final = Layout(">3siqB")
_FOLLOWER_TAG: Final = b"\1\1\x0d"
# Throttle time, error, session id and number of topics.
_RESPONSE: Final = Layout(">ihiB")
# A partition of a response up to the length of its records.
_PARTITION: Final = Layout(">ihqqqBi")
# The same with a length of up to three bytes (2 MiB).
_PARTITION_AND_LENGTH: Final = Layout(">ihqqqBiBBB")


def request_reader(version: int, compiled: Reader) -> Reader:
    """Return the reader of requests."""
    by_id, replica_tagged = version >= IDS_SINCE, version >= REPLICA_TAGGED_SINCE
    unpack_topic, rows_in = _TOPIC.unpack_from, _ROW.iter_unpack

    def read(data: bytes, start: int, budget: int) -> tuple[Struct, int]:
        try:
            message = _new(FetchRequest)
            message.replica_id, pos = -1, start
            if not replica_tagged:
                (message.replica_id,) = _REPLICA.unpack_from(data, start)
                pos += 4
            (
                message.max_wait_ms,
                message.min_bytes,
                message.max_bytes,
                message.isolation_level,
                message.session_id,
                message.session_epoch,
                count,
            ) = _REQUEST.unpack_from(data, pos)
            pos += 22
            left = budget + 1 - count
            if not 0 < count < 128:
                raise NotPlain
            topics: list[FetchTopic] = []
            for _ in range(count - 1):
                topic = _new(FetchTopic)
                if by_id:
                    raw, count = unpack_topic(data, pos)
                    topic.topic, topic.topic_id = "", _new_bytes(Uuid, raw)
                    pos += 17
                else:
                    size = data[pos]
                    stop = pos + size
                    topic.topic, topic.topic_id = data[pos + 1 : stop].decode(), ZERO_UUID
                    count = data[stop]  # for a null name this reads its length, 0
                    pos = stop + 1
                    if size > 127:
                        raise NotPlain
                if count > 127:
                    count, pos = read_uvarint_rest(count, data, pos)
                left += 1 - count
                stop = pos + 33 * (count - 1)
                # Slices can be shorter than requested, so the byte after them is read first.
                if data[stop] or not count or left < 0 or any(data[pos + 32 : stop : 33]):
                    raise NotPlain
                partitions: list[FetchPartition] = []
                for row in rows_in(data[pos:stop]):
                    partition = _new(FetchPartition)
                    (
                        partition.partition,
                        partition.current_leader_epoch,
                        partition.fetch_offset,
                        partition.last_fetched_epoch,
                        partition.log_start_offset,
                        partition.partition_max_bytes,
                    ) = row
                    partition.replica_directory_id = ZERO_UUID
                    partition.high_watermark = UNKNOWN_HIGH_WATERMARK
                    partitions.append(partition)
                topic.partitions = tuple(partitions)
                topics.append(topic)
                pos = stop + 1
            message.topics = tuple(topics)
            message.forgotten_topics_data = ()
            size = data[pos + 1]
            stop = pos + 1 + size
            message.rack_id = data[pos + 2 : stop].decode()
            if data[pos] != 1 or not 0 < size < 128:
                raise NotPlain
            message.cluster_id = message.replica_state = None
            if data[stop]:
                tags, replica_id, replica_epoch, inner = _FOLLOWER.unpack_from(data, stop)
                if not replica_tagged or tags != _FOLLOWER_TAG or inner or not left:
                    raise NotPlain
                message.replica_state = ReplicaState(
                    replica_id=replica_id, replica_epoch=replica_epoch
                )
                stop += 15
        except READ_ERRORS:
            return compiled(data, start, budget)
        return message, stop + 1

    return read


def request_writer(version: int, compiled: Writer) -> Writer:
    """Return the writer of requests."""
    by_id, replica_tagged = version >= IDS_SINCE, version >= REPLICA_TAGGED_SINCE
    tagged, tagged_by_followers = version >= DIRECTORY_SINCE, version >= HIGH_WATERMARK_SINCE
    pack_row = _ROW.pack

    def write(message: FetchRequest, buffers: list[Buffer]) -> None:
        try:
            topics = message.topics
            count = len(topics) + 1
            if (
                message.forgotten_topics_data is not _NONE
                or message.cluster_id is not None
                or count > 127
            ):
                raise NotPlain
            out, tags, follower = b"", b"\0", message.replica_state
            if not replica_tagged:
                out = _REPLICA.pack(message.replica_id)
                if follower is not None:
                    raise NotPlain
            elif message.replica_id != -1:
                raise NotPlain
            elif follower is not None:
                tags = _FOLLOWER.pack(_FOLLOWER_TAG, follower.replica_id, follower.replica_epoch, 0)
                if follower.replica_id == follower.replica_epoch == -1:  # not sent
                    raise NotPlain
            out += _REQUEST.pack(
                message.max_wait_ms,
                message.min_bytes,
                message.max_bytes,
                message.isolation_level,
                message.session_id,
                message.session_epoch,
                count,
            )
            for topic in topics:
                partitions = topic.partitions
                count = len(partitions) + 1
                if count > 127 or len(out) > HEAD_BYTES_MAX:
                    raise NotPlain
                if by_id:
                    if len(topic.topic_id) != 16:
                        raise NotPlain
                    out += _TOPIC.pack(topic.topic_id, count)
                else:
                    name = topic.topic.encode()
                    out += ONE_BYTE[len(name) + 1] + name + ONE_BYTE[count]
                for partition in partitions:
                    if (tagged and partition.replica_directory_id is not ZERO_UUID) or (
                        tagged_by_followers and partition.high_watermark != UNKNOWN_HIGH_WATERMARK
                    ):
                        raise NotPlain
                    out += pack_row(
                        partition.partition,
                        partition.current_leader_epoch,
                        partition.fetch_offset,
                        partition.last_fetched_epoch,
                        partition.log_start_offset,
                        partition.partition_max_bytes,
                    )
                out += b"\0"
            rack = message.rack_id
            if rack == "":
                buffers.append(out + b"\1\1" + tags)
            else:
                raw = rack.encode()
                buffers.append(out + b"\1" + ONE_BYTE[len(raw) + 1] + raw + tags)
        except WRITE_ERRORS:
            compiled(message, buffers)

    return write


def response_writer(version: int, compiled: Writer) -> Writer:
    """Return the writer of responses."""
    by_id = version >= IDS_SINCE
    pack_partition = _PARTITION.pack

    def write(message: FetchResponse, buffers: list[Buffer]) -> None:
        try:
            topics = message.responses
            count = len(topics) + 1
            if message.node_endpoints is not _NONE or count > 127:
                raise NotPlain
            out = _RESPONSE.pack(
                message.throttle_time_ms, message.error_code, message.session_id, count
            )
            for topic in topics:
                partitions = topic.partitions
                count = len(partitions) + 1
                if count > 127 or len(out) > HEAD_BYTES_MAX:
                    raise NotPlain
                if by_id:
                    if len(topic.topic_id) != 16:
                        raise NotPlain
                    out += _TOPIC.pack(topic.topic_id, count)
                else:
                    name = topic.topic.encode()
                    out += ONE_BYTE[len(name) + 1] + name + ONE_BYTE[count]
                for partition in partitions:
                    aborted = partition.aborted_transactions
                    if (
                        partition.diverging_epoch is not None
                        or partition.current_leader is not None
                        or partition.snapshot_id is not None
                        or aborted
                    ):
                        raise NotPlain
                    out += pack_partition(
                        partition.partition_index,
                        partition.error_code,
                        partition.high_watermark,
                        partition.last_stable_offset,
                        partition.log_start_offset,
                        0 if aborted is None else 1,
                        partition.preferred_read_replica,
                    )
                    records = partition.records
                    if records is not None and (size := len(records)):
                        buffers += (out + uvarint(size + 1), records)
                        out = b"\0"
                    else:
                        out += b"\0\0" if records is None else b"\1\0"
                out += b"\0"
            buffers.append(out + b"\0")
        except WRITE_ERRORS:
            buffers.clear()
            compiled(message, buffers)

    return write


def response_reader(version: int, compiled: Reader) -> Reader:
    """Return the reader of responses."""
    by_id = version >= IDS_SINCE
    unpack_topic, unpack_partition = _TOPIC.unpack_from, _PARTITION_AND_LENGTH.unpack_from

    def read(data: Any, start: int, budget: int) -> tuple[Struct, int]:
        try:
            message = _new(FetchResponse)
            message.throttle_time_ms, message.error_code, message.session_id, count = (
                _RESPONSE.unpack_from(data, start)
            )
            pos = start + 11
            left = budget + 1 - count
            if not 0 < count < 128:
                raise NotPlain
            topics: list[FetchableTopicResponse] = []
            for _ in range(count - 1):
                topic = _new(FetchableTopicResponse)
                if by_id:
                    raw, count = unpack_topic(data, pos)
                    topic.topic, topic.topic_id = "", _new_bytes(Uuid, raw)
                    pos += 17
                else:
                    size = data[pos]
                    stop = pos + size
                    topic.topic, topic.topic_id = str(data[pos + 1 : stop], "utf-8"), ZERO_UUID
                    count = data[stop]  # for a null name this reads its length, 0
                    pos = stop + 1
                    if size > 127:
                        raise NotPlain
                left += 1 - count
                if not 0 < count < 128 or left < 0:
                    raise NotPlain
                partitions: list[PartitionData] = []
                for _ in range(count - 1):
                    partition = _new(PartitionData)
                    (
                        partition.partition_index,
                        partition.error_code,
                        partition.high_watermark,
                        partition.last_stable_offset,
                        partition.log_start_offset,
                        aborted,
                        partition.preferred_read_replica,
                        size,
                        second,
                        third,
                    ) = unpack_partition(data, pos)
                    pos += 36
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
                    if aborted > 1 or data[stop]:
                        raise NotPlain
                    partition.aborted_transactions = () if aborted else None
                    partition.diverging_epoch = None
                    partition.current_leader = None
                    partition.snapshot_id = None
                    pos = stop + 1
                    partitions.append(partition)
                topic.partitions = tuple(partitions)
                topics.append(topic)
                if data[pos]:
                    raise NotPlain
                pos += 1
            message.responses = tuple(topics)
            message.node_endpoints = ()
            if data[pos]:
                raise NotPlain
        except READ_ERRORS:
            return compiled(data, start, budget)
        return message, pos + 1

    return read


FetchRequest.register_codec(request_reader, request_writer)
FetchResponse.register_codec(response_reader, response_writer)
