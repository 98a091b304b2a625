"""One run of a simulated cluster: clients write and read while faults are injected.

Everything is drawn from the seed, so `run(seed)` is the same in every process. After the faults
everything is repaired, and the run ends when every client has caught up; then what the clients saw
is compared with what the brokers have.

The fault budget: at most one broker loses unsynced data at a time, and only while every other one
is in all ISRs and does not crash. A kill counts as a crash: the controller cannot tell it from a
power failure (rule A14). In some seeds every topic has flush.messages=1. Then any number of
brokers may lose what is not synced.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypedDict

from ottla.client.admin.administrator import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.pending_batch import Ack
from ottla.client.producer.producer import Producer
from ottla.controller.lease import RegistrationRefused
from ottla.coordination.errors import CoordinationError
from ottla.errors import RequestError, StorageFailure
from ottla.ids import NO_BROKER, BrokerId
from ottla.testing.client_history import ClientHistory, Place
from ottla.testing.clock import SimulatedClock
from ottla.testing.coordination import ADDRESS as COORDINATION
from ottla.testing.coordination import SimulatedCoordination
from ottla.testing.disk import Loss
from ottla.testing.invariants import Invariants
from ottla.testing.network import CALM, SimulatedHost, Weather
from ottla.testing.simulation import PORT, SimulatedBroker, Simulation, simulate

SESSION_SECONDS: Final = 4.0
LAG_SECONDS: Final = 6.0
REPAIRED_WITHIN_SECONDS: Final = 60.0  # until every client has caught up after the last fault
LAST_SECONDS: Final = 15.0  # without faults
RUN_SECONDS_MAX: Final = 120.0  # beyond the wanted time

TOPICS: Final = {"plain": 2, "flushed": 2}  # with their partitions
PRODUCERS: Final = 3

SETTINGS: Final = (
    "min.insync.replicas=2",
    "default.replication.factor=3",
    "offsets.topic.num.partitions=1",
    "offsets.topic.replication.factor=3",
    "group.initial.rebalance.delay.ms=300",
    "group.min.session.timeout.ms=1000",
    f"replica.lag.time.max.ms={LAG_SECONDS * 1000:.0f}",
    "log.flush.offset.checkpoint.interval.ms=5000",
    "log.segment.delete.delay.ms=1000",
)


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    seed: int
    digest: str
    violations: list[str]
    acknowledged: int
    seconds: float
    faults: Mapping[str, int]
    counts: Mapping[str, int]
    story: list[str] = field(repr=False)


def run(seed: int, *, minutes: float = 2.0, brokers: int = 3) -> Outcome:
    """Run a seed for at least so many virtual minutes."""

    async def program(world: Simulation) -> Outcome:
        scenario = await ClusterScenario.create(world, brokers, minutes * 60)
        history = scenario.history
        try:
            async with asyncio.timeout(RUN_SECONDS_MAX + minutes * 60):
                await scenario.play()
        except Exception as error:
            history.wrong(f"the run ended: {error!r}")
        scenario.end()
        await world.clock.sleep(1.0)  # until everything has ended
        return Outcome(
            seed,
            world.trace.digest,
            [*history.violations, *world.problems],
            history.acknowledged,
            world.clock.elapsed_s(),
            scenario.faults,
            scenario.counts,
            scenario.story,
        )

    return simulate(seed, program)


class _Outside(TypedDict):
    network: SimulatedHost
    clock: SimulatedClock
    random: Callable[[], float]


class _Machine:
    """A broker with its supervisor, which starts it again after each end."""

    def __init__(self, scenario: "ClusterScenario", broker: SimulatedBroker) -> None:
        self.broker = broker
        self.wanted = asyncio.Event()  # whether it should run
        self.wanted.set()
        self.crashed = False  # since the last time that it was in all ISRs
        self.lost = False  # the same: whether it may have lost unsynced data
        self.busy = False  # whether a fault has hold of it
        self._scenario = scenario

    @property
    def id(self) -> BrokerId:
        return self.broker.id

    async def supervise(self) -> None:
        """Start the broker whenever it should run and does not."""
        clock = self._scenario.world.clock
        while True:
            await self.wanted.wait()
            if self.broker.alive:
                await self.broker.death()
                continue
            try:
                await self.broker.start()
            except (RegistrationRefused, CoordinationError, StorageFailure) as error:
                self._scenario.tell("broker", f"broker {self.id} did not start: {error}")
                await clock.sleep(0.5)


class ClusterScenario:
    """The cluster, its clients and the faults of one run."""

    def __init__(
        self,
        world: Simulation,
        brokers: list[SimulatedBroker],
        coordination: SimulatedCoordination,
        seconds: float,
        *,
        flushed: bool,
    ) -> None:
        self.world = world
        self.random = world.random
        self.history = ClientHistory()
        self.faults: Counter[str] = Counter()
        self.story: list[str] = []
        self.machines = [_Machine(self, broker) for broker in brokers]
        self._coordination = coordination
        self._seconds = seconds
        self._flushed = flushed
        self._checks = Invariants(brokers, coordination.store.tree, self.history.wrong, self.tell)
        self._places: dict[str, int] = {}  # partitions by topic
        self._bootstrap = ",".join(f"{one.address}:{PORT}" for one in brokers)
        self._tasks: list[asyncio.Task[None]] = []
        self._clients = 0
        self._stopping = False
        self._read: dict[str, dict[Place, set[int]]] = {}  # by consumer

    @classmethod
    async def create(cls, world: Simulation, brokers: int, seconds: float) -> "ClusterScenario":
        """Return a scenario whose brokers are not started."""
        flushed = world.random.random() < 0.3
        settings = (*SETTINGS, "log.flush.interval.messages=1") if flushed else SETTINGS
        members = await world.cluster(brokers, *settings, session_timeout_s=SESSION_SECONDS)
        assert world.coordination is not None
        return cls(world, members, world.coordination, seconds, flushed=flushed)

    @property
    def counts(self) -> Mapping[str, int]:
        """What happened, apart from the faults."""
        return self._checks.counts

    def tell(self, kind: str, text: str) -> None:
        """Note an event for the reader of the story."""
        self.world.trace.note(kind, text)
        self.story.append(f"{self.world.clock.elapsed_s():8.3f}  {text}")

    def end(self) -> None:
        """Stop checking and end all tasks."""
        self.world.clock.check_each_step(None)
        for machine in self.machines:
            machine.wanted.clear()
            if machine.broker.alive:
                machine.broker.kill()
        for task in self._tasks:
            task.cancel()

    async def play(self) -> None:
        """Run everything."""
        world, clock = self.world, self.world.clock
        clock.check_each_step(self._checks.step)
        for machine in self.machines:
            self._run(machine.supervise())
        await self._create_topics()
        world.network.weather = CALM if self.random.random() < 0.3 else Weather()
        until_s = clock.elapsed_s() + self._seconds - LAST_SECONDS
        producers = [
            asyncio.get_running_loop().create_task(self._produce(f"p{number}", until_s))
            for number in range(PRODUCERS)
        ]
        for topics in (None, ("plain", "flushed")):
            self._run(self._consume(topics))
        await self._inject_faults(until_s)
        await self._repair()
        try:
            async with asyncio.timeout(REPAIRED_WITHIN_SECONDS):
                await asyncio.gather(*producers)
                for number in range(PRODUCERS):
                    await self._produce_last(f"last{number}")
                while self._missing():
                    await clock.sleep(0.5)
        except TimeoutError:
            self.history.wrong(
                f"unavailable: {REPAIRED_WITHIN_SECONDS:g} s after the last fault: "
                f"{self._missing() or 'producers wait'}; {self._states()}"
            )
        await clock.sleep(max(0.0, self._seconds - clock.elapsed_s()))
        self._stopping = True
        await self._audit()
        await self._coordination.close()

    def _run(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    # Clients.

    def _client(self, name: str) -> "_Outside":
        """Return what a client takes from outside."""
        self._clients += 1
        host = self.world.network.host(address=f"10.0.1.{self._clients}")
        random = Random(f"{self.world.seed} {name}").random
        return {"network": host, "clock": self.world.clock, "random": random}

    async def _create_topics(self) -> None:
        config = {"bootstrap.servers": self._bootstrap}
        async with Admin(config, **self._client("admin")) as admin:
            for name, count in TOPICS.items():
                values = {"flush.messages": "1"} if name == "flushed" else {}
                while True:
                    try:
                        await admin.create_topic(name, count, len(self.machines), values)
                    except RequestError as error:
                        if "exists" in str(error):
                            break
                        await self.world.clock.sleep(0.5)
                    else:
                        break
                self._places[name] = count

    def _producer(self, name: str) -> Producer[bytes, bytes]:
        config = {
            "bootstrap.servers": self._bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 5,
            "delivery.timeout.ms": 300_000,
            "request.timeout.ms": 5000,
            "max.block.ms": 300_000,
            "linger.ms": 5,
            "retry.backoff.max.ms": 500,
        }
        return Producer(config, **self._client(name))

    async def _produce(self, name: str, until_s: float) -> None:
        random, clock = Random(f"{self.world.seed} {name} sends"), self.world.clock
        numbers: dict[Place, int] = {}
        async with self._producer(name) as producer, asyncio.TaskGroup() as group:
            while clock.elapsed_s() < until_s:
                await clock.sleep(1.2 * random.random())
                topic = random.choice([*self._places])
                place = (topic, random.randrange(self._places[topic]))
                for _ in range(random.choice((1, 1, 2, 4))):
                    number = numbers[place] = numbers.get(place, -1) + 1
                    value = f"{name} {number}".encode()
                    began_s = clock.elapsed_s()
                    sent = await producer.send(topic, value, partition=place[1])
                    group.create_task(self._settle(sent, place, value, began_s))

    async def _settle(self, sent: Ack, place: Place, value: bytes, began_s: float) -> None:
        try:
            written = await sent
        except RequestError as error:
            self.history.wrong(f"{place}: {value!r} failed: {error}")
            return
        seconds = self.world.clock.elapsed_s() - began_s
        self.history.ack(place, written.offset, value, seconds)

    async def _produce_last(self, name: str) -> None:
        async with self._producer(name) as producer:
            for topic, count in self._places.items():
                for index in range(count):
                    value, began_s = f"{name} 0".encode(), self.world.clock.elapsed_s()
                    sent = await producer.send(topic, value, partition=index)
                    await self._settle(sent, (topic, index), value, began_s)

    async def _consume(self, topics: tuple[str, ...] | None) -> None:
        name = "reader" if topics is None else "member"
        config: dict[str, object] = {
            "bootstrap.servers": self._bootstrap,
            "auto.offset.reset": "earliest",
            "request.timeout.ms": 5000,
            "auto.commit.interval.ms": 1000,
            "session.timeout.ms": 8000,
            "heartbeat.interval.ms": 1000,
            "metadata.max.age.ms": 5000,
        }
        if topics is not None:
            config["group.id"] = "members"
        read = self._read.setdefault(name, {})
        async with Consumer(config, **self._client(name)) as consumer:
            if topics is not None:
                consumer.subscribe(*topics)
            assigned: dict[str, int] = {}
            while not self._stopping:
                if topics is None and assigned != self._places:
                    assigned = dict(self._places)
                    consumer.assign(
                        *((one, index) for one, count in assigned.items() for index in range(count))
                    )
                try:
                    records = await consumer.poll(0.5)
                except RequestError as error:
                    self.history.wrong(f"{name}: {error}")
                    await self.world.clock.sleep(0.5)
                    continue
                for record in records:
                    place = (record.topic, record.partition)
                    read.setdefault(place, set()).add(record.offset)
                    self.history.read(place, record.offset, record.value or b"")

    def _missing(self) -> list[str]:
        """Return what the consumers have not read, and the replicas that are not in sync."""
        missing = [
            f"{name} has not read {place} at {left[0]}"
            for name, read in self._read.items()
            for place in self.history.places
            if (left := self.history.unread(place, read.get(place, set())))
        ]
        missing += [
            f"{one.name}: the ISR is {one.state.in_sync}"
            for one in self._checks.recorded.values()
            if len(one.state.in_sync) < len(self.machines)
        ]
        return missing

    def _states(self) -> str:
        return "; ".join(
            f"{one.id}: {'paused' if one.broker.paused else 'up' if one.broker.alive else 'down'}"
            for one in self.machines
        )

    async def _audit(self) -> None:
        """Read everything again, and compare."""
        config = {"bootstrap.servers": self._bootstrap, "auto.offset.reset": "earliest"}
        async with Consumer(config, **self._client("auditor")) as consumer:
            for topic, count in self._places.items():
                for index in range(count):
                    place = (topic, index)
                    consumer.assign(place)
                    found: list[tuple[int, bytes]] = []
                    left = {*self.history.unread(place, set())}
                    for _ in range(60):
                        for one in await consumer.poll(0.5):
                            found.append((one.offset, one.value or b""))
                            left.discard(one.offset)
                        if not left:
                            break
                    self.history.compare(place, found)

    # Faults.

    async def _inject_faults(self, until_s: float) -> None:
        clock, random = self.world.clock, self.random
        kinds: dict[str, tuple[int, Callable[[_Machine], Awaitable[None] | None]]] = {
            "kill": (3, self._kill),
            "stop": (2, self._stop),
            "stop of all brokers": (1, self._stop_all),
            "power cut": (2, self._cut_power),
            "pause": (2, self._pause),
            "partition between brokers": (3, self._part_brokers),
            "partition from coordination": (2, self._part_coordination),
            "connection to coordination lost": (2, self._break_coordination),
            "slow link": (1, self._slow_down),
        }
        names = [*kinds]
        weights = [kinds[name][0] for name in names]
        first = 2  # leaders that are killed first, so that every run has fail-overs
        while clock.elapsed_s() < until_s:
            await clock.sleep(1 + 5 * random.random())
            self._note_whole()
            (name,) = random.choices(names, weights)
            machine = random.choice(self.machines)
            if first:
                name, machine = "kill", self._leader() or machine
            if machine.busy or not machine.broker.alive:
                continue
            first = max(0, first - 1)
            done = kinds[name][1](machine)
            if done is not None:
                machine.busy = True
                self.faults[name] += 1
                self._run(self._finish(machine, done))

    async def _finish(self, machine: _Machine, done: Awaitable[None]) -> None:
        try:
            await done
        finally:
            machine.busy = False

    def _leader(self) -> _Machine | None:
        """Return a machine that leads a partition of a topic of the clients."""
        leaders = [
            one.state.leader
            for one in self._checks.recorded.values()
            if one.name in self._places and one.state.leader != NO_BROKER
        ]
        if not leaders:
            return None
        leader = self.random.choice(sorted(leaders))
        return next(one for one in self.machines if one.id == leader)

    def _note_whole(self) -> None:
        """Note the brokers that are in all ISRs again."""
        recorded = self._checks.recorded.values()
        for machine in self.machines:
            is_back = machine.broker.alive and machine.id not in self._checks.excluded
            if is_back and all(machine.id in one.state.in_sync for one in recorded):
                machine.crashed = machine.lost = False

    def _may_crash(self, machine: _Machine) -> bool:
        return self._flushed or not any(one.lost for one in self.machines if one is not machine)

    def _kill(self, machine: _Machine) -> Awaitable[None] | None:
        if not self._may_crash(machine):
            return None
        self.tell("fault", f"broker {machine.id} is killed")
        machine.crashed = True
        machine.wanted.clear()
        machine.broker.kill()
        return self._restart(machine)

    async def _stop_broker(self, machine: _Machine) -> None:
        machine.wanted.clear()
        with suppress(StorageFailure):
            if not await machine.broker.stop():
                machine.crashed = True
        await self._restart(machine)

    def _stop(self, machine: _Machine) -> Awaitable[None] | None:
        self.tell("fault", f"broker {machine.id} is stopped")
        return self._stop_broker(machine)

    def _stop_all(self, machine: _Machine) -> Awaitable[None] | None:
        if any(one.busy or not one.broker.alive for one in self.machines):
            return None
        self.tell("fault", "all brokers are stopped, one after another")
        return self._stop_in_turn(self.random.sample(self.machines, len(self.machines)))

    async def _stop_in_turn(self, machines: list[_Machine]) -> None:
        """Stop all brokers and start them again in another order."""
        for machine in machines:
            machine.busy = True
        try:
            for machine in machines:
                machine.wanted.clear()
                with suppress(StorageFailure):
                    await machine.broker.stop()
            for machine in self.random.sample(machines, len(machines)):
                await self.world.clock.sleep(3 * self.random.random())
                self.tell("fault", f"broker {machine.id} is started again")
                machine.wanted.set()
        finally:
            for machine in machines:
                machine.busy = False

    def _cut_power(self, machine: _Machine) -> Awaitable[None] | None:
        others = [one for one in self.machines if one is not machine]
        if not self._flushed and any(one.crashed or one.busy for one in others):
            return None
        loss = self.random.choice([*Loss])
        self.tell("fault", f"broker {machine.id} loses power; of what is not synced, {loss.value}")
        machine.crashed = machine.lost = True
        machine.wanted.clear()
        machine.broker.cut_power(loss)
        return self._restart(machine)

    def _pause(self, machine: _Machine) -> Awaitable[None] | None:
        seconds = self.random.choice((0.5, 3.0, 8.0))
        self.tell("fault", f"broker {machine.id} is paused for {seconds:g} s")
        machine.broker.pause()
        return self._after(seconds, machine.broker.resume)

    def _part_brokers(self, machine: _Machine) -> Awaitable[None] | None:
        other = self.random.choice([one for one in self.machines if one is not machine])
        seconds = self.random.choice((1.0, 5.0, 15.0))
        self.tell("fault", f"brokers {machine.id} and {other.id} are partitioned for {seconds:g} s")
        return self._part(machine.broker.address, other.broker.address, seconds)

    def _part_coordination(self, machine: _Machine) -> Awaitable[None] | None:
        seconds = self.random.choice((1.0, 3.0, 8.0))
        self.tell("fault", f"broker {machine.id} is cut off from coordination for {seconds:g} s")
        return self._part(machine.broker.address, COORDINATION, seconds)

    def _break_coordination(self, machine: _Machine) -> Awaitable[None] | None:
        self.tell("fault", f"broker {machine.id} loses its connection to coordination")
        self._coordination.break_connections(machine.broker.address)
        return self._after(0.5, lambda: None)

    def _slow_down(self, machine: _Machine) -> Awaitable[None] | None:
        other = self.random.choice([one for one in self.machines if one is not machine])
        pair = frozenset((machine.broker.address, other.broker.address))
        delays = self.world.network.delays_s
        self.tell("fault", f"the link of brokers {machine.id} and {other.id} is slow for 5 s")
        delays[pair] = 0.3
        return self._after(5.0, lambda: delays.pop(pair, None))

    async def _after(self, seconds: float, end: Callable[[], object]) -> None:
        await self.world.clock.sleep(seconds)
        end()

    def _part(self, one: str, other: str, seconds: float) -> Awaitable[None]:
        network = self.world.network
        network.partition(one, other)
        return self._after(seconds, lambda: network.heal(one, other))

    async def _restart(self, machine: _Machine) -> None:
        """Start a broker again, within its session timeout or later."""
        await self.world.clock.sleep(self.random.choice((0.2, 1.5, 6.0, 12.0)))
        self.tell("fault", f"broker {machine.id} is started again")
        machine.wanted.set()

    async def _repair(self) -> None:
        """End all faults."""
        self.world.network.weather = CALM
        self.tell("fault", "everything is repaired")
        while any(one.busy for one in self.machines):
            await self.world.clock.sleep(0.1)
