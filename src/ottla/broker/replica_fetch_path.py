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
from typing import Final, NamedTuple

from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.fetch_frames import (
    FetchFrame,
    PartitionAnswer,
    encoded,
    partition_head,
    read_frame,
)
from ottla.broker.fetch_read import cached_records
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
from ottla.protocol.primitives import Buffer
from ottla.replication.fetch_purgatory import ReplicaWatch
from ottla.replication.partition import Partition
from ottla.settings.broker import FETCH_MAX_BYTES
from ottla.transport.connection import WRITE_BUFFER_BYTES, Connection
from ottla.transport.pending_acks import PendingAck

VISITS_MAX: Final = 100
"""A Fetch that visits more partitions would block the event loop for too long."""

SHARE: Final = 4
"""A response gets at most 1/SHARE of the memory that is left, as in FetchHandler."""

_WAIT_BYTES: Final = 1024  # the memory of a request that waits


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
        request = read_frame(frame)
        if request is None or not _is_ordinary(request) or self.shutdown.begun:
            return None
        replica_id, replica_epoch = BrokerId(request.replica_id), BrokerEpoch(request.replica_epoch)
        session = self.fetch_sessions.next_of(
            request.session_id, request.session_epoch, by_id=True, replica_id=replica_id
        )
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
            visit = None if one is None else reads.visit(one, watch, replica_epoch)
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
                replica_epoch,
                Offset(one.offset),
                Offset(one.log_start_offset),
                now_s,
            )
        return exchange.response(visits) if wait is None else wait


def _is_ordinary(request: FetchFrame) -> bool:
    return (
        request.replica_id >= 0
        and request.by_id
        and request.bytes_min <= 1
        and request.isolation == 0
        and request.session_epoch > 0
        and not request.forgotten
        and not request.has_rack
    )


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
            by_sendfile = self._connection.accepts_file_slices()
            records = cached_records(found, Reader.FOLLOWER, by_sendfile=by_sendfile)
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
        request: FetchFrame,
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
        replica_epoch = BrokerEpoch(self.request.replica_epoch)
        reads = PartitionReads(self.path, self.request.bytes_max, self.connection)
        for key in [*watch.marked][:VISITS_MAX]:
            one = wanted.get(key)
            visit = None if one is None else reads.visit(one, watch, replica_epoch)
            if visit is not None:
                visits.append(visit)
        return self.response(visits)

    def response(self, visits: Iterable[Visit]) -> list[Buffer]:
        """Note what the follower knows now, and encode it."""
        session, watch = self.session, self.watch
        topics: dict[Uuid | str, list[PartitionAnswer]] = {}
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
                head = partition_head(key[1], *told, count)
                topics.setdefault(key[0], []).append((head, count, records))
        path = self.path
        path.replica_manager.replication.bytes_out += sent
        path.counts.note(path.clock.elapsed_s() - self.began_s)
        return encoded(self.request.correlation_id, session.id, topics)


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
