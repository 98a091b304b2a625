"""Proves that the process of another broker is dead, long before its session expires (rule B13).

Each broker keeps a connection to each other broker. When it ends, the broker tries to connect
again. If then every address refuses the connection, there is no process behind it. A timeout, a
connection that is closed after it was accepted and a failed login prove nothing.

Invariant: `dead` has only brokers to which a connection was open in their broker epoch, and whose
addresses refused the last attempt. A lost broker is one whose connection has ended: it stays lost
until it accepts another one or registers again, also after its registration is deleted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.clock import Clock
from ottla.cluster.image import Address, Broker
from ottla.errors import RequestError
from ottla.ids import BrokerEpoch, BrokerId
from ottla.transport.channel import Channel

_LOG = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5  # between two attempts to connect, while the broker is registered
RECHECK_SECONDS: Final = 0.03  # the same after a connection has ended; doubled each time
PROBE_SECONDS: Final = 1.0  # for an address to refuse a connection


class LostBroker(NamedTuple):
    """A broker whose connection has ended."""

    broker: Broker
    since_s: float


Open = Callable[[Address, Callable[[], None]], Awaitable[Channel]]
"""Opens a connection and logs in; calls the function when it ends. Raises RequestError."""


class FailureDetector:
    """Detects that the processes of other brokers have ended."""

    def __init__(
        self,
        node_id: BrokerId,
        listener: str,
        *,
        clock: Clock,
        connect: Open,
        refuses: Callable[[str, int], Awaitable[bool]],
        is_enabled: Callable[[], bool],
        on_dead: Callable[[Broker], Awaitable[None]],
    ) -> None:
        """A failure detector of broker `node_id`, over the inter-broker listener.

        `refuses` returns whether every address of a host refuses connections. `on_dead` is called
        when a broker is proven dead, and again as long as it stays registered and refuses.
        """
        self._node_id = node_id
        self._listener = listener
        self._clock = clock
        self._connect = connect
        self._refuses = refuses
        self._is_enabled = is_enabled
        self._on_dead = on_dead
        self._watches: dict[BrokerId, tuple[Broker, asyncio.Task[None]]] = {}
        self.dead: dict[BrokerId, BrokerEpoch] = {}
        self._open: dict[BrokerId, tuple[Broker, Channel]] = {}
        self._lost: dict[BrokerId, LostBroker] = {}

    async def run(
        self, changed: asyncio.Event, brokers: Callable[[], Mapping[BrokerId, Broker]]
    ) -> None:
        """Watch the registered brokers, which are read whenever they have changed."""
        try:
            while True:
                self._follow(brokers())
                await changed.wait()
                changed.clear()
        finally:
            tasks = [task for _, task in self._watches.values()]
            self._follow({})
            await asyncio.gather(*tasks, return_exceptions=True)

    def look(self, broker_ids: Iterable[BrokerId]) -> Mapping[BrokerId, LostBroker]:
        """Return the lost brokers; none while the detector is disabled.

        The connections of the given brokers are looked at. The event loop may be about to learn
        that one has ended, while a client that has lost the same broker is served already.
        """
        if not self._is_enabled():
            return {}
        for broker_id in broker_ids:
            watched = self._open.get(broker_id)
            if watched is not None and watched[1].is_ended_by_peer():
                self._lose(watched[0])
        return self._lost

    def _lose(self, broker: Broker) -> None:
        lost = self._lost.get(broker.id)
        if lost is None or lost.broker is not broker:
            self._lost[broker.id] = LostBroker(broker, self._clock.elapsed_s())

    def _follow(self, brokers: Mapping[BrokerId, Broker]) -> None:
        """Watch these registrations and no others."""
        for broker_id, (known, task) in [*self._watches.items()]:
            if brokers.get(broker_id) != known:
                del self._watches[broker_id]
                self.dead.pop(broker_id, None)
                task.cancel()
        for broker_id, broker in brokers.items():
            address = broker.addresses.get(self._listener)
            if broker_id == self._node_id or broker_id in self._watches or address is None:
                continue
            self._lost.pop(broker_id, None)
            task = asyncio.get_running_loop().create_task(self._watch(broker, address))
            task.add_done_callback(_log_failure)
            self._watches[broker_id] = broker, task

    async def _watch(self, broker: Broker, address: Address) -> None:
        """Watch one registration of a broker, until cancelled."""
        was_open, pause_s = False, RETRY_SECONDS
        while True:
            if was_open and self._is_enabled() and await self._is_refused(address):
                if self.dead.get(broker.id) != broker.epoch:
                    self.dead[broker.id] = broker.epoch
                    about = {"broker": broker.id, "epoch": broker.epoch, "address": str(address)}
                    _LOG.info("broker proven dead", about)
                await self._on_dead(broker)
                await self._clock.sleep(RETRY_SECONDS)
                continue
            self.dead.pop(broker.id, None)
            ended = asyncio.Event()
            try:
                channel = await self._connect(address, ended.set)
            except RequestError:
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_SECONDS)
                continue
            was_open, pause_s = True, RECHECK_SECONDS
            self._lost.pop(broker.id, None)
            self._open[broker.id] = broker, channel
            try:
                await ended.wait()
                self._lose(broker)
            finally:
                del self._open[broker.id]
                channel.close()

    async def _is_refused(self, address: Address) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(PROBE_SECONDS):
                return await self._refuses(address.host, address.port)
        return False


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.error("watch of a broker failed", exc_info=error)
