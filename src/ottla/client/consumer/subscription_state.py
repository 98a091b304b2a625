"""A consumer's subscription: what it wants, its assignment and its commits.

The positions of its partitions are in `cursor.py`, and `position_resolver.py` resets them.

Invariant: records that the application is processing are not auto-committed. A partition is not
revoked while the application has its records, unless that takes longer than max.poll.interval.ms.
Revoked partitions are committed first, lost ones are not. Callbacks are called for every assigned,
revoked or lost partition, one after the other. Leaving waits for the current rebalance step; after
it no partition is assigned.
"""

import asyncio
import inspect
import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.consumer.partition_reader import PartitionReader
from ottla.client.consumer.subscription import BrokerPattern, Callback, Subscription
from ottla.client.group.commits import Commits
from ottla.client.group.interfaces import Membership, Rebalance
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition

ALIVE_S: Final = 1.0
"""Interval at which the application's progress is checked."""

LAST_COMMIT_S: Final = 5.0

LAST_STEP_S: Final = 30.0
"""How long a callback is waited for before the membership ends."""

CLOSED: Final = "the consumer is closed"

IN_A_CALLBACK: Final = (
    "a rebalance callback must not unsubscribe or close the consumer: do it in the task that polls"
)

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """Subscription settings."""

    auto_commit_s: float | None
    poll_interval_s: float
    commit_timeout_s: float
    excludes_internal: bool


