"""The replica fetchers: fetch from the leaders of the partitions that this broker follows.

There are num.replica.fetchers fetchers per leader, by default one. Each has one Fetch in flight, in
an incremental fetch session (KIP-227). A request names only the partitions that changed since the
request before, so idle partitions cost nothing. The leader lets a Fetch wait for records, up to
replica.fetch.wait.max.ms. A partition that is added meanwhile does not wait for its end: a second
fetcher polls it on another connection, until the first one includes it.

Invariant: a partition belongs to one fetcher. A response is applied only to the partition state
that it was requested for: a newer leader epoch, a removal or another leader discards it (rule A3).
A partition is not fetched while its log is truncated, and `remove` returns after that, so a
replica that becomes the leader is not changed by its former leader.

Invariant: a Fetch reports an offset only after everything below it is appended and, if
flush.messages requires it, on the device (rule C5).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias
from zlib import crc32

from ottla.clock import Clock
from ottla.errors import ErrorCode, OttlaError, RequestError, StorageFailure
from ottla.ids import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition, Uuid
from ottla.log.appender import UnexpectedOffset
from ottla.log.epochs import EpochEnd
from ottla.log.log_manager import Cut, LogManager
from ottla.metrics import ReplicationCounts
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.records import CorruptRecords
from ottla.replication.follower import FollowerPartition
from ottla.replication.quota import ReplicationQuota
from ottla.replication.truncation import (
    FindRange,
    RestartAt,
    Retry,
    TruncateTo,
    after_no_records,
    after_out_of_range,
    after_unexpected_offset,
    first_action,
)
from ottla.settings import broker
from ottla.settings.config import Config
from ottla.transport.backoff import Backoff
from ottla.transport.broker_channels import BrokerChannels
from ottla.transport.channel import Channel

_LOG = logging.getLogger(__name__)

FIRST_BACKOFF_S: Final = 0.01
"""The first pause after an error. The other broker usually applies the same election meanwhile."""

POLL_S: Final = 0.01
"""The pause between two requests for partitions that were added while another request waits."""

TAKE_OVER_S: Final = 0.05
"""How long a fetcher waits for the end of such a request, to include its partitions."""

THROTTLED_S: Final = 0.1
"""The pause of a throttled partition before the quota is looked at again."""

_EARLIEST: Final = -2
_LATEST: Final = -1
_FIRST_EPOCH: Final = 0
_WITHOUT_SESSION: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
_NO_SESSION: Final = 0
_SESSION_ERRORS: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)

_SessionKey: TypeAlias = tuple[Uuid, int]
_Cuts: TypeAlias = "dict[_Followed, TruncateTo | RestartAt]"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherConfig:
    """How followers fetch; the defaults are Kafka's."""

    fetchers: int = 1  # per leader
    wait_max_ms: int = 500
    bytes_min: int = 1
    response_bytes_max: int = 10_485_760
    partition_bytes_max: int = 1_048_576
    backoff_s: float = 1.0
    timeout_s: float = 30.0

    @classmethod
    def of(cls, config: Config) -> Self:
        """The settings of a broker's configuration."""
        assert config.table is broker.BROKER
        return cls(
            fetchers=config[broker.NUM_REPLICA_FETCHERS],
            wait_max_ms=config[broker.REPLICA_FETCH_WAIT_MAX_MS],
            bytes_min=config[broker.REPLICA_FETCH_MIN_BYTES],
            response_bytes_max=config[broker.REPLICA_FETCH_RESPONSE_MAX_BYTES],
            partition_bytes_max=config[broker.REPLICA_FETCH_MAX_BYTES],
            backoff_s=config[broker.REPLICA_FETCH_BACKOFF_MS] / 1000,
            timeout_s=config[broker.REPLICA_SOCKET_TIMEOUT_MS] / 1000,
        )


