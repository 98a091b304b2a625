"""A consumer's part in its group: what it wants, what it got, and how far it is.

Invariant: of what the application still works on nothing is committed by itself, and a partition is
not given up while the application has its records in its hands, unless it takes longer than
max.poll.interval.ms. What is given up is committed first; what is lost is not. The application's
callbacks hear of every partition that comes or goes, with the reason, one after the other. Leaving
waits for the step that the group is in; after it no partition comes any more.
"""

import asyncio
import inspect
import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.fetch.fetch_runtime import FetchRuntime
from ottla.client.group.commits import Commits
from ottla.client.group.interfaces import Membership, Rebalance
from ottla.client.subscription import BrokerPattern, Callback, Subscription
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition

ALIVE_S: Final = 1.0
"""So often it is looked whether the application goes on."""

LAST_COMMIT_S: Final = 5.0

LAST_STEP_S: Final = 30.0
"""So long a callback of the application is waited for before its part in the group ends."""

CLOSED: Final = "the consumer is closed"

IN_A_CALLBACK: Final = (
    "a rebalance callback cannot end what it is called for: unsubscribe or close where records are "
    "asked for"
)

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """What the settings say."""

    auto_commit_s: float | None
    poll_interval_s: float
    commit_timeout_s: float
    excludes_internal: bool


class SubscriptionState:
    """The owner of the partitions that a group gives; `run` is its life."""

    def __init__(
        self,
        subscription: Subscription,
        reading: FetchRuntime[Any, Any],
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
        self._step = asyncio.Lock()  # one thing is asked of us at a time
        self._caller: asyncio.Task[Any] | None = None  # of a callback that runs
        self._has_left = False
        self._failure: RequestError | None = None  # of a callback, which the reader may have told
        self._one_commit = asyncio.Lock()  # an old one does not come after a new one
        self._committing: asyncio.Task[None] | None = None
        self._wanted: frozenset[str] = frozenset()
        self._kept: dict[TopicPartition, int] = {}  # what was committed last
        self._look_for_topics()
        self._resolve()

    # What the group asks.

    def topics(self) -> frozenset[str]:
        """What is subscribed to now."""
        return self._wanted

    def pattern(self) -> str | None:
        """The pattern that is left to the broker; those of Python are resolved here."""
        return self.subscription.broker_pattern

    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(self._reader.cursors)

    async def revoke(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Finish with partitions, commit, and give them up."""
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
        """Partitions are gone already."""
        async with self._step:
            partitions &= self.owned()
            self._drop(partitions)
            told = self.subscription.on_lost or self.subscription.on_revoked
            await self._tell(told, partitions, why)

    async def assign(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        """Read more partitions; the application may seek before the first record comes."""
        async with self._step:
            if self._has_left:
                return
            self._reader.add(partitions, hold=True)
            try:
                await self._tell(self.subscription.on_assigned, partitions, why)
            finally:
                self._reader.release(partitions)
            self._reading.poke()

    # What the consumer asks.

    def resubscribe(self, subscription: Subscription) -> None:
        """Want something else."""
        before, self.subscription = self.pattern(), subscription
        self._look_for_topics()
        is_new = self._resolve() or self.pattern() != before
        if is_new and self.membership is not None:
            self.membership.rejoin("the subscription changed")

    def learnt(self) -> None:
        """There is news of the cluster: a topic may fit the pattern, or have more partitions."""
        if self.membership is None:
            return
        if self._resolve():
            self.membership.rejoin("topics that fit the pattern came or went")
        else:
            self.membership.metadata_changed()

    async def run(self, membership: Membership) -> None:
        """Be a member, as long as the group and the application go on."""
        self.membership = membership
        minding = asyncio.create_task(self._mind(membership))
        self._committing = asyncio.create_task(self._commit_from_time_to_time())
        failure: RequestError | None = None
        try:
            await membership.run()
        except RequestError as error:
            failure = error
        # An assignor may be the application's own: that nobody is a member any more is heard, too.
        except Exception as error:
            failure = _unexpected("the membership of the group ended", error)
        finally:
            await _ended(minding, self._committing)
        if failure is not None:  # who hears it may subscribe anew, so it is the last thing
            if (before := self._after_untold(None)) is not None:
                failure.add_note(f"and before that: {before}")
            self._reader.fail(failure, lasting=True)

    def check_caller(self) -> None:
        """RuntimeError in a callback of ours: it would wait for its own end."""
        if self._caller is not None and self._caller is asyncio.current_task():
            raise RuntimeError(IN_A_CALLBACK)

    async def leave(self, *, is_done: bool) -> None:
        """Commit and give all up; `is_done` when what was handed out is done.

        What a callback raises then, or has raised since records were asked for, is raised here when
        all that is over: nobody asks for records any more who would hear of it.
        """
        self._has_left = True
        self._reader.let_go(is_done=is_done)
        if self._committing is not None:
            await _ended(self._committing)
        has_step = False
        with suppress(TimeoutError):  # a callback that does not end ends with the membership
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

    # What it does by itself.

    async def _mind(self, membership: Membership) -> None:
        """Tell the group that the application goes on, as long as it does."""
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
        """Commit what changed; a failure is logged, because nobody waits for it."""
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
                _log.warning("offsets were not committed: %s", error)
            else:
                self._kept |= {where: one.offset for where, one in changed.items()}

    async def _tell(
        self, callback: Callback | None, partitions: frozenset[TopicPartition], why: Rebalance
    ) -> None:
        """Call a callback; who asks for records hears of what it raises."""
        failure = await self._told(callback, partitions, why)
        if failure is not None:
            self._failure = self._after_untold(failure)
            self._reader.fail(self._failure or failure)

    def _after_untold(self, failure: RequestError | None) -> RequestError | None:
        """A failure, or the one before it of which nobody has heard, with a note of this one."""
        first = self._failure
        if first is None or self._reader.failure is not first:
            return failure
        if failure is not None:
            first.add_note(f"and after that: {failure}")
        return first

    async def _told(
        self, callback: Callback | None, partitions: frozenset[TopicPartition], why: Rebalance
    ) -> RequestError | None:
        """Call a callback; what it raised, if it did."""
        if callback is None or not partitions:
            return None
        self._caller = asyncio.current_task()
        try:
            told = callback(partitions, why)
            if inspect.isawaitable(told):
                await told
        # The callback is anybody's, and so is what it raises.
        except Exception as error:
            return _unexpected("a rebalance callback failed", error)
        finally:
            self._caller = None
        return None

    def _drop(self, partitions: frozenset[TopicPartition]) -> None:
        self._reader.remove(partitions)
        for one in partitions:
            self._kept.pop(one, None)
        # Of topics that a broker found by a pattern nobody wanted to know before.
        used = self._wanted | {one.topic for one in self.owned()}
        for topic in {one.topic for one in partitions} - used:
            self._reading.metadata.forget(topic)

    def _look_for_topics(self) -> None:
        """Ask soon for all topics, if a pattern of Python is to find some of them."""
        if isinstance(self.subscription.pattern, re.Pattern):
            self._reading.metadata.expire()

    def _resolve(self) -> bool:
        """Find out which topics are wanted; tells whether they are others than before."""
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
        for topic in self._wanted - before:
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
