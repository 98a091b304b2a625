"""The faults of a simulated cluster, and the budget that keeps acknowledged records safe.

The fault budget: at most one broker loses unsynced data at a time, and only while every other one
is in all ISRs and does not crash. A kill counts as a crash: the controller cannot tell it from a
power failure (rule A14). In some seeds every topic has flush.messages=1. Then any number of
brokers may lose what is not synced. Damaged bytes are lost in either case, so they are on one
broker at a time.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from ottla.controller.lease import RegistrationRefused
from ottla.coordination.errors import CoordinationError
from ottla.errors import StorageFailure
from ottla.ids import BrokerId
from ottla.log.checkpoints import read_checkpoint
from ottla.log.names import RECOVERY_POINTS
from ottla.testing.coordination import ADDRESS as COORDINATION
from ottla.testing.coordination import SimulatedCoordination
from ottla.testing.disk import Loss, SimulatedDisk
from ottla.testing.invariants import Invariants
from ottla.testing.simulation import SimulatedBroker, Simulation

DIRECTORIES: Final = ("/data/1", "/data/2")
LEADERS_KILLED: Final = 2  # at the beginning, so that every run has fail-overs

Tell = Callable[[str, str], None]


class Machine:
    """A broker with its supervisor, which starts it again after each end."""

    def __init__(self, broker: SimulatedBroker, world: Simulation, tell: Tell) -> None:
        self.broker = broker
        self.wanted = asyncio.Event()  # whether it should run
        self.wanted.set()
        self.crashed = False  # since the last time that it was in all ISRs
        self.lost = False  # the same: whether it may have lost unsynced data
        self.damaged = False  # the same: whether it may have lost synced data, too
        self.busy = False  # whether a fault has hold of it
        self._world = world
        self._tell = tell

    @property
    def id(self) -> BrokerId:
        """The broker id."""
        return self.broker.id

    async def supervise(self) -> None:
        """Start the broker whenever it should run and does not."""
        while True:
            await self.wanted.wait()
            if self.broker.alive:
                await self.broker.death()
                continue
            try:
                await self.broker.start()
            except (RegistrationRefused, CoordinationError, StorageFailure) as error:
                self._tell("broker", f"broker {self.id} did not start: {error}")
                await self._world.clock.sleep(0.5)


Fault = Callable[[Machine], Awaitable[None] | None]
"""Begins a fault and returns how it ends; None if the budget or the moment does not allow it."""


class FaultInjector:
    """Injects the faults of one run."""

    def __init__(
        self,
        world: Simulation,
        brokers: Sequence[SimulatedBroker],
        coordination: SimulatedCoordination,
        checks: Invariants,
        tell: Tell,
        *,
        flushed: bool,
    ) -> None:
        """Faults of `brokers`; `flushed` means that all topics have flush.messages=1."""
        self.machines = [Machine(broker, world, tell) for broker in brokers]
        self.counts: Counter[str] = Counter()
        self.tell = tell
        self._world = world
        self._random = world.random
        self._coordination = coordination
        self._checks = checks
        self._flushed = flushed
        self._tasks: list[asyncio.Task[None]] = []
        self._kinds: dict[str, tuple[int, Fault]] = {  # with their weights
            "kill": (3, self._kill),
            "stop": (2, self._stop),
            "stop of all brokers": (2, self._stop_all),
            **{f"power cut: {loss.name.lower()}": (1, self._cut(loss)) for loss in Loss},
            "pause": (2, self._pause),
            "partition between brokers": (3, self._part_brokers),
            "one-way packet loss": (3, self._lose_packets),
            "refused connections": (3, self._refuse),
            "partition from coordination": (2, self._part_coordination),
            "outage of coordination": (1, self._part_all_from_coordination),
            "connection to coordination lost": (3, self._break_coordination),
            "session expired": (2, self._expire_session),
            "slow link": (1, self._slow_down),
            "full disk": (2, self._fill_disk),
            "failed directory": (2, self._fail_directory),
            "failed disk": (1, self._fail_disk),
            "replaced directory": (2, self._replace_directory),
            "rotten byte": (2, self._rot),
        }

    @property
    def kinds(self) -> frozenset[str]:
        """The names of all kinds of faults."""
        return frozenset(self._kinds)

    async def inject(self, until_s: float) -> None:
        """Inject faults until a moment; first, some leaders are killed."""
        clock, random = self._world.clock, self._random
        names = [*self._kinds]
        weights = [self._kinds[name][0] for name in names]
        first = LEADERS_KILLED
        while clock.elapsed_s() < until_s:
            await clock.sleep(1 + 5 * random.random())
            self.note_whole()
            (name,) = random.choices(names, weights)
            machine = random.choice(self.machines)
            if first:
                name, machine = "kill", self._a_leader() or machine
            if machine.busy or not machine.broker.alive:
                continue
            first = max(0, first - 1)
            self.begin(name, machine)

    def begin(self, name: str, machine: Machine) -> bool:
        """Begin a fault; return False if the budget or the moment does not allow it."""
        ends = self._kinds[name][1](machine)
        if ends is None:
            return False
        machine.busy = True
        self.counts[name] += 1
        self._tasks.append(asyncio.ensure_future(self._finish(machine, ends)))
        return True

    async def _finish(self, machine: Machine, ends: Awaitable[None]) -> None:
        try:
            await ends
        finally:
            machine.busy = False

    async def repaired(self) -> None:
        """Return when all faults have ended."""
        await asyncio.gather(*self._tasks)

    def end(self) -> None:
        """End all tasks and brokers."""
        for machine in self.machines:
            machine.wanted.clear()
            if machine.broker.alive:
                machine.broker.kill()
        for task in self._tasks:
            task.cancel()

    def states(self) -> str:
        """Return which brokers run."""
        return "; ".join(
            f"{one.id}: {'paused' if one.broker.paused else 'up' if one.broker.alive else 'down'}"
            for one in self.machines
        )

    # The budget.

    def note_whole(self) -> None:
        """Note the brokers that are in all ISRs again."""
        recorded = self._checks.recorded.values()
        for machine in self.machines:
            is_back = machine.broker.alive and machine.id not in self._checks.excluded
            if is_back and all(machine.id in one.state.in_sync for one in recorded):
                machine.crashed = machine.lost = machine.damaged = False

    def _others(self, machine: Machine) -> list[Machine]:
        return [one for one in self.machines if one is not machine]

    def _may_crash(self, machine: Machine) -> bool:
        """Whether a broker may end uncleanly, and keep what it has written."""
        others = self._others(machine)
        return not any(one.damaged or (one.lost and not self._flushed) for one in others)

    def _may_lose(self, machine: Machine, *, synced: bool = False) -> bool:
        """Whether a broker may lose unsynced data, or even synced data."""
        if self._flushed and not synced:
            return self._may_crash(machine)
        return not any(one.crashed or one.busy for one in self._others(machine))

    def _a_leader(self) -> Machine | None:
        """Return a machine that leads a partition of a topic of the clients."""
        leaders = self._checks.leaders()
        if not leaders:
            return None
        leader = self._random.choice(leaders)
        return next(one for one in self.machines if one.id == leader)

    # Ends of processes.

    def _kill(self, machine: Machine) -> Awaitable[None] | None:
        if not self._may_crash(machine):
            return None
        self.tell("fault", f"broker {machine.id} is killed")
        self.kill(machine)
        return self._restart(machine)

    def kill(self, machine: Machine) -> None:
        """Kill a broker, until `wanted` is set again."""
        machine.crashed = True
        machine.wanted.clear()
        if machine.broker.alive:
            machine.broker.kill()

    async def _stop_broker(self, machine: Machine) -> None:
        machine.wanted.clear()
        with suppress(StorageFailure):
            if not await machine.broker.stop():
                machine.crashed = True

    def _stop(self, machine: Machine) -> Awaitable[None] | None:
        self.tell("fault", f"broker {machine.id} is stopped")
        return self._stop_and_restart(machine)

    async def _stop_and_restart(self, machine: Machine) -> None:
        await self._stop_broker(machine)
        await self._restart(machine)

    def _stop_all(self, machine: Machine) -> Awaitable[None] | None:
        if any(one.busy or not one.broker.alive for one in self.machines):
            return None
        self.tell("fault", "all brokers are stopped, one after another")
        return self._stop_in_turn(self._random.sample(self.machines, len(self.machines)))

    async def _stop_in_turn(self, machines: list[Machine]) -> None:
        """Stop all brokers and start them again in another order."""
        for machine in machines:
            machine.busy = True
        try:
            for machine in machines:
                await self._stop_broker(machine)
            for machine in self._random.sample(machines, len(machines)):
                await self._world.clock.sleep(3 * self._random.random())
                self.tell("fault", f"broker {machine.id} is started again")
                machine.wanted.set()
        finally:
            for machine in machines:
                machine.busy = False

    def _cut(self, loss: Loss) -> Fault:
        def cut_power(machine: Machine) -> Awaitable[None] | None:
            if not self._may_lose(machine):
                return None
            self.cut_power(machine, loss)
            return self._restart(machine)

        return cut_power

    def cut_power(self, machine: Machine, loss: Loss) -> None:
        """Cut the power of a broker, until `wanted` is set again."""
        text = f"broker {machine.id} loses power; of what is not synced, {loss.value}"
        self.tell("fault", text)
        machine.crashed = machine.lost = True
        machine.wanted.clear()
        machine.broker.cut_power(loss)

    async def _restart(self, machine: Machine) -> None:
        """Start a broker again, within its session timeout or later."""
        await self._world.clock.sleep(self._random.choice((0.2, 1.5, 6.0, 12.0)))
        self.tell("fault", f"broker {machine.id} is started again")
        machine.wanted.set()

    def _pause(self, machine: Machine) -> Awaitable[None] | None:
        seconds = self._random.choice((0.5, 3.0, 8.0))
        self.tell("fault", f"broker {machine.id} is paused for {seconds:g} s")
        machine.broker.pause()
        return self._after(seconds, machine.broker.resume)

    # The network and coordination.

    def _part_brokers(self, machine: Machine) -> Awaitable[None] | None:
        other = self._random.choice(self._others(machine))
        seconds = self._random.choice((1.0, 5.0, 15.0))
        self.tell("fault", f"brokers {machine.id} and {other.id} are partitioned for {seconds:g} s")
        return self._part([(machine.broker.address, other.broker.address)], seconds)

    def _lose_packets(self, machine: Machine) -> Awaitable[None] | None:
        """Lose the packets from a broker to some others, or from those to it.

        The broker may be a leader, a follower or the controller. What the other direction carries
        still arrives, so that some think that all is well.
        """
        others = self._others(machine)
        some = self._random.sample(others, self._random.randint(1, len(others)))
        seconds = self._random.choice((1.0, 5.0, 15.0))
        numbers = ", ".join(str(one.id) for one in some)
        is_from = self._random.random() < 0.5
        way = f"from broker {machine.id} to {numbers}"
        if not is_from:
            way = f"from brokers {numbers} to {machine.id}"
        self.tell("fault", f"packets {way} are lost for {seconds:g} s")
        network, address = self._world.network, machine.broker.address
        ways = [(address, one.broker.address) for one in some]
        if not is_from:
            ways = [(one, other) for other, one in ways]
        for one in ways:
            network.lose(*one)

        def deliver() -> None:
            for one in ways:
                network.deliver(*one)

        return self._after(seconds, deliver)

    def _refuse(self, machine: Machine) -> Awaitable[None] | None:
        """Let a firewall refuse the connections of some brokers to one that lives (rule B13)."""
        others = self._others(machine)
        some = self._random.sample(others, self._random.randint(1, len(others)))
        seconds = self._random.choice((0.5, 5.0, 15.0))
        sources = ", ".join(str(one.id) for one in some)
        self.tell(
            "fault", f"broker {machine.id} refuses connections of {sources} for {seconds:g} s"
        )
        network, address = self._world.network, machine.broker.address
        for one in some:
            network.refuse(one.broker.address, address)

        def allow() -> None:
            for one in some:
                network.allow(one.broker.address, address)

        return self._after(seconds, allow)

    def _part_coordination(self, machine: Machine) -> Awaitable[None] | None:
        seconds = self._random.choice((1.0, 3.0, 8.0))
        self.tell("fault", f"broker {machine.id} is cut off from coordination for {seconds:g} s")
        return self._part([(machine.broker.address, COORDINATION)], seconds)

    def _part_all_from_coordination(self, machine: Machine) -> Awaitable[None] | None:
        seconds = self._random.choice((1.0, 3.0, 8.0))
        self.tell("fault", f"all brokers are cut off from coordination for {seconds:g} s")
        return self._part([(one.broker.address, COORDINATION) for one in self.machines], seconds)

    def _break_coordination(self, machine: Machine) -> Awaitable[None] | None:
        at_next_request = self._random.random() < 0.7
        when = " with its next request" if at_next_request else ""
        self.tell("fault", f"broker {machine.id} loses its connection to coordination{when}")
        self._coordination.break_connections(
            machine.broker.address, at_next_request=at_next_request
        )
        return self._after(0.5, lambda: None)

    def _expire_session(self, machine: Machine) -> Awaitable[None] | None:
        self.tell("fault", f"the session of broker {machine.id} expires")
        return self._coordination.expire(machine.broker.address)

    def _slow_down(self, machine: Machine) -> Awaitable[None] | None:
        other = self._random.choice(self._others(machine))
        pair = frozenset((machine.broker.address, other.broker.address))
        delays = self._world.network.delays_s
        self.tell("fault", f"the link of brokers {machine.id} and {other.id} is slow for 5 s")
        delays[pair] = 0.3
        return self._after(5.0, lambda: delays.pop(pair, None))

    async def _after(self, seconds: float, end: Callable[[], object]) -> None:
        await self._world.clock.sleep(seconds)
        end()

    def _part(self, pairs: Sequence[tuple[str, str]], seconds: float) -> Awaitable[None]:
        network = self._world.network
        for pair in pairs:
            network.partition(*pair)

        def heal() -> None:
            for pair in pairs:
                network.heal(*pair)

        return self._after(seconds, heal)

    # Disks.

    def _fill_disk(self, machine: Machine) -> Awaitable[None] | None:
        seconds = self._random.choice((1.0, 5.0, 10.0))
        self.tell("fault", f"the disk of broker {machine.id} is full for {seconds:g} s")
        machine.broker.device.fill()

        def free() -> None:
            machine.broker.device.capacity_bytes = None

        return self._after(seconds, free)

    def _fail_directory(self, machine: Machine) -> Awaitable[None] | None:
        if not self._may_crash(machine):
            return None
        directory = self._random.choice(DIRECTORIES)
        self.tell("fault", f"the directory {directory} of broker {machine.id} fails")
        machine.crashed = True  # the next start is unclean
        _fail(machine.broker.device, directory)
        return self._repair_directory(machine)

    async def _repair_directory(self, machine: Machine) -> None:
        """Restart a broker after some time, with a disk that works again."""
        await self._world.clock.sleep(self._random.choice((2.0, 8.0)))
        if not machine.broker.alive:
            self.kill(machine)
        elif self._random.random() < 0.5:
            await self._stop_broker(machine)
        else:
            self.kill(machine)
        await self._restart(machine)

    def _fail_disk(self, machine: Machine) -> Awaitable[None] | None:
        if not self._may_crash(machine):
            return None
        self.tell("fault", f"all directories of broker {machine.id} fail")
        machine.crashed = True
        machine.wanted.clear()  # it exits when it notices
        for directory in DIRECTORIES:
            _fail(machine.broker.device, directory)
        return self._wait_for_exit(machine)

    async def _wait_for_exit(self, machine: Machine) -> None:
        await machine.broker.death()
        self.tell("fault", f"broker {machine.id} has exited")
        await self._restart(machine)

    def _replace_directory(self, machine: Machine) -> Awaitable[None] | None:
        if not self._may_lose(machine, synced=True):
            return None
        directory = self._random.choice(DIRECTORIES)
        self.tell("fault", f"the directory {directory} of broker {machine.id} is lost")
        machine.lost = machine.damaged = True
        self.kill(machine)
        machine.broker.device.wipe(directory)
        return self._restart(machine)

    def _rot(self, machine: Machine) -> Awaitable[None] | None:
        """Flip a bit that the broker finds when it recovers: above the recovery point (rule C3)."""
        if not self._may_lose(machine, synced=True):
            return None
        places = [*_unchecked_batches(machine.broker.device)]
        if not places:
            return None
        path, start, size = self._random.choice(places)
        position = start + self._random.choice([*range(_EPOCH.start), *range(_EPOCH.stop, size)])
        self.tell("fault", f"broker {machine.id} is killed, and byte {position} of {path} rots")
        machine.lost = machine.damaged = True
        self.kill(machine)
        machine.broker.device.rot(path, position, 1 << self._random.randrange(8))
        return self._restart(machine)


def _fail(disk: SimulatedDisk, directory: str) -> None:
    """Let every change in a directory fail, until the next process."""
    before = disk.fails
    disk.fails = lambda what, path: (
        path == directory or path.startswith(f"{directory}/") or before(what, path)
    )


_EPOCH: Final = range(12, 16)  # of a batch; no checksum covers its leader epoch


def _unchecked_batches(disk: SimulatedDisk) -> Iterator[tuple[str, int, int]]:
    """Yield path, position and size of the batches that the next start checks after a crash."""
    for directory in DIRECTORIES:
        points: dict[str, int] = {}
        if disk.exists(path := f"{directory}/{RECOVERY_POINTS}"):
            file = disk.open(path)
            for _, (topic, index, offset) in read_checkpoint(file.read(0, file.size()).decode(), 3):
                points[f"{topic}-{index}"] = int(offset)
        for partition in disk.names(directory):
            folder = f"{directory}/{partition}"
            if not disk.is_directory(folder):
                continue
            for name in disk.names(folder):
                if name.endswith(".log"):
                    file = disk.open(f"{folder}/{name}")
                    data = file.read(0, file.size())
                    for start, size in _above(data, points.get(partition, 0)):
                        yield file.path, start, size


def _above(data: bytes, recovery_point: int) -> Iterator[tuple[int, int]]:
    """Yield position and size of the batches of a segment from the recovery point on."""
    start = 0
    while start < len(data):
        size = 12 + int.from_bytes(data[start + 8 : start + 12], "big")
        if start + size > len(data):
            return
        if int.from_bytes(data[start : start + 8], "big") >= recovery_point:
            yield start, size
        start += size
