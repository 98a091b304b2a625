"""Fetches and refreshes cluster metadata.

Invariant: one Metadata request is in flight at a time. A caller waits for the response to a request
that was sent after its need arose, so that nobody acts on what was known to be wrong. It waits at
most until its own deadline or until a broker refuses authentication. Metadata is refreshed when it
is too old. Callers that only suspect stale metadata cause at most one request per backoff.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.client.network.cluster_view import NOTHING_KNOWN, BrokerView, ClusterView, TopicView
from ottla.client.network.connections import CLOSED, Connections
from ottla.clock import Clock
from ottla.errors import CREATE_TOPIC, ErrorCode, RequestError
from ottla.ids import BrokerId
from ottla.protocol.apis import CREATE_TOPICS, METADATA
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.transport.backoff import Backoff
from ottla.transport.channel import Channel
from ottla.transport.failures import AuthenticationFailed, Disconnected, TimedOut

_log: Final = logging.getLogger(__name__)

SWEEP_S: Final = 5.0
"""Interval at which idle connections and unused topics are looked for."""

# Final for most requests, but a retry helps if the topic is just being created.
_PASSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

# CreateTopics returns the second for a name that a policy of the cluster does not allow.
_REFUSED_NAME: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.POLICY_VIOLATION})

NO_TOPIC: Final = (
    f"check the name, or {CREATE_TOPIC}; the broker creates it only if "
    "auto.create.topics.enable is true"
)
SPEAKS_KAFKA: Final = (
    "check that it is a Kafka broker, and set security.protocol if the port requires TLS"
)


class MetadataConfig(NamedTuple):
    """How fresh metadata is."""

    backoff: Backoff
    max_age_s: float = 300.0
    max_idle_s: float | None = None
    """A topic unused for this long is forgotten; None keeps it."""

    request_timeout_s: float = 30.0
    may_create_topics: bool = True


class Metadata:
    """The cluster metadata; `run` keeps it fresh."""

    def __init__(
        self,
        connections: Connections,
        rules: MetadataConfig,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.view: ClusterView = NOTHING_KNOWN
        self.failure: RequestError | None = None  # of the last request
        self.all_topics = False  # for pattern subscriptions
        self._connections = connections
        self._rules = rules
        self._clock = clock
        self._changed = changed
        self._used_s: dict[str, float] = {}  # when a topic was last used
        self._refusals: dict[str, str] = {}  # why the broker does not create topics, by name
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()  # a caller waits
        self._questions = 0  # requests started so far
        self._waiting: list[
            tuple[int, asyncio.Future[None]]
        ] = []  # for this request or a later one
        self._told_s = clock.elapsed_s()
        self._answered = False
        self._is_over = False

    def want(self, topic: str) -> TopicView | None:
        """Return a topic if it is known; from now on it is kept fresh."""
        self._used_s[topic] = self._clock.elapsed_s()
        return self.view.topics.get(topic)

    def forget(self, topic: str) -> None:
        """Stop refreshing a topic."""
        self._used_s.pop(topic, None)

    def expire(self) -> None:
        """Mark metadata as stale, so that it is refreshed soon."""
        self._asked.set()

    def learn(self, topic: str, partition: int, leader: int, epoch: int, *at: BrokerView) -> None:
        """Take a leader from a response, or refresh if the response names none."""
        before, self.view = self.view, self.view.led_by(topic, partition, leader, epoch, at)
        if self.view is before:
            self.expire()
        else:
            self._changed()

    async def refreshed(self, timeout_s: float) -> ClusterView:
        """Return the view after a request that is sent now."""
        if self._is_over:
            raise Disconnected(CLOSED)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (self._questions + 1, answered)
        self._waiting.append(waiting)
        self._asked.set()
        self._hurried.set()
        try:
            await asyncio.wait((answered,), timeout=timeout_s)
        finally:
            if answered.done():
                answered.exception()  # retrieved, even if the caller is gone
            else:
                self._waiting.remove(waiting)
        if not answered.done():
            raise self.failure or TimedOut(f"no metadata received in {round(timeout_s, 1):g} s")
        answered.result()
        return self.view

    async def topic(
        self,
        name: str,
        timeout_s: float,
        partition: int | None = None,
        missed: Callable[[TopicView], None] = lambda topic: None,
    ) -> TopicView:
        """Return a topic with its partitions; raises its error if that is not retriable.

        With `partition`, wait for this one; at the timeout, return the topic without it. `missed`
        is called with the topic when fresh metadata do not have the partition either.
        """
        deadline_s = self._clock.elapsed_s() + timeout_s
        tries = 0
        known = self.want(name)
        while (
            known is None
            or not known.partitions
            or (partition is not None and partition not in known.partitions)
        ):
            if known is not None and _is_final(known.error):
                raise self._refused(known)
            left_s = deadline_s - self._clock.elapsed_s()
            if left_s <= 0:
                if known is not None and known.partitions:
                    return known
                raise self._late(name, known, timeout_s)
            if tries:
                await self._clock.sleep(min(left_s, self._rules.backoff.pause_s(tries)))
            tries += 1
            with suppress(TimedOut):
                await self.refreshed(max(0.0, deadline_s - self._clock.elapsed_s()))
                known = self.want(name)
                if known is not None and known.partitions and partition not in known.partitions:
                    missed(known)
            known = self.want(name)
        return known

    def refusal(self, name: str) -> RequestError | None:
        """Return the error of a topic whose name the cluster refuses."""
        known = self.view.topics.get(name)
        if known is None or known.error is not ErrorCode.INVALID_TOPIC_EXCEPTION:
            return None
        return self._refused(known)

    def _refused(self, topic: TopicView) -> RequestError:
        return RequestError(topic.error, f"{topic.name}: {self._reason(topic)}")

    async def channel(self, broker: BrokerId) -> Channel:
        """Return a connection to a broker by id; raises BROKER_NOT_AVAILABLE."""
        known = self.view.brokers.get(broker)
        if known is None:
            raise RequestError(ErrorCode.BROKER_NOT_AVAILABLE, f"no broker has the id {broker}")
        return await self._connections.to(known)

    async def any_channel(self) -> Channel:
        """Return a connection to any broker."""
        return await self._connections.any(self.view.brokers.values())

    # The refreshing task.

    async def run(self) -> None:
        """Refresh metadata when a caller needs it and when it is too old."""
        try:
            await self._ask_and_ask()
        finally:
            # No more requests: fail the callers that wait.
            self._is_over = True
            for _, answered in self._waiting:
                answered.set_exception(Disconnected(CLOSED))
            self._waiting.clear()

    async def _ask_and_ask(self) -> None:
        failures = 0
        while True:
            await self._until_due()
            # A repeated request would get the same response, so wait for the backoff first.
            if failures:
                await self._clock.sleep(self._rules.backoff.pause_s(failures))
            elif self._answered:
                await self._until_worth_it()
            self._asked.clear()
            self._hurried.clear()
            self._questions += 1
            try:
                await self._ask()
            except RequestError as failure:
                failures += 1
                self.failure = failure
                if isinstance(failure, AuthenticationFailed):
                    # Waiting callers get the error; later ones may try again.
                    self._told_s = self._clock.elapsed_s()
                    self._tell(failure)
                else:
                    self._asked.set()
                continue
            failures, self.failure, self._answered = 0, None, True
            self._told_s = self._clock.elapsed_s()
            self._tell()
            self._changed()

    def _miss_topics(self, before: ClusterView) -> None:
        """Log unusable topics once: a consumer that waits for records would not see them."""
        for name in self._used_s:
            known, knew = self.view.topics.get(name), before.topics.get(name)
            if known is None or (knew is not None and knew.error is known.error):
                continue
            if known.error in _PASSING and (knew is None or knew.error not in _PASSING):
                _log.warning("topic %s does not exist, waiting for it: %s", name, NO_TOPIC)
            elif _is_final(known.error):
                _log.warning("topic %s cannot be used: %s", name, self._reason(known))

    async def _until_worth_it(self) -> None:
        """Wait for the backoff after the last response, unless a caller waits for the next one."""
        pause_s = self._told_s + self._rules.backoff.pause_s(1) - self._clock.elapsed_s()
        if pause_s > 0 and not self._hurried.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurried.wait()

    def _tell(self, failure: RequestError | None = None) -> None:
        """Wake the callers whose request was answered or failed."""
        waiting, self._waiting = self._waiting, []
        for question, answered in waiting:
            if question > self._questions:
                self._waiting.append((question, answered))
            elif failure is not None:
                answered.set_exception(failure)
            else:
                answered.set_result(None)

    async def _until_due(self) -> None:
        while not self._asked.is_set():
            left_s = self._told_s + self._rules.max_age_s - self._clock.elapsed_s()
            if left_s <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, SWEEP_S)):
                    await self._asked.wait()
            self._sweep()

    def _sweep(self) -> None:
        self._connections.close_idle()
        idle_s = self._rules.max_idle_s
        if idle_s is None:
            return
        now_s = self._clock.elapsed_s()
        idle = [topic for topic, used_s in self._used_s.items() if now_s - used_s > idle_s]
        for topic in idle:
            del self._used_s[topic]
        if idle:
            self.view = self.view.without(idle)

    async def _ask(self) -> None:
        channel = await self.any_channel()
        every = self.all_topics
        if channel.version(METADATA) < 1 and not self._used_s:
            every = True  # version 0 cannot request an empty list of topics
        request = MetadataRequest(
            topics=None if every else [MetadataRequestTopic(name=name) for name in self._used_s],
            allow_auto_topic_creation=self._rules.may_create_topics,
        )
        answer = await channel.ask(request, MetadataResponse, self._rules.request_timeout_s)
        if not answer.brokers:
            raise RequestError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"{channel.address} returned metadata without brokers",
            )
        before, self.view = self.view, self.view.told(answer, all_topics=every)
        await self._find_refusals(channel)
        self._miss_topics(before)

    async def _find_refusals(self, channel: Channel) -> None:
        """Learn why topics are not created: a Metadata response has a code without a message.

        CreateTopics validates the names again, and its response has the message.
        """
        refused = {
            name
            for name in self._used_s
            if (known := self.view.topics.get(name)) is not None
            and known.error is ErrorCode.INVALID_TOPIC_EXCEPTION
        }
        self._refusals = {name: why for name, why in self._refusals.items() if name in refused}
        asked = refused - self._refusals.keys()
        if not asked or not self._rules.may_create_topics:
            return
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
                for name in sorted(asked)
            ],
            validate_only=True,
        )
        with suppress(RequestError):
            if channel.version(CREATE_TOPICS) < 1:
                return  # version 0 would create them
            answer = await channel.ask(request, CreateTopicsResponse, self._rules.request_timeout_s)
            for one in answer.topics:
                if ErrorCode.of(one.error_code) in _REFUSED_NAME and one.error_message:
                    self._refusals[one.name] = one.error_message

    def _reason(self, topic: TopicView) -> str:
        return self._refusals.get(topic.name) or topic.error.text

    def _late(self, name: str, known: TopicView | None, timeout_s: float) -> RequestError:
        if self.failure is not None:
            return self.failure
        late = f"no metadata of topic {name} after {round(timeout_s, 1):g} s"
        if known is None or not known.error:
            seeds = self._connections.rules.addresses
            return TimedOut(f"{late}: {seeds} did not respond", SPEAKS_KAFKA)
        if known.error in _PASSING:
            return TimedOut(f"{late}: the topic does not exist", NO_TOPIC)
        return TimedOut(f"{late}: {known.error.text}")


def _is_final(error: ErrorCode) -> bool:
    return error is not ErrorCode.NONE and not error.retriable and error not in _PASSING
