"""Answers to Fetch by hand in the versions before the flexible ones, which are 4 to 11.

Invariant: that of the package. Plain are answers without aborted transactions and with records.

A version's fields of fixed size are chosen once, when its reader or writer is made.
"""

from struct import Struct as Layout
from typing import Any, Final

from ottla.ids import ZERO_UUID
from ottla.protocol.hot import PARTITIONS_MAX, PLAIN_BYTES, UNREAD, UNWRITTEN, Unplain
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.primitives import Buffer
from ottla.protocol.reader import Reader
from ottla.protocol.schema import Struct
from ottla.protocol.writer import Writer

LOG_START_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
RACKS_SINCE: Final = 11

_new: Final = object.__new__
_NONE: Final = ()

_SHORT: Final = Layout(">h")
_COUNT: Final = Layout(">i")


def _partition(version: int) -> Layout:
    """A partition of an answer up to its records, with the number of aborted transactions."""
    log_start = "q" if version >= LOG_START_SINCE else ""
    replica = "i" if version >= RACKS_SINCE else ""
    return Layout(f">ihqq{log_start}i{replica}i")


def response_writer(version: int, compiled: Writer) -> Writer:
    """The writer of answers."""
    with_log_start, with_session = version >= LOG_START_SINCE, version >= SESSIONS_SINCE
    with_replica = version >= RACKS_SINCE
    pack_head = Layout(">ihii" if with_session else ">ii").pack
    pack_partition = _partition(version).pack
    pack_short, pack_count = _SHORT.pack, _COUNT.pack

    def write(message: FetchResponse, buffers: list[Buffer]) -> None:
        try:
            topics = message.responses
            if message.node_endpoints is not _NONE:
                raise Unplain
            if with_session:
                out = pack_head(
                    message.throttle_time_ms, message.error_code, message.session_id, len(topics)
                )
            else:
                out = pack_head(message.throttle_time_ms, len(topics))
                if message.session_id != 0:
                    raise Unplain
            for topic in topics:
                partitions = topic.partitions
                name = topic.topic.encode()
                if len(partitions) > PARTITIONS_MAX or len(out) > PLAIN_BYTES:
                    raise Unplain
                out += pack_short(len(name)) + name + pack_count(len(partitions))
                for partition in partitions:
                    aborted = partition.aborted_transactions
                    records = partition.records
                    if (
                        partition.diverging_epoch is not None
                        or partition.current_leader is not None
                        or partition.snapshot_id is not None
                        or aborted
                    ):
                        raise Unplain
                    none = -1 if aborted is None else 0
                    size = -1 if records is None else len(records)
                    if with_replica:
                        out += pack_partition(
                            partition.partition_index,
                            partition.error_code,
                            partition.high_watermark,
                            partition.last_stable_offset,
                            partition.log_start_offset,
                            none,
                            partition.preferred_read_replica,
                            size,
                        )
                    elif partition.preferred_read_replica != -1:
                        raise Unplain
                    elif with_log_start:
                        out += pack_partition(
                            partition.partition_index,
                            partition.error_code,
                            partition.high_watermark,
                            partition.last_stable_offset,
                            partition.log_start_offset,
                            none,
                            size,
                        )
                    else:
                        out += pack_partition(
                            partition.partition_index,
                            partition.error_code,
                            partition.high_watermark,
                            partition.last_stable_offset,
                            none,
                            size,
                        )
                    if records:
                        buffers += (out, records)
                        out = b""
            if out:
                buffers.append(out)
        except UNWRITTEN:
            buffers.clear()
            compiled(message, buffers)

    return write


def response_reader(version: int, compiled: Reader) -> Reader:
    """The reader of answers."""
    with_log_start, with_session = version >= LOG_START_SINCE, version >= SESSIONS_SINCE
    with_replica = version >= RACKS_SINCE
    head, layout = Layout(">ihii" if with_session else ">ii"), _partition(version)
    unpack_head, unpack_partition = head.unpack_from, layout.unpack_from
    size_of_head, size_of_partition = head.size, layout.size
    unpack_short, unpack_count = _SHORT.unpack_from, _COUNT.unpack_from

    def read(data: Any, start: int, budget: int) -> tuple[Struct, int]:
        try:
            message = _new(FetchResponse)
            if with_session:
                message.throttle_time_ms, message.error_code, message.session_id, count = (
                    unpack_head(data, start)
                )
            else:
                message.throttle_time_ms, count = unpack_head(data, start)
                message.error_code = message.session_id = 0
            pos = start + size_of_head
            end = len(data)
            left = budget - count
            if count < 0 or left < 0:
                raise Unplain
            topics: list[FetchableTopicResponse] = []
            for _ in range(count):
                topic = _new(FetchableTopicResponse)
                (size,) = unpack_short(data, pos)
                stop = pos + 2 + size
                topic.topic, topic.topic_id = str(data[pos + 2 : stop], "utf-8"), ZERO_UUID
                (count,) = unpack_count(data, stop)
                pos = stop + 4
                left -= count
                if size < 0 or count < 0 or left < 0:
                    raise Unplain
                partitions: list[PartitionData] = []
                for _ in range(count):
                    partition = _new(PartitionData)
                    if with_replica:
                        (
                            partition.partition_index,
                            partition.error_code,
                            partition.high_watermark,
                            partition.last_stable_offset,
                            partition.log_start_offset,
                            aborted,
                            partition.preferred_read_replica,
                            size,
                        ) = unpack_partition(data, pos)
                    elif with_log_start:
                        (
                            partition.partition_index,
                            partition.error_code,
                            partition.high_watermark,
                            partition.last_stable_offset,
                            partition.log_start_offset,
                            aborted,
                            size,
                        ) = unpack_partition(data, pos)
                        partition.preferred_read_replica = -1
                    else:
                        (
                            partition.partition_index,
                            partition.error_code,
                            partition.high_watermark,
                            partition.last_stable_offset,
                            aborted,
                            size,
                        ) = unpack_partition(data, pos)
                        partition.log_start_offset = partition.preferred_read_replica = -1
                    pos += size_of_partition
                    stop = pos + size
                    if not -2 < aborted < 1 or size < 0 or stop > end:
                        raise Unplain
                    partition.records = data[pos:stop]
                    partition.aborted_transactions = None if aborted else ()
                    partition.diverging_epoch = None
                    partition.current_leader = None
                    partition.snapshot_id = None
                    pos = stop
                    partitions.append(partition)
                topic.partitions = tuple(partitions)
                topics.append(topic)
            message.responses = tuple(topics)
            message.node_endpoints = ()
        except UNREAD:
            return compiled(data, start, budget)
        return message, pos

    return read
