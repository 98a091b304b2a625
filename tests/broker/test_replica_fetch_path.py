# pyright: reportPrivateUsage=false
"""The fast path of followers against FetchHandler: the same responses and state.

A world is a leader with three partitions and the fetches of two followers, drawn from its number.
Each world runs twice, with and without the fast path.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from msgspec.structs import replace

from broker.disks import FaultyDisk
from broker.nodes import RunningBroker, broker, run
from broker.replicas import Replicas
from broker.test_node import batch, create, produce
from broker.test_replica_fetch import VERSION, Follower, asked, follower, request, values
from kernel_loading import SOURCE as FOLDER
from ottla.broker import replica_fetch_path
from ottla.broker.replica_fetch_path import ReplicaFetchPath
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, LeaderEpoch
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from ottla.transport.connection import Connection, FetchAnswer, ServeFetchFrame, dispatched
from sampling import sample, scaled
from transport.test_departures import until

PARTITIONS: Final = 3
STEPS: Final = 60
WORLDS: Final = sample(range(scaled(40)), 4)

SOURCE: Final = (FOLDER / "ottla/broker/replica_fetch_path.py").read_text()

MakePath = Callable[[RunningBroker], ServeFetchFrame]


@pytest.fixture(autouse=True)
def clients_are_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every connection count as one of a broker."""
    made = Connection.connection_made

    def logged_in(self: Connection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        self.is_broker = True

    monkeypatch.setattr(Connection, "connection_made", logged_in)


def without(running: RunningBroker) -> ServeFetchFrame:
    """Serve every request with the handler."""
    return dispatched


def mutant(condition: str = "", instead: str = "") -> MakePath:
    """The fast path without one of its conditions."""
    assert not condition or SOURCE.count(condition) == 1, condition
    namespace: dict[str, Any] = {"__name__": replica_fetch_path.__name__}
    source = SOURCE.replace(condition, instead) if condition else SOURCE
    exec(compile(source, "replica_fetch_path_mutant", "exec"), namespace)

    def path(running: RunningBroker) -> ServeFetchFrame:
        known = running.parts.replica_fetch_path
        parts = {one.name: getattr(known, one.name) for one in fields(ReplicaFetchPath)}
        return namespace["ReplicaFetchPath"](**parts).serve

    return path


class World:
    """A leader with followers, whose steps are drawn from a number."""

    def __init__(
        self, running: RunningBroker, disk: FaultyDisk, number: int, path: MakePath
    ) -> None:
        self.running, self.disk = running, disk
        self.random = Random(number)
        self.ordinary = 0
        self.log: list[object] = []
        self._serve = path(running)
        for listener in running.node.listeners:
            listener._serve_broker_frame = self._counted

    def _counted(self, frame: memoryview, connection: Connection) -> FetchAnswer:
        found = self._serve(frame, connection)
        self.ordinary += found is not None
        return found

    async def live(self) -> None:
        """Run all steps; `log` has what the followers and the leader saw."""
        running, random = self.running, self.random
        self.client = await running.client()
        self.topic_id = await create(self.client, "t", PARTITIONS)
        self.replicas = [Replicas(running, index=index) for index in range(PARTITIONS)]
        self.followers = [await follower(running, self.topic_id, one) for one in (2, 3)]
        self.ends = {2: [0] * PARTITIONS, 3: [0] * PARTITIONS}
        for one in self.followers:
            await self.fetch(one, [asked(0, index=index) for index in range(PARTITIONS)])
        steps = (
            (self.append, 6),
            (self.fetch_next, 14),
            (self.fetch_strange, 5),
            (self.fetch_while_appending, 4),
            (self.fetch_cold, 2),
            (self.delete, 1),
            (self.begin_epoch, 1),
            (self.change_isr, 1),
            (self.leave_and_lead, 1),
            (self.remove_replica, 1),
            (self.forget, 1),
        )
        for _ in range(STEPS):
            (step,) = random.choices([one for one, _ in steps], [weight for _, weight in steps])
            await step()
            self.note_state()

    def note_state(self) -> None:
        for replicas in self.replicas:
            led = replicas.led
            assert led.in_sync is not None
            self.log.append(
                (
                    led.high_watermark,
                    [
                        (one.log_end_offset, one.log_start_offset, one.broker_epoch)
                        for one in led.in_sync.followers.values()
                    ],
                    len(replicas.proposals),
                )
            )
        for session in self.running.parts.fetch_sessions._sessions.values():
            watch = session.watch
            assert watch is not None
            assert watch.waiter is None
            marked = [key[1] for key in watch.marked]
            wanted = [one[1:] for one in session.wanted.values()]
            self.log.append((session.epoch, marked, wanted, [*session.told.values()]))
        self.log.append(self.running.parts.replica_manager.replication.bytes_out)

    async def append(self) -> None:
        index = self.random.randrange(PARTITIONS)
        records = [b"x" * self.random.choice((1, 300)) for _ in range(self.random.randint(1, 3))]
        led = self.replicas[index].led
        led.append(memoryview(batch(*records)), produce_version=9, acks=1, now_ms=1_700_000_000_000)

    def next_of(self, index: int, one: Follower) -> FetchPartition:
        led = self.replicas[index].led
        return asked(
            self.ends[one.broker_id][index],
            index=index,
            epoch=led.leader_epoch,
            last_epoch=led.log.epochs.epoch_of(self.ends[one.broker_id][index] - 1) or -1,
            start=led.log.log_start_offset,
        )

    async def fetch_next(self) -> None:
        """Do what a follower does: name the partitions whose records have arrived."""
        one = self.random.choice(self.followers)
        named = [index for index in range(PARTITIONS) if self.random.random() < 0.6]
        for index in named:
            led = self.replicas[index].led
            if self.random.random() < 0.7:
                self.ends[one.broker_id][index] = led.log.log_end_offset
        await self.fetch(one, [self.next_of(index, one) for index in named])

    async def fetch_strange(self) -> None:
        random, one = self.random, self.random.choice(self.followers)
        index = random.randrange(PARTITIONS)
        named = self.next_of(index, one)
        change = random.randrange(9)
        epoch = one.epoch
        replica, replica_epoch, bytes_max = one.broker_id, 1, 1 << 20
        if change == 0:
            named.fetch_offset = random.randrange(self.replicas[index].led.log.log_end_offset + 3)
        elif change == 1:
            named.current_leader_epoch += random.choice((-1, 1))
        elif change == 2:
            named.last_fetched_epoch = random.choice((-1, 0, 1, 7))
        elif change == 3:
            replica_epoch = random.choice((-1, 0, 1, 2))
        elif change == 4:
            bytes_max = random.choice((1, 100, 500))
        elif change == 5:
            named.partition_max_bytes = random.choice((1, 100, 500))
        elif change == 6:
            epoch = random.choice((epoch - 1, epoch + 1, -1))
        elif change == 7:
            replica = 5 - one.broker_id  # of another follower's session
        else:
            named.partition = PARTITIONS  # does not exist
        message = request(
            self.topic_id,
            [named],
            session=(one.session, epoch),
            replica=replica,
            replica_epoch=replica_epoch,
            bytes_max=bytes_max,
        )
        await self.ask(one, message)
        # It corrects itself, as otherwise its session is never ordinary again.
        repaired = [self.next_of(index, one)]
        await self.fetch(one, repaired, forgotten=[PARTITIONS])

    async def fetch_while_appending(self) -> None:
        one = self.random.choice(self.followers)
        for index, replicas in enumerate(self.replicas):
            self.ends[one.broker_id][index] = replicas.led.log.log_end_offset
        named = [self.next_of(index, one) for index in range(PARTITIONS)]
        fetching = asyncio.create_task(self.fetch(one, named, wait_ms=20_000))
        watches = self.replicas[0].led.watches
        await until(lambda: fetching.done() or any(two.waiter for two in watches))
        await self.append()
        if self.random.random() < 0.3:
            await self.append()
        await fetching

    async def fetch_cold(self) -> None:
        """Let a follower fetch records that are not in the page cache."""
        self.disk.cold = True
        await self.fetch_next()
        self.disk.cold = False

    async def fetch(
        self,
        one: Follower,
        named: list[FetchPartition],
        wait_ms: int = 0,
        forgotten: Iterable[int] = (),
    ) -> None:
        message = request(
            self.topic_id,
            named,
            replica=one.broker_id,
            session=(one.session, one.epoch),
            wait_ms=wait_ms,
            forgotten=forgotten,
        )
        await self.ask(one, message)

    async def ask(self, one: Follower, message: FetchRequest) -> None:
        answer = await one.client.ask(message, FetchResponse, VERSION)
        if answer.error_code:
            one.session = one.epoch = 0
        else:
            one.session, one.epoch = answer.session_id, one.epoch + 1
        if not answer.session_id:
            one.epoch = 0
        for topic in answer.responses:
            for two in topic.partitions:
                if two.diverging_epoch is not None:
                    self.ends[one.broker_id][two.partition_index] = two.diverging_epoch.end_offset
        found = [
            (
                two.partition_index,
                two.error_code,
                two.high_watermark,
                two.last_stable_offset,
                two.log_start_offset,
                repr(two.diverging_epoch),
                bytes(two.records or b""),
            )
            for topic in answer.responses
            for two in topic.partitions
        ]
        self.log.append((answer.error_code, bool(answer.session_id), found))

    async def delete(self) -> None:
        led = self.random.choice(self.replicas).led
        await led.delete_records(self.random.randrange(led.high_watermark + 1))

    async def begin_epoch(self) -> None:
        replicas = self.random.choice(self.replicas)
        epoch = LeaderEpoch(replicas.led.leader_epoch + 1)
        replicas.state = replace(replicas.state, leader_epoch=epoch)
        replicas.change(1, 2, 3)

    async def change_isr(self) -> None:
        self.random.choice(self.replicas).change(1, *self.random.choice(((), (2,), (3,), (2, 3))))

    async def leave_and_lead(self) -> None:
        led = self.random.choice(self.replicas).led
        partitions = self.running.parts.replica_manager.partitions
        del partitions[led.name]
        await self.fetch_next()
        partitions[led.name] = led

    async def remove_replica(self) -> None:
        """Let a follower fetch a partition that a reassignment has removed from it."""
        replicas = self.random.choice(self.replicas)
        in_sync = replicas.state.in_sync
        state = replicas.state
        two = (BrokerId(1), BrokerId(5 - self.followers[0].broker_id))
        replicas.state = replace(state, replicas=two, in_sync=two[:1], version=state.version + 1)
        replicas.led.update(replicas.state)
        for one in self.followers:
            await self.fetch(one, [self.next_of(index, one) for index in range(PARTITIONS)])
        replicas.change(*in_sync)

    async def forget(self) -> None:
        one = self.random.choice(self.followers)
        await self.fetch(one, [], forgotten=[self.random.randrange(PARTITIONS)])


def lived(folder: Path, number: int, path: MakePath) -> World:
    """Run a world with a path."""
    found: list[World] = []

    async def scenario() -> None:
        disk = FaultyDisk()
        async with broker(folder, disk=disk) as running:
            world = World(running, disk, number, path)
            found.append(world)
            await world.live()

    run(scenario)
    return found[0]


@cache
def log_of_handler(number: int) -> list[object]:
    """The log of a world without the fast path."""
    with TemporaryDirectory() as folder:
        return lived(Path(folder), number, without).log


@pytest.mark.parametrize("number", WORLDS)
def test_fast_path_does_what_the_handler_does(tmp_path: Path, number: int) -> None:
    fast = lived(tmp_path, number, mutant())
    assert fast.log == log_of_handler(number)
    assert fast.ordinary > STEPS // 10, "too few requests of followers are ordinary"


# Conditions of an ordinary request and parts of its work, what the source has instead, and a world
# that shows the difference.
CONDITIONS: Final[dict[tuple[str, str], int]] = {
    ("if session is None or", "if"): 0,
    ("if visit is None:", "if False:"): 0,
    ("follower is None\n            or ", ""): 0,
    ("self._path.replica_manager.partitions.get(partition.name) is not partition", "False"): 0,
    ("or -1 < wanted.current_leader_epoch != partition.leader_epoch", ""): 0,
    ("or -1 < wanted.last_fetched_epoch != epoch", ""): 5,
    ("or 0 <= replica_epoch < follower.broker_epoch", ""): 1,
    ("if self.size and found.size > room:", "if False:"): 0,
    ("max(0, min(wanted.bytes_max, self._bytes_max - self.size))", "wanted.bytes_max"): 0,
    (
        "        except (NotCached, RequestError, StorageFailure):",
        "        except ZeroDivisionError:",
    ): 3,
    ("session.advance(named.values(), now_s)", "session.advance((), now_s)"): 0,
    ("            partition.follower_fetched(", "            int and (lambda *_: None)("): 0,
    ("watch.mark_last(key)", "pass"): 0,
    ("elif offset == partition.log.log_end_offset:", "else:"): 0,
    ("watch.marked.pop(key, None)", "pass"): 0,
    ("            if is_news:", "            if True:"): 0,
    ("replication.bytes_out += sent", "replication.bytes_out += 0"): 0,
    ("[named.get(key) or wanted.get(key) for key in watch.marked]", "[]"): 0,
    ("[one for key, one in named.items() if key not in watch.marked]", "[]"): 0,
}


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda one: one[0].strip()[:40])
def test_each_condition_of_the_fast_path_is_needed(
    tmp_path: Path, condition: tuple[str, str]
) -> None:
    number = CONDITIONS[condition]
    try:
        fast = lived(tmp_path, number, mutant(*condition))
    except Exception:  # an error of the mutant
        return
    assert fast.log != log_of_handler(number)


