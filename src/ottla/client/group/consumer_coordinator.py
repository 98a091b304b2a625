"""The coordinator of one group, and a member's two connections to it.

Invariant: a response that may take minutes delays nothing else. Brokers respond in order, so
JoinGroup and SyncGroup have a connection of their own. Heartbeats, commits and LeaveGroup have
another one, and neither waits behind fetched records. A member that joins does not wait for the
responses of a member that has left.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from ottla.client.metrics.consumer_metrics import GroupCounts
from ottla.client.network.connections import ConnectionConfig, Connections
from ottla.client.network.coordinators import CoordinatorKind, Coordinators
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import RequestError
from ottla.protocol.message import Message
from ottla.transport.backoff import Backoff
from ottla.transport.channel import Channel, TimedOut
from ottla.transport.network import Connector

M = TypeVar("M", bound=Message)


class ConsumerCoordinator:
    """Looks the coordinator up on demand."""

    def __init__(
        self,
        group_id: str,
        metadata: Metadata,
        connection_config: ConnectionConfig,
        backoff: Backoff,
        network: Connector,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self.group_id: Final = group_id
        self.counts: Final = GroupCounts()
        self._clock = clock
        self._prompt = Connections(connection_config, network, clock, random)
        self._patient = Connections(connection_config, network, clock, random)
        self._coordinators = Coordinators(
            metadata, self._prompt, clock, backoff, connection_config.request_timeout_s
        )

    async def channel(self, timeout_s: float) -> Channel:
        """Return the connection for quick responses; raises RequestError at the deadline."""
        return await self._coordinators.channel(CoordinatorKind.GROUP, self.group_id, timeout_s)

    async def patient_channel(self, timeout_s: float) -> Channel:
        """Return the connection for responses that wait for other members; raises RequestError."""
        deadline_s = self._clock.elapsed_s() + timeout_s
        found = await self._coordinators.find(CoordinatorKind.GROUP, (self.group_id,), timeout_s)
        broker = found[self.group_id]
        if isinstance(broker, RequestError):
            raise broker
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline_s - self._clock.elapsed_s())):
                return await self._patient.to(broker)
        raise TimedOut(f"cannot connect to {broker}, the coordinator of {self.group_id}, in time")

    def forget(self) -> None:
        """Forget the coordinator, so that it is looked up again."""
        self._coordinators.forget(CoordinatorKind.GROUP, self.group_id)

    def left(self) -> None:
        """Drop the JoinGroup or SyncGroup of a member that has left the group.

        Kafka does not respond to the SyncGroup of a member that left meanwhile.
        """
        self._patient.close_waiting()

    async def close(self) -> None:
        """Close both connections."""
        await self._patient.close()
        await self._prompt.close()


async def ask(
    channel: Channel,
    request: Message,
    answer: type[M],
    timeout_s: float,
    request_timeout_s: float,
    version: int | None = None,
) -> M:
    """Send a request and wait up to `timeout_s`; a short timeout does not close the connection."""
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            return await channel.ask(request, answer, request_timeout_s, version=version)
    except TimeoutError:
        raise TimedOut(f"no response from {channel.address} in {timeout_s:g} s") from None
