"""The base of the calls of every noun.

Invariant: a call on an administrator that is not running raises and says how to start it.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from ottla.client.calls.caller import ApiCall, Caller, Terms
from ottla.client.calls.results import Listing
from ottla.client.calls.targets import (
    ByView,
    Route,
    ToAny,
    ToCoordinator,
    ToLeaders,
    to_broker,
    to_controller,
)
from ottla.client.lifecycle.retry_policy import RetryPolicy
from ottla.client.loop_affinity import LoopAffinity, not_running
from ottla.client.network.connections import Connections
from ottla.client.network.coordinators import CoordinatorKind, Coordinators
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.protocol.message import Message
from ottla.protocol.schema import VERSION_MAX

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
M = TypeVar("M", bound=Message)


class AdminAsking(Caller):
    """A caller with all routes to brokers."""

    def __init__(
        self,
        metadata: Metadata,
        connections: Connections,
        coordinators: Coordinators,
        clock: Clock,
        retry_policy: RetryPolicy,
    ) -> None:
        super().__init__(metadata, connections, clock, retry_policy)
        self.home: Final = LoopAffinity("administrator")
        self._coordinators = coordinators

    # Targets.

    @property
    def to_any(self) -> ToAny:
        """Any broker."""
        return ToAny()

    @property
    def to_controller(self) -> ByView[object]:
        """The controller."""
        return to_controller(self._metadata)

    def to_broker(self, broker_id: Callable[[K], int | None]) -> ByView[K]:
        """The broker named by the key, or any broker."""
        return to_broker(self._metadata, broker_id)

    def to_one(self, number: int) -> ByView[object]:
        """One broker for all keys."""
        return self.to_broker(lambda _: number)

    @property
    def to_brokers(self) -> ByView[int]:
        """The brokers that are asked about themselves."""
        return self.to_broker(lambda number: number)

    @property
    def to_group(self) -> ToCoordinator:
        """The coordinator of a group."""
        return ToCoordinator(self._coordinators, CoordinatorKind.GROUP)

    @property
    def to_transaction(self) -> ToCoordinator:
        """The coordinator of a transactional id."""
        return ToCoordinator(self._coordinators, CoordinatorKind.TRANSACTION)

    @property
    def to_leaders(self) -> ToLeaders:
        """The partition leaders."""
        return ToLeaders(self._metadata)

    # Calls.

    async def about(
        self,
        key: K,
        route: Route[K],
        request: Callable[[Terms], Message],
        answer: type[M],
        read: Callable[[M], V],
        timeout_s: float | None = None,
        *,
        since: int = 0,
        newest: int = VERSION_MAX,
    ) -> V:
        """Call about one key; raises its error."""
        question = ApiCall[K, M, V](
            request=lambda _, terms: request(terms),
            answer=answer,
            read=lambda _, message: {key: read(message)},
            since=since,
            newest=newest,
        )
        return (await self.many(route, (key,), question, timeout_s))[key]

    async def one(
        self,
        route: Route[None],
        request: Callable[[Terms], Message],
        answer: type[M],
        read: Callable[[M], V],
        timeout_s: float | None = None,
        *,
        since: int = 0,
    ) -> V:
        """Call once without a key; raises its error."""
        return await self.about(None, route, request, answer, read, timeout_s, since=since)

    async def listing(
        self,
        request: Callable[[Terms], Message],
        answer: type[M],
        read: Callable[[M], tuple[T, ...]],
        timeout_s: float | None = None,
        *,
        since: int = 0,
    ) -> Listing[T]:
        """Call every broker and combine the results."""
        deadline_s = self.deadline_s(timeout_s)
        brokers = await self.brokers(self.left_s(deadline_s))
        question = ApiCall[int, M, tuple[T, ...]](
            request=lambda _, terms: request(terms),
            answer=answer,
            read=lambda keys, message: {key: read(message) for key in keys},
            since=since,
        )
        told = await self.many(self.to_brokers, brokers, question, self.left_s(deadline_s))
        found = (one for ones in told.succeeded.values() for one in ones)
        return Listing(tuple(found), told.failed)

    async def brokers(self, timeout_s: float) -> tuple[int, ...]:
        """Return the ids of all live brokers."""
        async with self._life.call():
            view = await self._metadata.refreshed(timeout_s)
        return tuple(sorted(view.brokers))


class Calls:
    """Calls on one cluster."""

    _started: AdminAsking | None = None

    @property
    def _asking(self) -> AdminAsking:
        if self._started is None:
            raise not_running("administrator")
        self._started.home.check()
        return self._started
