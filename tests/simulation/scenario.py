"""One run: clients use a broker while faults are injected, then everything is checked.

Everything is drawn from the seed: `run(seed)` is the same in every run.
"""

import asyncio
import gc
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from ottla.errors import ErrorCode, StorageFailure
from ottla.ids import Uuid
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.records.batch import batches
from ottla.testing.disk import Loss
from ottla.testing.network import CALM, Weather
from ottla.testing.simulation import FAST_PRODUCES, SimulatedBroker, Simulation, simulate
from simulation.administrator import Administrator
from simulation.connection import Speaker
from simulation.consumers import (
    FETCH_BY_NAME,
    SESSION_MS,
    Member,
    Watcher,
    committed,
    earliest,
)
from simulation.history import Found, History, Kind, Place
from simulation.producers import ALL, LEADER, Producer

SAFE = Kind("safe", 2, {"segment.ms": "4000"})
LAZY = Kind(
    "lazy",
    2,
    {"segment.ms": "4000", "flush.messages": str(2**63 - 1), "flush.ms": "4000"},
    flushed=False,
)
SHORT = Kind("short", 1, {"segment.ms": "1500", "retention.ms": "6000"}, retention_ms=6000)
COMPACTED = Kind(
    "compacted",
    1,
    {
        "segment.ms": "2000",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "min.compaction.lag.ms": "0",
    },
    compacted=True,
)
KINDS = {kind.name: kind for kind in (SAFE, LAZY, SHORT, COMPACTED)}
GROUPS = {"red": ("safe", "lazy"), "blue": ("safe",)}
# Group and instance; a member with an instance is static.
MEMBERS = (("red", None), ("red", "static"), ("blue", None))
PRODUCERS = ((ALL, True), (LEADER, True), (LEADER, False))  # acks, idempotent
DIRECTORIES = ("/data", "/more")

SETTINGS = (
    f"log.dirs={','.join(DIRECTORIES)}",
    "log.flush.interval.messages=1",
    "offsets.topic.num.partitions=3",
    "offsets.topic.replication.factor=1",
    "group.initial.rebalance.delay.ms=300",
    "group.min.session.timeout.ms=1000",
    "log.retention.check.interval.ms=2000",
    "log.flush.offset.checkpoint.interval.ms=3000",
    "log.flush.start.offset.checkpoint.interval.ms=3000",
    "log.cleaner.backoff.ms=1500",
    "log.segment.delete.delay.ms=1000",
)

TROUBLE_SECONDS = 30.0
CATCH_UP_SECONDS = 30.0
RUN_SECONDS_MAX = 180.0


@dataclass(frozen=True)
class Outcome:
    digest: str
    violations: list[str]
    acknowledged: int
    events: int
    fast_produces: int  # requests that the fast path of Produce served


def run(seed: int) -> Outcome:
    # A broker that is killed leaves its tasks behind until the end of the run. asyncio would report
    # them as a problem if Python collected them before, at a time that depends on other tests.
    gc.disable()
    try:
        return simulate(seed, _program)
    finally:
        gc.enable()


async def _program(world: Simulation) -> Outcome:
    harness = Harness(world)
    try:
        async with asyncio.timeout(RUN_SECONDS_MAX):
            await harness.play()
    except Exception as error:
        harness.history.wrong(f"the run ended: {error!r}")
    violations = [*harness.history.violations, *world.problems]
    return Outcome(
        world.trace.digest,
        violations,
        harness.history.acknowledged,
        world.trace.count,
        world.counts[FAST_PRODUCES],
    )


