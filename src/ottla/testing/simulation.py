"""A simulation of a broker: clock, network, disk and randomness derive from one seed.

Invariant: the broker is the production code; only its Environment is simulated. The same seed and
program give the same trace in every process. A broker that has ended has no visible effect: its
disk and its network accept nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from random import Random
from typing import Any, Final, TypeVar, cast

from ottla.broker.node import Environment, Node
from ottla.coordination.embedded import EmbeddedStore
from ottla.errors import StorageFailure
from ottla.ids import BrokerId, Uuid
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.settings.config_parser import broker_config
from ottla.settings.derived import log_dirs
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.device import SimulatedDevice
from ottla.testing.disk import Crashed, Loss
from ottla.testing.network import SimulatedHost, SimulatedNetwork
from ottla.testing.trace import Trace

T = TypeVar("T")

PORT: Final = 9092
JOURNAL: Final = "ottla-coordination.journal"
_TASKS_BEFORE_SWEEP: Final = 256


class _Life:
    """One process of the broker, from start to end."""

    def __init__(self, device: SimulatedDevice, network: SimulatedNetwork) -> None:
        self.context = copy_context()
        self.context.run(_LIFE.set, self)
        self.device = device
        self.host: SimulatedHost = network.host(self.context)
        self.dead = False
        self.stopping = asyncio.Event()
        self.started: asyncio.Future[Node] = asyncio.get_running_loop().create_future()
        self.main: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = _TASKS_BEFORE_SWEEP

    def own(self, task: asyncio.Task[Any]) -> None:
        if len(self._tasks) >= self._sweep_at:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._sweep_at = 2 * len(self._tasks) + _TASKS_BEFORE_SWEEP
        self._tasks.append(task)

    def die(self) -> None:
        """End at once, without any cleanup."""
        if self.dead:
            return
        self.dead = True
        self.device.crash_at = 0
        self.host.die()
        self.ended.set()
        # Cancel the tasks later. Without disk and network they have no visible effect.
        asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


_LIFE: ContextVar[_Life | None] = ContextVar("life", default=None)


class SimulatedBroker:
    """A broker that can be started, stopped, killed, or lose power."""

    def __init__(self, world: "Simulation", settings: Sequence[str]) -> None:
        self._world = world
        self._config = broker_config(
            overrides=(
                "node.id=1",
                f"listeners=PLAINTEXT://127.0.0.1:{PORT}",
                "log.dirs=/data",
                *settings,
            )
        )
        self._device = SimulatedDevice(world.clock, Random(f"{world.seed} device"))
        self._life: _Life | None = None
        self.node: Node | None = None
        self.lives = 0
        self.power_cuts = 0

    @property
    def device(self) -> SimulatedDevice:
        """The current disk."""
        return self._device if self._life is None else self._life.device

    @property
    def alive(self) -> bool:
        """Whether the process is alive."""
        return self._life is not None and not self._life.dead

    async def start(self) -> bool:
        """Start; return False if the broker dies during the start."""
        assert self._life is None
        self.lives += 1
        life = self._life = _Life(self._device, self._world.network)
        life.device.power_went_out = life.die
        life.main = asyncio.get_running_loop().create_task(self._live(life), context=life.context)
        await asyncio.wait((life.main, life.started), return_when=asyncio.FIRST_COMPLETED)
        if life.dead:
            return False
        if life.main.done():
            life.main.result()
        self.node = life.started.result()
        return True

    async def _live(self, life: _Life) -> None:
        """Run the broker as `ottla.broker.service` does."""
        world, device = self._world, life.device
        random = Random(f"{world.seed} broker {self.lives}")
        path = f"{log_dirs(self._config)[0]}/{JOURNAL}"
        store = await device.blocking(lambda: EmbeddedStore.open(device, path, world.clock))
        around = Environment(
            world.clock,
            device,
            life.host,
            store,
            LocalCleaner(world.clock.elapsed_s, lambda seconds: None),
            random.random,
            lambda: Uuid(random.randbytes(16)),
            random.randbytes,
        )
        try:
            async with Node(self._config, BrokerId(1), around) as node:
                life.started.set_result(node)
                await life.stopping.wait()
        finally:
            await store.close()

    async def stop(self) -> bool:
        """Shut down cleanly; return False if the broker dies meanwhile."""
        life = self._life
        assert life is not None
        assert life.main is not None
        life.stopping.set()
        ended = asyncio.get_running_loop().create_task(life.ended.wait())
        await asyncio.wait((life.main, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if life.dead:
            return False
        life.main.result()
        self.kill()
        return True

    def kill(self) -> None:
        """Kill the process; its written data remains."""
        life, self._life = self._life, None
        assert life is not None
        life.die()
        device = life.device.after_kill()
        assert isinstance(device, SimulatedDevice)
        self._device = device

    def cut_power(self, loss: Loss) -> None:
        """Kill the process and lose unsynced data."""
        life, self._life = self._life, None
        assert life is not None
        life.die()
        self.power_cuts += 1
        device = life.device.after_crash(loss, self._world.random)
        assert isinstance(device, SimulatedDevice)
        self._device = device

    def die_at_call(self, number: int) -> None:
        """Let the broker die at the given number of disk calls from now."""
        device = self.device
        device.crash_at = len(device.calls) + number

    async def death(self) -> None:
        """Return when the broker has died."""
        if self._life is not None:
            await self._life.ended.wait()


class _Complaints(logging.Handler):
    """Collects unexpected exceptions that the broker logs."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        life = _LIFE.get()
        if not record.exc_info or (life is not None and life.dead):
            return
        if not isinstance(record.exc_info[1], StorageFailure):  # those are injected
            self._problems.append(self.format(record))


class Simulation:
    """Clock, network, randomness and trace of one run."""

    def __init__(self, seed: int, clock: SimulatedClock) -> None:
        self.seed = seed
        self.clock = clock
        self.random = Random(f"{seed} world")
        self.trace = Trace()
        self.network = SimulatedNetwork(Random(f"{seed} network"), self.trace)
        self.problems: list[str] = []  # unexpected errors of the broker

    def broker(self, *settings: str) -> SimulatedBroker:
        """Return a broker with these settings."""
        return SimulatedBroker(self, settings)

    def heard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an unhandled exception of the event loop."""
        error = context.get("exception")
        if not _is_crash(error):
            self.problems.append(f"{context['message']}: {error!r}")

    @contextmanager
    def listening(self) -> Generator[None]:
        """Collect the errors that the broker logs."""
        complaints, logger = _Complaints(self.problems), logging.getLogger("ottla")
        logger.addHandler(complaints)
        propagates, logger.propagate = logger.propagate, False
        try:
            yield
        finally:
            logger.removeHandler(complaints)
            logger.propagate = propagates


def _is_crash(error: object) -> bool:
    """Whether an exception says only that the simulated process has died, also in task groups."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_crash, group.exceptions))
    return isinstance(error, Crashed)


def simulate(seed: int, program: Callable[[Simulation], Coroutine[Any, Any, T]]) -> T:
    """Run a program in a simulation with this seed."""

    async def run(clock: SimulatedClock) -> T:
        world = Simulation(seed, clock)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(world.heard)
        loop.set_task_factory(_owned)
        with world.listening():
            return await program(world)

    return simulated(run)


def _owned(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T],
    **options: Any,
) -> asyncio.Task[T]:
    """Create a task and assign it to its broker process."""
    task = asyncio.Task(coroutine, loop=loop, **options)
    context = options.get("context")
    life = _LIFE.get() if context is None else context.get(_LIFE)
    if life is not None:
        life.own(task)
    return task
