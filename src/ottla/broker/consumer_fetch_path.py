"""Serves the ordinary Fetch of a consumer with few objects: frame in, encoded response out.

FetchHandler serves every Fetch, and creates an object for each part of it. This path serves the
usual one: a request without a session, or the next one of an incremental session, with few
partitions. This broker leads them in the epoch that the consumer knows, the offsets are in their
logs, and the records are in the page cache.

The path first checks the whole request and reads, and changes nothing. If the request is not
ordinary, it returns None, and the connection passes the request to FetchHandler. If there is less
than min.bytes, the frame waits without a task, and nothing has changed. After the wait it is served
from the beginning, so a request that is no longer ordinary goes to FetchHandler, too.

Invariant: sessions, counters and responses are those of FetchHandler.
Invariant: nothing is copied from one request to the next. A change of leadership, epoch, topic or
segment counts at once.
"""

import asyncio
from collections.abc import Collection, Iterable
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
from ottla.broker.fetch_read import READ_COMMITTED, cached_records
from ottla.broker.fetch_sessions import (
    LAST_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchSession,
    FetchSessions,
    Told,
)
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.shutdown import Shutdown
from ottla.clock import Clock
from ottla.errors import RequestError, StorageFailure
from ottla.ids import PartitionIndex, TopicPartition, Uuid
from ottla.log.cached_reads import NotCached, PinnedRecords
from ottla.log.disk import Reader
from ottla.metrics import ApiCounts
from ottla.protocol.primitives import Buffer
from ottla.records import count_records
from ottla.replication.partition import Partition
from ottla.settings.broker import FETCH_MAX_BYTES, RACK_AWARE, REPLICA_SELECTOR_CLASS
from ottla.transport.connection import WRITE_BUFFER_BYTES, Connection, FrameWait

VISITS_MAX: Final = 100
"""A Fetch that visits more partitions would block the event loop for too long."""

SHARE: Final = 4
"""A response gets at most 1/SHARE of the memory that is left, as in FetchHandler."""


class Visit(NamedTuple):
    """A partition that the consumer may read."""

    wanted: FetchPartition
    partition: Partition
    told: Told


