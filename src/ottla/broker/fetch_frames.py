"""Reads ordinary Fetch requests from their frames and encodes their responses, without messages.

Invariant: a frame that is read has the fields that `protocol.messages.fetch` decodes from it. It is
not read if it has anything unusual, or an error: then FetchHandler gets the request.
"""

import struct
from struct import Struct
from typing import Final, NamedTuple, cast

from ottla.broker.fetch_sessions import FetchPartition, SessionKey
from ottla.ids import Uuid
from ottla.log.cached_reads import PinnedRecords
from ottla.protocol.primitives import ONE_BYTE, Buffer, uvarint

FRAME_BYTES_MAX: Final = 8 * 1024
"""A larger frame is not read: it would take memory while it waits. 100 partitions take 4 KB."""

_FETCH: Final = 1
_VERSIONS: Final = range(12, 19)  # the flexible ones
_IDS_SINCE: Final = 13
_REPLICA_STATE_SINCE: Final = 15

# Of a request: key, version, correlation id, size of the client id; then the body up to its topics;
# a topic id and a number of partitions; a partition and no tagged fields. Arrays and strings have
# one more than their length.
_HEADER: Final = Struct(">hh4sh")
_INT32: Final = Struct(">i")
_BODY: Final = Struct(">iiiBiiB")
_TOPIC: Final = Struct(">16sB")
_PARTITION: Final = Struct(">iiqiqiB")
# One tagged field: tag 1 with 13 bytes, which are the replica id and its epoch.
_REPLICA: Final = Struct(">3siqB")
_REPLICA_TAG: Final = b"\1\1\x0d"

# Of a response: size, correlation id, no tagged fields; throttle time, error code, session id, the
# number of topics. A partition: index, error code, high watermark, last stable offset, log start
# offset, aborted transactions (0: null, 1: none), no preferred replica.
_RESPONSE: Final = Struct(">i4sBihiB")
_PARTITION_DATA: Final = Struct(">ihqqqBi")

_new_bytes: Final = bytes.__new__


class FetchFrame(NamedTuple):
    """The fields of a request."""

    by_id: bool  # topics by id
    correlation_id: bytes
    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation: int
    session_id: int
    session_epoch: int
    named: dict[SessionKey, FetchPartition]
    forgotten: list[SessionKey]
    has_rack: bool
    replica_id: int = -1  # below 0: a consumer
    replica_epoch: int = -1


PartitionAnswer = tuple[bytes, int, Buffer | PinnedRecords]
"""A partition of a response up to its records, their size, and the records."""


def read_frame(frame: memoryview) -> FetchFrame | None:
    """Return the fields of a request; None if it is unusual or not a Fetch."""
    if not _HEADER.size <= len(frame) <= FRAME_BYTES_MAX or frame[1] != _FETCH or frame[0]:
        return None
    try:
        return _read(frame)
    except (IndexError, struct.error, UnicodeDecodeError):
        return None


def _read(frame: memoryview) -> FetchFrame | None:
    # Slices can be shorter than requested, so the byte after them is read, too.
    _, version, correlation_id, length = _HEADER.unpack_from(frame)
    at = _HEADER.size
    if length > 0:
        str(frame[at : at + length], "utf-8")
        at += length
    if version not in _VERSIONS or length < -1 or frame[at]:
        return None
    at += 1
    replica_id = replica_epoch = -1
    if version < _REPLICA_STATE_SINCE:
        (replica_id,) = _INT32.unpack_from(frame, at)
        at += 4
    body = _BODY.unpack_from(frame, at)
    max_wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch, topics = body
    at += _BODY.size
    if not 0 < topics < 128:
        return None
    by_id = version >= _IDS_SINCE
    named: dict[SessionKey, FetchPartition] = {}
    total = 0
    unpack = _PARTITION.unpack_from
    while topics > 1:
        topics -= 1
        topic, count, at = _topic(frame, at, by_id)
        if topic is None:
            return None
        for _ in range(count - 1):
            index, epoch, offset, last_epoch, log_start, limit, tags = unpack(frame, at)
            at += _PARTITION.size
            if tags:
                return None
            key = (topic, index)
            named[key] = FetchPartition(key, offset, limit, epoch, last_epoch, log_start)
        if frame[at]:
            return None
        at += 1
        total += count - 1
    topics = frame[at]
    at += 1
    if len(named) != total or not 0 < topics < 128:
        return None
    forgotten: list[SessionKey] = []
    while topics > 1:
        topics -= 1
        topic, count, at = _topic(frame, at, by_id)
        if topic is None:
            return None
        for _ in range(count - 1):
            forgotten.append((topic, _INT32.unpack_from(frame, at)[0]))
            at += 4
        if frame[at]:
            return None
        at += 1
    rack = frame[at]
    if not 0 < rack < 128:
        return None
    if rack > 1:
        str(frame[at + 1 : at + rack], "utf-8")
    at += rack
    if frame[at]:
        tag, replica_id, replica_epoch, tags = _REPLICA.unpack_from(frame, at)
        if tag != _REPLICA_TAG or tags or version < _REPLICA_STATE_SINCE:
            return None
        at += _REPLICA.size - 1
    if at + 1 != len(frame):
        return None
    return FetchFrame(
        by_id,
        correlation_id,
        max_wait_ms,
        bytes_min,
        bytes_max,
        isolation,
        session_id,
        session_epoch,
        named,
        forgotten,
        rack > 1,
        replica_id,
        replica_epoch,
    )


def _topic(frame: memoryview, at: int, by_id: bool) -> tuple[Uuid | str | None, int, int]:
    """Return a topic, its number of partitions plus one, and the position of the first one.

    The topic is None if it is unusual.
    """
    if by_id:
        raw, count = _TOPIC.unpack_from(frame, at)
        topic, at = _new_bytes(Uuid, raw), at + _TOPIC.size
    else:
        stop = at + frame[at]
        topic = str(frame[at + 1 : stop], "utf-8") if 1 < frame[at] < 128 else None
        count, at = frame[stop], stop + 1
    return topic if 0 < count < 128 else None, count, at


def partition_head(
    index: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    count: int,
    *,
    committed: bool = False,
) -> bytes:
    """Encode a partition without an error up to its records, of which there are `count` bytes.

    A read_committed consumer gets an empty list of aborted transactions, others get none.
    """
    return _PARTITION_DATA.pack(
        index, 0, high_watermark, last_stable_offset, log_start_offset, committed, -1
    ) + uvarint(count + 1)


def encoded(
    correlation_id: bytes, session_id: int, topics: dict[Uuid | str, list[PartitionAnswer]]
) -> list[Buffer]:
    """Encode the frame of a response; records stay buffers or file slices of their own."""
    buffers: list[Buffer | PinnedRecords] = []
    size = _RESPONSE.size - 4
    text = b""
    for topic, partitions in topics.items():
        if isinstance(topic, bytes):
            text += topic
        else:
            raw = topic.encode()
            text += ONE_BYTE[len(raw) + 1] + raw
        text += uvarint(len(partitions) + 1)
        for head, count, records in partitions:
            text += head
            if count:
                buffers += (text, records)
                size += len(text) + count
                text = b""
            text += b"\0"
        text += b"\0"
    text += b"\0"
    size += len(text)
    buffers.append(text)
    # In one piece with the first text: each buffer beside a file slice is a system call.
    first = _RESPONSE.pack(size, correlation_id, 0, 0, 0, session_id, len(topics) + 1)
    buffers[0] = b"".join((first, cast("Buffer", buffers[0])))
    # A connection sends file slices, too.
    return cast("list[Buffer]", buffers)
