# ruff: noqa: SIM110, SLF001 - fast in compiled code; it works on the state of a log, as its parts do.
"""Serves an ordinary Produce request with one compiled call, from the frame to the response.

The call first checks the whole request and changes nothing. If the request is not ordinary, it
returns None, and the connection passes the request to ProduceHandler, which serves every request.

A request is ordinary if all of this is true:

- It has version 9 or later, acks 1 or -1, no transactional id, no tagged fields, and at most
  PARTITIONS_MAX partitions, each of them once and with records.
- This broker leads its partitions. None of them is internal, recompresses, uses LogAppendTime, has
  failed or is being truncated. For acks -1, enough replicas are in sync.
- Each partition has one valid batch, which is stored as it was sent. A compressed batch is valid
  after it was decompressed, unless that takes long.
- A batch has no producer id, or the next sequence of a known producer in its current epoch.
- No segment is rolled, and no flush has to precede the response.

Invariant: the response, the files and the state are those of ProduceHandler.
Invariant: nothing is copied from one call to the next. The call works on the state that the other
parts of the broker change, so a change of leadership, configuration, segment or failure counts at
once.

If records of a request with acks -1 have to be replicated, the call returns a PendingAck with the
response.

If a write fails, `appended` has the partitions and offsets of the batches before it. ProduceHandler
then serves the request from the failed batch on.

The module is Cython in pure-Python mode, as the kernel of the records is.
"""

from __future__ import annotations

from fastcrc.crc32 import iscsi as crc32c

from ottla.broker.produce_acks import EncodedAck
from ottla.errors import RequestError, StorageFailure
from ottla.log.appender import Appended
from ottla.log.producer_state_manager import CACHED_BATCHES
from ottla.log.segment.index import OffsetPosition, TimestampOffset
from ottla.log.segment.segment import RECENT_BATCHES_MAX
from ottla.records._kernel import check_records
from ottla.records.batch import NO_TIMESTAMP, TRANSACTIONAL, TimestampType
from ottla.records.errors import WouldBlock
from ottla.records.validation import validate

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.batch_headers import big_endian, put_big_endian, unsigned32
    from ottla.records._kernel.buffers import BufferView, is_utf8
    from ottla.records._kernel.constants import HEADER_SIZE, LENGTH_END

    def new_bytes(size):
        """Create bytes that `bytes_pointer` can fill."""
        return bytearray(size)

    def bytes_pointer(data):
        """Return the address of the bytes."""
        return data


PARTITIONS_MAX = 200
"""A request with more partitions would block the event loop for too long."""

_CREATE_TIME = TimestampType.CREATE_TIME
_INT64_MIN = -0x8000000000000000
_INT64_MAX = 0x7FFFFFFFFFFFFFFF


@cython.final
@cython.cclass
class OrdinaryBatch:
    """A checked batch of a request, and the objects that its append changes."""

    __slots__ = (
        "base_offset",
        "error_at",
        "index",
        "last_offset",
        "partition",
        "producer",
        "segment",
        "sequence",
        "start",
        "state",
        "stop",
        "timestamp",
    )


