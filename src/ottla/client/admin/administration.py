"""The lifecycle of an administrator.

Invariant: leaving the context leaves nothing open; calls in progress fail.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Self

from ottla.client.admin.calls import AdminAsking, Calls
from ottla.client.lifecycle.shutdown import end_all
from ottla.client.loop_affinity import AsyncWith, runs_already
from ottla.client.network.config import connection_config, metadata_config, retry_policy
from ottla.client.network.connections import Connections
from ottla.client.network.coordinators import Coordinators
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock, SystemClock
from ottla.settings.admin import ADMIN
from ottla.settings.config import Config
from ottla.settings.config_parser import client_config
from ottla.transport.network import Connector, TcpNetwork

if TYPE_CHECKING:
    from ottla.client.network.tokens import TokenFunction


class Administration(AsyncWith, Calls):
    """The base of administrators; mix in the calls of some nouns."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        network: Connector | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        random_bytes: Callable[[int], bytes] | None = None,
        token: "TokenFunction | None" = None,
        **arguments: object,
    ) -> None:
        """Take settings by Kafka's names, as `{"client.id": "me"}` or as `client_id="me"`.

        `token` returns OAUTHBEARER tokens.
        """
        self._config = config = client_config(ADMIN, settings, **arguments)
        self._network = network or TcpNetwork()
        self._clock = clock or SystemClock()
        self._random = random or Random().random
        self._random_bytes = random_bytes or os.urandom
        self._connecting = connection_config(config, self._random, token=token, clock=self._clock)
        self._running: _Running | None = None

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise runs_already("administrator")
        connections = Connections(self._connecting, self._network, self._clock, self._random)
        self._running = _Running(self._config, connections, self._clock, self._random)
        self._started = self._running.asking
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close; calls in progress fail."""
        running, self._running, self._started = self._running, None, None
        if running is not None:
            await end_all(running.close())


class _Running:
    """The parts of a running administrator."""

    def __init__(
        self,
        config: Config,
        connections: Connections,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        limits = retry_policy(config, random)
        metadata = Metadata(connections, metadata_config(config, random), clock, lambda: None)
        coordinators = Coordinators(
            metadata, connections, clock, limits.backoff, limits.request_timeout_s
        )
        self.asking = AdminAsking(metadata, connections, coordinators, clock, limits)
        self._connections = connections
        self._learning = asyncio.get_running_loop().create_task(metadata.run())

    async def close(self) -> None:
        self.asking.close()
        self._learning.cancel()
        with suppress(asyncio.CancelledError):
            await self._learning
        await self._connections.close()
