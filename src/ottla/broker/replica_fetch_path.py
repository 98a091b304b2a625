"""Serves the ordinary Fetch of a follower with few objects: frame in, encoded response out.

With acks=all, each batch waits for one round trip of a follower. FetchHandler serves every Fetch,
and creates an object for each part of it. This path serves the usual one: the next request of an
incremental session, in which few partitions have changed. This broker leads them in the epoch that
the follower knows, and their new records are in the page cache.

The path first checks the whole request and reads, and changes nothing. If the request is not
ordinary, it returns None, and the connection passes the request to FetchHandler. A request without
new records becomes a PendingAck, which an append completes. Its response has what is ordinary by
then. Any other partition stays marked: the follower fetches again at once, and FetchHandler serves
it.

Invariant: sessions, marks, offsets and responses are those of FetchHandler.
Invariant: nothing is copied from one request to the next. A change of leadership, epoch or segment
counts at once.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, cast

from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.fetch_read import PINNED_BYTES_MIN
from ottla.broker.fetch_sessions import FetchPartition, FetchSession, FetchSessions, Told
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.shutdown import Shutdown
from ottla.clock import Clock
from ottla.errors import RequestError, StorageFailure
from ottla.ids import BrokerEpoch, BrokerId, Offset, Uuid
from ottla.log.cached_reads import NotCached, PinnedRecords
from ottla.log.disk import Reader
from ottla.metrics import ApiCounts
from ottla.protocol.conversation import Response
from ottla.protocol.primitives import Buffer, uvarint
from ottla.replication.fetch_purgatory import ReplicaWatch, WatchKey
from ottla.replication.partition import Partition
from ottla.settings.broker import FETCH_MAX_BYTES
from ottla.transport.connection import WRITE_BUFFER_BYTES, Connection
from ottla.transport.pending_acks import PendingAck

VISITS_MAX: Final = 100
"""A Fetch that visits more partitions would block the event loop for too long."""

SHARE: Final = 4
"""A response gets at most 1/SHARE of the memory that is left, as in FetchHandler."""

_WAIT_BYTES: Final = 1024  # the memory of a request that waits

# Of a request: key, version, correlation id, size of the client id; then the body up to its topics;
# a topic id and a number of partitions; a partition and no tagged fields; the end of the request:
# no topics to forget, no rack, and one tagged field, which is tag 1 with the replica state.
_HEADER: Final = Struct(">hh4sh")
_BODY: Final = Struct(">iiiBiiB")
_TOPIC: Final = Struct(">16sB")
_PARTITION: Final = Struct(">iiqiqiB")
_TAIL: Final = Struct(">4sBiqB")
_TAIL_BEGIN: Final = b"\x01\x01\x01\x01"
_REPLICA_STATE_BYTES: Final = 13

_FETCH: Final = 1
_VERSIONS: Final = range(15, 19)  # those with a replica state
_ONE_BYTE: Final = range(1, 0x80)  # varints of one byte; arrays have one more than their length

# Of a response: size, correlation id, no tagged fields; throttle time, error code, session id, the
# number of topics. A partition: index, error code, high watermark, last stable offset, log start
# offset, no aborted transactions, no preferred replica.
_RESPONSE: Final = Struct(">i4sBihiB")
_PARTITION_DATA: Final = Struct(">ihqqqBi")


class _Request(NamedTuple):
    """The parts of a request that count."""

    correlation_id: bytes
    max_wait_ms: int
    bytes_max: int
    session_id: int
    session_epoch: int
    replica_id: BrokerId
    replica_epoch: BrokerEpoch
    named: dict[WatchKey, FetchPartition]


class Visit(NamedTuple):
    """A partition that has something new for the follower, or might have."""

    wanted: FetchPartition
    partition: Partition
    records: Buffer | PinnedRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetchPath:
    """Serves the ordinary Fetch requests of followers."""

    clock: Clock
    settings: EffectiveConfig
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessions
    shutdown: Shutdown
    counts: ApiCounts  # of Fetch

    def serve(self, frame: memoryview, connection: Connection) -> list[Buffer] | PendingAck | None:
        """Serve a request of a broker; None if it is not ordinary."""
        request = _parsed(frame)
        if request is None or self.shutdown.begun:
            return None
        replica_id = request.replica_id
        session = self.fetch_sessions.next_of(request.session_id, request.session_epoch, replica_id)
        if session is None or (watch := session.watch) is None:
            return None
        named = request.named
        wanted = session.wanted
        visited = [named.get(key) or wanted.get(key) for key in watch.marked]
        visited += [one for key, one in named.items() if key not in watch.marked]
        if len(visited) > VISITS_MAX:
            return None
        reads = PartitionReads(self, request.bytes_max, connection)
        visits: list[Visit] = []
        for one in visited:
            visit = None if one is None else reads.visit(one, watch, request.replica_epoch)
            if visit is None:
                return None
            visits.append(visit)
        # The request is ordinary: note it.
        now_s = self.clock.elapsed_s()
        session.advance(named.values(), now_s)
        watch.fetched_s = now_s
        exchange = _Exchange(self, request, session, watch, connection, now_s)
        wait = None if reads.size or request.max_wait_ms <= 0 else _Wait(exchange)
        for one, partition, _ in visits:
            partition.follower_fetched(
                replica_id,
                request.replica_epoch,
                Offset(one.offset),
                Offset(one.log_start_offset),
                now_s,
            )
        return exchange.response(visits) if wait is None else wait


class PartitionReads:
    """What the partitions of one response return, up to a size."""

    __slots__ = ("_bytes_max", "_connection", "_path", "size")

    def __init__(self, path: ReplicaFetchPath, bytes_max: int, connection: Connection) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._connection = connection
        self.size = 0

    def visit(
        self, wanted: FetchPartition, watch: ReplicaWatch, replica_epoch: BrokerEpoch
    ) -> Visit | None:
        """Check a partition and read its new records; None if it is not ordinary."""
        partition = watch.partition(wanted.key)
        if not isinstance(partition, Partition):
            return None
        in_sync, state, offset = partition.in_sync, partition.log.state, wanted.offset
        follower = None if in_sync is None else in_sync.followers.get(watch.broker_id)
        epoch = state.epochs.latest_epoch
        if (
            follower is None
            or self._path.replica_manager.partitions.get(partition.name) is not partition
            or -1 < wanted.current_leader_epoch != partition.leader_epoch  # rule A3
            or -1 < wanted.last_fetched_epoch != epoch  # the logs may diverge (rule A2)
            or 0 <= replica_epoch < follower.broker_epoch
        ):
            return None
        if offset == state.log_end_offset:
            return Visit(wanted, partition, b"")
        records = self._read(wanted, partition)
        return None if records is None else Visit(wanted, partition, records)

    def _read(self, wanted: FetchPartition, partition: Partition) -> Buffer | PinnedRecords | None:
        """Read new records; None if throttled, uncached, damaged or outside the log."""
        if not self.size and not self._may_read():
            return None
        room = max(0, min(wanted.bytes_max, self._bytes_max - self.size))
        try:
            found = partition.log.read_cached(wanted.offset, partition.log.log_end_offset, room)
            if self.size and found.size > room:
                return b""
            records: Buffer | PinnedRecords | None = None
            if found.size >= PINNED_BYTES_MIN and self._connection.accepts_file_slices():
                records = found.pinned(Reader.FOLLOWER)
            if records is None:
                records = found.cached()
        except (NotCached, RequestError, StorageFailure):
            return None
        self.size += 0 if records is None else len(records)
        return records

    def _may_read(self) -> bool:
        """Whether the response may have records now; it gets a share of the memory that is left."""
        path, memory = self._path, self._connection.memory.responses
        quota = path.replica_manager.leader_quota
        if not memory.has_memory(self._connection) or (quota is not None and quota.is_limited):
            return False
        share = max(memory.left // SHARE, WRITE_BUFFER_BYTES)
        self._bytes_max = min(self._bytes_max, path.settings.broker[FETCH_MAX_BYTES], share)
        return True


class _Exchange:
    """One request and its response."""

    __slots__ = ("began_s", "connection", "path", "request", "session", "watch")

    def __init__(
        self,
        path: ReplicaFetchPath,
        request: _Request,
        session: FetchSession,
        watch: ReplicaWatch,
        connection: Connection,
        began_s: float,
    ) -> None:
        self.path = path
        self.request = request
        self.session = session
        self.watch = watch
        self.connection = connection
        self.began_s = began_s

    def late_response(self) -> Response:
        """Return the response of a request that has waited."""
        visits: list[Visit] = []
        watch, wanted = self.watch, self.session.wanted
        reads = PartitionReads(self.path, self.request.bytes_max, self.connection)
        for key in [*watch.marked][:VISITS_MAX]:
            one = wanted.get(key)
            visit = None if one is None else reads.visit(one, watch, self.request.replica_epoch)
            if visit is not None:
                visits.append(visit)
        return self.response(visits)

    def response(self, visits: Iterable[Visit]) -> list[Buffer]:
        """Note what the follower knows now, and encode it."""
        session, watch = self.session, self.watch
        topics: dict[Uuid | str, list[tuple[bytes, Buffer]]] = {}
        sent = 0
        for (key, offset, *_), partition, records in visits:
            count = len(records)
            told = Told(
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log.log_start_offset,
            )
            is_news = session.is_news(key, told, has_records=count > 0, failed=False)
            if count:
                sent += count
                watch.mark_last(key)
            elif offset == partition.log.log_end_offset:
                watch.marked.pop(key, None)
            if is_news:
                head = _PARTITION_DATA.pack(key[1], 0, *told, 0, -1) + uvarint(count + 1)
                # A connection sends file slices, too.
                topics.setdefault(key[0], []).append((head, cast("Buffer", records)))
        path = self.path
        path.replica_manager.replication.bytes_out += sent
        path.counts.note(path.clock.elapsed_s() - self.began_s)
        return self._encoded(topics)

    def _encoded(self, topics: dict[Uuid | str, list[tuple[bytes, Buffer]]]) -> list[Buffer]:
        buffers: list[Buffer] = [b""]
        text = b""
        for topic, partitions in topics.items():
            assert isinstance(topic, bytes)
            text += topic + uvarint(len(partitions) + 1)
            for head, records in partitions:
                text += head
                if len(records):
                    buffers.append(text)
                    buffers.append(records)
                    text = b""
                text += b"\0"
            text += b"\0"
        buffers.append(text + b"\0")
        request = self.request
        size = _RESPONSE.size - 4 + sum(map(len, buffers))
        buffers[0] = _RESPONSE.pack(
            size, request.correlation_id, 0, 0, 0, self.session.id, len(topics) + 1
        )
        return buffers


class _Wait(PendingAck):
    """A request that waits for new records of any partition of its session."""

    __slots__ = ("_exchange", "_timer")

    def __init__(self, exchange: _Exchange) -> None:
        super().__init__(None, _WAIT_BYTES)
        self._exchange = exchange
        self.on_cancel = self._end
        seconds = exchange.request.max_wait_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self.wake)
        exchange.watch.waiter = self

    def note(self, count: int) -> None:
        """End the wait after an append: the request wants at least one byte."""
        self.wake()

    def wake(self) -> None:
        """End the wait at once."""
        if not self.is_complete:
            self.complete()

    def _end(self) -> None:
        self._timer.cancel()
        watch = self._exchange.watch
        if watch.waiter is self:
            watch.waiter = None

    def take(self) -> Response | None:
        """Return the response to send now; raises the failure."""
        self._end()
        super().take()
        return self._exchange.late_response()


def _parsed(frame: memoryview) -> _Request | None:
    """Return the parts of an ordinary request: one with few partitions and nothing unusual."""
    size = len(frame)
    if size < _HEADER.size + 1 + _BODY.size + _TAIL.size or frame[0] or frame[1] != _FETCH:
        return None
    _, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
    at = _HEADER.size + max(client_id_size, 0)
    end = size - _TAIL.size
    if version not in _VERSIONS or client_id_size < -1 or at + 1 + _BODY.size > end or frame[at]:
        return None
    body = _BODY.unpack_from(frame, at + 1)
    max_wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch, topics = body
    tail, state_size, replica_id, replica_epoch, tags = _TAIL.unpack_from(frame, end)
    if (
        tail != _TAIL_BEGIN
        or state_size != _REPLICA_STATE_BYTES
        or tags
        or replica_id < 0
        or bytes_min > 1
        or isolation
        or session_epoch <= 0
        or topics not in _ONE_BYTE
    ):
        return None
    at += 1 + _BODY.size
    named: dict[WatchKey, FetchPartition] = {}
    unpack = _PARTITION.unpack_from
    for _ in range(topics - 1):
        if end - at < _TOPIC.size:
            return None
        topic, partitions = _TOPIC.unpack_from(frame, at)
        at += _TOPIC.size
        if partitions not in _ONE_BYTE or end - at < (partitions - 1) * _PARTITION.size + 1:
            return None
        topic_id = Uuid(topic)
        for _ in range(partitions - 1):
            index, epoch, offset, last_epoch, log_start, limit, tags = unpack(frame, at)
            at += _PARTITION.size
            if tags:
                return None
            key = (topic_id, index)
            named[key] = FetchPartition(key, offset, limit, epoch, last_epoch, log_start)
        if frame[at]:
            return None
        at += 1
    if at != end:
        return None
    return _Request(
        correlation_id,
        max_wait_ms,
        bytes_max,
        session_id,
        session_epoch,
        BrokerId(replica_id),
        BrokerEpoch(replica_epoch),
        named,
    )
