"""Fetch by hand in the versions before the flexible ones, which are 4 to 11; requests are here.

Invariant: that of the package. Plain are requests without forgotten topics.

A version's fields of fixed size are chosen once, when its reader or writer is made: those that it
lacks are not in its layouts. Partitions of a request are of one size: one call unpacks all of a
topic. Objects are made without their constructors, which would cost as much as the rest of the
reading.
"""

from struct import Struct as Layout
from typing import Final

from ottla.ids import ZERO_UUID
from ottla.protocol.hot import PARTITIONS_MAX, PLAIN_BYTES, UNREAD, UNWRITTEN, Unplain
from ottla.protocol.hot.old_fetch_answer import (
    LOG_START_SINCE,
    RACKS_SINCE,
    SESSIONS_SINCE,
    response_reader,
    response_writer,
)
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ottla.protocol.primitives import Buffer
from ottla.protocol.reader import Reader
from ottla.protocol.schema import Struct
from ottla.protocol.writer import Writer

EPOCHS_SINCE: Final = 9

UNKNOWN_HIGH_WATERMARK: Final = 0x7FFF_FFFF_FFFF_FFFF

_new: Final = object.__new__
_NONE: Final = ()

_SHORT: Final = Layout(">h")
_COUNT: Final = Layout(">i")


def _row(version: int) -> Layout:
    """A partition of a request."""
    epoch = "i" if version >= EPOCHS_SINCE else ""
    log_start = "q" if version >= LOG_START_SINCE else ""
    return Layout(f">i{epoch}q{log_start}i")


def request_reader(version: int, compiled: Reader) -> Reader:
    """The reader of requests."""
    with_log_start, with_session = version >= LOG_START_SINCE, version >= SESSIONS_SINCE
    with_epoch, with_rack = version >= EPOCHS_SINCE, version >= RACKS_SINCE
    head = Layout(">iiiibiii" if with_session else ">iiiibi")
    rows_in, size_of_row = _row(version).iter_unpack, _row(version).size
    unpack_head = head.unpack_from
    unpack_short, unpack_count = _SHORT.unpack_from, _COUNT.unpack_from

    def read(data: bytes, start: int, budget: int) -> tuple[Struct, int]:
        try:
            message = _new(FetchRequest)
            if with_session:
                (
                    message.replica_id,
                    message.max_wait_ms,
                    message.min_bytes,
                    message.max_bytes,
                    message.isolation_level,
                    message.session_id,
                    message.session_epoch,
                    count,
                ) = unpack_head(data, start)
                pos = start + 29
            else:
                (
                    message.replica_id,
                    message.max_wait_ms,
                    message.min_bytes,
                    message.max_bytes,
                    message.isolation_level,
                    count,
                ) = unpack_head(data, start)
                message.session_id, message.session_epoch = 0, -1
                pos = start + 21
            left = budget - count
            if count < 0 or left < 0:
                raise Unplain
            topics: list[FetchTopic] = []
            for _ in range(count):
                topic = _new(FetchTopic)
                (size,) = unpack_short(data, pos)
                stop = pos + 2 + size
                topic.topic, topic.topic_id = data[pos + 2 : stop].decode(), ZERO_UUID
                (count,) = unpack_count(data, stop)
                pos = stop + 4
                left -= count
                stop = pos + size_of_row * count
                if size < 0 or count < 0 or left < 0 or stop > len(data):
                    raise Unplain
                partitions: list[FetchPartition] = []
                for row in rows_in(data[pos:stop]):
                    partition = _new(FetchPartition)
                    if with_epoch:
                        (
                            partition.partition,
                            partition.current_leader_epoch,
                            partition.fetch_offset,
                            partition.log_start_offset,
                            partition.partition_max_bytes,
                        ) = row
                    elif with_log_start:
                        (
                            partition.partition,
                            partition.fetch_offset,
                            partition.log_start_offset,
                            partition.partition_max_bytes,
                        ) = row
                        partition.current_leader_epoch = -1
                    else:
                        (
                            partition.partition,
                            partition.fetch_offset,
                            partition.partition_max_bytes,
                        ) = row
                        partition.current_leader_epoch = partition.log_start_offset = -1
                    partition.last_fetched_epoch = -1
                    partition.replica_directory_id = ZERO_UUID
                    partition.high_watermark = UNKNOWN_HIGH_WATERMARK
                    partitions.append(partition)
                topic.partitions = tuple(partitions)
                topics.append(topic)
                pos = stop
            message.topics = tuple(topics)
            message.forgotten_topics_data = ()
            message.rack_id = ""
            message.cluster_id = message.replica_state = None
            if with_session:
                (count,) = unpack_count(data, pos)
                pos += 4
                if count:
                    raise Unplain
            if with_rack:
                (size,) = unpack_short(data, pos)
                pos += 2
                if size:
                    stop = pos + size
                    message.rack_id = data[pos:stop].decode()
                    if size < 0 or stop > len(data):
                        raise Unplain
                    pos = stop
        except UNREAD:
            return compiled(data, start, budget)
        return message, pos

    return read


def request_writer(version: int, compiled: Writer) -> Writer:
    """The writer of requests."""
    with_log_start, with_session = version >= LOG_START_SINCE, version >= SESSIONS_SINCE
    with_epoch, with_rack = version >= EPOCHS_SINCE, version >= RACKS_SINCE
    pack_head = Layout(">iiiibiii" if with_session else ">iiiibi").pack
    pack_row = _row(version).pack
    pack_short, pack_count = _SHORT.pack, _COUNT.pack

    def write(message: FetchRequest, buffers: list[Buffer]) -> None:
        try:
            topics = message.topics
            if message.forgotten_topics_data is not _NONE or message.replica_state is not None:
                raise Unplain
            if with_session:
                out = pack_head(
                    message.replica_id,
                    message.max_wait_ms,
                    message.min_bytes,
                    message.max_bytes,
                    message.isolation_level,
                    message.session_id,
                    message.session_epoch,
                    len(topics),
                )
            else:
                out = pack_head(
                    message.replica_id,
                    message.max_wait_ms,
                    message.min_bytes,
                    message.max_bytes,
                    message.isolation_level,
                    len(topics),
                )
            for topic in topics:
                partitions = topic.partitions
                name = topic.topic.encode()
                if len(partitions) > PARTITIONS_MAX or len(out) > PLAIN_BYTES:
                    raise Unplain
                out += pack_short(len(name)) + name + pack_count(len(partitions))
                for partition in partitions:
                    if partition.last_fetched_epoch != -1:
                        raise Unplain
                    if with_epoch:
                        out += pack_row(
                            partition.partition,
                            partition.current_leader_epoch,
                            partition.fetch_offset,
                            partition.log_start_offset,
                            partition.partition_max_bytes,
                        )
                    elif with_log_start:
                        out += pack_row(
                            partition.partition,
                            partition.fetch_offset,
                            partition.log_start_offset,
                            partition.partition_max_bytes,
                        )
                    else:
                        out += pack_row(
                            partition.partition,
                            partition.fetch_offset,
                            partition.partition_max_bytes,
                        )
            if with_session:
                out += b"\0\0\0\0"
            if with_rack:
                raw = message.rack_id.encode()
                out += pack_short(len(raw)) + raw
            buffers.append(out)
        except UNWRITTEN:
            compiled(message, buffers)

    return write


READERS: Final = {FetchRequest: request_reader, FetchResponse: response_reader}
WRITERS: Final = {FetchRequest: request_writer, FetchResponse: response_writer}
