"""The fetcher: requests records ahead of the application, within its memory limit.

Invariant: one fetch per broker is in flight. It starts only when no partition of the broker has its
share buffered, so that no partition waits for the long poll of an empty one. Buffered records take
at most `bytes_max` plus one batch. A response counts only for cursors that have not moved since the
request.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, NamedTuple

from ottla.client.consumer.cursor import Cursor
from ottla.client.consumer.decoding import Corrupt
from ottla.client.consumer.fetch_session import (
    IDS_SINCE,
    FetchPosition,
    FetchSession,
    FetchSessionRequest,
)
from ottla.client.consumer.fetched_batches import fetched_batches
from ottla.client.lifecycle.wakeup import Wakeup
from ottla.client.metrics.consumer_metrics import FetchCounts
from ottla.client.network.cluster_view import BrokerView
from ottla.client.network.connections import Connections
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, PartitionIndex, TopicPartition
from ottla.protocol.apis import FETCH
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from ottla.records import CorruptRecords
from ottla.transport.backoff import Backoff
from ottla.transport.channel import Channel, NotSupported

_WITH_BATCHES: Final = 4  # older versions send message sets instead of batches
_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """How a consumer fetches."""

    backoff: Backoff
    min_bytes: int = 1
    max_wait_ms: int = 500
    bytes_max: int = 50 << 20
    partition_bytes_max: int = 1 << 20
    isolation_level: int = 0
    rack: str = ""
    request_timeout_s: float = 30.0
    nearby_s: float = 300.0
    """How long a preferred read replica is used before the leader is asked again."""


class Flight(NamedTuple):
    """A fetch in flight: its cursors, their state and the leader epoch at the time."""

    moves: dict[TopicPartition, tuple[Cursor, int, int]]
    bytes_max: int
    sent_s: float


class Fetcher:
    """Fetches for cursors."""

    def __init__(
        self,
        cursors: Mapping[TopicPartition, Cursor],
        metadata: Metadata,
        connections: Connections,
        rules: FetchConfig,
        clock: Clock,
        arrived: Callable[[Cursor], None],
        strayed: Callable[[Cursor], None],
    ) -> None:
        """`arrived` is called for records and errors, `strayed` for offsets out of range."""
        self._cursors = cursors
        self._metadata = metadata
        self._connections = connections
        self._rules = rules
        self._clock = clock
        self._arrived = arrived
        self._strayed = strayed
        self._sessions: dict[BrokerId, FetchSession] = {}
        self._flights: dict[BrokerId, Flight] = {}
        self._not_before_s: dict[BrokerId, float] = {}
        self.counts: Final = FetchCounts()
        self._lookout = Wakeup(self._look, clock)
        self.poke: Final = self._lookout.poke

    async def close(self) -> None:
        """Stop fetching; sessions are closed at the brokers without waiting."""
        await self._lookout.close()
        for broker, session in self._sessions.items():
            known = self._metadata.view.brokers.get(broker)
            channel = None if known is None else self._connections.open_to(known)
            if channel is not None and session.is_kept and broker not in self._flights:
                request = self._request(session.ending(), 0, max_wait_ms=0)
                channel.send(request, self._rules.request_timeout_s).add_done_callback(_unheard)

    # Requests.

    def _look(self) -> float:
        now_s = self._clock.elapsed_s()
        next_s = inf
        view = self._metadata.view
        wanted: dict[BrokerId, dict[TopicPartition, FetchPosition]] = {}
        sated: set[BrokerId] = set()
        buffered = 0
        for where, cursor in self._cursors.items():
            if cursor.is_paused or not cursor.is_located or cursor.failure is not None:
                continue
            buffered += cursor.buffered_bytes
            leader = view.leader(*where)
            if leader is None:
                self._metadata.want(where.topic)
                self._metadata.expire()
                continue
            if cursor.is_doubtful_under(leader.leader_epoch):
                continue  # its position is being validated
            broker = leader.leader
            near = cursor.read_from
            if near is not None and now_s < cursor.read_from_until_s and near in view.brokers:
                broker = near
            if cursor.is_fetched:
                continue
            if cursor.buffered_bytes >= self._rules.partition_bytes_max:
                sated.add(broker)
            elif cursor.not_before_s > now_s:
                next_s = min(next_s, cursor.not_before_s)
            else:
                wanted.setdefault(broker, {})[where] = FetchPosition(
                    view.topics[where.topic].id,
                    cursor.fetched,
                    leader.leader_epoch,
                    cursor.bytes_wanted(self._rules.partition_bytes_max),
                )
        room = self._rules.bytes_max - buffered
        room -= sum(flight.bytes_max for flight in self._flights.values())
        for broker, wishes in wanted.items():
            if broker in self._flights or broker in sated or room <= 0:
                continue
            when_s = self._not_before_s.get(broker, 0.0)
            if when_s > now_s:
                next_s = min(next_s, when_s)
                continue
            bytes_max = min(room, sum(wish.bytes_max for wish in wishes.values()))
            if self._send_to(view.brokers[broker], wishes, bytes_max):
                room -= bytes_max
        return next_s

    def _send_to(
        self, broker: BrokerView, wishes: Mapping[TopicPartition, FetchPosition], bytes_max: int
    ) -> bool:
        channel = self._connections.open_to(broker)
        if channel is None:
            self._lookout.start(broker.id, partial(self._connect, broker))
            return False
        session = self._sessions.setdefault(broker.id, FetchSession())
        try:
            version = _version(channel)
        except NotSupported as error:
            self._fail((self._cursors[where] for where in wishes), error)
            return False
        asked = session.ask(wishes, version)
        if version >= IDS_SINCE and not asked.by_id:
            version = IDS_SINCE - 1
        cursors = {where: self._cursors[where] for where in wishes}
        moves = {
            where: (cursor, cursor.moves, wishes[where].leader_epoch)
            for where, cursor in cursors.items()
        }
        request = self._request(asked, bytes_max, max_wait_ms=self._rules.max_wait_ms)
        timeout_s = self._rules.request_timeout_s + self._rules.max_wait_ms / 1000
        try:
            answer = channel.send(request, timeout_s, version=version)
        except RequestError:
            session.begin_anew()
            self._metadata.expire()
            return False
        flight = self._flights[broker.id] = Flight(moves, bytes_max, self._clock.elapsed_s())
        answer.add_done_callback(partial(self._answered, broker.id, session, flight))
        return True

    def _request(
        self, asked: FetchSessionRequest, bytes_max: int, *, max_wait_ms: int
    ) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=self._rules.min_bytes,
            max_bytes=bytes_max,
            isolation_level=self._rules.isolation_level,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=asked.topics,
            forgotten_topics_data=asked.forgotten,
            rack_id=self._rules.rack,
        )

    async def _connect(self, broker: BrokerView) -> None:
        try:
            await self._connections.to(broker)
        except RequestError as error:
            self._metadata.expire()
            if not error.retriable:
                self._fail(self._cursors.values(), error)

    # Responses.

    def _answered(
        self,
        broker: BrokerId,
        session: FetchSession,
        flight: Flight,
        answer: "asyncio.Future[Message]",
    ) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if self._lookout.is_closed:
            return
        del self._flights[broker]
        counts = self.counts
        counts.latency_ms.add((self._clock.elapsed_s() - flight.sent_s) * 1000)
        if error is not None:
            assert isinstance(error, RequestError)
            session.begin_anew()
            self._metadata.expire()
            for cursor, *_ in flight.moves.values():
                cursor.read_from = None
            self.poke()
            return
        message = answer.result()
        assert isinstance(message, FetchResponse)
        counts.throttle_ms.add(message.throttle_time_ms)
        if message.throttle_time_ms > 0:
            pause_s = message.throttle_time_ms / 1000
            self._not_before_s[broker] = self._clock.elapsed_s() + pause_s
        code = ErrorCode.of(message.error_code)
        if code:
            session.begin_anew()
            if code not in _SESSION_LOST:
                for cursor, *_ in flight.moves.values():
                    self._take_error(cursor, None, code, ())
        else:
            session.answered(message.session_id)
            self._take(session, flight, message)
        self.poke()

    def _take(self, session: FetchSession, flight: Flight, message: FetchResponse) -> None:
        nodes = tuple(
            BrokerView(BrokerId(one.node_id), one.host, one.port, one.rack)
            for one in message.node_endpoints
        )
        size = records = 0
        for topic in message.responses:
            name = session.name(topic.topic, topic.topic_id)
            if name is None:
                continue
            for told in topic.partitions:
                where = TopicPartition(name, PartitionIndex(told.partition_index))
                cursor, moves, epoch = flight.moves.get(where, (None, 0, 0))
                if cursor is None or cursor.moves != moves or self._cursors.get(where) != cursor:
                    continue
                code = ErrorCode.of(told.error_code)
                if code:
                    session.begin_anew()
                    self._take_error(cursor, told.current_leader, code, nodes)
                else:
                    size += len(told.records or b"")
                    records += self._take_records(cursor, told, epoch)
        self.counts.answer_bytes.add(size)
        self.counts.answer_records.add(records)

    def _take_records(self, cursor: Cursor, told: PartitionData, epoch: int) -> int:
        """Take the records of a partition and return their number."""
        cursor.tries = 0
        cursor.high_watermark = told.high_watermark
        cursor.last_stable_offset = told.last_stable_offset
        cursor.log_start = max(cursor.log_start, told.log_start_offset)
        if told.preferred_read_replica >= 0:
            cursor.read_from = BrokerId(told.preferred_read_replica)
            cursor.read_from_until_s = self._clock.elapsed_s() + self._rules.nearby_s
        if not told.records:
            return 0
        aborted = told.aborted_transactions or ()
        count = 0
        try:
            chunk = fetched_batches(
                told.records, cursor.fetched, aborted if self._rules.isolation_level else None
            )
            if chunk is None:
                raise CorruptRecords(f"{len(told.records)} bytes do not contain a complete batch")
        except CorruptRecords as error:
            why = str(error)
            cursor.failure = Corrupt(cursor.partition, cursor.fetched, cursor.fetched + 1, why)
        else:
            count = sum(batch.header.record_count for batch in chunk.batches)
            cursor.add(chunk)
            cursor.valid_under = max(cursor.valid_under, epoch)  # written by that leader itself
        self._arrived(cursor)
        return count

    def _take_error(
        self,
        cursor: Cursor,
        leader: LeaderIdAndEpoch | None,
        code: ErrorCode,
        nodes: tuple[BrokerView, ...],
    ) -> None:
        cursor.tries += 1
        cursor.not_before_s = self._clock.elapsed_s() + self._rules.backoff.pause_s(cursor.tries)
        was_near, cursor.read_from = cursor.read_from, None
        if leader is not None and leader.leader_id >= 0:
            cursor.not_before_s = 0.0
            self._metadata.learn(*cursor.partition, leader.leader_id, leader.leader_epoch, *nodes)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower may lag behind or have deleted more than the leader, so ask the leader.
            if was_near is None:
                self._strayed(cursor)
        elif code is ErrorCode.CORRUPT_MESSAGE:
            # A retry would get the same response. The position stays, as in Java's client.
            why = "the broker marked it as damaged and does not serve it"
            self._fail((cursor,), Corrupt(cursor.partition, cursor.fetched, None, why))
        elif code.retriable or code.refresh_metadata:
            self._metadata.expire()
        else:
            self._fail((cursor,), RequestError(code, f"{cursor.partition}: {code.text}"))

    def _fail(self, cursors: Iterable[Cursor], error: RequestError) -> None:
        for cursor in tuple(cursors):
            cursor.failure = error
            self._arrived(cursor)


def _version(channel: Channel) -> int:
    version = channel.version(FETCH)
    if version < _WITH_BATCHES:
        raise NotSupported(
            f"the broker at {channel.address} is too old: it does not support record batches "
            f"(Fetch version {_WITH_BATCHES})"
        )
    return version


def _unheard(answer: "asyncio.Future[Message]") -> None:
    if not answer.cancelled():
        answer.exception()