class _Followed:
    """The fetch of one partition in one leader epoch."""

    __slots__ = (
        "failures",
        "is_caught_up",
        "is_dropped",
        "key",
        "leader",
        "leader_epoch",
        "name",
        "not_before_s",
        "number",
        "partition",
        "request",
        "topic",
    )

    def __init__(self, partition: FollowerPartition, number: int, bytes_max: int) -> None:
        self.partition = partition
        self.name = partition.name
        self.leader = partition.leader
        self.number = number  # of the fetcher
        self.leader_epoch = partition.leader_epoch
        self.key: _SessionKey = (partition.topic_id, partition.name.partition)
        self.is_dropped = False
        self.is_caught_up = False  # it has all that the leader has committed
        self.failures = 0  # consecutive
        self.not_before_s = 0.0  # of the next request
        # The parts of a request, which are changed and sent again and again.
        self.request = FetchPartition(
            partition=partition.name.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=0,
            partition_max_bytes=bytes_max,
        )
        self.topic = FetchTopic(topic_id=partition.topic_id, partitions=(self.request,))

    @property
    def is_current(self) -> bool:
        """Whether responses still count (rule A3)."""
        return not self.is_dropped and self.leader_epoch == self.partition.leader_epoch

    def prepare(self) -> None:
        """Bring the request up to date with the log."""
        log, request = self.partition.log.state, self.request
        latest = log.epochs.latest
        request.fetch_offset = log.log_end_offset
        request.last_fetched_epoch = -1 if latest is None else latest.epoch
        request.log_start_offset = log.log_start_offset


