"""Runs the services in a thread with an event loop, and restarts those that end.

Every 15 seconds it kills one of them in the middle of its work, to show that nothing is lost.

Invariant: a service ends before it is started again. After `stop` none runs.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from messaging.service import Counts, Service, ServiceConfig
from messaging.services import SERVICES, OrderService
from ottla.errors import OttlaError
from shared.example import Context, Progress, RunFailed

KILL_INTERVAL_S: Final = 15.0
DOWN_S: Final = 2.0
"""A service that has ended is away for so long."""

FAILURES_MAX: Final = 20
"""After so many failures, the example ends."""

JOIN_S: Final = 0.1
RATE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ServiceProgress:
    """The progress of a service."""

    name: str
    is_running: bool
    per_s: float
    counts: Counts
    is_first: bool
    """Whether it reads the input of the example."""

    headings: ClassVar[Sequence[str]] = (
        "service",
        "state",
        "handled",
        "per second",
        "retried",
        "restarts",
    )

    def cells(self, input_total: int) -> Sequence[str]:
        """The cells of its row in the view."""
        return (
            "running" if self.is_running else "killed",
            f"{self.counts.handled:,}",
            f"{self.per_s:,.0f}",
            f"{self.counts.retried:,}" if self.counts.retried else "",
            f"{self.counts.restarts:,}" if self.counts.restarts else "",
        )

    def lag(self, input_total: int) -> int | None:
        """The orders without an outcome; the other services read no input."""
        if not self.is_first:
            return 0
        return None if self.counts.settled is None else max(0, input_total - self.counts.settled)


class SupervisedService:
    """A service over all its starts."""

    def __init__(self, kind: type[Service], config: ServiceConfig, down_s: float = DOWN_S) -> None:
        self.name = kind.name
        self.failures: list[OttlaError] = []
        self._kind = kind
        self._config = config
        self._down_s = down_s
        self._running: asyncio.Task[None] | None = None
        self._rate = (time.monotonic(), 0, 0.0)  # since when, handled then, and the rate before

    async def run(self) -> None:
        """Run the service, and start it again when it has ended, until the task is cancelled."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            self._running = asyncio.create_task(self._kind(self._config).run())
            try:
                await self._running
            except asyncio.CancelledError:
                pass  # killed, or this task is cancelled, too
            except OttlaError as failure:
                self.failures.append(failure)
            except ExceptionGroup as failures:
                ours, others = failures.split(OttlaError)
                if ours is None or others is not None:
                    raise
                self.failures.append(_first(ours))
            self._running = None
            if task.cancelling():
                raise asyncio.CancelledError
            await asyncio.sleep(self._down_s)
            self._config.counts.restarts += 1

    def kill(self) -> None:
        """End the service in the middle of its work; what it has not committed is read again."""
        if self._running is not None:
            self._running.cancel()

    def progress(self) -> ServiceProgress:
        """Return the progress."""
        counts = self._config.counts
        since_s, before, rate = self._rate
        now_s = time.monotonic()
        if now_s - since_s >= RATE_S:
            rate = (counts.handled - before) / (now_s - since_s)
            self._rate = (now_s, counts.handled, rate)
        is_first = self._kind is OrderService
        return ServiceProgress(self.name, self._running is not None, rate, counts, is_first)


def _first(failures: ExceptionGroup[OttlaError]) -> OttlaError:
    one = failures.exceptions[0]
    return _first(one) if isinstance(one, ExceptionGroup) else one


class ServicesJob:
    """The services as the job of the example."""

    def __init__(
        self,
        context: Context,
        kill_interval_s: float = KILL_INTERVAL_S,
        down_s: float = DOWN_S,
        kinds: Sequence[type[Service]] = SERVICES,
    ) -> None:
        self._kill_interval_s = kill_interval_s
        self._services = [
            SupervisedService(kind, ServiceConfig(context.servers), down_s) for kind in kinds
        ]
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="services", daemon=True)

    def start(self) -> None:
        """Start the services."""
        self._thread.start()

    def check(self) -> None:
        """Raise RunFailed if a service fails again and again."""
        if self._failure is not None:
            raise RunFailed(str(self._failure))
        for service in self._services:
            if len(service.failures) >= FAILURES_MAX:
                raise RunFailed(f"service {service.name}: {service.failures[-1]}")

    def progress(self) -> Sequence[Progress]:
        """Return the progress of the services."""
        return [one.progress() for one in self._services]

    def stop(self) -> None:
        """Stop the services; a second call does nothing."""
        self._stopping.set()
        while self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._supervise())
        except Exception as error:  # the edge of this thread: check() raises it
            self._failure = error

    async def _supervise(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one.run()) for one in self._services]
            if self._kill_interval_s:
                running.append(tasks.create_task(self._kill_in_turn()))
            while not self._stopping.is_set():
                await asyncio.sleep(JOIN_S)
            for one in running:
                one.cancel()

    async def _kill_in_turn(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(self._kill_interval_s)
            self._services[number % len(self._services)].kill()
            number += 1
