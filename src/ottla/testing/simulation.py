"""A simulation of brokers: clock, network, disks, coordination and randomness come from one seed.

Invariant: the brokers are the production code; only their Environment is simulated. The same seed
and program give the same trace in every process. A broker that has ended has no visible effect: its
disk and its network accept nothing. A paused broker does nothing until it is resumed.

One broker has its coordination on its own disk, as a process with embedded coordination. The
brokers of a cluster share one that belongs to none of them.
"""

import asyncio
import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final, TypeVar, cast

from ottla.broker.dispatch import BrokerParts
from ottla.broker.node import Environment, Node
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.session import Coordination
from ottla.errors import StorageFailure
from ottla.ids import BrokerId, Uuid
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.settings.config import Config
from ottla.settings.config_parser import broker_config
from ottla.settings.derived import log_dirs
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.coordination import SimulatedCoordination
from ottla.testing.device import SimulatedDevice
from ottla.testing.disk import Crashed, Loss
from ottla.testing.network import LOOPBACK, SimulatedHost, SimulatedNetwork
from ottla.testing.trace import Trace
from ottla.transport.pending_acks import PendingAck

T = TypeVar("T")

PORT: Final = 9092
JOURNAL: Final = "ottla-coordination.journal"
FAST_PRODUCES: Final = "fast produces"
FAST_REPLICATED_PRODUCES: Final = "fast replicated produces"
_TASKS_BEFORE_SWEEP: Final = 256
_CANCEL_SECONDS: Final = 0.05


class _CountedFastPath:
    """The fast path of Produce, and how many requests it served."""

    def __init__(self, fast_path: ProduceFastPath, counts: Counter[str]) -> None:
        self.appended = fast_path.appended
        self._serve = fast_path.serve
        self._counts = counts

    def serve(self, frame: memoryview) -> bytes | PendingAck | None:
        response = self._serve(frame)
        if response is not None:
            self._counts[FAST_PRODUCES] += 1
            if isinstance(response, PendingAck):
                self._counts[FAST_REPLICATED_PRODUCES] += 1
        return response


class _CountedNode(Node):
    """A broker that counts what its connections have served by the fast path of Produce."""

    def __init__(
        self,
        config: Config,
        node_id: BrokerId,
        environment: Environment,
        give_up: Callable[[], None],
        counts: Counter[str],
    ) -> None:
        super().__init__(config, node_id, environment, give_up)
        self._produce_counts = counts

    async def _serve(self, parts: BrokerParts) -> None:
        counted = cast(
            "ProduceFastPath", _CountedFastPath(parts.produce_fast_path, self._produce_counts)
        )
        await super()._serve(dataclasses.replace(parts, produce_fast_path=counted))


class _Life:
    """One process of the broker, from start to end."""

    def __init__(
        self, broker: BrokerId, device: SimulatedDevice, world: "Simulation", address: str
    ) -> None:
        self.broker = broker
        self.context = copy_context()
        self.context.run(_LIFE.set, self)
        self.device = device
        self.host: SimulatedHost = world.network.host(self.context, address)
        self._world = world
        self.dead = False
        self.paused = False
        self.stopping = asyncio.Event()
        self.node: Node | None = None
        self.is_asked_to_stop = False  # otherwise it stops by itself
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
        self.resume()  # what is held back has no visible effect any more
        self.device.crash_at = 0
        self.host.die()
        if self.node is not None:
            self.node.hands_over = False  # it would ask the controller in vain
        self.ended.set()
        # Cancel the tasks later. Without disk and network they have no visible effect.
        asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        """Cancel all tasks until they have ended: their cleanup would wait, and has no effect."""
        self._tasks = [task for task in self._tasks if not task.done()]
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            asyncio.get_running_loop().call_later(_CANCEL_SECONDS, self._cancel)

    def resume(self) -> None:
        """Go on after a pause."""
        if self.paused:
            self.paused = False
            self._world.resume(self.context)


_LIFE: ContextVar[_Life | None] = ContextVar("life", default=None)


def broker_of(context: Context) -> BrokerId | None:
    """Return the broker whose process has a context; None if it belongs to no broker."""
    life = context.get(_LIFE)
    return None if life is None else life.broker


