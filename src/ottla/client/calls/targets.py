"""Targets of a call: which broker serves a key.

Invariant: a route uses what is known until it is reported wrong, and refreshes it before the next
use. A key that no broker serves has an error.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from ottla.client.network.cluster_view import BrokerView, ClusterView
from ottla.client.network.coordinators import CoordinatorKind, Coordinators
from ottla.client.network.metadata import Metadata
from ottla.client.partitions import Partition, partition
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER, BrokerId

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)

UNKNOWN_TRIES: Final = 3
"""Attempts for an unknown partition: it may have been created just now."""

# Other clients retry these; an administrator gets them as the answer.
_ANSWERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
    }
)

Target: TypeAlias = BrokerView | RequestError | None
"""A broker, None for any broker, or the error."""


class Route(Protocol[K_contra]):
    """Maps keys to brokers."""

    async def brokers(self, keys: Sequence[K_contra], timeout_s: float) -> Sequence[Target]:
        """Return the target of each key."""
        ...

    def wrong(self, key: K_contra) -> None:
        """Report that the target of a key was wrong."""
        ...

    def passes(self, error: RequestError, tries: int) -> bool:
        """Whether a retry may help after this many attempts."""
        ...


def may_pass(error: RequestError) -> bool:
    """Whether an error may disappear after a while."""
    return error.retriable and error.code not in _ANSWERS


class ToAny:
    """Any broker."""

    async def brokers(self, keys: Sequence[object], timeout_s: float) -> Sequence[Target]:
        """Return None for every key: any broker."""
        return [None for _ in keys]

    def wrong(self, key: object) -> None:
        """Do nothing: the connections pick another broker."""

    def passes(self, error: RequestError, tries: int) -> bool:
        """Whether the error is retriable."""
        return may_pass(error)


class ByView(Generic[K]):
    """The broker that the metadata names for a key."""

    def __init__(self, metadata: Metadata, whom: Callable[[K, ClusterView], Target]) -> None:
        self._metadata = metadata
        self._whom = whom
        self._is_stale = False

    async def brokers(self, keys: Sequence[K], timeout_s: float) -> Sequence[Target]:
        """Return the target of each key."""
        found = self._found(keys)
        if self._is_stale or any(isinstance(one, RequestError) for one in found):
            await self._metadata.refreshed(timeout_s)
            self._is_stale = False
            found = self._found(keys)
        return found

    def _found(self, keys: Sequence[K]) -> list[Target]:
        return [self._whom(key, self._metadata.view) for key in keys]

    def wrong(self, key: K) -> None:
        """Refresh the metadata."""
        self._is_stale = True

    def passes(self, error: RequestError, tries: int) -> bool:
        """Whether the error is retriable."""
        return may_pass(error)


def to_broker(metadata: Metadata, broker_id: Callable[[K], int | None]) -> ByView[K]:
    """Route to the broker whose id follows from the key, or to any broker."""
    return ByView(metadata, lambda key, view: _by_id(view, broker_id(key)))


def to_controller(metadata: Metadata) -> ByView[object]:
    """Route to the controller."""
    return ByView(metadata, lambda _, view: _by_id(view, view.controller))


def _by_id(view: ClusterView, broker_id: int | None) -> Target:
    if broker_id is None:
        return None
    known = view.brokers.get(BrokerId(broker_id))
    if known is None and broker_id == NO_BROKER:
        return RequestError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
    return known or RequestError(
        ErrorCode.BROKER_NOT_AVAILABLE, f"no live broker has the id {broker_id}"
    )


class ToCoordinator:
    """Route to the coordinator of a group or a transactional id."""

    def __init__(self, coordinators: Coordinators, kind: CoordinatorKind) -> None:
        self._coordinators = coordinators
        self._kind: CoordinatorKind = kind

    async def brokers(self, keys: Sequence[str], timeout_s: float) -> Sequence[Target]:
        """Return the target of each key."""
        found: Mapping[str, Target] = await self._coordinators.find(self._kind, keys, timeout_s)
        return [found[key] for key in keys]

    def wrong(self, key: str) -> None:
        """Forget the coordinator."""
        self._coordinators.forget(self._kind, key)

    def passes(self, error: RequestError, tries: int) -> bool:
        """Whether the error is retriable."""
        return may_pass(error)


class ToLeaders(ByView[Partition]):
    """Route to partition leaders; with `waits`, also wait for partitions that do not exist yet."""

    def __init__(self, metadata: Metadata, *, waits: bool = False) -> None:
        super().__init__(metadata, _leader)
        self._waits = waits

    async def brokers(self, keys: Sequence[Partition], timeout_s: float) -> Sequence[Target]:
        """Return the target of each key."""
        for topic in {topic for topic, _ in keys}:
            self._metadata.want(topic)
        return await super().brokers(keys, timeout_s)

    def passes(self, error: RequestError, tries: int) -> bool:
        """Whether the error is retriable, or the partition unknown for a moment."""
        if self._waits:
            return error.retriable
        unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return may_pass(error) or (unknown and tries <= UNKNOWN_TRIES)


def _leader(key: Partition, view: ClusterView) -> Target:
    known = view.leader(*key)
    if known is not None:
        return view.brokers[known.leader]
    name, number = key
    topic = view.topics.get(name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is not None and topic.error:
        error = topic.error
    elif topic is not None and number in topic.partitions:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return RequestError(error, f"{partition(name, number)}: {error.text}")
