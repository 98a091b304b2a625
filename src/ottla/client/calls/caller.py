"""Sends one API call for many keys to the brokers that serve them, until every key has a result.

Invariant: every key ends with a value or an error, independent of the others. Retriable errors are
retried after a backoff, at the broker that is responsible then, until the deadline of the call. The
error at the deadline is the last one received. No wait exceeds the time left.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.client.arguments import seconds_of
from ottla.client.calls.results import Results
from ottla.client.calls.targets import Route, Target
from ottla.client.lifecycle.call_scope import CallScope
from ottla.client.lifecycle.retry_policy import RetryPolicy
from ottla.client.network.cluster_view import BrokerView
from ottla.client.network.connections import Connections
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.message import Message
from ottla.protocol.schema import VERSION_MAX
from ottla.protocol.writer import EncodingError
from ottla.transport.channel import Channel
from ottla.transport.failures import Disconnected, NotSupported, TimedOut

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=Message)

ONE_EACH: Final = VERSION_MAX
"""For `batched_since`: no version takes several keys in one request."""

UNSURE: Final = "an earlier attempt of this call timed out or was lost: it may have taken effect"


class Terms(NamedTuple):
    """The version and timeout for which a request is built."""

    version: int
    timeout_ms: int
    """The timeout in the request."""


class ApiCall(Generic[K, M, V]):
    """How to build the request for some keys, and how to read its response.

    If reading raises RequestError, all keys of the request fail. The request is sent in a version
    from `since` to `newest`; before `batched_since` each key has its own request.
    """

    __slots__ = ("answer", "batched_since", "newest", "read", "request", "since")

    def __init__(
        self,
        *,
        request: Callable[[Sequence[K], Terms], Message],
        answer: type[M],
        read: Callable[[Sequence[K], M], Mapping[K, V | RequestError]],
        since: int = 0,
        newest: int = VERSION_MAX,
        batched_since: int = 0,
    ) -> None:
        self.request: Final = request
        self.answer: Final = answer
        self.read: Final = read
        self.since: Final = since
        self.newest: Final = newest
        self.batched_since: Final = batched_since


class Caller:
    """Executes API calls."""

    def __init__(
        self,
        metadata: Metadata,
        connections: Connections,
        clock: Clock,
        retry_policy: RetryPolicy,
    ) -> None:
        self._metadata = metadata
        self._connections = connections
        self._clock = clock
        self._retry_policy = retry_policy
        self._life = CallScope("client")

    def close(self) -> None:
        """Fail all calls in progress."""
        self._life.end()

    # Deadlines.

    def deadline_s(self, timeout_s: float | None) -> float:
        """Return the deadline of a call that starts now."""
        if timeout_s is None:
            timeout_s = self._retry_policy.call_timeout_s
        return self._clock.elapsed_s() + seconds_of(timeout_s)

    def left_s(self, deadline_s: float) -> float:
        """Return the seconds left until the deadline."""
        return max(0.0, deadline_s - self._clock.elapsed_s())

    # Calls.

    async def many(
        self,
        route: Route[K],
        keys: Iterable[K],
        question: ApiCall[K, M, V],
        timeout_s: float | None = None,
    ) -> Results[K, V]:
        """Call an API for many keys and return a result per key."""
        deadline_s = self.deadline_s(timeout_s)
        wanted = [*dict.fromkeys(keys)]
        told: dict[K, V | RequestError] = {}
        unsure: set[K] = set()
        left: list[K] = wanted
        tries = 0
        while left:
            tries += 1
            async with self._life.call():
                news = await self._round(route, left, question, deadline_s, unsure)
                is_late = not self.left_s(deadline_s)
                for key, one in news.items():
                    # A deadline that is reached during a retry is not the reason for the failure.
                    if key not in told or not (is_late and isinstance(one, TimedOut)):
                        told[key] = one
                    if isinstance(one, RequestError) and one.code is ErrorCode.REQUEST_TIMED_OUT:
                        unsure.add(key)  # the controller goes on with it
                left = [key for key in left if _again(route, told[key], tries)]
                for key in left:
                    route.wrong(key)
                pause_s = self._retry_policy.backoff.pause_s(tries)
                if tries > self._retry_policy.retries or pause_s >= self.left_s(deadline_s):
                    if left:
                        self._metadata.expire()  # so that the next call does not use stale metadata
                    break
                if left:
                    await self._clock.sleep(pause_s)
        for error in {id(told[key]): told[key] for key in unsure}.values():
            if (
                isinstance(error, RequestError)
                and not isinstance(error, Disconnected)
                and error.code is not ErrorCode.REQUEST_TIMED_OUT
            ):
                error.add_note(UNSURE)
        return Results({key: told[key] for key in wanted})

    async def _round(
        self,
        route: Route[K],
        keys: Sequence[K],
        question: ApiCall[K, M, V],
        deadline_s: float,
        unsure: set[K],
    ) -> dict[K, V | RequestError]:
        """Call once for all remaining keys, all brokers concurrently."""
        try:
            targets = await route.brokers(keys, self.left_s(deadline_s))
        except RequestError as error:
            return dict.fromkeys(keys, error)
        errors, groups = _grouped(keys, targets)
        told: dict[K, V | RequestError] = {**errors}
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(self._ask(broker, ones, question, deadline_s, unsure))
                for broker, ones in groups.items()
            ]
        for task in asked:
            told |= task.result()
        return told

    async def _ask(
        self,
        broker: BrokerView | None,
        keys: list[K],
        question: ApiCall[K, M, V],
        deadline_s: float,
        unsure: set[K],
    ) -> dict[K, V | RequestError]:
        """Call one broker once."""
        is_sent = False
        target = str(broker or self._connections.rules.addresses)
        try:
            async with asyncio.timeout(self.left_s(deadline_s)):
                channel = await self._channel(broker)
                target = channel.address
                terms = self._terms(channel, question, deadline_s)
                is_batched = terms.version >= question.batched_since
                parts = [keys] if is_batched else [[key] for key in keys]
                answers = [
                    channel.send(
                        question.request(part, terms),
                        self._retry_policy.request_timeout_s,
                        version=terms.version,
                    )
                    for part in parts
                ]
                is_sent = True
                messages = await asyncio.gather(*answers)
        except TimeoutError:
            failure: RequestError = self._metadata.failure or TimedOut(
                f"{target}: no response in time"
            )
        except EncodingError as error:
            failure = RequestError(
                ErrorCode.INVALID_REQUEST, f"the request to {target} cannot be encoded: {error}"
            )
        except RequestError as error:
            failure = error
        else:
            told: dict[K, V | RequestError] = {}
            for part, message in zip(parts, messages, strict=True):
                told |= _read(question, part, message, target)
            return told
        if is_sent and isinstance(failure, Disconnected | TimedOut):
            unsure.update(keys)
        return dict.fromkeys(keys, failure)

    async def _channel(self, broker: BrokerView | None) -> Channel:
        if broker is None:
            return await self._metadata.any_channel()
        return await self._connections.to(broker)

    def _terms(self, channel: Channel, question: ApiCall[K, M, V], deadline_s: float) -> Terms:
        api = question.answer.API
        assert api is not None
        version = min(channel.version(api), question.newest)
        oldest = channel.versions[api.key].low
        if version < max(question.since, oldest):
            raise NotSupported(
                f"{api.name} with these arguments requires version {question.since} or later; the "
                f"broker at {channel.address} supports {channel.versions[api.key]}"
            )
        timeout_s = min(self._retry_policy.request_timeout_s, self.left_s(deadline_s))
        return Terms(version, int(timeout_s * 1000))


def _again(route: Route[K], told: object, tries: int) -> bool:
    return isinstance(told, RequestError) and route.passes(told, tries)


def _read(
    question: ApiCall[K, M, V], keys: Sequence[K], message: Message, target: str
) -> dict[K, V | RequestError]:
    assert isinstance(message, question.answer)
    try:
        told = question.read(keys, message)
    except RequestError as error:
        return dict.fromkeys(keys, error)
    return {key: told[key] if key in told else _silent(target, key) for key in keys}


def _silent(target: str, key: object) -> RequestError:
    return RequestError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"{target}: the response does not contain {key}"
    )


def _grouped(
    keys: Sequence[K], targets: Sequence[Target]
) -> tuple[dict[K, RequestError], dict[BrokerView | None, list[K]]]:
    """Split the keys into those with an error already and those per broker."""
    errors: dict[K, RequestError] = {}
    groups: dict[BrokerView | None, list[K]] = {}
    for key, broker in zip(keys, targets, strict=True):
        if isinstance(broker, RequestError):
            errors[key] = broker
        else:
            groups.setdefault(broker, []).append(key)
    return errors, groups