class ReplicaFetcher:
    """Fetches from one leader; its task runs while there are partitions to fetch.

    A fetcher without a `newcomers` fetcher is one: it polls without a session.
    """

    def __init__(
        self,
        leader: BrokerId,
        lane: int,
        fetchers: "ReplicaFetchers",
        newcomers: "ReplicaFetcher | None" = None,
    ) -> None:
        self.leader = leader
        self._lane = lane  # of its connection
        self.followed: dict[TopicPartition, _Followed] = {}
        self.is_in_flight = False
        self.is_busy = False  # from a request to the end of the work with its response
        self.newcomers = newcomers
        self._fetchers = fetchers
        self._clock = fetchers.clock
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()  # a request, and the work with its response
        self._failures = 0  # of requests, consecutive
        self._lost_session = False  # the leader refused the session of the last request
        self._channel: Channel | None = None
        # The fetch session: what the leader knows, what it has to learn, and what to forget.
        self._session: dict[_SessionKey, _Followed] = {}
        self._dirty: dict[_Followed, None] = {}
        self._forgotten: dict[_SessionKey, None] = {}
        self._delayed: dict[_Followed, None] = {}
        config = fetchers.config
        self._request = FetchRequest(
            max_wait_ms=config.wait_max_ms,
            min_bytes=config.bytes_min,
            max_bytes=config.response_bytes_max,
            topics=(),
        )
        self._reset_session()

    # Called by ReplicaFetchers.

    def add(self, followed: _Followed) -> None:
        """Fetch a partition from now on."""
        self.followed[followed.name] = followed
        self._dirty[followed] = None
        self._changed.set()

    def drop(self, name: TopicPartition) -> None:
        """Do not fetch a partition any more."""
        followed = self.followed.pop(name, None)
        if followed is not None:
            followed.is_dropped = True
            self._dirty.pop(followed, None)
            self._delayed.pop(followed, None)
            self._forget(followed)

    def name_all(self) -> None:
        """Name every partition in the next request; the session otherwise names what changed."""
        for followed in self.followed.values():
            if followed not in self._delayed:
                self._dirty[followed] = None
        self._changed.set()

    def wake(self) -> None:
        """End a pause: something that the fetcher waits for may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Fetch until no partition is left."""
        while self.followed or (self.newcomers is not None and self.newcomers.followed):
            self._changed.clear()
            try:
                if self.newcomers is not None:
                    await self._take_over(self.newcomers)
                    await self._fetch_once()
                else:
                    await self._fetch_once()
                    await self._clock.sleep(POLL_S)
            except RequestError as error:
                await self._recover(error)
            except Exception:
                # A bug must not end replication; the pause keeps it from filling the log.
                _LOG.exception("replica fetch failed", {"leader": self.leader})
                await self._recover(RequestError(ErrorCode.UNKNOWN_SERVER_ERROR))

    async def _take_over(self, newcomers: "ReplicaFetcher") -> None:
        """Include the partitions that were added while a request was in flight.

        If the other fetcher is stuck in a request, its partitions stay there until the next time.
        """
        if not newcomers.followed:
            return
        if newcomers.is_busy:
            newcomers._ended.clear()  # noqa: SLF001 - of the same class
            with suppress(TimeoutError):
                async with asyncio.timeout(TAKE_OVER_S):
                    await newcomers._ended.wait()  # noqa: SLF001
            if newcomers.is_busy:
                return
        for name, followed in newcomers.followed.items():
            self.followed[name] = followed
            is_delayed = followed in newcomers._delayed  # noqa: SLF001
            (self._delayed if is_delayed else self._dirty)[followed] = None
        newcomers._clear()  # noqa: SLF001

    def _clear(self) -> None:
        self.followed = {}
        self._delayed.clear()
        self._reset_session()

    async def _recover(self, error: RequestError) -> None:
        """Begin a new session after a pause."""
        self._fetchers.counts.fetch_failures += 1
        self._channel = None
        self._reset_session()
        self._failures += 1
        if self._failures == 1:
            about = {"leader": self.leader, "partitions": len(self.followed), "reason": str(error)}
            _LOG.warning("replica fetch failed", about)
        await self._pause(self._fetchers.backoff().pause_s(self._failures))

    async def _pause(self, seconds: float) -> None:
        """Wait for some seconds, or until partitions are added."""
        if seconds > 0:
            waiting = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait((waiting,), timeout=seconds)
            waiting.cancel()

    # One round trip.

    async def _fetch_once(self) -> None:
        channel = self._channel
        if channel is None or not channel.is_open:
            self._reset_session()
            channel = await self._fetchers.channels.channel(self.leader, lane=self._lane)
            self._channel = channel
        self.is_busy = True
        try:
            await self._fetch(channel)
        finally:
            self.is_busy = False
            self._ended.set()

    async def _fetch(self, channel: Channel) -> None:
        fetchers = self._fetchers
        wait_s = self._release_delayed() if self._delayed else None
        if self._hold_back():
            wait_s = self._release_delayed()
        # Partitions may be added while others are made ready.
        while self._dirty and any(work := self._unready()):
            await self._make_ready(*work)
        if not self._session and not self._dirty:
            if self.newcomers is not None and (self.followed or self.newcomers.followed):
                await self._pause(POLL_S if wait_s is None else wait_s)
            return
        request = self._next_request(wait_s)
        self.is_in_flight = True
        try:
            response = await channel.send(request, fetchers.config.timeout_s)
        finally:
            self.is_in_flight = False
        assert isinstance(response, FetchResponse)
        fetchers.counts.fetches += 1
        if response.error_code:
            self._reset_session()
            if response.error_code not in _SESSION_ERRORS or self._lost_session:
                raise RequestError(ErrorCode.of(response.error_code))
            self._lost_session = True
            return
        self._failures, self._lost_session = 0, False
        self._answered(response.session_id)
        await self._apply(response, channel)

    def _release_delayed(self) -> float | None:
        """Fetch the partitions whose pause is over; return the seconds until the next one."""
        now_s = self._clock.elapsed_s()
        for followed in [one for one in self._delayed if one.not_before_s <= now_s]:
            del self._delayed[followed]
            self._dirty[followed] = None
        return min((one.not_before_s - now_s for one in self._delayed), default=None)

    def _hold_back(self) -> bool:
        """Delay throttled partitions while the quota is exceeded, unless they have caught up."""
        quota = self._fetchers.quota
        if quota is None or not quota.is_limited or not quota.is_exceeded:
            return False
        throttled = [
            one for one in self._dirty if not one.is_caught_up and quota.is_throttled(one.name)
        ]
        for followed in throttled:
            self._delay(followed, THROTTLED_S)
        return bool(throttled)

    def _unready(self) -> tuple[_Cuts, list[_Followed]]:
        """Return what is to be truncated and flushed before a Fetch reports the end of a log."""
        truncating = self._fetchers.truncating
        cuts: _Cuts = {}
        unflushed: list[_Followed] = []
        for followed in [*self._dirty]:
            partition, log = followed.partition, followed.partition.log.state
            if followed.name in truncating:  # in an earlier leader epoch
                self._delay(followed, FIRST_BACKOFF_S)
            elif log.epochs.latest is None and log.log_end_offset > log.log_start_offset:
                cut = first_action(
                    log.epochs,
                    log_start=log.log_start_offset,
                    log_end=log.log_end_offset,
                    high_watermark=partition.high_watermark,
                )
                if cut is not None:
                    cuts[followed] = cut
            elif partition.hosted.commit.wanted(log.log_end_offset):
                unflushed.append(followed)
        return cuts, unflushed

    async def _make_ready(self, cuts: _Cuts, unflushed: Sequence[_Followed]) -> None:
        if cuts:
            await self._truncate(cuts)
        if unflushed:
            await asyncio.gather(*map(self._flush, unflushed))

    def _next_request(self, wait_s: float | None) -> FetchRequest:
        request, session = self._request, self._session
        request.max_wait_ms = self._fetchers.config.wait_max_ms
        if self.newcomers is None:
            request.max_wait_ms = 0
        elif wait_s is not None:
            request.max_wait_ms = min(request.max_wait_ms, int(wait_s * 1000) + 1)
        state = request.replica_state
        assert state is not None
        state.replica_epoch = self._fetchers.broker_epoch()
        dirty, self._dirty = self._dirty, {}
        for followed in dirty:
            followed.prepare()
            session[followed.key] = followed
            self._forgotten.pop(followed.key, None)
        if len(dirty) == 1:
            (followed,) = dirty
            request.topics = (followed.topic,)
        else:
            request.topics = _by_topic(dirty)
        request.forgotten_topics_data = ()
        if self._forgotten:
            if request.session_id != _NO_SESSION:
                request.forgotten_topics_data = _forgotten(self._forgotten)
            self._forgotten = {}
        return request

    def _reset_session(self) -> None:
        """Begin a new session: the next request names every partition."""
        request = self._request
        request.session_id = _NO_SESSION
        request.session_epoch = _WITHOUT_SESSION if self.newcomers is None else _FIRST_EPOCH
        request.replica_state = ReplicaState(
            replica_id=self._fetchers.node_id, replica_epoch=self._fetchers.broker_epoch()
        )
        self._session, self._forgotten = {}, {}
        self._dirty = {one: None for one in self.followed.values() if one not in self._delayed}

    def _answered(self, session_id: int) -> None:
        request = self._request
        if session_id == _NO_SESSION:
            session = self._session
            self._reset_session()  # the leader keeps none: every request names every partition
            self._session = session
            return
        request.session_id = session_id
        epoch = request.session_epoch
        request.session_epoch = 1 if epoch >= _EPOCH_MAX else epoch + 1

    def _forget(self, followed: _Followed) -> None:
        if self._session.get(followed.key) is followed:
            del self._session[followed.key]
            self._forgotten[followed.key] = None

    def _delay(self, followed: _Followed, seconds: float) -> None:
        """Do not fetch a partition for some seconds."""
        followed.not_before_s = self._clock.elapsed_s() + seconds
        self._delayed[followed] = None
        self._dirty.pop(followed, None)
        self._forget(followed)

    # The response.

    async def _apply(self, response: FetchResponse, channel: Channel) -> None:
        session, now_ms = self._session, self._clock.now_ms()
        cuts: _Cuts = {}
        unaligned: dict[_Followed, PartitionData] = {}
        out_of_range: list[_Followed] = []
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                followed = session.get((topic_id, data.partition_index))
                if followed is None or not followed.is_current:
                    continue  # it was removed, or is in a newer leader epoch (rule A3)
                left = self._apply_one(followed, data, now_ms)
                if left is None:
                    continue
                if isinstance(left, Retry):
                    self._fail(followed, left.error)
                elif isinstance(left, FindRange):
                    out_of_range.append(followed)
                else:
                    cuts[followed] = left
                    if isinstance(left, RestartAt):
                        unaligned[followed] = data
        if out_of_range:
            cuts.update(await self._ranges(out_of_range, channel))
        if cuts:
            await self._truncate(cuts)
        for followed, data in unaligned.items():
            if followed.is_current and followed in self._dirty:
                # Their records are appended now: a Fetch at their base offset is out of range.
                followed.request.fetch_offset = followed.partition.log.log_end_offset
                if self._apply_one(followed, data, now_ms) is not None:
                    self._fail(followed, ErrorCode.INVALID_RECORD)

    def _apply_one(
        self, followed: _Followed, data: PartitionData, now_ms: int
    ) -> TruncateTo | RestartAt | FindRange | Retry | None:
        """Append and follow; return what is left to do."""
        partition = followed.partition
        if data.error_code or data.diverging_epoch is not None:
            log, end = partition.log, data.diverging_epoch
            diverging = (
                None if end is None else EpochEnd(LeaderEpoch(end.epoch), Offset(end.end_offset))
            )
            return after_no_records(data.error_code, diverging, log.epochs, log.log_end_offset)
        records = data.records
        try:
            if records:
                fetched_offset = followed.request.fetch_offset
                partition.append(records, fetched_offset=fetched_offset, now_ms=now_ms)
                self._fetchers.note_fetched(followed.name, len(records))
                self._dirty[followed] = None
            followed.is_caught_up = data.high_watermark <= partition.log.log_end_offset
            if partition.follow(
                high_watermark=data.high_watermark, log_start_offset=data.log_start_offset
            ):
                self._dirty[followed] = None
        except UnexpectedOffset as error:
            log = partition.log
            cut = after_unexpected_offset(
                error, log_start=log.log_start_offset, log_end=log.log_end_offset
            )
            if cut is None:
                self._log_refused(followed, error)
            return cut or Retry(ErrorCode.INVALID_RECORD)
        except CorruptRecords as error:
            self._log_refused(followed, error)
            return Retry(ErrorCode.CORRUPT_MESSAGE)
        except StorageFailure as failure:
            self._fetchers.logs.fail(partition.hosted.directory, failure)
            return Retry(ErrorCode.KAFKA_STORAGE_ERROR)
        except RequestError as error:  # the log is closed or deleted
            return Retry(error.code)
        followed.failures = 0
        return None

    def _fail(self, followed: _Followed, error: ErrorCode) -> None:
        followed.failures += 1
        self._fetchers.counts.note_error(error)
        self._delay(followed, self._fetchers.backoff().pause_s(followed.failures))

    def _log_refused(self, followed: _Followed, error: OttlaError) -> None:
        about = {"partition": str(followed.name), "leader": self.leader, "reason": str(error)}
        _LOG.error("fetched records refused", about)

    async def _flush(self, followed: _Followed) -> None:
        """Wait for a flush of flush.messages before the next Fetch reports the new end."""
        partition = followed.partition
        try:
            await partition.hosted.commit.durable(partition.log.log_end_offset)
        except StorageFailure as failure:
            self._fetchers.logs.fail(partition.hosted.directory, failure)
            if followed.is_current:
                self._fail(followed, ErrorCode.KAFKA_STORAGE_ERROR)
        except RequestError as error:  # the log is closed or deleted
            if followed.is_current:
                self._fail(followed, error.code)

    # Truncation.

    async def _truncate(self, cuts: _Cuts) -> None:
        """Truncate logs, all of them at once."""
        failures = await self._fetchers.truncate(self.leader, cuts)
        for followed in cuts:
            if not followed.is_current:
                continue
            followed.partition.truncated()
            if followed.name in failures:
                self._fail(followed, ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                self._dirty[followed] = None

    async def _ranges(self, followed: Sequence[_Followed], channel: Channel) -> _Cuts:
        """Ask the leader for its offsets, and decide how partitions that are out of range go on."""
        ends = await self._offsets(followed, channel, _LATEST)
        starts = await self._offsets(followed, channel, _EARLIEST)
        cuts: _Cuts = {}
        for one in followed:
            if not one.is_current:
                continue
            start, end = starts.get(one.name), ends.get(one.name)
            if not isinstance(start, int) or not isinstance(end, int):
                error = end if isinstance(end, ErrorCode) else start
                known = error if isinstance(error, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
                self._fail(one, known)
                continue
            cut = after_out_of_range(
                one.partition.log.log_end_offset, leader_start=Offset(start), leader_end=Offset(end)
            )
            if cut is None:
                self._fail(one, ErrorCode.OFFSET_OUT_OF_RANGE)
            else:
                cuts[one] = cut
        return cuts

    async def _offsets(
        self, followed: Sequence[_Followed], channel: Channel, timestamp: int
    ) -> dict[TopicPartition, int | ErrorCode]:
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for one in followed:
            by_topic.setdefault(one.name.topic, []).append(
                ListOffsetsPartition(
                    partition_index=one.name.partition,
                    current_leader_epoch=one.leader_epoch,
                    timestamp=timestamp,
                )
            )
        request = ListOffsetsRequest(
            replica_id=self._fetchers.node_id,
            topics=[
                ListOffsetsTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )
        response = await channel.ask(request, ListOffsetsResponse, self._fetchers.config.timeout_s)
        return {
            TopicPartition(topic.name, one.partition_index): (
                ErrorCode.of(one.error_code) if one.error_code else one.offset
            )
            for topic in response.topics
            for one in topic.partitions
        }


class ReplicaFetchers:
    """The fetchers of a broker."""

    def __init__(
        self,
        node_id: BrokerId,
        *,
        channels: BrokerChannels,
        logs: LogManager,
        config: FetcherConfig,
        broker_epoch: Callable[[], BrokerEpoch],
        clock: Clock,
        random: Callable[[], float],
        counts: ReplicationCounts | None = None,
        quota: ReplicationQuota | None = None,
    ) -> None:
        """Fetchers of broker `node_id`; `channels` must not be used for anything else."""
        self.quota = quota
        self.node_id = node_id
        self.channels = channels
        self.logs = logs
        self.config = config
        self.broker_epoch = broker_epoch
        self.clock = clock
        self.counts = counts or ReplicationCounts()
        self.truncating: dict[TopicPartition, asyncio.Future[None]] = {}
        self._random = random
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._tasks: dict[ReplicaFetcher, asyncio.Task[None]] = {}
        self._followed: dict[TopicPartition, _Followed] = {}
        self._is_closed = False

    def note_fetched(self, name: TopicPartition, count: int) -> None:
        """Count the bytes that were fetched for a partition."""
        self.counts.bytes_in += count
        quota = self.quota
        if quota is not None and quota.is_limited and quota.is_throttled(name):
            quota.record(count)
            self.counts.throttled_bytes_in += count

    def backoff(self) -> Backoff:
        """The pauses after errors."""
        backoff_s = self.config.backoff_s
        return Backoff(min(FIRST_BACKOFF_S, backoff_s), backoff_s, self._random)

    def set(self, partition: FollowerPartition) -> None:
        """Fetch a partition from its leader, from now on; no leader: from nobody.

        Called after each change of the leader or the leader epoch. A partition that is fetched in
        this leader epoch already goes on.
        """
        assert not self._is_closed
        before = self._followed.get(partition.name)
        if before is not None:
            if before.partition is partition and before.is_current:
                return
            self._drop(before)
        if partition.leader in (NO_BROKER, self.node_id):
            return
        self._follow(partition)

    def resize(self, fetchers: int) -> None:
        """Divide the partitions among another number of fetchers (num.replica.fetchers)."""
        if fetchers == self.config.fetchers:
            return
        self.config = replace(self.config, fetchers=fetchers)
        for followed in [*self._followed.values()]:
            if followed.number != self._number(followed.name):
                self._drop(followed)
                self._follow(followed.partition)

    def refetch(self) -> None:
        """Name every partition in the next requests, with a new broker epoch (rule A10)."""
        for fetcher in self._fetchers.values():
            fetcher.name_all()

    def _number(self, name: TopicPartition) -> int:
        # As in Kafka, the partitions of a topic are divided evenly.
        return (31 * crc32(name.topic.encode()) + name.partition) % self.config.fetchers

    def _follow(self, partition: FollowerPartition) -> None:
        leader, number = partition.leader, self._number(partition.name)
        followed = _Followed(partition, number, self.config.partition_bytes_max)
        self._followed[partition.name] = followed
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            newcomers = ReplicaFetcher(leader, 2 * number + 1, self)
            fetcher = ReplicaFetcher(leader, 2 * number, self, newcomers)
            self._fetchers[leader, number] = fetcher
        if fetcher.is_in_flight and fetcher.newcomers is not None:
            fetcher = fetcher.newcomers
        fetcher.add(followed)
        if fetcher not in self._tasks:
            self._tasks[fetcher] = asyncio.get_running_loop().create_task(self._run(fetcher))

    async def remove(self, names: TopicPartition | Iterable[TopicPartition]) -> None:
        """Stop fetching partitions; afterwards nothing changes their logs any more."""
        names = [names] if isinstance(names, TopicPartition) else [*names]
        for name in names:
            if (followed := self._followed.get(name)) is not None:
                self._drop(followed)
        if waits := [self.truncating[name] for name in names if name in self.truncating]:
            await asyncio.wait(waits)

    async def close(self) -> None:
        """Stop fetching; truncations that have begun are completed."""
        self._is_closed = True
        for followed in [*self._followed.values()]:
            self._drop(followed)
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def truncate(self, leader: BrokerId, cuts: _Cuts) -> dict[TopicPartition, OttlaError]:
        """Truncate logs; nobody fetches or leads these partitions meanwhile."""
        cuts = {followed: cut for followed, cut in cuts.items() if followed.is_current}
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        names = [followed.name for followed in cuts]
        self.truncating.update(dict.fromkeys(names, done))
        self.counts.truncations += len(cuts)
        for followed, cut in cuts.items():
            about = {
                "partition": str(followed.name),
                "leader": leader,
                "leader_epoch": followed.leader_epoch,
                "end": followed.partition.log.log_end_offset,
                "offset": cut.offset,
            }
            _LOG.info("partition truncated", about)
        try:
            return await self.logs.truncate_all(
                [
                    Cut(followed.name, cut.offset, isinstance(cut, RestartAt))
                    for followed, cut in cuts.items()
                ]
            )
        finally:
            for name in names:
                del self.truncating[name]
            done.set_result(None)
            for fetcher in self._fetchers.values():
                fetcher.wake()

    def _drop(self, followed: _Followed) -> None:
        del self._followed[followed.name]
        fetcher = self._fetchers[followed.leader, followed.number]
        fetcher.drop(followed.name)
        if fetcher.newcomers is not None:
            fetcher.newcomers.drop(followed.name)

    async def _run(self, fetcher: ReplicaFetcher) -> None:
        try:
            await fetcher.run()
        finally:
            del self._tasks[fetcher]


def _by_topic(dirty: Iterable[_Followed]) -> list[FetchTopic]:
    by_topic: dict[Uuid, list[FetchPartition]] = {}
    for followed in dirty:
        by_topic.setdefault(followed.key[0], []).append(followed.request)
    return [
        FetchTopic(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in by_topic.items()
    ]


def _forgotten(keys: Iterable[_SessionKey]) -> list[ForgottenTopic]:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, index in keys:
        by_topic.setdefault(topic_id, []).append(index)
    return [
        ForgottenTopic(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in by_topic.items()
    ]