@cython.final
@cython.cclass
class ProduceFastPath:
    """Appends the batches of ordinary Produce requests."""

    __slots__ = (
        "_acks",
        "_batches",
        "_counts",
        "_elapsed_s",
        "_metadata_cache",
        "_now_ms",
        "_partitions",
        "_timeout_ms",
        "_topics",
        "_uncommitted",
        "appended",
    )

    def __init__(self, *, partitions: dict, metadata_cache, clock, counts):
        self._partitions = partitions  # those that this broker leads
        self._metadata_cache = metadata_cache
        self._now_ms = clock.now_ms
        self._elapsed_s = clock.elapsed_s
        self._counts = counts  # of Produce
        self._batches = []
        self._uncommitted = []  # the batches that have to be replicated before the response
        self._topics = []
        self._acks = 0
        self._timeout_ms = 0
        self.appended = []

    def serve(self, frame):
        """Serve a request and return the response frame; None if it is not ordinary.

        The response is a PendingAck if it has to wait for replicas.
        """
        view: BufferView = BufferView(frame)
        size: cython.Py_ssize_t = view.size
        p: cython.p_const_uchar = view.at
        version: cython.int
        pos: cython.Py_ssize_t
        # Two bytes for the API key, two for the version, four for the correlation id.
        if size < 20 or p[0] != 0 or p[1] != 0 or p[2] != 0 or p[3] < 9 or p[3] > 13:
            return None
        version = p[3]
        began_s = self._elapsed_s()
        self.appended.clear()
        try:
            pos = _body_position(view)
            if pos == 0 or not self._check(view, memoryview(frame), pos, version):
                return None
            if not self._append(memoryview(frame)):
                return None
            response = self._response(view)
            if self._uncommitted:
                return self._pending(response, version, began_s)
        finally:
            self._topics.clear()
            self._uncommitted.clear()
            self._batches.clear()  # they refer to partitions that may be deleted
        self._counts.note(self._elapsed_s() - began_s)
        return response

    # The checks: nothing changes.

    @cython.cfunc
    def _check(
        self, view: BufferView, data, pos: cython.Py_ssize_t, version: cython.int
    ) -> cython.bint:
        """Check the body of a request, and note its topics and batches."""
        p: cython.p_const_uchar = view.at
        size: cython.Py_ssize_t = view.size
        topics: cython.int
        partitions: cython.int
        start: cython.Py_ssize_t
        length: cython.longlong
        index: cython.longlong
        shift: cython.int
        byte: cython.longlong
        now_ms: cython.longlong = self._now_ms()
        # An empty transactional id, acks, a timeout, the number of topics.
        if size - pos < 8 or p[pos] != 0:
            return False
        self._acks = big_endian(p, pos + 1, 2)
        self._timeout_ms = big_endian(p, pos + 3, 4)
        topics = p[pos + 7]
        pos += 8
        if (self._acks != 1 and self._acks != -1) or topics < 2 or topics > 127:
            return False
        while topics > 1:
            topics -= 1
            start = pos
            if version >= 13:
                if size - pos < 17:
                    return False
                topic_id = bytes(data[pos : pos + 16])
                name = self._metadata_cache.image.names.get(topic_id)
                pos += 16
            else:
                if size - pos < 2 or p[pos] < 2 or p[pos] > 127 or size - pos <= p[pos]:
                    return False
                if not is_utf8(p, pos + 1, p[pos] - 1):
                    return False
                name = str(data[pos + 1 : pos + p[pos]], "utf-8")
                pos += p[pos]
            partitions = p[pos]
            if partitions < 2 or partitions > 127:
                return False
            self._topics.append((bytes(data[start : pos + 1]), partitions - 1))
            if len(self._batches) + partitions - 1 > PARTITIONS_MAX:
                return False
            pos += 1
            while partitions > 1:
                partitions -= 1
                if size - pos < 5:
                    return False
                index = big_endian(p, pos, 4)
                pos += 4
                length = 0
                shift = 0
                while True:
                    if pos >= size or shift > 28:
                        return False
                    byte = p[pos]
                    length |= (byte & 0x7F) << shift
                    pos += 1
                    if byte < 0x80:
                        break
                    shift += 7
                length -= 1
                if length < HEADER_SIZE or length >= size - pos:
                    return False
                batch = self._ordinary(view, data, pos, length, (name, index), version, now_ms)
                if batch is None:
                    return False
                self._batches.append(batch)
                pos += length
                if p[pos] != 0:
                    return False
                pos += 1
            if pos >= size or p[pos] != 0:
                return False
            pos += 1
        return pos == size - 1 and p[pos] == 0

    @cython.cfunc
    def _ordinary(
        self,
        view: BufferView,
        data,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        name: tuple,
        version: cython.int,
        now_ms: cython.longlong,
    ) -> OrdinaryBatch | None:
        """Return the only batch of a partition, with all that its append needs."""
        p: cython.p_const_uchar = view.at
        partition = self._partitions.get(name)
        if partition is None:
            return None
        rules = partition.rules
        state = partition.log.state
        if (
            partition.internal
            or (self._acks == -1 and partition.in_sync_min > partition.in_sync_count)
            or rules.compression is not None
            or rules.timestamp_type is not _CREATE_TIME
            or size > rules.max_message_bytes
            or state.failure is not None
            or state.truncating
            or state.leader_epoch != partition.leader_epoch
        ):
            return None
        other: OrdinaryBatch
        for other in self._batches:
            if other.partition is partition:
                return None
        # The header.
        attributes: cython.longlong = big_endian(p, start + 21, 2)
        delta: cython.longlong = big_endian(p, start + 23, 4)
        count: cython.longlong = big_endian(p, start + 57, 4)
        producer_id: cython.longlong = big_endian(p, start + 43, 8)
        epoch: cython.longlong = big_endian(p, start + 51, 2)
        sequence: cython.longlong = big_endian(p, start + 53, 4)
        if (
            p[start + 16] != 2
            or big_endian(p, start + 8, 4) + LENGTH_END != size
            or big_endian(p, start, 8) != 0
            or attributes & TRANSACTIONAL
            or count < 1
            or count != delta + 1
        ):
            return None
        # The records.
        timestamp: cython.longlong = _max_timestamp(
            data[start : start + size], rules, attributes, count, view, start, version, now_ms
        )
        # The largest timestamp in the header, which a client need not set right.
        if timestamp < NO_TIMESTAMP or timestamp != big_endian(p, start + 35, 8):
            return None
        # The segment.
        config = state.config
        segment = state.segments.active
        base_offset: cython.longlong = state.log_end_offset
        last_offset: cython.longlong = base_offset + delta
        if _roll_or_flush_due(segment, config, state, size, last_offset, timestamp, now_ms):
            return None
        # The producer.
        producer = None
        if producer_id >= 0:
            producer = state.producers.get(producer_id)
            if producer is None or not _is_next(producer, epoch, sequence, count):
                return None
        batch: OrdinaryBatch = OrdinaryBatch()
        batch.partition = partition
        batch.state = state
        batch.segment = segment
        batch.producer = producer
        batch.index = name[1]
        batch.start = start
        batch.stop = start + size
        batch.base_offset = base_offset
        batch.last_offset = last_offset
        batch.timestamp = timestamp
        batch.sequence = sequence
        return batch

    # The appends.

    @cython.cfunc
    def _append(self, data) -> cython.bint:
        """Append the batches; False if one could not be written."""
        batch: OrdinaryBatch
        for batch in self._batches:
            state = batch.state
            try:
                if not _append_one(batch, data) and self._acks == -1:
                    self._uncommitted.append(batch)
            except StorageFailure:
                self._note_appended(batch)
                return False
            except BaseException as error:
                directory = state.directory
                state.fail(StorageFailure(f"{directory}: an append failed midway: {error!r}"))
                raise
        return True

    @cython.cfunc
    def _note_appended(self, failed: OrdinaryBatch):
        batch: OrdinaryBatch
        for batch in self._batches:
            if batch is failed:
                break
            offsets = Appended(batch.base_offset, batch.last_offset, NO_TIMESTAMP)
            self.appended.append((batch.partition, offsets))

    @cython.cfunc
    def _response(self, view: BufferView):
        """Encode the response."""
        size: cython.Py_ssize_t = 4 + 4 + 1 + 1 + 4 + 1 + 33 * len(self._batches)
        for head, _ in self._topics:
            size += len(head) + 1
        response = new_bytes(size)
        out: cython.p_uchar = bytes_pointer(response)
        raw: cython.p_const_uchar
        put_big_endian(out, 0, size - 4, 4)
        pos: cython.Py_ssize_t
        for pos in range(4):  # the correlation id
            out[4 + pos] = view.at[4 + pos]
        out[8] = 0  # no tagged fields in the header
        out[9] = len(self._topics) + 1
        pos = 10
        number: cython.Py_ssize_t = 0
        left: cython.Py_ssize_t
        at: cython.Py_ssize_t
        batch: OrdinaryBatch
        for head, partitions in self._topics:
            raw = head
            for at in range(len(head)):
                out[pos + at] = raw[at]
            pos += len(head)
            left = partitions
            while left > 0:
                left -= 1
                batch = self._batches[number]
                number += 1
                batch.error_at = pos + 4
                put_big_endian(out, pos, batch.index, 4)
                put_big_endian(out, pos + 4, 0, 2)  # no error
                put_big_endian(out, pos + 6, batch.base_offset, 8)
                put_big_endian(out, pos + 14, -1, 8)  # no append time
                put_big_endian(out, pos + 22, batch.state.log_start_offset, 8)
                out[pos + 30] = 1  # no record errors
                out[pos + 31] = 0  # no error message
                out[pos + 32] = 0  # no tagged fields
                pos += 33
            out[pos] = 0
            pos += 1
        put_big_endian(out, pos, 0, 4)  # not throttled
        out[pos + 4] = 0
        return response if cython.compiled else bytes(response)

    @cython.cfunc
    def _pending(self, response, version: cython.int, began_s):
        """Return the response as one that waits for the replicas of its partitions."""
        batch: OrdinaryBatch
        ack = EncodedAck(response, version, self._counts, self._elapsed_s, began_s)
        for batch in self._uncommitted:
            ack.wait_for(batch.partition, batch.last_offset + 1, batch.error_at)
        ack.begin(self._timeout_ms)
        return ack


