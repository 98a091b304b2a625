"""The parts of a running consumer.

Invariant: it has either a subscription or manually assigned partitions, never both. Offsets are
committed under the current group identity, and not at all without a group. It is one member at a
time: a new subscription joins after the old membership has ended. After `close` no task and no
connection is left.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from ottla.client.consumer.config import fetch_config, group_config, reset_ms, subscription_config
from ottla.client.consumer.decoding import Decoder
from ottla.client.consumer.partition_reader import PartitionReader
from ottla.client.consumer.position_resolver import Committed
from ottla.client.consumer.subscription import Subscription
from ottla.client.consumer.subscription_state import SubscriptionState
from ottla.client.group.classic import ClassicMembership
from ottla.client.group.commits import Commits
from ottla.client.group.consumer_coordinator import ConsumerCoordinator
from ottla.client.group.interfaces import GroupMember, Membership
from ottla.client.group.kip848 import Kip848Membership
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.lifecycle.call_scope import CallScope
from ottla.client.lifecycle.shutdown import end_all
from ottla.client.loop_affinity import LoopAffinity
from ottla.client.metrics.consumer_metrics import ConsumerMetrics, GroupCounts
from ottla.client.network.config import metadata_config
from ottla.client.network.connections import ConnectionConfig, Connections
from ottla.client.network.metadata import Metadata
from ottla.client.partitions import P, by_partition, partition_of
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.groups.assignors.assignor import Assignor
from ottla.ids import TopicPartition
from ottla.settings import connection, consumer
from ottla.settings.config import Config
from ottla.transport.network import Connector

K = TypeVar("K")
V = TypeVar("V")


class ConsumerRuntime(Generic[K, V]):
    """Everything that a consumer has while it runs."""

    def __init__(
        self,
        config: Config,
        rules: ConnectionConfig,
        decoder: Decoder[K, V],
        network: Connector,
        clock: Clock,
        random: Callable[[], float],
        assignors: Sequence[Assignor] = (),
    ) -> None:
        self._random = random
        self._assignors = assignors
        self.participation: SubscriptionState | None = None
        self._config = config
        self._clock = clock
        self._timeout_s = config[connection.DEFAULT_API_TIMEOUT_MS] / 1000
        has_group = config[consumer.GROUP_ID] is not None
        connections = Connections(rules, network, clock, random)
        self.reading: Final[PartitionReader[K, V]] = PartitionReader(
            connections,
            lambda learnt: Metadata(connections, metadata_config(config, random), clock, learnt),
            decoder,
            fetch_config(config, random),
            clock,
            reset_ms=reset_ms(config, clock),
            committed=self._committed if has_group else None,
            learnt=self._learnt,
        )
        self._group = group_config(config, random) if has_group else None
        self._coordinator: ConsumerCoordinator | None = None
        self._commits: Commits | None = None
        if self._group is not None:
            self._coordinator = ConsumerCoordinator(
                self._group.group_id,
                self.reading.metadata,
                rules,
                self._group.backoff,
                network,
                clock,
                random,
            )
            self._commits = Commits(
                self._coordinator, self.reading.metadata, self._group, clock, self._membership
            )
        self.life: Final = CallScope("consumer")
        self.home: Final = LoopAffinity("consumer")
        self._member: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._next: Subscription | None = None  # after it has left
        self._tasks: set[asyncio.Task[None]] = set()

    # The group.

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group, or change the subscription."""
        if self._leaving is not None:
            self._next = subscription
        elif (
            self.participation is not None and self._member is not None and not self._member.done()
        ):
            self.participation.resubscribe(subscription)
        elif self.reading.reader.cursors:
            raise RuntimeError(
                "subscribe() is not allowed after assign(): call unsubscribe() first"
            )
        else:
            self._take_part(subscription)

    def _take_part(self, subscription: Subscription) -> None:
        group, coordinator = self._group, self._coordinator
        assert group is not None
        assert coordinator is not None
        self.reading.reader.recover()
        rules = subscription_config(self._config)
        self.participation = part = SubscriptionState(
            subscription, self.reading, self.commits_of(), rules, self._clock
        )
        metadata = self.reading.metadata
        if group.is_modern:
            membership = Kip848Membership(
                part, metadata, coordinator, group, self._clock, self._random
            )
        else:
            membership = ClassicMembership(
                part, metadata, coordinator, group, self._clock, self._assignors
            )
        self._member = asyncio.get_running_loop().create_task(part.run(membership))

    async def unsubscribe(self) -> None:
        """Leave the group and stop reading."""
        self.check_caller()
        self._next = None
        await self._leave(is_done=True)

    def check_caller(self) -> None:
        """Raise RuntimeError in a rebalance callback, which cannot wait for its own end."""
        if self.participation is not None:
            self.participation.check_caller()

    def commits_of(self) -> Commits:
        """Return the committer; raises RequestError without a group."""
        if self._commits is None:
            raise RequestError(
                ErrorCode.INVALID_GROUP_ID, "committed offsets require the setting group.id"
            )
        return self._commits

    def group_member(self) -> GroupMember:
        """Return the group identity."""
        member = self._membership()
        if member is not None:
            return member.identity
        self.commits_of()
        assert self._group is not None
        return self._group.nobody

    def offsets(
        self, given: Mapping[P, int | OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit; without any, those of everything handed out."""
        if given is None:
            return self.reading.offsets_of(self.reading.reader.cursors, all_handed_out=True)
        wanted = by_partition(given)
        return {partition_of(where): OffsetAndMetadata.of(one) for where, one in wanted.items()}

    def metrics(self) -> ConsumerMetrics:
        """Return the metrics."""
        coordinator = self._coordinator
        return self.reading.metrics(GroupCounts() if coordinator is None else coordinator.counts)

    def start(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, *, is_done: bool) -> None:
        """Close everything."""
        self._next = None
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._leave(is_done=is_done)
        finally:
            await end_all(self._end())

    async def _end(self) -> None:
        """Close what is left, at once."""
        self.life.end()
        await _ended(*self._tasks, *filter(None, (self._leaving, self._member)))
        if self._coordinator is not None:
            await self._coordinator.close()
        await self.reading.close()

    async def _leave(self, *, is_done: bool) -> None:
        """Leave, or wait for a leave in progress; a cancelled caller does not cancel it."""
        if self._leaving is None:
            leaving = self._left(self.participation, self._member, is_done=is_done)
            self._leaving = asyncio.get_running_loop().create_task(leaving)
        await asyncio.shield(self._leaving)

    async def _left(
        self, part: SubscriptionState | None, member: asyncio.Task[None] | None, *, is_done: bool
    ) -> None:
        try:
            if part is not None:
                await part.leave(
                    is_done=is_done
                )  # the last commit still uses the member's identity
        finally:
            if member is not None:
                await end_all(_ended(member))
            self.participation = self._member = self._leaving = None
            self.reading.reader.recover()
            self.reading.reader.remove([*self.reading.reader.cursors])
            following, self._next = self._next, None
            if following is not None:
                self._take_part(following)

    def _membership(self) -> Membership | None:
        return None if self.participation is None else self.participation.membership

    def _learnt(self) -> None:
        if self.participation is not None:
            self.participation.learnt()
        else:  # in a group, the assignment decides which partitions are read
            self.reading.miss()

    async def _committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | RequestError | None]:
        wanted = [*partitions]
        try:
            found = await self.commits_of().committed(wanted, self._timeout_s)
        except RequestError as error:
            return dict.fromkeys(wanted, error)
        return {
            where: None if one is None else Committed(one.offset, one.leader_epoch)
            for where, one in found.items()
        }


async def _ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