class Harness:
    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.history = History()
        self.broker: SimulatedBroker = world.broker(*SETTINGS)
        self.started_s = 0.0
        self.failing_s = math.inf  # time since when syncs fail
        self.topic_ids: dict[str, Uuid] = {}
        self.administrator = Administrator(world, self.history, self.topic_ids)
        self.members: dict[Member, asyncio.Task[None]] = {}
        self._outdated: dict[Member, asyncio.Task[None]] = {}  # replaced static members
        self._names = 0

    async def play(self) -> None:
        world = self.world
        await self._start()
        for kind in KINDS.values():
            await self.administrator.create(kind)
        world.network.weather = CALM if world.random.random() < 0.2 else Weather()
        until_s = world.clock.elapsed_s() + TROUBLE_SECONDS
        producers = [
            Producer(world, self.history, f"p{n}", KINDS, acks=acks, idempotent=idempotent)
            for n, (acks, idempotent) in enumerate(PRODUCERS)
        ]
        for producer in producers:
            producer.topic_ids = self.topic_ids
        async with asyncio.TaskGroup() as group:
            for producer in producers:
                group.create_task(producer.run(until_s))
            group.create_task(self.administrator.run(until_s, SAFE, SHORT))
            for name, instance in MEMBERS:
                self._join(name, instance)
            group.create_task(self._come_and_go(until_s))
            places = [(kind.name, n) for kind in KINDS.values() for n in range(kind.partitions)]
            watcher = Watcher(world, self.history, places, self.topic_ids)
            group.create_task(watcher.run(until_s))
            await self._trouble(until_s)
            world.network.weather = CALM
        for member in self.members:
            member.may_sleep = False
        await self._bring_back()
        await self._lose_a_member()
        for kind in KINDS.values():
            for index in range(self.history.counts[kind.name]):
                await producers[0].produce(kind, index)
        await self._catch_up()
        await self._end()

    # Broker lifecycle.

    async def _start(self) -> None:
        while not await self.broker.start():
            self._cut_power()
        self.started_s, self.failing_s = self.world.clock.elapsed_s(), math.inf
        self.world.trace.note("started")

    def _cut_power(self) -> None:
        loss = self.world.random.choice([*Loss, Loss.HOLES])
        self.world.trace.note("power", loss.name)
        now_s = self.world.clock.elapsed_s()
        self.history.power_cut(min(now_s, self.failing_s), self.started_s)
        self.broker.cut_power(loss)

    async def _trouble(self, until_s: float) -> None:
        """Stop the broker in many ways and start it again."""
        world, random = self.world, self.world.random
        while (now_s := world.clock.elapsed_s()) < until_s:
            await world.clock.sleep(min(1 + 7 * random.random(), until_s - now_s + 0.001))
            chosen = random.random()
            if random.random() < 0.1:
                world.trace.note("failing")
                self._let_the_device_fail()
                await world.clock.sleep(2 * random.random())
            if chosen < 0.25:
                world.trace.note("kill")
                self.broker.kill()
            elif chosen < 0.45:
                world.trace.note("stop")
                await self._stop()
            elif chosen < 0.6:
                self._cut_power()
            else:
                self.broker.die_at_call(random.randrange(60))
                await self._die()
            await world.clock.sleep(random.choice((0.0, 0.5, 3.0)))
            if random.random() < 0.3:
                self.broker.die_at_call(random.randrange(80))  # during the start or soon after
            await self._start()
            self.broker.device.cold = random.random() < 0.3
            if self.broker.device.crash_at is not None and random.random() < 0.5:
                await self._die()
                await self._start()
            self.broker.device.crash_at = None

    async def _stop(self) -> None:
        with suppress(StorageFailure):  # the process has ended, but the stop was not clean
            if not await self.broker.stop():
                self._cut_power()

    async def _die(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(5):  # after a disk failure it makes no more calls
                await self.broker.death()
        self._cut_power()

    def _let_the_device_fail(self) -> None:
        """Let some writes and syncs fail until the broker ends, in one directory or in all."""
        self.failing_s = self.world.clock.elapsed_s()
        random = Random(self.world.random.random())
        where = random.choice(("", *DIRECTORIES))
        self.broker.device.fails = lambda what, path: (
            what in ("write", "sync") and path.startswith(where) and random.random() < 0.2
        )

    # Members of groups.

    def _join(self, group: str, instance: str | None = None) -> Member:
        self._names += 1
        member = Member(
            self.world,
            self.history,
            group,
            f"m{self._names}",
            GROUPS[group],
            self.topic_ids,
            instance,
        )
        self.members[member] = asyncio.get_running_loop().create_task(member.run())
        return member

    async def _come_and_go(self, until_s: float) -> None:
        random = self.world.random
        while self.world.clock.elapsed_s() < until_s:
            await self.world.clock.sleep(1 + 6 * random.random())
            member = random.choice(list(self.members))
            task = self.members.pop(member)
            self.world.trace.note("member", member.name)
            if member.instance is not None:
                await self._replace(member, task)
                continue
            if random.random() < 0.5:
                member.stopping = True
                await task
            else:
                task.cancel()
                await member.vanish()
            self._join(member.group)

    async def _replace(self, member: Member, task: asyncio.Task[None]) -> None:
        """Replace a static member, early or late, or while it is still active."""
        member.is_outdated = True
        if self.world.random.random() < 0.4:
            self._outdated[member] = task
        else:
            task.cancel()
            await member.vanish()
            await self.world.clock.sleep(self.world.random.choice((0.1, 1.0, 6.0)))
        self._join(member.group, member.instance)

    async def _bring_back(self) -> None:
        """Restart a static member within its session; no other member must notice."""
        for member, task in self._outdated.items():
            task.cancel()
            await member.vanish()
        before = await self._settled("red")
        member = next(one for one in self.members if one.instance is not None)
        self.members.pop(member).cancel()
        await member.vanish()
        await self.world.clock.sleep(SESSION_MS / 4000)
        again = self._join(member.group, member.instance)
        again.may_sleep = False
        while again.settled is None:
            await self.world.clock.sleep(0.1)
        if again.settled != before[member]:
            self.history.wrong(f"{before[member]} became {again.settled} for a static member")

    async def _settled(self, group: str) -> Mapping[Member, object]:
        """Wait until a group is in one generation, for longer than a session."""
        since_s = self.world.clock.elapsed_s()
        known: Mapping[Member, object] = {}
        while True:
            now_s = self.world.clock.elapsed_s()
            found = {one: one.settled for one in self.members if one.group == group}
            generations = {one and one[0] for one in found.values()}
            if found != known or None in generations or len(generations) > 1:
                since_s, known = now_s, found
            elif now_s - since_s > 1.25 * SESSION_MS / 1000:
                return known
            await self.world.clock.sleep(0.25)

    async def _lose_a_member(self) -> None:
        """Let one member of the larger group disappear without a replacement."""
        member = next(one for one in self.members if (one.group, one.instance) == ("red", None))
        self.members.pop(member).cancel()
        await member.vanish()

    async def _catch_up(self) -> None:
        """Let every group read to the end."""
        deadline_s = self.world.clock.elapsed_s() + CATCH_UP_SECONDS
        speaker = Speaker(self.world, "watcher")
        while True:
            behind = await self._behind(speaker)
            if not behind:
                break
            if self.world.clock.elapsed_s() > deadline_s:
                self.history.wrong(f"groups do not get on: {behind}")
                break
            await self.world.clock.sleep(0.5)
        for member, task in self.members.items():
            member.stopping = True
            await task

    async def _behind(self, speaker: Speaker) -> dict[tuple[str, Place], tuple[int, int]]:
        behind: dict[tuple[str, Place], tuple[int, int]] = {}
        for group, topics in GROUPS.items():
            places = [(t, index) for t in topics for index in range(self.history.counts[t])]
            for place, done in (await committed(speaker, group, places)).items():
                end = (await self._read(speaker, place, 0)).high_watermark
                if end and done != end:
                    behind[group, place] = (done, end)
        return behind

    # The end.

    async def _end(self) -> None:
        """Cut the power a last time and check everything that is left."""
        self._cut_power()
        await self._start()
        self.administrator.speaker.hang_up()  # it may not have noticed the power failure
        await self.administrator.check_topics()
        await self.administrator.check_settings()
        speaker = Speaker(self.world, "auditor")
        for place, history in self.history.partitions.items():
            if None in self.history.topics[place[0]]:
                continue
            await self._compare(speaker, place, history.deleted_until)
        for group in GROUPS:
            places = [place for name, place in self.history.commits if name == group]
            for place, offset in (await committed(speaker, group, places)).items():
                self.history.found_committed(group, place, offset)
        if not await self.broker.stop():
            self.history.wrong("the broker did not stop")

    async def _compare(self, speaker: Speaker, place: Place, deleted_until: int) -> None:
        log_start = await earliest(speaker, place)
        if log_start is None:
            self.history.wrong(f"{place} cannot be read")
            return
        found: list[Found] = []
        offset = end = log_start
        while True:
            one = await self._read(speaker, place, offset)
            if one.error_code:
                self.history.wrong(f"{place}: {offset}: {ErrorCode(one.error_code).name}")
                break
            end = one.high_watermark
            before = offset
            for batch in batches(one.records or b""):
                if not batch.crc_ok:
                    self.history.wrong(f"{place}: a wrong CRC at {batch.header.base_offset}")
                for record in batch.records():
                    if record.offset >= offset:
                        key, value = bytes(record.key or b""), bytes(record.value or b"")
                        found.append(Found(record.offset, key, value))
                offset = batch.header.next_offset
            if offset >= end or offset == before:
                break
        if deleted_until:
            below = await self._read(speaker, place, deleted_until - 1)
            if below.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                self.history.wrong(f"{place}: {deleted_until - 1} is deleted, and can be read")
        self.history.compare(place, found, log_start, end, self.world.clock.now_ms())

    async def _read(self, speaker: Speaker, place: Place, offset: int) -> PartitionData:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchTopic(
                    topic=place[0],
                    partitions=[
                        FetchPartition(
                            partition=place[1], fetch_offset=offset, partition_max_bytes=1 << 20
                        )
                    ],
                )
            ],
        )
        answer = await speaker.ask(request, FetchResponse, FETCH_BY_NAME)
        return answer.responses[0].partitions[0]
