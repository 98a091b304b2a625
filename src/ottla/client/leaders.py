"""Asking the leaders of partitions: each is asked for those that it leads.

Invariant: every partition has one outcome: what its leader said, or why it said nothing. What
passes is tried again, with a leader that was looked up anew, until the deadline; then its last
error counts. One partition that fails keeps no other from its answer.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from ottla.client.backoff import Backoff
from ottla.client.cluster_view import ClusterView
from ottla.client.connections import Connections
from ottla.client.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, TopicPartition
from ottla.protocol.message import Message
from ottla.transport.channel import Channel, TimedOut

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Question(Protocol[T_co]):
    """What is asked of leaders, and how their answer is read."""

    def request(
        self, view: ClusterView, partitions: list[TopicPartition], channel: Channel
    ) -> Message:
        """The request to one leader; RequestError if it cannot be asked that."""
        ...

    def outcomes(self, answer: Message) -> Iterable[tuple[TopicPartition, ErrorCode, T_co]]:
        """What its answer says of each partition."""
        ...


class Leaders:
    """Asks them."""

    def __init__(
        self,
        metadata: Metadata,
        connections: Connections,
        clock: Clock,
        backoff: Backoff,
        request_timeout_s: float,
    ) -> None:
        self._metadata = metadata
        self._connections = connections
        self._clock = clock
        self._backoff = backoff
        self._request_timeout_s = request_timeout_s

    async def ask(
        self, partitions: Iterable[TopicPartition], question: Question[T], timeout_s: float
    ) -> dict[TopicPartition, T | RequestError]:
        """What the leaders say."""
        deadline_s = self._clock.elapsed_s() + timeout_s
        outcomes: dict[TopicPartition, T | RequestError] = {}
        left = dict.fromkeys(partitions)
        failures: dict[TopicPartition, RequestError] = {}
        tries = 0
        while left:
            for one, outcome in (await self._round(left, question, deadline_s)).items():
                if isinstance(outcome, RequestError) and outcome.retriable:
                    failures[one] = outcome
                else:
                    outcomes[one] = outcome
                    del left[one]
            if not left:
                break
            tries += 1
            pause_s = self._backoff.pause_s(tries)
            left_s = deadline_s - self._clock.elapsed_s()
            if pause_s >= left_s:
                late = self._metadata.failure or TimedOut(f"no answer within {timeout_s:g} s")
                return {**outcomes, **{one: failures.get(one, late) for one in left}}
            await self._clock.sleep(pause_s)
            self._metadata.expire()
        return outcomes

    async def _round(
        self, left: Iterable[TopicPartition], question: Question[T], deadline_s: float
    ) -> dict[TopicPartition, T | RequestError]:
        """Ask every leader once."""
        outcomes: dict[TopicPartition, T | RequestError] = {}
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        unknown = [one for one in left if self._unknown(one)]
        if unknown:
            left_s = max(0.0, deadline_s - self._clock.elapsed_s())
            try:
                await self._metadata.refreshed(left_s)
            except RequestError as error:
                return dict.fromkeys(left, error)
        for one in left:
            leader = self._metadata.view.leader(*one)
            if leader is None:
                outcomes[one] = self._leaderless(one)
            else:
                by_leader.setdefault(leader.leader, []).append(one)
        rounds = await asyncio.gather(
            *(self._ask_one(*each, question, deadline_s) for each in by_leader.items())
        )
        for told in rounds:
            outcomes.update(told)
        return outcomes

    def _unknown(self, partition: TopicPartition) -> bool:
        self._metadata.want(partition.topic)
        return self._metadata.view.leader(*partition) is None

    def _leaderless(self, partition: TopicPartition) -> RequestError:
        topic = self._metadata.view.topics.get(partition.topic)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None and topic.error:
            code = topic.error
        elif topic is not None and partition.partition in topic.partitions:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return RequestError(code, f"{partition}: {code.text}")

    async def _ask_one(
        self,
        broker: BrokerId,
        partitions: list[TopicPartition],
        question: Question[T],
        deadline_s: float,
    ) -> Mapping[TopicPartition, T | RequestError]:
        view = self._metadata.view
        left_s = max(0.0, deadline_s - self._clock.elapsed_s())
        try:
            async with asyncio.timeout(left_s):
                channel = await self._connections.to(view.brokers[broker])
                request = question.request(view, partitions, channel)
                answer = await channel.send(request, min(self._request_timeout_s, left_s))
        except RequestError as error:
            return dict.fromkeys(partitions, error)
        except TimeoutError:
            return dict.fromkeys(partitions, TimedOut(f"broker {broker} did not answer in time"))
        told = {
            one: RequestError(code, f"{one}: {code.text}") if code else value
            for one, code, value in question.outcomes(answer)
        }
        silent = RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker} left it out")
        return {one: told.get(one, silent) for one in partitions}