class SubscriptionState:
    """The owner of the partitions that a group assigns; `run` is its task."""

    def __init__(
        self,
        subscription: Subscription,
        reading: PartitionReader[Any, Any],
        commits: Commits,
        rules: SubscriptionConfig,
        clock: Clock,
    ) -> None:
        self.subscription = subscription
        self.membership: Membership | None = None
        self._reading = reading
        self._reader = reading.reader
        self._commits = commits
        self._rules = rules
        self._clock = clock
        self._step = asyncio.Lock()  # one step of the membership at a time
        self._caller: asyncio.Task[Any] | None = None  # the task of a running callback
        self._has_left = False
        self._failure: RequestError | None = (
            None  # of a callback; the record buffer may have raised it
        )
        self._one_commit = asyncio.Lock()  # commits stay in order
        self._committing: asyncio.Task[None] | None = None
        self._wanted: frozenset[str] = frozenset()
        self._refused: set[str] = set()  # wanted topics whose refusal was raised
        self._kept: dict[TopicPartition, int] = {}  # the last committed offsets
        self._look_for_topics()
        self._resolve()

    # Called by the membership.

    def topics(self) -> frozenset[str]:
        """The current subscription."""
        return self._wanted

    def pattern(self) -> str | None:
        """The pattern that the broker matches; Python patterns are resolved here."""
        return self.subscription.broker_pattern

    def owned(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._reader.cursors)

    async def revoke(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Finish with partitions, commit, and revoke them."""
        async with self._step:
            partitions &= self.owned()
            for one in partitions:
                self._reader.cursors[one].pause()
            if self._reader.is_busy_with(partitions):
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._rules.poll_interval_s):
                        await self._reader.came_back()
            try:
                if self._rules.auto_commit_s is not None:
                    await self._commit_quietly(partitions, self._rules.commit_timeout_s)
                await self._tell(self.subscription.on_revoked, partitions, why)
            finally:
                self._drop(partitions)

    async def lose(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Drop partitions that are lost."""
        async with self._step:
            partitions &= self.owned()
            self._drop(partitions)
            told = self.subscription.on_lost or self.subscription.on_revoked
            await self._tell(told, partitions, why)

    async def assign(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Add partitions; the application may seek before the first record."""
        async with self._step:
            if self._has_left:
                return
            self._reader.add(partitions, hold=True)
            try:
                await self._tell(self.subscription.on_assigned, partitions, why)
            finally:
                self._reader.release(partitions)
            self._reading.poke()

    # Called by the consumer.

    def resubscribe(self, subscription: Subscription) -> None:
        """Change the subscription."""
        before, self.subscription = self.pattern(), subscription
        self._refused.clear()
        self._look_for_topics()
        is_new = self._resolve() or self.pattern() != before
        if is_new and self.membership is not None:
            self.membership.rejoin("the subscription changed")

    def learnt(self) -> None:
        """Check a metadata change: a topic may match the pattern or have more partitions.

        The application gets the error of a topic whose name is refused once, as in Java's client.
        """
        for name in sorted(self._wanted - self._refused):
            if (failure := self._reading.metadata.refusal(name)) is not None:
                self._refused.add(name)
                self._reader.fail(failure)
        if self.membership is None:
            return
        if self._resolve():
            self.membership.rejoin("the topics that match the pattern changed")
        else:
            self.membership.metadata_changed()

    async def run(self, membership: Membership) -> None:
        """Be a member while the group and the application go on."""
        self.membership = membership
        minding = asyncio.create_task(self._mind(membership))
        self._committing = asyncio.create_task(self._commit_from_time_to_time())
        failure: RequestError | None = None
        try:
            await membership.run()
        except RequestError as error:
            failure = error
        # An own assignor may raise anything; the application must learn that the membership ended.
        except Exception as error:
            failure = _unexpected("the group membership ended", error)
        finally:
            await _ended(minding, self._committing)
        if failure is not None:  # last, because the application may subscribe again on it
            if (before := self._after_untold(None)) is not None:
                failure.add_note(f"earlier error: {before}")
            self._reader.fail(failure, lasting=True)

    def check_caller(self) -> None:
        """Raise RuntimeError in a callback, which would wait for its own end."""
        if self._caller is not None and self._caller is asyncio.current_task():
            raise RuntimeError(IN_A_CALLBACK)

    async def leave(self, *, is_done: bool) -> None:
        """Commit and revoke everything; with `is_done`, everything handed out is done.

        An error that a callback raises here, or raised since the last poll, is raised at the end:
        there is no later poll to raise it.
        """
        self._has_left = True
        self._reader.let_go(is_done=is_done)
        if self._committing is not None:
            await _ended(self._committing)
        has_step = False
        with suppress(TimeoutError):  # a callback that does not return ends with the membership
            async with asyncio.timeout(LAST_STEP_S):
                has_step = await self._step.acquire()
        try:
            failure = await self._give_up_all(is_done=is_done)
        finally:
            if has_step:
                self._step.release()
        if self.membership is not None:
            await self.membership.leave(LAST_COMMIT_S)
        if (failure := self._after_untold(failure)) is not None:
            raise failure

    async def _give_up_all(self, *, is_done: bool) -> RequestError | None:
        owned = self.owned()
        if not owned:
            return None
        if self._rules.auto_commit_s is not None:
            await self._commit_quietly(owned, LAST_COMMIT_S, all_handed_out=is_done)
        try:
            return await self._told(self.subscription.on_revoked, owned, Rebalance(CLOSED))
        finally:
            self._drop(owned)

    # Background work.

    async def _mind(self, membership: Membership) -> None:
        """Report the application's progress to the membership."""
        before: object = None
        while True:
            reader = self._reader
            now = (reader.asks, reader.in_hand)
            if reader.is_asked or now != before:
                membership.polled()
            before = now
            await self._clock.sleep(min(ALIVE_S, self._rules.poll_interval_s / 3))

    async def _commit_from_time_to_time(self) -> None:
        if self._rules.auto_commit_s is None:
            return
        while True:
            await self._clock.sleep(self._rules.auto_commit_s)
            await self._commit_quietly(self.owned(), self._rules.commit_timeout_s)

    async def _commit_quietly(
        self,
        partitions: Iterable[TopicPartition],
        timeout_s: float,
        *,
        all_handed_out: bool = False,
    ) -> None:
        """Commit what changed; errors are logged, because nobody waits for them."""
        async with self._one_commit:
            offsets = self._reading.offsets_of(partitions, all_handed_out=all_handed_out)
            changed = {
                where: one for where, one in offsets.items() if self._kept.get(where) != one.offset
            }
            if not changed:
                return
            try:
                await self._commits.commit(changed, timeout_s)
            except RequestError as error:
                _log.warning("offset commit failed: %s", error)
            else:
                self._kept |= {where: one.offset for where, one in changed.items()}

    async def _tell(
        self, callback: Callback | None, partitions: frozenset[TopicPartition], why: Rebalance
    ) -> None:
        """Call a callback; the next poll raises its error."""
        failure = await self._told(callback, partitions, why)
        if failure is not None:
            self._failure = self._after_untold(failure)
            self._reader.fail(self._failure or failure)

    def _after_untold(self, failure: RequestError | None) -> RequestError | None:
        """Return the error, or an earlier unseen one with a note about this one."""
        first = self._failure
        if first is None or self._reader.failure is not first:
            return failure
        if failure is not None:
            first.add_note(f"later error: {failure}")
        return first

    async def _told(
        self, callback: Callback | None, partitions: frozenset[TopicPartition], why: Rebalance
    ) -> RequestError | None:
        """Call a callback and return its error, if any."""
        if callback is None or not partitions:
            return None
        self._caller = asyncio.current_task()
        try:
            told = callback(partitions, why)
            if inspect.isawaitable(told):
                await told
        # A callback may raise anything.
        except Exception as error:
            return _unexpected("a rebalance callback failed", error)
        finally:
            self._caller = None
        return None

    def _drop(self, partitions: frozenset[TopicPartition]) -> None:
        self._reader.remove(partitions)
        for one in partitions:
            self._kept.pop(one, None)
        # Topics found by the broker's pattern were not known before.
        used = self._wanted | {one.topic for one in self.owned()}
        for topic in {one.topic for one in partitions} - used:
            self._reading.metadata.forget(topic)

    def _look_for_topics(self) -> None:
        """Request all topics soon if a Python pattern has to find some."""
        if isinstance(self.subscription.pattern, re.Pattern):
            self._reading.metadata.expire()

    def _resolve(self) -> bool:
        """Resolve the wanted topics; returns whether they changed."""
        metadata, pattern = self._reading.metadata, self.subscription.pattern
        before = self._wanted
        if pattern is None or isinstance(pattern, BrokerPattern):
            metadata.all_topics = False
            self._wanted = self.subscription.names
        else:
            metadata.all_topics = True
            self._wanted = frozenset(
                name
                for name, topic in metadata.view.topics.items()
                if pattern.fullmatch(name)
                and not (topic.is_internal and self._rules.excludes_internal)
            )
        for topic in sorted(self._wanted - before):
            metadata.want(topic)
        for topic in before - self._wanted:
            metadata.forget(topic)
        return self._wanted != before


def _unexpected(what: str, error: Exception) -> RequestError:
    failure = RequestError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: {type(error).__name__}: {error}"
    )
    failure.__cause__ = error
    return failure


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
