"""Fetch: records of many partitions, or a wait until there are some."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.fetch_read import (
    READ_COMMITTED,
    FetchRead,
    Limits,
    PartitionRead,
    ReplicaFetch,
)
from ottla.broker.fetch_sessions import (
    NO_SESSION,
    FetchPartition,
    FetchSession,
    FetchSessions,
    SessionKey,
    Told,
)
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.replica_requests import Replica, is_replica_allowed, replica_of
from ottla.broker.replica_selection import preferred_replica
from ottla.broker.shutdown import Shutdown
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ZERO_UUID, BrokerId, Uuid
from ottla.metrics import ApiCounts
from ottla.protocol.conversation import OBJECTS_AT_ONCE, LargeRequest, Request, Response
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.protocol.primitives import Buffer
from ottla.replication.fetch_purgatory import DelayedFetch, ReplicaWatch
from ottla.replication.partition import Partition
from ottla.settings.broker import FETCH_MAX_BYTES, RACK_AWARE, REPLICA_SELECTOR_CLASS
from ottla.transport.connection import WRITE_BUFFER_BYTES, Connection, DeferredResponse
from ottla.transport.memory_pool import MemoryWaiter

SHARE: Final = 4
"""A fetch gets at most 1/SHARE of the memory that is left."""

COLD_BYTES_MIN: Final = 1024 * 1024
"""The minimum reserved for a read from disk: one batch of the largest usual size."""

ROOM_SECONDS: Final = 20.0
"""A fetch that waits this long for memory gets an empty response; the consumer fetches again."""

_WITH_EPOCHS: Final = 12  # the first version with diverging epochs
_WITH_ENDPOINTS: Final = 16  # the first version with the addresses of leaders (KIP-951)
_BY_ID: Final = 13  # the first version with topic ids
_WITH_RACKS: Final = 11  # the first version whose consumers may read from followers (KIP-392)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchHandler:
    """Reads records for consumers."""

    clock: Clock
    settings: EffectiveConfig
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessions
    scheduler: CooperativeScheduler
    shutdown: Shutdown
    counts: ApiCounts  # of Fetch

    def handle(self, request: Request, connection: Connection) -> Response | DeferredResponse:
        """Respond with the available records, or wait for them."""
        message = request.message
        assert isinstance(message, FetchRequest)
        by_id = request.version >= _BY_ID
        if isinstance(request, LargeRequest):
            return DeferredResponse(self._handle_wide(request, connection, _asked(message, by_id)))
        return self._begun(request, connection, [*_asked(message, by_id)])

    async def _handle_wide(
        self, request: Request, connection: Connection, asked: Iterable[FetchPartition]
    ) -> Response | None:
        turns = self.scheduler.new_loop()
        begun = self._begun(request, connection, [one async for one in turns.over(asked)])
        return await begun.response if isinstance(begun, DeferredResponse) else begun

    def _begun(
        self, request: Request, connection: Connection, asked: Sequence[FetchPartition]
    ) -> FetchResponse | DeferredResponse:
        message = request.message
        assert isinstance(message, FetchRequest)
        by_id = request.version >= _BY_ID
        now_s = self.clock.elapsed_s()
        replica = replica_of(message)
        if replica is not None and not is_replica_allowed(connection):
            return DeferredResponse(self._refuse(asked))
        try:
            session = self.fetch_sessions.begin(
                message.session_id,
                message.session_epoch,
                asked,
                _forgotten(message, by_id),
                by_id=by_id,
                now_s=now_s,
                replica_id=None if replica is None else replica.id,
            )
        except RequestError as error:
            self.counts.note_error(error.code)
            return FetchResponse(
                throttle_time_ms=0, error_code=int(error.code), session_id=0, responses=[]
            )
        fetch = _Fetch(self, request, message, session, asked, connection)
        if replica is not None:
            fetch.follow(replica, asked, now_s)
        elif request.version >= _WITH_RACKS:
            fetch.from_followers = bool(self.replica_manager.followers)
            if message.rack_id and self._selects_by_rack:
                fetch.prefer = partial(self._preferred, message.rack_id)
        if fetch.is_wide:
            return DeferredResponse(fetch.wait(None))
        gathering = fetch.gather()
        if gathering.is_cold or not fetch.is_enough(gathering) or not fetch.has_memory(gathering):
            return DeferredResponse(fetch.wait(gathering))
        found = fetch.answer(gathering)
        fetch.end()
        return found

    @property
    def _selects_by_rack(self) -> bool:
        return self.settings.broker[REPLICA_SELECTOR_CLASS] == RACK_AWARE

    def _preferred(self, rack: str, partition: Partition, offset: int) -> BrokerId | None:
        brokers = self.metadata_cache.image.brokers
        return preferred_replica(partition, offset, rack, partition.node_id, brokers.get)

    async def _refuse(self, asked: Sequence[FetchPartition]) -> Response:
        """Refuse a client that fetches as a replica, as Kafka refuses one without the right."""
        by_topic: _ByTopic = {}
        async for one in self.scheduler.new_loop().over(asked):
            self.counts.note_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            data = PartitionData(
                partition_index=one.key[1],
                error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
                high_watermark=-1,
                aborted_transactions=[],
                records=b"",
            )
            by_topic.setdefault(one.key[0], []).append(data)
        return _response(NO_SESSION, by_topic)


class _Fetch:
    """One Fetch, which may read several times and holds no records while it waits."""

    def __init__(
        self,
        handler: FetchHandler,
        request: Request,
        message: FetchRequest,
        session: FetchSession | None,
        asked: Sequence[FetchPartition],
        connection: Connection,
    ) -> None:
        self.handler = handler
        self.version = request.version
        self.message = message
        self.session = session
        self.full = message.session_epoch <= 0  # a full fetch: every partition is in the response
        self.wanted = asked if session is None else [*session.wanted.values()]
        self.is_wide = len(self.wanted) > OBJECTS_AT_ONCE
        self.is_empty = not self.wanted
        self.by_replica: ReplicaFetch | None = None
        self.from_followers = False
        self.prefer: Callable[[Partition, int], BrokerId | None] | None = None
        self.bytes_max = min(message.max_bytes, handler.settings.broker[FETCH_MAX_BYTES])
        self.bytes_min = message.min_bytes
        self.waiter = MemoryWaiter(connection.memory, handler.clock)
        self.pool = connection.memory.responses
        # Only for a client that has shown that it reads. A socket takes fewer bytes from a file
        # than from memory, so a client that never reads would seem to read when the rest is copied.
        self.by_sendfile = connection.memory.is_proven and connection.accepts_file_slices()
        self.held = 0
        self.listener = connection.listener
        self.leaders: set[BrokerId] = set()  # that the response names (KIP-951)

    def follow(self, replica: Replica, asked: Sequence[FetchPartition], now_s: float) -> None:
        """Fetch as a follower: visit only the partitions that have something new for it."""
        session = self.session
        watch = None if session is None else session.watch
        if watch is None:  # a fetch without a session visits every partition
            watch = ReplicaWatch(replica.id)
            for one in asked:
                watch.mark_key(one.key)
        watch.fetched_s = now_s
        self.by_replica = ReplicaFetch(replica, watch, now_s)
        self.is_wide = len(watch.marked) > OBJECTS_AT_ONCE

    def end(self) -> None:
        """Forget the partitions of a follower that has no session."""
        if self.by_replica is not None and self.session is None:
            self.by_replica.watch.close()

    def _marked(self, fetch: ReplicaFetch) -> list[FetchPartition]:
        if self.session is not None:
            wanted = self.session.wanted
            return [wanted[key] for key in fetch.watch.marked if key in wanted]
        return [one for one in self.wanted if one.key in fetch.watch.marked]

    def gather(self) -> FetchRead:
        gathering = self._gathering()
        names: Mapping[Uuid, str] = self.handler.metadata_cache.image.names
        for wanted in self.wanted:
            topic = wanted.key[0]
            gathering.take(wanted, names.get(topic) if isinstance(topic, Uuid) else topic)
        return gathering

    async def _gather_in_turns(self) -> FetchRead:
        """Read cooperatively; what was read is reserved, as others take memory meanwhile."""
        gathering = self._gathering()
        metadata_cache = self.handler.metadata_cache
        async for wanted in self.handler.scheduler.new_loop().over(self.wanted):
            topic = wanted.key[0]
            if isinstance(topic, Uuid):
                gathering.take(wanted, metadata_cache.image.names.get(topic))
            else:
                gathering.take(wanted, topic)
            if gathering.size > self.held:
                self._hold(gathering.size)
        return gathering

    def _look(self) -> FetchRead | None:
        """Read what is available; None if reading needs memory that has to be reserved first."""
        return None if self.is_wide else self.gather()

    def _gathering(self) -> FetchRead:
        by_replica = self.by_replica
        if by_replica is not None:
            self.wanted = self._marked(by_replica)
        share = self._share()
        self.bytes_min = min(self.message.min_bytes, max(share // 2, 1))
        limits = Limits(min(self.bytes_max, share), self.message.isolation_level == READ_COMMITTED)
        return FetchRead(
            self.handler.replica_manager,
            self.handler.counts,
            limits,
            self.by_sendfile,
            by_replica,
            self.from_followers,
            self.prefer,
        )

    def is_enough(self, gathering: FetchRead) -> bool:
        return (
            self._lacking(gathering) <= 0
            or gathering.failed
            or self.message.max_wait_ms <= 0
            or self.is_empty
            or self.handler.shutdown.begun
        )

    def _lacking(self, gathering: FetchRead) -> int:
        """The bytes missing to min.bytes, which is capped by what the response may contain."""
        return min(self.bytes_min, max(gathering.limits.bytes_max, 1)) - gathering.available

    def has_memory(self, gathering: FetchRead | None) -> bool:
        """Whether the response may be sent now; a small one needs no memory."""
        if self.held:
            return True  # its memory is reserved already
        if gathering is None or gathering.is_cold:
            return self.waiter.has_memory
        return gathering.size <= WRITE_BUFFER_BYTES or self.waiter.has_memory

    async def wait(self, gathering: FetchRead | None) -> Response:
        """Wait until there is enough to respond; None: nothing was read yet."""
        try:
            found = await self._wait(gathering)
            return await self._answer_in_turns(found) if self.is_wide else self.answer(found)
        finally:
            self._hold(0)
            self.end()

    async def _wait(self, gathering: FetchRead | None) -> FetchRead:
        clock = self.handler.clock
        began_s = clock.elapsed_s()
        deadline = began_s + self.message.max_wait_ms / 1000
        while True:
            if not self.has_memory(gathering) and not self.handler.shutdown.begun:
                if gathering is not None:
                    gathering.drop()
                if await self.waiter.wait(began_s + ROOM_SECONDS - clock.elapsed_s()):
                    gathering = self._look()
                    continue
                gathering = gathering or await self._gather_in_turns()
                gathering.drop()
                return gathering
            gathering = gathering or await self._gather_in_turns()
            if gathering.is_cold:
                # Others may have taken memory since the read.
                gathering.narrow(gathering.size + self._share())
                self._hold(gathering.size + max(gathering.cold_bytes, COLD_BYTES_MIN))
                await gathering.take_cold(lambda size: self._hold(max(size, self.held)))
            left = deadline - clock.elapsed_s()
            if self.is_enough(gathering) or left <= 0:
                return gathering
            missing = self._lacking(gathering)
            gathering.drop()
            self._hold(0)
            # An append may have happened since the read; it would not wake this request any more.
            if self.by_replica is not None:
                await self._wait_as_replica(self.by_replica, gathering, missing, left)
            elif not gathering.is_outdated:
                partitions = [one.partition for one in gathering.found if one.partition is not None]
                await DelayedFetch(partitions, missing).wait(left)
            gathering = self._look()

    async def _wait_as_replica(
        self, fetch: ReplicaFetch, gathering: FetchRead, missing: int, seconds: float
    ) -> None:
        """Wait for an append to any partition of the session."""
        fetch.is_noted = True
        if not gathering.has_unread_marks(fetch.watch):
            waiter = fetch.watch.waiter = DelayedFetch((), missing)
            try:
                await waiter.wait(seconds)
            finally:
                fetch.watch.waiter = None

    # Memory.

    def _share(self) -> int:
        """The bytes that the response may contain, apart from the first batch."""
        # Some clients do not read. Each waiting fetch takes one batch, so that all make progress.
        if self.waiter.has_waited and not self.waiter.client.is_proven:
            return WRITE_BUFFER_BYTES
        # A fetch never gets all that is left, so that the next one gets something too.
        return max(self.pool.left // SHARE, WRITE_BUFFER_BYTES)

    def _hold(self, count: int) -> None:
        """Change the reservation to `count` bytes."""
        before, self.held = self.held, count
        if count > before:
            self.pool.hold(self.waiter, count - before)
        elif before:
            self.pool.release(self.waiter, before - count)

    # The response.

    def answer(self, gathering: FetchRead) -> FetchResponse:
        by_topic: _ByTopic = {}
        for one in gathering.found:
            gathering.count(one)
            if self._is_told(one):
                by_topic.setdefault(one.wanted.key[0], []).append(self._partition(one))
        return self._response(by_topic)

    async def _answer_in_turns(self, gathering: FetchRead) -> Response:
        by_topic: _ByTopic = {}
        async for one in self.handler.scheduler.new_loop().over(gathering.found):
            gathering.count(one)
            if self._is_told(one):
                by_topic.setdefault(one.wanted.key[0], []).append(self._partition(one))
        response = self._response(by_topic)
        disk = self.handler.replica_manager.logs.disk
        return await disk.reading(lambda: response.buffers(self.version), gathering.reader)

    def _is_told(self, one: PartitionRead) -> bool:
        session = self.session
        if session is None:
            return True
        told = Told(one.high_watermark, one.last_stable_offset, one.log_start_offset)
        failed = (
            one.error is not ErrorCode.NONE
            or one.diverging is not None
            or one.preferred_replica is not None
        )
        news = session.is_news(
            one.wanted.key, told, has_records=len(one.records) > 0, failed=failed
        )
        if session.watch is not None:
            self._unmark(one, session.watch, failed=failed)
        return news or self.full

    def _unmark(self, one: PartitionRead, watch: ReplicaWatch, *, failed: bool) -> None:
        """Do not visit the partition again before it changes, if the follower has all of it."""
        if failed or one.partition is None:
            return
        if len(one.records):
            watch.mark_last(one.wanted.key)
        elif one.wanted.offset == one.partition.log.log_end_offset:
            watch.unmark(one.wanted.key, one.mark)

    def _response(self, by_topic: "_ByTopic") -> FetchResponse:
        response = _response(NO_SESSION if self.session is None else self.session.id, by_topic)
        if self.leaders and self.version >= _WITH_ENDPOINTS:
            found = self.handler.metadata_cache.leader_addresses(self.leaders, self.listener)
            response.node_endpoints = [
                NodeEndpoint(node_id=one.id, host=at.host, port=at.port, rack=one.rack)
                for one, at in found
            ]
        return response

    def _partition(self, one: PartitionRead) -> PartitionData:
        data = PartitionData(
            partition_index=one.wanted.key[1],
            error_code=int(one.error),
            high_watermark=one.high_watermark,
            last_stable_offset=one.last_stable_offset,
            log_start_offset=one.log_start_offset,
            aborted_transactions=None
            if one.aborted is None and one.error not in _NOWHERE
            else [
                AbortedTransaction(producer_id=two.producer_id, first_offset=two.first_offset)
                for two in one.aborted or ()
            ],
            # The writer takes only the length of records, and the connection sends them.
            records=cast("Buffer", one.records),
        )
        if one.preferred_replica is not None:
            data.preferred_read_replica = one.preferred_replica
        if self.version >= _WITH_EPOCHS:
            if one.diverging is not None:
                data.diverging_epoch = EpochEndOffset(
                    epoch=one.diverging.epoch, end_offset=one.diverging.end_offset
                )
            is_uncertain = (
                one.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
                and isinstance(one.partition, Partition)  # rule A18: there is no other leader yet
            )
            if one.error in _ELSEWHERE and not is_uncertain:
                hint = self.handler.replica_manager.leader_hint(one.topic, one.wanted.key[1])
                if hint is not None:
                    data.current_leader = LeaderIdAndEpoch(
                        leader_id=hint.leader, leader_epoch=hint.leader_epoch
                    )
                    self.leaders.add(hint.leader)
        return data


_ELSEWHERE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

# An unknown partition has an empty list of aborted transactions; other errors have none.
_NOWHERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


_ByTopic = dict[Uuid | str, list[PartitionData]]


def _response(session_id: int, by_topic: _ByTopic) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=session_id,
        responses=[
            FetchableTopicResponse(
                topic="" if isinstance(topic, Uuid) else topic,
                topic_id=topic if isinstance(topic, Uuid) else ZERO_UUID,
                partitions=partitions,
            )
            for topic, partitions in by_topic.items()
        ],
    )


def _asked(message: FetchRequest, by_id: bool) -> Iterator[FetchPartition]:
    return (
        FetchPartition(
            (topic.topic_id if by_id else topic.topic, one.partition),
            one.fetch_offset,
            one.partition_max_bytes,
            one.current_leader_epoch,
            one.last_fetched_epoch,
            one.log_start_offset,
        )
        for topic in message.topics
        for one in topic.partitions
    )


def _forgotten(message: FetchRequest, by_id: bool) -> Iterable[SessionKey]:
    return [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in message.forgotten_topics_data
        for partition in topic.partitions
    ]
