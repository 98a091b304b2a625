"""Incremental fetch sessions (KIP-227).

Invariant: a session holds the partitions that the client named and has not forgotten, in the order
in which they are served next. A partition that returned records moves to the end, so that none
starves. A request must carry the epoch after the last one; otherwise it is refused and the client
starts a new session. The number of sessions is bounded; the least recently used one is evicted. The
session of a follower can take the place of a consumer's that is in use.

The session of a follower has a ReplicaWatch, which its partitions mark: a fetch visits only those.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId
from ottla.replication.fetch_purgatory import ReplicaWatch, WatchKey

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = -1  # of a request without a session, or one that ends its session
EVICTION_SECONDS: Final = 120.0

SessionKey = WatchKey
"""A topic id, or a topic name before version 13, and a partition index."""


class FetchPartition(NamedTuple):
    """The fetch parameters of a partition."""

    key: SessionKey
    offset: int
    bytes_max: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class Told(NamedTuple):
    """The state of a partition in the last response, apart from records."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@dataclass(slots=True)
class FetchSession:
    """The partitions of one consumer or follower."""

    id: int
    by_id: bool  # topics by id
    used_s: float
    watch: ReplicaWatch | None = None  # of a follower
    epoch: int = FIRST_EPOCH
    wanted: dict[SessionKey, FetchPartition] = field(
        default_factory=dict[SessionKey, FetchPartition]
    )
    told: dict[SessionKey, Told] = field(default_factory=dict[SessionKey, Told])

    def update(self, changed: Iterable[FetchPartition], forgotten: Iterable[SessionKey]) -> None:
        """Apply the changes that the client sent."""
        watch = self.watch
        for key in forgotten:
            self.wanted.pop(key, None)
            self.told.pop(key, None)
            if watch is not None:
                watch.forget(key)
        for one in changed:
            self.wanted[one.key] = one
            if watch is not None:
                watch.mark_key(one.key)

    def advance(self, changed: Iterable[FetchPartition], now_s: float) -> None:
        """Note a request of the next epoch and the changes that it sent."""
        self.update(changed, ())
        self.used_s = now_s
        self.epoch = 1 if self.epoch == 2**31 - 1 else self.epoch + 1

    def is_news(self, key: SessionKey, told: Told, *, has_records: bool, failed: bool) -> bool:
        """Whether a partition has to be in the response; remembers its new state."""
        news = has_records or failed or self.told.get(key) != told
        if failed:
            self.told.pop(key, None)
        else:
            self.told[key] = told
        if has_records and key in self.wanted:
            self.wanted[key] = self.wanted.pop(key)
        return news


class FetchSessions:
    """The fetch sessions of a broker."""

    def __init__(self, slots: Callable[[], int], new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_id = new_id  # a random positive number, because ids must not be guessable
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        changed: Sequence[FetchPartition],
        forgotten: Iterable[SessionKey],
        *,
        by_id: bool,
        now_s: float,
        replica_id: BrokerId | None = None,
    ) -> FetchSession | None:
        """Return the session of a request with its changes applied; None if it has no session.

        `replica_id` is the follower that sent the request; None for a consumer.
        """
        session = self._sessions.get(session_id)
        if session is not None and _replica_id(session) != replica_id:
            session = None  # another client's
        if epoch in (FIRST_EPOCH, LAST_EPOCH):
            if session is not None:
                self._remove(session)
            if epoch == LAST_EPOCH:
                return None
            return self._opened(changed, by_id, now_s, replica_id)
        if session is None:
            raise RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise RequestError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise RequestError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update((), forgotten)
        session.advance(changed, now_s)
        if not session.wanted:
            # The client has forgotten every partition, so the session ends; the response says so.
            self._remove(session)
            return None
        return session

    def next_of(
        self, session_id: int, epoch: int, *, by_id: bool, replica_id: BrokerId | None = None
    ) -> FetchSession | None:
        """Return the session of a consumer or follower if its next epoch is this one."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or session.by_id != by_id:
            return None
        watch = session.watch
        return session if (None if watch is None else watch.broker_id) == replica_id else None

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        if session.watch is not None:
            session.watch.close()

    def _opened(
        self,
        wanted: Sequence[FetchPartition],
        by_id: bool,
        now_s: float,
        replica_id: BrokerId | None,
    ) -> FetchSession | None:
        if not wanted or not self._has_room(now_s, is_replica=replica_id is not None):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        watch = None if replica_id is None else ReplicaWatch(replica_id)
        session = FetchSession(session_id, by_id, now_s, watch, epoch=1)
        session.update(wanted, ())
        self._sessions[session_id] = session
        return session

    def _has_room(self, now_s: float, *, is_replica: bool) -> bool:
        slots = self._slots()
        if len(self._sessions) < slots:
            return True
        if not self._sessions or slots <= 0:
            return False
        oldest = min(self._sessions.values(), key=lambda one: one.used_s)
        if now_s - oldest.used_s <= EVICTION_SECONDS:
            consumers = (one for one in self._sessions.values() if one.watch is None)
            least = min(consumers, key=lambda one: one.used_s, default=None)
            if not is_replica or least is None:
                return False
            oldest = least
        self._remove(oldest)
        return True


def _replica_id(session: FetchSession) -> BrokerId | None:
    return None if session.watch is None else session.watch.broker_id