def test_wait_ends_empty_if_its_records_are_no_longer_ordinary(tmp_path: Path) -> None:
    """The follower fetches again at once, and the handler serves it."""

    async def scenario() -> None:
        disk = FaultyDisk()
        async with broker(tmp_path, disk=disk) as running:
            client = await running.client()
            topic_id = await create(client, "t", 1)
            led = Replicas(running).led
            two = await follower(running, topic_id)
            await two.fetch(asked(0))

            async def woken() -> dict[int, PartitionData]:
                fetching = asyncio.create_task(two.fetch(wait_ms=20_000))
                await until(lambda: any(one.waiter for one in led.watches))
                await produce(client, "t", batch(b"a"), acks=1)
                return await fetching

            disk.cold = True
            assert await woken() == {}
            assert len(values((await two.fetch())[0])) == 1
            disk.cold = False
            await two.fetch(asked(1))
            fetching = asyncio.create_task(two.fetch(wait_ms=20_000))
            await until(lambda: any(one.waiter for one in led.watches))
            del running.parts.replica_manager.partitions[led.name]
            led.resign()
            assert await fetching == {}
            assert (await two.fetch())[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_waits_end_with_the_connection_the_time_and_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t", 1)
            replicas = Replicas(running)
            two = await follower(running, topic_id)
            await two.fetch(asked(0))
            assert await two.fetch(wait_ms=1) == {}
            (watch,) = replicas.led.watches
            three = await follower(running, topic_id, 3)
            await three.fetch(asked(0))
            gone = asyncio.create_task(two.fetch(wait_ms=20_000))
            await until(lambda: watch.waiter is not None)
            await two.client.close()
            await until(lambda: watch.waiter is None)
            with suppress(EOFError, ConnectionError):
                await gone
            waiting = asyncio.create_task(three.fetch(wait_ms=20_000))
            await until(lambda: any(one.waiter for one in replicas.led.watches))
        with suppress(EOFError, ConnectionError):
            assert await waiting == {}

    run(scenario)
