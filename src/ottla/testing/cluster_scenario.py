"""One run of a simulated cluster: clients write and read while faults are injected.

Everything is drawn from the seed, so `run(seed)` is the same in every process. After the faults
everything is repaired, and the run ends when every client has caught up; then what the clients saw
is compared with what the brokers have.

An administrator works beside the clients: topics grow, topics are created and deleted, and
preferred leaders are elected. What a client may see of a record is checked at once: a record that
is acknowledged or read must be below the high watermark.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypedDict

from ottla.client.admin.administrator import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Ack
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ErrorCode, RequestError
from ottla.testing.client_history import ClientHistory, Place
from ottla.testing.clock import SimulatedClock
from ottla.testing.cluster_administration import ClusterAdministrator
from ottla.testing.cluster_faults import DIRECTORIES, FaultInjector
from ottla.testing.coordination import SimulatedCoordination
from ottla.testing.invariants import Invariants
from ottla.testing.network import CALM, SimulatedHost, Weather
from ottla.testing.simulation import PORT, SimulatedBroker, Simulation, simulate

SESSION_SECONDS: Final = 4.0
LAG_SECONDS: Final = 6.0
REPAIRED_WITHIN_SECONDS: Final = 60.0  # until every client has caught up after the last fault
LAST_SECONDS: Final = 15.0  # without faults
ACKNOWLEDGED_WITHIN_SECONDS: Final = 60.0  # also while there are faults
RUN_SECONDS_MAX: Final = 120.0  # beyond the wanted time

TOPICS: Final = {"plain": 2, "flushed": 2}  # with their partitions
PRODUCERS: Final = 3
BURST_SECONDS_MAX: Final = 4.0  # between the bursts of a producer
BURST_RECORDS: Final = (1, 4, 8, 16)

SETTINGS: Final = (
    "min.insync.replicas=2",
    "default.replication.factor=3",
    "offsets.topic.num.partitions=1",
    "offsets.topic.replication.factor=3",
    "group.initial.rebalance.delay.ms=300",
    "group.min.session.timeout.ms=1000",
    f"replica.lag.time.max.ms={LAG_SECONDS * 1000:.0f}",
    "replica.fetch.wait.max.ms=2000",  # idle followers ask less often
    "log.flush.offset.checkpoint.interval.ms=5000",
    "log.segment.delete.delay.ms=1000",
    f"log.dirs={','.join(DIRECTORIES)}",
)

REPLICAS: Final = 3
BALANCING: Final = (
    "ottla.balance.enable=true",
    "ottla.balance.check.interval.ms=500",
    "ottla.balance.stable.ms=1000",
    "ottla.balance.goal.percent=101",  # so that every difference moves something
)


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    seed: int
    digest: str
    violations: list[str]
    acknowledged: int
    slowest_s: float  # until a record was acknowledged
    seconds: float
    faults: Mapping[str, int]
    counts: Mapping[str, int]  # of everything else that happened
    story: list[str] = field(repr=False)


def run(
    seed: int,
    *,
    minutes: float = 2.0,
    brokers: int = 3,
    balances: bool = False,
    script: "Script | None" = None,
    flushed: bool | None = None,
) -> Outcome:
    """Run a seed for at least so many virtual minutes.

    With `balances`, the controller balances the cluster (ottla.balance.enable).

    A script replaces the random faults and the administrator, on a network without disturbances.
    If it has led to a violation, the run ends with it. `flushed` decides whether all topics have
    flush.messages=1, instead of the seed.
    """

    async def program(world: Simulation) -> Outcome:
        scenario = await ClusterScenario.create(
            world, brokers, minutes * 60, balances=balances, flushed=flushed
        )
        history = scenario.history
        try:
            async with asyncio.timeout(RUN_SECONDS_MAX + minutes * 60):
                await scenario.play(script)
        except Exception as error:
            history.wrong(f"the run ended: {error!r}")
        scenario.end()
        await world.clock.sleep(1.0)  # until everything has ended
        return Outcome(
            seed,
            world.trace.digest,
            [*history.violations, *world.problems],
            history.acknowledged,
            history.slowest_s,
            world.clock.elapsed_s(),
            scenario.faults.counts,
            scenario.counts,
            scenario.story,
        )

    return simulate(seed, program)


Script = Callable[["ClusterScenario"], Awaitable[None]]
"""Faults that are not random."""


class Outside(TypedDict):
    """What a client takes from outside."""

    network: SimulatedHost
    clock: SimulatedClock
    random: Callable[[], float]


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
        replicas: int,
    ) -> None:
        self.world = world
        self.random = world.random
        self.history = ClientHistory()
        self.story: list[str] = []
        self.coordination = coordination
        self.checks = Invariants(brokers, coordination.store.tree, self.history.wrong, self.tell)
        self.faults = FaultInjector(
            world, brokers, coordination, self.checks, self.tell, flushed=flushed
        )
        self._seconds = seconds
        self._replicas = replicas
        self._places: dict[str, int] = {}  # partitions by topic
        self._bootstrap = ",".join(f"{one.address}:{PORT}" for one in brokers)
        self._tasks: list[asyncio.Task[None]] = []
        self._clients = 0
        self._calm = asyncio.Event()  # no more faults
        self._stopping = False
        self._admin_counts: Counter[str] = Counter()
        self._read: dict[str, dict[Place, set[int]]] = {}  # by consumer

    @classmethod
    async def create(
        cls,
        world: Simulation,
        brokers: int,
        seconds: float,
        *,
        balances: bool = False,
        flushed: bool | None = None,
    ) -> "ClusterScenario":
        """Return a scenario whose brokers are not started."""
        is_drawn = world.random.random() < 0.3
        flushed = is_drawn if flushed is None else flushed
        settings = (*SETTINGS, "log.flush.interval.messages=1") if flushed else SETTINGS
        if balances:
            settings += BALANCING
        members = await world.cluster(brokers, *settings, session_timeout_s=SESSION_SECONDS)
        assert world.coordination is not None
        # With a replica on every broker, only leaders could move.
        replicas = min(REPLICAS, brokers) if balances else brokers
        return cls(world, members, world.coordination, seconds, flushed=flushed, replicas=replicas)

    @property
    def counts(self) -> Mapping[str, int]:
        """What happened, apart from the faults."""
        counts = self.checks.counts + self.coordination.counts + self._admin_counts
        return counts + self.world.network.counts + self.world.counts

    def tell(self, kind: str, text: str) -> None:
        """Note an event for the reader of the story."""
        self.world.trace.note(kind, text)
        self.story.append(f"{self.world.clock.elapsed_s():8.3f}  {text}")

    def end(self) -> None:
        """Stop checking and end all tasks."""
        self.world.clock.check_each_step(None)
        self.faults.end()
        for task in self._tasks:
            task.cancel()

    async def play(self, script: "Script | None") -> None:
        """Run everything."""
        world, clock, faults = self.world, self.world.clock, self.faults
        clock.check_each_step(self.checks.step)
        for machine in faults.machines:
            self._run(machine.supervise())
        async with Admin(self.config(), **self.client("admin")) as admin:
            administrator = self._administrator(admin)
            for name, count in TOPICS.items():
                values = {"flush.messages": "1"} if name == "flushed" else {}
                await administrator.create(name, count, values)
                self._places[name] = count
            clients = [self._produce(f"p{number}") for number in range(PRODUCERS)]
            for topics in (None, tuple(TOPICS)):
                self._run(self._consume(topics))
            if script is None:
                world.network.weather = CALM if self.random.random() < 0.3 else Weather()
                clients.append(administrator.work(self._calm))
            busy = [asyncio.ensure_future(one) for one in clients]
            if script is None:
                await faults.inject(clock.elapsed_s() + self._seconds - LAST_SECONDS)
            else:
                await script(self)
                if self.history.violations:
                    return
            world.network.weather = CALM
            self._calm.set()
            await faults.repaired()
            self.tell("fault", "everything is repaired")
            await self._catch_up(busy)
        await clock.sleep(max(0.0, self._seconds - clock.elapsed_s()))
        self._stopping = True
        await self._audit()
        await self.coordination.close()

    async def _catch_up(self, busy: Sequence[asyncio.Task[None]]) -> None:
        """Wait until every client has done its work."""
        try:
            async with asyncio.timeout(REPAIRED_WITHIN_SECONDS):
                await asyncio.gather(*busy)
                for number in range(PRODUCERS):
                    await self._produce_last(f"last{number}")
                while self._missing():
                    await self.world.clock.sleep(0.5)
        except TimeoutError:
            self.history.wrong(
                f"unavailable: {REPAIRED_WITHIN_SECONDS:g} s after the last fault: "
                f"{self._missing() or 'clients wait'}; {self.faults.states()}"
            )

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.history.wrong(f"a client or a supervisor ended: {error!r}")

    # Clients.

    def client(self, name: str) -> "Outside":
        """Return the host, the clock and the random numbers of a new client."""
        self._clients += 1
        host = self.world.network.host(address=f"10.0.1.{self._clients}")
        random = Random(f"{self.world.seed} {name}").random
        return {"network": host, "clock": self.world.clock, "random": random}

    def config(self) -> dict[str, object]:
        """Return the settings that all clients have."""
        return {"bootstrap.servers": self._bootstrap, "request.timeout.ms": 5000}

    def _administrator(self, admin: Admin) -> ClusterAdministrator:
        administrator = ClusterAdministrator(
            admin,
            self._places,
            self._replicas,
            producer=self._producer,
            consumer=self._reader,
            clock=self.world.clock,
            random=Random(f"{self.world.seed} administrator"),
            tell=self.tell,
            wrong=self.history.wrong,
        )
        self._admin_counts = administrator.counts
        return administrator

    def _reader(self, name: str) -> Consumer[bytes, bytes]:
        config = {**self.config(), "auto.offset.reset": "earliest"}
        return Consumer(config, **self.client(name))

    def _producer(self, name: str) -> Producer[bytes, bytes]:
        config = {
            **self.config(),
            "acks": "all",
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 5,
            "delivery.timeout.ms": 300_000,
            "max.block.ms": 300_000,
            "linger.ms": 5,
            "retry.backoff.max.ms": 500,
        }
        return Producer(config, **self.client(name))

    async def _produce(self, name: str) -> None:
        random, clock = Random(f"{self.world.seed} {name} sends"), self.world.clock
        numbers: dict[Place, int] = {}
        async with self._producer(name) as producer, asyncio.TaskGroup() as group:
            while not self._calm.is_set():
                await clock.sleep(BURST_SECONDS_MAX * random.random())
                topic = random.choice([*self._places])
                place = (topic, random.randrange(self._places[topic]))
                for _ in range(random.choice(BURST_RECORDS)):
                    number = numbers[place] = numbers.get(place, -1) + 1
                    value = f"{name} {number}".encode()
                    began_s = clock.elapsed_s()
                    sent = await self._send(producer, place, value)
                    group.create_task(self._settle(sent, place, value, began_s))

    async def _send(self, producer: Producer[bytes, bytes], place: Place, value: bytes) -> Ack:
        """Send a record; a broker that was cut off may not know a new partition yet."""
        while True:
            try:
                return await producer.send(place[0], value, partition=place[1])
            except RequestError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await self.world.clock.sleep(0.5)

    async def _settle(self, sent: Ack, place: Place, value: bytes, began_s: float) -> None:
        try:
            written = await sent
        except RequestError as error:
            self.history.wrong(f"{place}: {value!r} failed: {error}")
            return
        seconds = self.world.clock.elapsed_s() - began_s
        if seconds > ACKNOWLEDGED_WITHIN_SECONDS:
            self.history.wrong(f"unavailable: {place}: {value!r} took {seconds:.0f} s")
        self.history.ack(place, written.offset, value, seconds)
        self.checks.shown(place, written.offset, "acknowledged")

    async def _produce_last(self, name: str) -> None:
        async with self._producer(name) as producer:
            for topic, count in self._places.items():
                for index in range(count):
                    value, began_s = f"{name} 0".encode(), self.world.clock.elapsed_s()
                    sent = await self._send(producer, (topic, index), value)
                    await self._settle(sent, (topic, index), value, began_s)

    async def _consume(self, topics: tuple[str, ...] | None) -> None:
        name = "reader" if topics is None else "member"
        config = {
            **self.config(),
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 3000,
            "fetch.max.wait.ms": 1500,
            "session.timeout.ms": 8000,
            "heartbeat.interval.ms": 2000,
            "metadata.max.age.ms": 5000,
        }
        if topics is not None:
            config["group.id"] = "members"
        read = self._read.setdefault(name, {})
        async with Consumer(config, **self.client(name)) as consumer:
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
                    records = await consumer.poll(1.0)
                except RequestError as error:
                    self.history.wrong(f"{name}: {error}")
                    await self.world.clock.sleep(0.5)
                    continue
                for record in records:
                    place = (record.topic, record.partition)
                    read.setdefault(place, set()).add(record.offset)
                    self.history.read(place, record.offset, record.value or b"")
                    self.checks.shown(place, record.offset, "read")

    def _factor(self, topic: str) -> int:
        """Return the number of replicas of a topic."""
        return 3 if topic in INTERNAL_TOPICS else self._replicas

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
            for one in self.checks.recorded.values()
            if len(one.state.in_sync) < min(self._factor(one.name), len(self.faults.machines))
        ]
        return missing

    async def _audit(self) -> None:
        """Read everything again, and compare."""
        async with self._reader("auditor") as consumer:
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
