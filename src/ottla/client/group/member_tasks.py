"""The two tasks of a member, for both group protocols.

Invariant: the lifecycle task alone calls the owner, for as long as that takes. The heartbeat task
meanwhile sends heartbeats, and watches the session and the poll interval. When one of them ends,
both do.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ottla.client.group.config import GroupConfig
from ottla.client.group.consumer_coordinator import ConsumerCoordinator
from ottla.client.group.heartbeat_timer import HeartbeatTimer
from ottla.client.group.interfaces import GroupMember, GroupOwner
from ottla.client.group.owned_partitions import OwnedPartitions
from ottla.clock import Clock
from ottla.errors import RequestError
from ottla.ids import TopicPartition

POLLED_LATE: Final = "no poll within max.poll.interval.ms"

_LOOKS: Final = 20  # checks per heartbeat interval

_LOG: Final = logging.getLogger(__name__)


class MemberTasks(ABC):
    """A member of either protocol."""

    def __init__(
        self,
        owner: GroupOwner,
        coordinator: ConsumerCoordinator,
        rules: GroupConfig,
        clock: Clock,
        heartbeat_timer: HeartbeatTimer,
    ) -> None:
        self._owned_partitions = OwnedPartitions(owner)
        self._owner = owner
        self._coordinator = coordinator
        self._rules = rules
        self._clock = clock
        self._heartbeat_timer = heartbeat_timer
        self._identity = rules.nobody
        self._is_late = False  # the application has exceeded max.poll.interval.ms
        self._final: RequestError | None = None
        self._lively = asyncio.Event()  # wakes the lifecycle task
        self._audible = asyncio.Event()  # wakes the heartbeat task
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    @property
    def identity(self) -> GroupMember:
        """The current identity, for commits and transactions."""
        return self._identity

    def held(self, partition: TopicPartition) -> int | None:
        """Return the assignment since which a partition is owned; None if it is not."""
        return self._owned_partitions.held(partition)

    def polled(self) -> None:
        """Note that the application polls, or still waits in a poll."""
        self._heartbeat_timer.polled_s = self._clock.elapsed_s()
        if self._is_late:
            self._is_late = False
            self._look()

    async def run(self) -> None:
        """Join, keep the session alive and rejoin; returns after `leave`, raises final errors."""
        self.polled()
        loop = asyncio.get_running_loop()
        self._tasks = tasks = (loop.create_task(self._live()), loop.create_task(self._beat()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            outcomes = await _ended(tasks)
        for outcome in outcomes:
            if isinstance(outcome, RequestError):
                self._identity = self._rules.nobody
                await self._owned_partitions.lose(str(outcome))
            if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    async def leave(self, timeout_s: float) -> None:
        """End `run` and leave the group; a static member stays, as it is expected to return."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        deadline_s = self._clock.elapsed_s() + timeout_s
        await self._learn_id(timeout_s)
        member, self._identity = self._identity, self._rules.nobody
        if member.member_id:
            with suppress(RequestError):  # the session expires anyway
                left_s = max(0.0, deadline_s - self._clock.elapsed_s())
                await self._say_goodbye(member, "the consumer is closed", left_s)
        self._coordinator.left()

    # Implemented by each protocol.

    @abstractmethod
    async def _live(self) -> None:
        """Join, rejoin, and hand partitions to the owner."""

    @abstractmethod
    async def _heartbeat(self, now_s: float) -> None:
        """Send a heartbeat."""

    @abstractmethod
    async def _learn_id(self, timeout_s: float) -> None:
        """Wait for a response in flight that contains the member id."""

    @abstractmethod
    async def _say_goodbye(self, member: GroupMember, why: str, timeout_s: float) -> None:
        """Send the request that leaves the group."""

    @abstractmethod
    def _is_beating(self) -> bool:
        """Whether the coordinator expects heartbeats."""

    @abstractmethod
    def _session_lost(self) -> None:
        """Handle an expired session."""

    @abstractmethod
    def _given_up(self) -> None:
        """Handle having left because of a late poll."""

    # Shared.

    def _look(self) -> None:
        """Wake both tasks."""
        self._lively.set()
        self._audible.set()

    async def _until(self, is_true: Callable[[], bool]) -> None:
        """In the lifecycle task, wait for a condition; raises a final error."""
        while True:
            self._lively.clear()
            if self._final is not None:
                raise self._final
            if is_true():
                return
            await self._lively.wait()

    async def _beat(self) -> None:
        while True:
            self._audible.clear()
            now_s = self._clock.elapsed_s()
            if not self._is_beating():
                await self._audible.wait()
            elif self._heartbeat_timer.is_late(now_s):
                await self._leave_late()
            elif self._heartbeat_timer.is_lost(now_s):
                _LOG.warning("session expired: no heartbeat response within session.timeout.ms")
                self._session_lost()
                self._look()
            elif self._heartbeat_timer.next_s() > now_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._heartbeat_timer.next_s() - now_s):
                        await self._audible.wait()
            else:
                await self._heartbeat(now_s)
                took_s = self._clock.elapsed_s() - now_s
                self._coordinator.counts.heartbeat_ms.add(took_s * 1000)

    def _rebalanced(self, began_s: float) -> None:
        took_s = self._clock.elapsed_s() - began_s
        self._coordinator.counts.rebalance_ms.add(took_s * 1000)

    async def _leave_late(self) -> None:
        """Leave the group, because the application does not poll in time."""
        _LOG.warning(
            "no poll within max.poll.interval.ms: the consumer leaves its group, loses its "
            "partitions and joins again with the next poll; raise max.poll.interval.ms or lower "
            "max.poll.records"
        )
        member, self._identity = self._identity, self._rules.nobody
        self._is_late = True
        self._given_up()
        self._look()
        await self._lost_all(self._heartbeat_timer.interval_s)
        with suppress(RequestError):
            await self._say_goodbye(member, POLLED_LATE, self._rules.request_timeout_s)

    async def _lost_all(self, timeout_s: float) -> None:
        """Wait until the owner has dropped everything, but not if its callback is stuck."""
        deadline_s = self._clock.elapsed_s() + timeout_s
        while self._owned_partitions.owned and self._clock.elapsed_s() < deadline_s:
            await self._clock.sleep(timeout_s / _LOOKS)


async def _ended(tasks: tuple[asyncio.Task[None], ...]) -> list[BaseException | None]:
    """Cancel tasks and return their results."""
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)
