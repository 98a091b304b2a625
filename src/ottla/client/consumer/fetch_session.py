"""The client side of an incremental fetch session (KIP-227).

Invariant: after every response the broker's session and ours are equal. A request without a
response, or one that the broker refused, starts a new session with all partitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
EPOCH_MAX: Final = 0x7FFF_FFFF
IDS_SINCE: Final = 13


class FetchPosition(NamedTuple):
    """The fetch parameters of one partition."""

    topic_id: Uuid
    offset: int
    leader_epoch: int
    bytes_max: int


class FetchSessionRequest(NamedTuple):
    """The part of a Fetch request that the session determines."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    by_id: bool


@dataclass(slots=True)
class FetchSession:
    """The session with one broker."""

    _id: int = NO_SESSION
    _epoch: int = FIRST_EPOCH
    _told: dict[TopicPartition, FetchPosition] = field(
        default_factory=dict[TopicPartition, FetchPosition]
    )
    _names: dict[Uuid, str] = field(default_factory=dict[Uuid, str])
    _by_id: bool = False

    def ask(
        self, wanted: Mapping[TopicPartition, FetchPosition], version: int
    ) -> FetchSessionRequest:
        """Return the session part of a request for these partitions."""
        by_id = version >= IDS_SINCE and all(one.topic_id != ZERO_UUID for one in wanted.values())
        if by_id is not self._by_id:
            self.begin_anew()
            self._by_id = by_id
        told = self._told
        if self._epoch == FIRST_EPOCH:
            told = {}
        changed = {one: wish for one, wish in wanted.items() if told.get(one) != wish}
        gone = {
            one: wish
            for one, wish in told.items()
            if one not in wanted or wanted[one].topic_id != wish.topic_id
        }
        self._names = {wish.topic_id: one.topic for one, wish in wanted.items()}
        self._told = dict(wanted)
        return FetchSessionRequest(self._id, self._epoch, _topics(changed), _forgotten(gone), by_id)

    def name(self, topic: str, topic_id: Uuid) -> str | None:
        """Return the name of a topic in a response."""
        return self._names.get(topic_id) if self._by_id else topic

    def answered(self, session_id: int) -> None:
        """Note a successful response with this session id."""
        if session_id == NO_SESSION:
            self.begin_anew()  # the broker has no slot for a session: every request is a full fetch
            return
        self._id = session_id
        self._epoch = 1 if self._epoch >= EPOCH_MAX else self._epoch + 1

    def begin_anew(self) -> None:
        """Start a new session with the next request."""
        self._id, self._epoch = NO_SESSION, FIRST_EPOCH
        self._told = {}

    @property
    def is_kept(self) -> bool:
        """Whether the broker keeps a session for this client."""
        return self._id != NO_SESSION

    def ending(self) -> FetchSessionRequest:
        """Return the request that closes the session."""
        return FetchSessionRequest(self._id, CLOSING_EPOCH, [], [], self._by_id)


def _topics(changed: Mapping[TopicPartition, FetchPosition]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (name, index), wish in changed.items():
        topic = topics.get(name)
        if topic is None:
            topic = FetchTopic(topic=name, topic_id=wish.topic_id, partitions=[])
            topics[name] = topic
        partition = FetchPartition(
            partition=index,
            current_leader_epoch=wish.leader_epoch,
            fetch_offset=wish.offset,
            partition_max_bytes=wish.bytes_max,
        )
        assert isinstance(topic.partitions, list)
        topic.partitions.append(partition)
    return [*topics.values()]


def _forgotten(gone: Mapping[TopicPartition, FetchPosition]) -> list[ForgottenTopic]:
    topics: dict[str, tuple[Uuid, list[int]]] = {}
    for (name, index), wish in gone.items():
        topics.setdefault(name, (wish.topic_id, []))[1].append(index)
    return [
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=indexes)
        for name, (topic_id, indexes) in topics.items()
    ]