@cython.cfunc
@cython.exceptval(check=False)
def _body_position(view: BufferView) -> cython.Py_ssize_t:
    """Return the position after the header of a request; 0 if it is not ordinary."""
    p: cython.p_const_uchar = view.at
    length: cython.longlong = big_endian(p, 8, 2)
    pos: cython.Py_ssize_t = 10
    if length < -1 or length >= view.size - pos:
        return 0
    if length > 0:
        if not is_utf8(p, pos, length):
            return 0
        pos += length
    return 0 if p[pos] != 0 else pos + 1


@cython.cfunc
def _max_timestamp(
    batch,
    rules,
    attributes: cython.longlong,
    count: cython.longlong,
    view: BufferView,
    start: cython.Py_ssize_t,
    version: cython.int,
    now_ms: cython.longlong,
) -> cython.longlong:
    """Check the records of a batch and return their largest timestamp; _INT64_MIN if invalid."""
    if attributes != 0:
        try:
            return validate(
                batch, rules, now_ms=now_ms, produce_version=version, nonblocking=True
            ).max_timestamp
        except (RequestError, WouldBlock):
            return _INT64_MIN
    if crc32c(batch[21:]) != unsigned32(view.at, start + 17):
        return _INT64_MIN
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = now_ms + rules.timestamp_after_max_ms
    reason, _, timestamp, _, without_key, out_of_bounds = check_records(
        batch[HEADER_SIZE:],
        count,
        big_endian(view.at, start + 27, 8),
        earliest if earliest > _INT64_MIN else _INT64_MIN,
        latest if latest < _INT64_MAX else _INT64_MAX,
    )
    if reason or out_of_bounds >= 0 or (without_key >= 0 and rules.compacted):
        return _INT64_MIN
    return timestamp