Records = tuple[int, Buffer | PinnedRecords]
"""A number of bytes, and the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFetchPath:
    """Serves the ordinary Fetch requests of consumers."""

    clock: Clock
    settings: EffectiveConfig
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessions
    shutdown: Shutdown
    counts: ApiCounts  # of Fetch

    def serve(self, frame: memoryview, connection: Connection) -> list[Buffer] | FrameWait | None:
        """Serve a request of a client; None if it is not ordinary."""
        request = read_frame(frame)
        if (
            request is None
            or request.replica_id >= 0
            or (request.session_epoch == LAST_EPOCH and request.session_id != NO_SESSION)
            or (request.has_rack and self.settings.broker[REPLICA_SELECTOR_CLASS] == RACK_AWARE)
        ):
            return None
        return self.serve_request(request, connection, self.clock.elapsed_s())

    def serve_request(
        self, request: FetchFrame, connection: Connection, began_s: float
    ) -> list[Buffer] | FrameWait | None:
        """Serve a request that began at a time, and may have waited since; None as in `serve`."""
        session = self.session_of(request)
        if self.shutdown.begun or (session is None and request.session_epoch != LAST_EPOCH):
            return None
        visits = self._visits(_wanted(request, session))
        read = None if visits is None else self._read(request, visits, connection)
        if visits is None or read is None:
            return None
        records, missing = read
        if missing > 0:
            left_s = began_s + request.max_wait_ms / 1000 - self.clock.elapsed_s()
            if left_s > 0:
                return _Wait(self, request, visits, missing, connection, began_s, left_s)
        # The request is ordinary: note it.
        self.note(request, session)
        return self._response(request, session, zip(visits, records, strict=True), began_s)

    def session_of(self, request: FetchFrame) -> FetchSession | None:
        """Return the session of a request if it is the next one; None without a session."""
        if request.session_epoch == LAST_EPOCH:
            return None
        return self.fetch_sessions.next_of(
            request.session_id, request.session_epoch, by_id=request.by_id
        )

    def note(self, request: FetchFrame, session: FetchSession | None) -> None:
        """Note a request in its session."""
        if session is not None:
            session.update((), request.forgotten)
            session.advance(request.named.values(), self.clock.elapsed_s())

    def _visits(self, asked: Collection[FetchPartition]) -> list[Visit] | None:
        """Check the partitions; None if one of them is not ordinary."""
        if not 0 < len(asked) <= VISITS_MAX:
            return None
        names = self.metadata_cache.image.names
        partitions = self.replica_manager.partitions
        visits: list[Visit] = []
        for one in asked:
            (topic, index), offset, _, leader_epoch, last_epoch, _ = one
            name = names.get(topic, "") if isinstance(topic, Uuid) else topic
            partition = partitions.get(TopicPartition(name, PartitionIndex(index)))
            if partition is None or -1 < leader_epoch != partition.leader_epoch:  # rule A3
                return None
            log = partition.log
            state = log.state
            start, high_watermark = state.log_start_offset, partition.high_watermark
            if not start <= offset <= state.log_end_offset:
                return None
            if last_epoch >= 0 and last_epoch != state.epochs.latest_epoch:  # rule A12
                end = log.end_offset(last_epoch)
                if end is None or end.epoch < last_epoch or end.end_offset < offset:
                    return None
            stable = state.last_stable_offset(high_watermark)
            visits.append(Visit(one, partition, Told(high_watermark, stable, start)))
        return visits

    def _read(
        self, request: FetchFrame, visits: Iterable[Visit], connection: Connection
    ) -> tuple[list[Records], int] | None:
        """Read the partitions; None if the request is not ordinary.

        Also returns how many bytes are missing to min.bytes.
        """
        memory = connection.memory
        pool = memory.responses
        share = max(pool.left // SHARE, WRITE_BUFFER_BYTES)
        bytes_max = min(request.bytes_max, self.settings.broker[FETCH_MAX_BYTES], share)
        # Only for a client that has shown that it reads, as in FetchHandler.
        by_sendfile = memory.is_proven and connection.accepts_file_slices()
        committed = request.isolation == READ_COMMITTED
        size = available = 0
        read: list[Records] = []
        for (_, offset, limit, *_), partition, (high_watermark, stable, _) in visits:
            log = partition.log
            upper = stable if committed else high_watermark  # rule A6
            bound = offset
            records: Buffer | PinnedRecords | None = b""
            count = 0
            if offset < upper:
                room = max(0, min(limit, bytes_max - size))
                try:
                    found = log.read_cached(offset, upper, room)
                    bound = found.upper_offset
                    is_given = not size or found.size <= room
                    if is_given:
                        records = cached_records(found, Reader.CLIENT, by_sendfile=by_sendfile)
                except (NotCached, RequestError, StorageFailure):
                    return None
                if records is None:
                    return None
                given = found.size if is_given else 0
                has_more = not is_given or bound < upper
                available += max(given, room) if has_more else given
                count = len(records)
                size += count
            if committed and log.aborted_transactions(offset, bound):
                return None
            read.append((count, records))
        bytes_min = min(request.bytes_min, max(share // 2, 1), max(bytes_max, 1))
        if size > WRITE_BUFFER_BYTES and not pool.has_memory(connection):
            return None
        return read, bytes_min - available

    def _response(
        self,
        request: FetchFrame,
        session: FetchSession | None,
        visits: Iterable[tuple[Visit, Records]],
        began_s: float,
    ) -> list[Buffer]:
        """Note what the consumer gets, and encode it."""
        committed = request.isolation == READ_COMMITTED
        topics: dict[Uuid | str, list[PartitionAnswer]] = {}
        for (one, partition, told), (size, records) in visits:
            key = one[0]
            if size:
                traffic = partition.traffic
                traffic.bytes_out += size
                traffic.records_out += (
                    records.records
                    if isinstance(records, PinnedRecords)
                    else count_records(records)
                )
            if session is None or session.is_news(key, told, has_records=size > 0, failed=False):
                topic, index = key
                head = partition_head(index, *told, size, committed=committed)
                topics.setdefault(topic, []).append((head, size, records))
        self.counts.note(self.clock.elapsed_s() - began_s)
        session_id = NO_SESSION if session is None else session.id
        return encoded(request.correlation_id, session_id, topics)


def _ended() -> None:
    """Do nothing: the wait is over."""


class _Wait(FrameWait):
    """A request that waits for records."""

    __slots__ = ("_began_s", "_connection", "_left", "_partitions", "_path", "_request", "_timer")

    def __init__(
        self,
        path: ConsumerFetchPath,
        request: FetchFrame,
        visits: Iterable[Visit],
        missing: int,
        connection: Connection,
        began_s: float,
        left_s: float,
    ) -> None:
        super().__init__()
        self._path = path
        self._request = request
        self._partitions = [one.partition for one in visits]
        self._left = missing
        self._connection = connection
        self._began_s = began_s
        for partition in self._partitions:
            partition.waiting[self] = None
        self._timer = asyncio.get_running_loop().call_later(left_s, self.wake)

    def note(self, count: int) -> None:
        """Count appended bytes; end the wait at the minimum."""
        self._left -= count
        if self._left <= 0:
            self.wake()

    def wake(self) -> None:
        """End the wait at once."""
        if not self.is_over:
            on_end = self.on_end
            self._end()
            on_end()

    def _end(self) -> None:
        """Leave nothing that refers to the logs: the file of a deleted one would stay open."""
        self.is_over = True
        self.on_end = _ended
        self._timer.cancel()
        for partition in self._partitions:
            partition.waiting.pop(self, None)
        self._partitions.clear()

    def serve(self) -> list[Buffer] | FrameWait | None:
        """Serve the request after the wait."""
        return self._path.serve_request(self._request, self._connection, self._began_s)

    def cancel(self) -> None:
        """End the wait; the session counts the request, as with FetchHandler."""
        if not self.is_over:
            self._end()
        self._path.note(self._request, self._path.session_of(self._request))


def _wanted(request: FetchFrame, session: FetchSession | None) -> Collection[FetchPartition]:
    """Return the partitions that the request fetches, in their order."""
    if session is None:
        return request.named.values()
    if not request.forgotten and not request.named:
        return session.wanted.values()
    wanted = session.wanted.copy()
    for key in request.forgotten:
        wanted.pop(key, None)
    wanted.update(request.named)
    return wanted.values()