class SimulatedBroker:
    """A broker that can be started, stopped, killed, or lose power."""

    def __init__(
        self,
        world: "Simulation",
        settings: Sequence[str],
        *,
        broker_id: int = 1,
        address: str = LOOPBACK,
        coordination: SimulatedCoordination | None = None,
    ) -> None:
        """A broker; without `coordination` it has its own."""
        self.id = BrokerId(broker_id)
        self.address = address
        self._world = world
        self._coordination = coordination
        self._config = broker_config(
            overrides=(
                f"node.id={broker_id}",
                f"listeners=PLAINTEXT://{address}:{PORT}",
                "log.dirs=/data",
                *settings,
            )
        )
        self._name = "" if coordination is None else f" {broker_id}"
        self._device = SimulatedDevice(world.clock, Random(f"{world.seed} device{self._name}"))
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

    @property
    def paused(self) -> bool:
        """Whether the process is alive and paused."""
        return self.alive and self._life is not None and self._life.paused

    @property
    def running(self) -> Node | None:
        """The node while its process is alive, from the moment that it begins to start."""
        return self.node if self.alive else None

    async def start(self) -> bool:
        """Start; return False if the broker dies during the start."""
        assert self._life is None
        self.lives += 1
        life = self._life = _Life(self.id, self._device, self._world, self.address)
        life.device.power_went_out = life.die
        life.main = asyncio.get_running_loop().create_task(self._live(life), context=life.context)
        ended = asyncio.get_running_loop().create_task(life.ended.wait())
        await asyncio.wait((life.main, life.started, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if life.dead:  # at this moment: what its tasks still do has no effect
            return False
        if life.main.done():
            if self._coordination is not None:
                self.kill()
            life.main.result()
        if self._coordination is not None:  # else the scenario ends the process itself
            life.main.add_done_callback(lambda main: self._exited(life))
        return True

    def _exited(self, life: _Life) -> None:
        """Note that the process has ended by itself, as after a failure of all its directories."""
        if life is not self._life or life.dead or life.is_asked_to_stop:
            return
        assert life.main is not None
        error = life.main.exception()
        if error is not None and not isinstance(error, StorageFailure):
            self._world.problems.append(f"broker {self.id} exited: {error!r}")
        self.kill()

    async def _live(self, life: _Life) -> None:
        """Run the broker as `ottla.broker.service` does."""
        world, device = self._world, life.device
        random = Random(f"{world.seed} broker{self._name} {self.lives}")
        if (shared := self._coordination) is not None:
            client = shared.client(
                self.address, life.context, lambda: not life.dead, lambda: life.paused
            )
            await self._run(life, self._environment(life, client, random))
            return
        path = f"{log_dirs(self._config)[0]}/{JOURNAL}"
        store = await device.blocking(lambda: EmbeddedStore.open(device, path, world.clock))
        try:
            await self._run(life, self._environment(life, store, random))
        finally:
            await store.close()

    def _environment(self, life: _Life, coordination: Coordination, random: Random) -> Environment:
        world = self._world
        return Environment(
            world.clock,
            life.device,
            life.host,
            coordination,
            LocalCleaner(world.clock.elapsed_s, lambda seconds: None),
            random.random,
            lambda: Uuid(random.randbytes(16)),
            random.randbytes,
        )

    async def _run(self, life: _Life, environment: Environment) -> None:
        self.node = life.node = _CountedNode(
            self._config, self.id, environment, life.stopping.set, self._world.counts
        )
        async with self.node as node:
            life.started.set_result(node)
            await life.stopping.wait()

    async def stop(self) -> bool:
        """Shut down cleanly; return False if the broker dies meanwhile.

        StorageFailure says that the shutdown failed; the process has ended then, as after a kill.
        """
        life = self._life
        assert life is not None
        assert life.main is not None
        life.is_asked_to_stop = True
        life.stopping.set()
        ended = asyncio.get_running_loop().create_task(life.ended.wait())
        await asyncio.wait((life.main, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if life.dead:
            return False
        self.kill()
        life.main.result()
        return True

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: it does nothing, and its connections stay open."""
        life = self._life
        assert life is not None
        if not life.paused and not life.dead:
            life.paused = True
            self._world.pause(life.context)

    def resume(self) -> None:
        """Let the process go on; has no effect if it is not paused."""
        if self._life is not None:
            self._life.resume()

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
        self.counts: Counter[str] = Counter()  # of requests
        self.coordination: SimulatedCoordination | None = None  # of a cluster
        self._paused: list[Context] = []  # of processes

    def broker(self, *settings: str) -> SimulatedBroker:
        """Return a broker with these settings, and with its own coordination."""
        return SimulatedBroker(self, settings)

    async def cluster(
        self, brokers: int, *settings: str, session_timeout_s: float
    ) -> list[SimulatedBroker]:
        """Return the brokers of a cluster, which are not started."""
        coordination = self.coordination = SimulatedCoordination(
            self.clock,
            Random(f"{self.seed} coordination"),
            self.network,
            self.trace,
            session_timeout_s=session_timeout_s,
        )
        await coordination.open()
        return [
            SimulatedBroker(
                self,
                settings,
                broker_id=number,
                address=f"10.0.0.{number}",
                coordination=coordination,
            )
            for number in range(1, brokers + 1)
        ]

    def pause(self, context: Context) -> None:
        """Hold back all callbacks of a process."""
        self._paused.append(context)
        self.clock.hold_back(self._is_paused)

    def resume(self, context: Context) -> None:
        """Run the callbacks of a process that were held back, and the later ones."""
        self._paused.remove(context)
        self.clock.hold_back(self._is_paused if self._paused else None)

    def _is_paused(self, context: Context) -> bool:
        life = context.get(_LIFE)
        return life is not None and life.paused

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
            result = await program(world)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            return result

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