@cython.cfunc
def _roll_or_flush_due(
    segment,
    config,
    state,
    size: cython.longlong,
    last_offset: cython.longlong,
    timestamp: cython.longlong,
    now_ms: cython.longlong,
) -> cython.bint:
    """Whether the batch needs a new segment (`roll_due`) or a flush before the response."""
    segment_bytes: cython.longlong = config.segment_bytes
    segment_size: cython.longlong = segment.size
    waited_ms: cython.longlong
    if size > segment_bytes or last_offset > segment.offset_max:
        return True
    if last_offset + 1 - state.recovery_point >= config.flush_messages or config.flush_ms <= 0:
        return True
    if segment_size == 0:
        return False
    first = segment.first_timestamp
    if first is not None and first >= 0:
        waited_ms = timestamp - first
    else:
        waited_ms = now_ms - segment.created_ms
    index_bytes_max: cython.longlong = config.index_bytes_max
    return (
        segment_size > segment_bytes - size
        or waited_ms > config.segment_ms - segment.jitter_ms
        or segment.offset_index._entries >= index_bytes_max // 8
        or segment.time_index._entries >= index_bytes_max // 12 - 1
    )


@cython.cfunc
def _is_next(
    producer, epoch: cython.longlong, sequence: cython.longlong, count: cython.longlong
) -> cython.bint:
    """Whether the batch is the next one of its producer, and no duplicate."""
    last: cython.longlong = (sequence + count - 1) & 0x7FFFFFFF
    if (
        producer.epoch != epoch
        or producer.next_sequence != sequence
        or producer.transaction_first_offset is not None
    ):
        return False
    cached: tuple
    for cached in producer.batches:
        if cached[0] == sequence and cached[1] == last:
            return False
    return True


