"""Finds coordinators of groups and of transactional ids.

Invariant: a coordinator is looked up once and remembered until it is forgotten: by its user on
NOT_COORDINATOR, or here if it cannot be reached. A lookup retries retriable errors until its
deadline.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Final

from ottla.client.lifecycle.long_wait import LongWait
from ottla.client.network.cluster_view import BrokerView
from ottla.client.network.connections import Connections
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId
from ottla.protocol.apis import FIND_COORDINATOR
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.transport.backoff import Backoff
from ottla.transport.channel import Channel
from ottla.transport.failures import NotSupported, TimedOut

_BATCHED: Final = 4  # the first version with several keys (KIP-699)


class CoordinatorKind(IntEnum):
    """The type of a coordinator key, as on the wire."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_SINCE: Final = {
    CoordinatorKind.GROUP: 0,
    CoordinatorKind.TRANSACTION: 1,
    CoordinatorKind.SHARE: 6,
}


class Coordinators:
    """The coordinators that are known."""

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
        self._known: dict[tuple[CoordinatorKind, str], BrokerView] = {}
        self._waits: dict[tuple[CoordinatorKind, str], LongWait] = {}

    def known(self, kind: CoordinatorKind, key: str) -> BrokerView | None:
        """Return the remembered coordinator."""
        return self._known.get((kind, key))

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Forget a coordinator; the next user looks it up again."""
        self._known.pop((kind, key), None)

    async def channel(self, kind: CoordinatorKind, key: str, timeout_s: float) -> Channel:
        """Return a connection to the coordinator; raises RequestError at the deadline."""
        deadline_s = self._clock.elapsed_s() + timeout_s
        failures = 0
        reason: RequestError | None = None
        while True:
            left_s = max(0.0, deadline_s - self._clock.elapsed_s())
            found = (await self.find(kind, (key,), left_s))[key]
            if isinstance(found, RequestError):
                raise _why(reason, found)
            try:
                return await self._connected(found, deadline_s)
            except RequestError as error:
                self.forget(kind, key)
                failures += 1
                reason = _why(reason, error)
                await self._pause(failures, deadline_s, reason)

    async def find(
        self, kind: CoordinatorKind, keys: Iterable[str], timeout_s: float
    ) -> Mapping[str, BrokerView | RequestError]:
        """Return the coordinator of each key, or the error, in as few requests as possible."""
        deadline_s = self._clock.elapsed_s() + timeout_s
        found: dict[str, BrokerView | RequestError] = {}
        failures = 0
        missing: list[str] = []
        for key in dict.fromkeys(keys):
            known = self.known(kind, key)
            if known is None:
                missing.append(key)
            else:
                found[key] = known
        passing: dict[str, RequestError] = {}
        while missing:
            before, passing = passing, {}
            for key, told in (await self._told(kind, missing, deadline_s)).items():
                if isinstance(told, RequestError) and told.retriable:
                    passing[key] = _why(before.get(key), told)
                    self._note_failed(kind, key, passing[key])
                    continue
                if (wait := self._waits.pop((kind, key), None)) is not None:
                    wait.succeeded()
                found[key] = told
                if isinstance(told, BrokerView):
                    self._known[kind, key] = told
            missing = [*passing]
            if missing:
                failures += 1
                try:
                    await self._pause(failures, deadline_s, passing[missing[0]])
                except RequestError:
                    return {**found, **passing}
        return found

    def _note_failed(self, kind: CoordinatorKind, key: str, why: RequestError) -> None:
        """Log the reason if the wait is long; the metadata log that no broker is reachable."""
        wait = self._waits.get((kind, key))
        if wait is None:
            noun = "transactional id" if kind is CoordinatorKind.TRANSACTION else "group"
            whose = f"the coordinator of {noun} {key}"
            wait = LongWait(self._clock, f"for {whose}", f"{whose} is available again")
            self._waits[kind, key] = wait
        if self._metadata.failure is None:
            reason = (why.message or why.code.text).removeprefix(f"{key}: ")
            if reason == why.code.text:
                reason = "the broker named no reason; its log may have it"
            wait.failed(RequestError(why.code, reason))

    async def _told(
        self, kind: CoordinatorKind, keys: list[str], deadline_s: float
    ) -> dict[str, BrokerView | RequestError]:
        """Return what one broker reports; the same error for all keys if none can be reached."""
        told: dict[str, BrokerView | RequestError] = {}
        try:
            async with asyncio.timeout(max(0.0, deadline_s - self._clock.elapsed_s())):
                channel = await self._metadata.any_channel()
                version = channel.version(FIND_COORDINATOR)
                if version < _SINCE[kind]:
                    raise NotSupported(
                        f"the broker at {channel.address} does not support coordinators of type "
                        f"{kind.name.lower()}"
                    )
                if version >= _BATCHED:
                    return await self._ask_for_all(channel, kind, keys)
                for key in keys:
                    told[key] = await self._ask_for_one(channel, kind, key)
                return told
        except RequestError as error:
            failure = error
        except TimeoutError:
            failure = self._metadata.failure or TimedOut(
                "no broker returned the coordinator in time"
            )
        return {key: told.get(key, failure) for key in keys}

    async def _ask_for_all(
        self, channel: Channel, kind: CoordinatorKind, keys: list[str]
    ) -> dict[str, BrokerView | RequestError]:
        answer = await channel.ask(
            FindCoordinatorRequest(key_type=kind, coordinator_keys=keys),
            FindCoordinatorResponse,
            self._request_timeout_s,
        )
        told = {
            one.key: _read(
                one.key, one.error_code, one.error_message, one.node_id, one.host, one.port
            )
            for one in answer.coordinators
        }
        nothing = RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return {key: told.get(key, nothing) for key in keys}

    async def _ask_for_one(
        self, channel: Channel, kind: CoordinatorKind, key: str
    ) -> BrokerView | RequestError:
        answer = await channel.ask(
            FindCoordinatorRequest(key=key, key_type=kind),
            FindCoordinatorResponse,
            self._request_timeout_s,
        )
        return _read(
            key, answer.error_code, answer.error_message, answer.node_id, answer.host, answer.port
        )

    async def _connected(self, broker: BrokerView, deadline_s: float) -> Channel:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline_s - self._clock.elapsed_s())):
                return await self._connections.to(broker)
        raise TimedOut(f"cannot connect to {broker}, the coordinator, in time")

    async def _pause(self, failures: int, deadline_s: float, reason: RequestError) -> None:
        """Wait before the next attempt; raises the reason if there is no time left."""
        pause_s = self._backoff.pause_s(failures)
        if self._clock.elapsed_s() + pause_s >= deadline_s:
            raise reason
        await self._clock.sleep(pause_s)


def _why(before: RequestError | None, now: RequestError) -> RequestError:
    """Return the earlier error instead of a deadline error."""
    return before if before is not None and isinstance(now, TimedOut) else now


def _read(
    key: str, error_code: int, message: str | None, node_id: int, host: str, port: int
) -> BrokerView | RequestError:
    if error_code:
        code = ErrorCode.of(error_code)
        return RequestError(code, f"{key}: {message or code.text}")
    return BrokerView(BrokerId(node_id), host, port)