@cython.cfunc
def _append_one(batch: OrdinaryBatch, data) -> cython.bint:
    """Append a batch to its log; return whether it is committed."""
    state, segment, partition = batch.state, batch.segment, batch.partition
    size: cython.Py_ssize_t = batch.stop - batch.start
    base_offset = batch.base_offset
    last_offset = batch.last_offset
    # Base offset, length and leader epoch are not covered by the CRC.
    place = new_bytes(16)
    out: cython.p_uchar = bytes_pointer(place)
    put_big_endian(out, 0, batch.base_offset, 8)
    put_big_endian(out, 8, size - LENGTH_END, 4)
    put_big_endian(out, 12, state.leader_epoch, 4)
    position = segment.size
    end = segment.file.write((place, data[batch.start + 16 : batch.stop]), position)
    _index(batch, segment, position, state.config.index_interval_bytes)
    segment.size = end
    next_offset = last_offset + 1
    state.log_end_offset = next_offset
    if batch.producer is not None:
        _note_batch(batch, batch.producer)
    traffic = partition.traffic
    traffic.bytes_in += size
    traffic.records_in += next_offset - base_offset
    if partition.in_sync is not None:
        partition.note_appended(size)
        return partition.high_watermark > last_offset
    partition.high_watermark = next_offset
    if partition.waiting:
        for waiting in [*partition.waiting]:
            waiting.note(size)
    return True


@cython.cfunc
def _index(batch: OrdinaryBatch, segment, position: cython.longlong, interval_bytes):
    """Index a batch that was written (`Segment.index_batch`)."""
    size: cython.Py_ssize_t = batch.stop - batch.start
    timestamp = batch.timestamp
    last_offset = batch.last_offset
    if segment.first_timestamp is None:
        segment.first_timestamp = timestamp
    if timestamp > segment._latest_timestamp:
        segment._latest_timestamp = timestamp
        segment._latest_offset = last_offset
    since_entry: cython.longlong = segment._bytes_since_entry
    if since_entry > interval_bytes:
        _index_offset(segment.offset_index, batch.last_offset, position)
        latest: cython.longlong = segment._latest_timestamp
        if latest > segment.time_index.last[0]:
            _index_time(segment.time_index, latest, segment._latest_offset)
        since_entry = 0
    segment._bytes_since_entry = since_entry + size
    recent: list = segment._recent
    recent.append((last_offset, position))
    if len(recent) > RECENT_BATCHES_MAX:
        segment._recent_after = recent[RECENT_BATCHES_MAX // 2 - 1][0]
        del recent[: RECENT_BATCHES_MAX // 2]


@cython.cfunc
def _index_offset(index, last_offset: cython.longlong, position: cython.longlong):
    """Add an entry of 8 bytes (`OffsetIndex.append`)."""
    entry = new_bytes(8)
    out: cython.p_uchar = bytes_pointer(entry)
    relative: cython.longlong = last_offset - index.base_offset
    assert 0 <= relative <= 0x7FFFFFFF
    assert 0 < position <= 0x7FFFFFFF
    put_big_endian(out, 0, relative, 4)
    put_big_endian(out, 4, position, 4)
    index._appendable += entry
    index._entries += 1
    index.last = OffsetPosition(last_offset, position)


@cython.cfunc
def _index_time(index, timestamp: cython.longlong, offset: cython.longlong):
    """Add an entry of 12 bytes (`TimeIndex.append`)."""
    entry = new_bytes(12)
    out: cython.p_uchar = bytes_pointer(entry)
    relative: cython.longlong = offset - index.base_offset
    assert 0 <= relative <= 0x7FFFFFFF
    put_big_endian(out, 0, timestamp, 8)
    put_big_endian(out, 8, relative, 4)
    index._appendable += entry
    index._entries += 1
    index.last = TimestampOffset(timestamp, offset)


@cython.cfunc
def _note_batch(batch: OrdinaryBatch, producer):
    """Note an appended batch of a producer (`ProducerStateManager.append`)."""
    sequence = batch.sequence
    last: cython.longlong = (batch.sequence + (batch.last_offset - batch.base_offset)) & 0x7FFFFFFF
    batches: list = producer.batches
    if len(batches) == CACHED_BATCHES:
        del batches[0]
    batches.append((sequence, last, batch.base_offset, batch.last_offset, batch.timestamp))
    producer.next_sequence = (last + 1) & 0x7FFFFFFF
    producer.last_timestamp = batch.timestamp
