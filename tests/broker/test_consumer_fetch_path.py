# pyright: reportPrivateUsage=false
"""The fast path of consumers against FetchHandler: the same responses and state.

A world is a leader with partitions and the fetches of three consumers, drawn from its number. Each
world runs twice, with and without the fast path.
"""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from msgspec.structs import replace

from broker.disks import FaultyDisk
from broker.handlers.test_fetch import FetchSpec, fetch_partitions, request
from broker.nodes import RunningBroker, broker, run
from broker.replicas import Replicas
from broker.test_departed_clients import FOREVER_MS
from broker.test_node import batch, create
from broker.test_sendfile import RawClient
from kernel_loading import SOURCE as FOLDER
from log.logs import append, end
from ottla.broker import consumer_fetch_path, fetch_frames, fetch_read
from ottla.broker.consumer_fetch_path import VISITS_MAX, ConsumerFetchPath
from ottla.broker.fetch_frames import FRAME_BYTES_MAX, read_frame
from ottla.broker.handlers import fetch
from ottla.broker.replica_requests import replica_of
from ottla.errors import ErrorCode
from ottla.ids import LeaderEpoch, Uuid
from ottla.protocol.apis import FETCH
from ottla.protocol.conversation import ClientConversation, ServerConversation
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from ottla.replication.partition import Partition
from ottla.settings.broker import RACK_AWARE
from ottla.transport import memory_pool
from ottla.transport.connection import (
    WRITE_BUFFER_BYTES,
    Connection,
    FetchAnswer,
    ServeFetchFrame,
    State,
    dispatched,
)
from ottla.transport.memory_pool import MemoryWaiter
from sampling import sample, scaled
from transport.test_departures import until

PARTITIONS: Final = 4
STEPS: Final = 60
WORLDS: Final = sample(range(scaled(40)), 4)

FOLDER_OF_PATH: Final = FOLDER / "ottla/broker"
SOURCES: Final = {
    module: (FOLDER_OF_PATH / f"{module.__name__.rpartition('.')[2]}.py").read_text()
    for module in (consumer_fetch_path, fetch_frames)
}

MakePath = Callable[[RunningBroker], ServeFetchFrame]


@pytest.fixture(autouse=True)
def records_are_sent_from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every client count as one that reads, and few records as many."""
    monkeypatch.setattr(memory_pool, "PROVEN_BYTES", 0)
    monkeypatch.setattr(fetch_read, "PINNED_BYTES_MIN", 700)


def without(running: RunningBroker) -> ServeFetchFrame:
    """Serve every request with the handler."""
    return dispatched


def mutant(condition: str = "", instead: str = "") -> MakePath:
    """The fast path without one of its conditions."""
    found = sum(source.count(condition) for source in SOURCES.values())
    assert not condition or found == 1, condition
    frames: dict[str, Any] = {"__name__": fetch_frames.__name__}
    namespace: dict[str, Any] = {"__name__": consumer_fetch_path.__name__}
    for module, names in ((fetch_frames, frames), (consumer_fetch_path, namespace)):
        source = SOURCES[module]
        source = source.replace(condition, instead) if condition else source
        exec(compile(source, f"{module.__name__}_mutant", "exec"), names)
    for name in ("read_frame", "encoded", "partition_head"):
        namespace[name] = frames[name]

    def path(running: RunningBroker) -> ServeFetchFrame:
        known = running.parts.consumer_fetch_path
        parts = {one.name: getattr(known, one.name) for one in fields(ConsumerFetchPath)}
        return namespace["ConsumerFetchPath"](**parts).serve

    return path


@dataclass
class Consumer:
    """A consumer with a fetch session, or without one."""

    client: RawClient
    topics: dict[str, Uuid]
    version: int
    in_session: bool
    isolation: int = 0
    session: int = 0
    epoch: int = 0
    offsets: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    fetched: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    def key(self, name: str) -> str | Uuid:
        return self.topics[name] if self.version >= 13 else name


class World:
    """A leader with consumers, whose steps are drawn from a number."""

    def __init__(
        self, running: RunningBroker, disk: FaultyDisk, number: int, path: MakePath
    ) -> None:
        self.running, self.disk = running, disk
        self.random = Random(number)
        self.ordinary = 0
        self.log: list[object] = []
        self._serve = path(running)
        for listener in running.node.listeners:
            listener._serve_fetch_frame = self._counted

    def _counted(self, frame: memoryview, connection: Connection) -> FetchAnswer:
        found = self._serve(frame, connection)
        self.ordinary += found is not None
        return found

    async def live(self) -> None:
        """Run all steps; `log` has what the consumers and the leader saw."""
        running, random = self.running, self.random
        client = await running.client()
        self.topics = {name: await create(client, name, PARTITIONS // 2) for name in ("t", "u")}
        self.names = [(name, index) for name in self.topics for index in range(PARTITIONS // 2)]
        self.replicas = Replicas(running, "t", 0)
        self.led = [running.parts.replica_manager.leader_partition(*one) for one in self.names]
        self.consumers = [
            Consumer(await RawClient().connect(running), self.topics, version, in_session, isolated)
            for version, in_session, isolated in (
                (11, False, 0),
                (12, False, 0),
                (17, False, 1),
                (12, True, 1),
                (16, True, 0),
                (18, True, 0),
            )
        ]
        self.producers = 0
        steps = (
            (self.append, 10),
            (self.fetch_next, 25),
            (self.fetch_strange, 10),
            (self.fetch_while_appending, 3),
            (self.fetch_cold, 2),
            (self.delete, 1),
            (self.begin_epoch, 1),
            (self.append_transaction, 2),
            (self.leave_and_lead, 1),
            (self.fetch_as_followers, 2),
        )
        try:
            for _ in range(STEPS):
                (step,) = random.choices([one for one, _ in steps], [weight for _, weight in steps])
                await step()
                self.note_state()
        finally:
            for one in self.consumers:
                one.client.socket.close()

    def note_state(self) -> None:
        for partition in self.led:
            traffic = partition.traffic
            self.log.append((partition.high_watermark, traffic.bytes_out, traffic.records_out))
            assert not partition.waiting
        parts = self.running.parts
        for session in parts.fetch_sessions._sessions.values():
            wanted = [(self.known(one.key), *one[1:]) for one in session.wanted.values()]
            told = {self.known(key): one for key, one in session.told.items()}
            self.log.append((session.epoch, session.by_id, wanted, told))
        counts = parts.request_metrics.of(FETCH)
        self.log.append((sum(counts.buckets), dict(counts.errors)))

    def known(self, key: tuple[str | Uuid, int]) -> tuple[str, int]:
        topic, index = key
        names = {topic_id: name for name, topic_id in self.topics.items()}
        return (names.get(topic, "?") if isinstance(topic, Uuid) else topic, index)

    async def append(self) -> None:
        led = self.random.choice(self.led)
        size = self.random.choice((1, 300, 1500))
        records = [b"x" * size for _ in range(self.random.randint(1, 3))]
        for _ in range(self.random.choice((1, 1, 4))):
            self.append_to(led, *records)

    def append_to(self, led: Partition, *records: bytes) -> None:
        led.append(memoryview(batch(*records)), produce_version=9, acks=1, now_ms=1_700_000_000_000)

    async def append_transaction(self) -> None:
        """Append a transaction, and perhaps its end."""
        led = self.random.choice(self.led)
        self.producers += 1
        append(led.log, b"transaction", producer_id=self.producers, transactional=True)
        if outcome := self.random.randrange(3):
            end(led.log, self.producers, commit=outcome == 1)
        led._advance_high_watermark()

    async def fetch_as_followers(self) -> None:
        self.replicas.fetch(2, 3)

    def spec(self, one: Consumer, name: str, index: int) -> FetchSpec:
        led = self.led[self.names.index((name, index))]
        offset = one.offsets.get((name, index), 0)
        random = self.random
        return FetchSpec(
            one.key(name),
            index,
            offset,
            leader_epoch=random.choice((-1, led.leader_epoch)),
            last_epoch=random.choice((-1, led.log.epochs.epoch_of(offset - 1) or -1))
            if one.version >= 12
            else -1,
        )

    async def fetch_next(self, **changes: int) -> None:
        """Do what a consumer does: fetch on from where it is."""
        random = self.random
        one = random.choice(self.consumers)
        named = [two for two in self.names if random.random() < 0.6]
        forgotten = [
            two for two in sorted(one.fetched) if random.random() < 0.2 and two not in named
        ]
        await self.fetch(one, [self.spec(one, *two) for two in named], forgotten, **changes)

    async def fetch_strange(self) -> None:
        random, one = self.random, self.random.choice(self.consumers)
        name, index = random.choice(self.names)
        spec = self.spec(one, name, index)
        led = self.led[self.names.index((name, index))]
        changes: dict[str, int] = {}
        change = random.randrange(14)
        if change == 0:
            spec = spec._replace(offset=random.randrange(led.log.log_end_offset + 3))
        elif change == 1:
            spec = spec._replace(leader_epoch=led.leader_epoch + random.choice((-1, 1)))
        elif change == 2 and one.version >= 12:
            spec = spec._replace(last_epoch=random.choice((0, 1, 7)))
        elif change == 3:
            changes["bytes_max"] = random.choice((-1, 1, 100, 800, 2000))
        elif change == 4:
            spec = spec._replace(bytes_max=random.choice((-1, 1, 100, 800, 2000)))
        elif change == 5:
            changes["epoch"] = random.choice((-2, one.epoch - 1, one.epoch + 1, -1))
        elif change == 6:
            changes["session"] = random.choice((0, 7, one.session + 1))
        elif change == 7:
            spec = spec._replace(number=random.choice((-1, PARTITIONS)))
        elif change == 8:
            spec = spec._replace(topic=Uuid(bytes(16)) if one.version >= 13 else "strange")
        elif change == 9:
            changes["wait_ms"], changes["bytes_min"] = 1, random.choice((0, 1, 500, 5000))
        elif change == 10:
            changes["isolation"] = random.choice((0, 1, 2))
        elif change == 11:
            changes["rack"] = 1
        elif change == 12:
            changes["replica"] = 3
        else:
            changes["twice"] = 1
        await self.fetch(one, [spec], [], **changes)

    async def fetch_while_appending(self) -> None:
        one = self.random.choice(self.consumers)
        bytes_min = self.random.choice((1, 3000))
        specs = [self.spec(one, *two) for two in self.names]
        specs = [
            spec._replace(offset=led.high_watermark)
            for spec, led in zip(specs, self.led, strict=True)
        ]
        if bytes_min > 1 and self.led[1].high_watermark > self.led[1].log.log_start_offset:
            specs[1] = specs[1]._replace(offset=self.led[1].high_watermark - 1)
        fetching = asyncio.create_task(
            self.fetch(one, specs, [], isolation=0, wait_ms=20_000, bytes_min=bytes_min)
        )
        await until(lambda: fetching.done() or any(two.waiting for two in self.led))
        self.append_to(self.random.choice(self.led[1:]), b"x" * 3000)
        await fetching

    async def fetch_cold(self) -> None:
        """Let a consumer fetch records that are not in the page cache."""
        self.disk.cold = True
        await self.fetch_next()
        self.disk.cold = False

    async def fetch(
        self,
        one: Consumer,
        specs: list[FetchSpec],
        forgotten: list[tuple[str, int]],
        *,
        wait_ms: int = 0,
        bytes_min: int = 1,
        bytes_max: int = 1 << 20,
        isolation: int | None = None,
        epoch: int | None = None,
        session: int | None = None,
        rack: int = 0,
        twice: int = 0,
        replica: int = -1,
    ) -> None:
        known = (one.session, one.epoch) if one.in_session else (0, -1)
        message = request(
            *specs * (1 + twice),
            wait_ms=wait_ms,
            bytes_min=bytes_min,
            bytes_max=bytes_max,
            session=(
                known[0] if session is None else session,
                known[1] if epoch is None else epoch,
            ),
            forgotten=[(one.key(name), index) for name, index in forgotten],
            isolation=one.isolation if isolation is None else isolation,
        )
        message.rack_id = "somewhere" if rack else ""
        if one.version >= 15 and replica >= 0:
            message.replica_state = ReplicaState(replica_id=replica)
        elif one.version < 15:
            message.replica_id = replica
        one.fetched -= set(forgotten)
        one.fetched |= {self.known((spec.topic, spec.number)) for spec in specs}
        one.fetched &= set(self.names)
        data = await one.client.ask(message, one.version)
        self.log.append(self.masked(data, 7 if one.version >= 12 else 6))
        self.take(one, data)

    def masked(self, data: bytes, session_at: int) -> bytes:
        """A response without what is different in each broker."""
        for name, topic_id in self.topics.items():
            data = data.replace(topic_id, name.encode() * 16)
        data = data.replace(self.running.port.to_bytes(4, "big"), b"port")
        after = session_at + 4
        return data[:session_at] + bytes([any(data[session_at:after])]) + data[after:]

    def take(self, one: Consumer, data: bytes) -> None:
        conversation = ClientConversation("t")
        conversation.send(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), one.version)
        frame = len(data) + 4
        (found,) = conversation.receive(frame.to_bytes(4, "big") + bytes(4) + data)
        answer = found.message
        assert isinstance(answer, FetchResponse)
        if answer.error_code:
            one.session = one.epoch = 0
        else:
            one.session, one.epoch = answer.session_id, one.epoch + 1
        if not answer.session_id:
            one.epoch = 0
            one.fetched.clear()
        for topic in answer.responses:
            for two in topic.partitions:
                name = self.known((topic.topic_id if one.version >= 13 else topic.topic, 0))[0]
                key = (name, two.partition_index)
                if key not in self.names:
                    continue
                if two.error_code:
                    one.offsets[key] = self.led[self.names.index(key)].log.log_start_offset
                elif two.records and self.random.random() < 0.8:
                    one.offsets[key] = self.led[self.names.index(key)].high_watermark

    async def delete(self) -> None:
        led = self.random.choice(self.led[1:])
        await led.delete_records(self.random.randrange(led.high_watermark + 1))

    async def begin_epoch(self) -> None:
        replicas = self.replicas
        epoch = LeaderEpoch(replicas.led.leader_epoch + self.random.choice((1, 2)))
        replicas.state = replace(replicas.state, leader_epoch=epoch)
        replicas.change(1, 2, 3)

    async def leave_and_lead(self) -> None:
        led: Partition = self.random.choice(self.led)
        partitions = self.running.parts.replica_manager.partitions
        del partitions[led.name]
        for _ in range(3):
            await self.fetch_next()
        partitions[led.name] = led


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
    assert fast.ordinary > STEPS // 10, "many requests of consumers are ordinary"


# Conditions of an ordinary request and parts of its work, what the source has instead, and a world
# that shows the difference.
CONDITIONS: Final[dict[tuple[str, str], int]] = {
    ("request.replica_id >= 0", "False"): 0,
    ("(session is None and request.session_epoch != LAST_EPOCH)", "False"): 0,
    ("(request.session_epoch == LAST_EPOCH and request.session_id != NO_SESSION)", "False"): 15,
    ("session.update((), request.forgotten)", "pass"): 0,
    ("session.advance(request.named.values(), self", "session.advance((), self"): 0,
    ("if partition is None or -1", "if -1"): 0,
    (" or -1 < leader_epoch != partition.leader_epoch", ""): 5,
    ("if not start <= offset <= state.log_end_offset:", "if False:"): 2,
    ("if end is None or end.epoch < last_epoch or end.end_offset < offset:", "if False:"): 3,
    ("end is None or ", ""): 3,
    ("end.epoch < last_epoch or ", ""): 16,
    ("stable if committed else high_watermark  # rule", "high_watermark  # rule"): 5,
    ("max(0, min(limit, bytes_max - size))", "limit"): 0,
    ("is_given = not size or found.size <= room", "is_given = True"): 0,
    ("except (NotCached, RequestError, StorageFailure):", "except ZeroDivisionError:"): 18,
    ("                if records is None:\n", "                if False:\n"): 0,
    ("if committed and log.aborted_transactions(offset, bound):", "if False:"): 0,
    ("if missing > 0:", "if False:"): 0,
    ("traffic.bytes_out += size", "pass"): 0,
    ("traffic.records_out += (", "int("): 0,
    ("records.records\n", "1\n"): 0,
    ("session is None or session.is_news(", "True or session.is_news("): 0,
    ("*told, size, committed=committed", "*told, size, committed=False"): 0,
    ("self.counts.note(", "int or (lambda _: None)("): 0,
    ("wanted.pop(key, None)", "pass"): 0,
    ("wanted.update(request.named)", "pass"): 0,
    ("request.bytes_max, self.settings", "1 << 20, self.settings"): 0,
    ("len(named) != total or ", ""): 3,
    ("forgotten.append((topic, _INT32.unpack_from(frame, at)[0]))", "pass"): 0,
    ("has_more = not is_given or bound < upper", "has_more = True"): 3,
}


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda one: one[0].strip()[:40])
def test_each_condition_of_the_fast_path_is_needed(
    tmp_path: Path, condition: tuple[str, str]
) -> None:
    number = CONDITIONS[condition]
    path = mutant(*condition)
    try:
        fast = lived(tmp_path, number, path)
    except Exception:  # an error of the mutant
        return
    assert fast.log != log_of_handler(number)


def test_conditions_of_the_broker_and_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is rare in a world: each request is ordinary until one thing changes."""

    async def scenario() -> None:
        rack_aware = f"replica.selector.class={RACK_AWARE}"
        async with broker(tmp_path, rack_aware) as running:
            topic_id = await create(await running.client(), "t", VISITS_MAX + 1)
            for index in range(2):
                led = running.parts.replica_manager.leader_partition("t", index)
                records = memoryview(batch(b"x" * WRITE_BUFFER_BYTES))
                led.append(records, produce_version=9, acks=1, now_ms=1_700_000_000_000)
            (connection, *_) = running.node.listeners[0].connections
            path = running.parts.consumer_fetch_path

            def served(*specs: FetchSpec, rack: str = "", client_id: str = "t") -> FetchAnswer:
                message = request(*specs)
                message.rack_id = rack
                frame = b"".join(ClientConversation(client_id).send(message, 17)[1])[4:]
                return path.serve(memoryview(frame), connection)

            one, two = FetchSpec(topic_id), FetchSpec(topic_id, 1)
            assert served(one)
            assert served(one, rack="somewhere") is None
            assert served(one, client_id="x" * FRAME_BYTES_MAX) is None
            monkeypatch.setattr(memory_pool, "PROVEN_BYTES", 1 << 40)
            copied = served(one)
            assert isinstance(copied, list)
            assert all(isinstance(piece, bytes | memoryview) for piece in copied)
            pool, holder = connection.memory.responses, MemoryWaiter(connection.memory, path.clock)
            assert served(one, two)
            pool.hold(holder, pool.limit)
            pool.hold(holder, 1)
            assert served(one) is None, "there is no memory for a large response"
            assert served(one._replace(offset=1)), "a small response needs no memory"
            pool.release(holder, pool.limit + 1)
            many = [FetchSpec(topic_id, index, int(index < 2)) for index in range(VISITS_MAX)]
            assert served(*many)
            assert served(*many, FetchSpec(topic_id, VISITS_MAX)) is None
            running.parts.shutdown.begun = True
            assert served(one) is None

    run(scenario)


def test_frames_are_read_as_the_messages_are_decoded() -> None:
    """A frame that is read has the fields of the message; damaged frames are not read."""
    random = Random(11)
    topics = [Uuid(random.randbytes(16)) for _ in range(3)]
    read = 0
    for number in range(scaled(6000)):
        version = random.choice((11, 12, 13, 15, 18))
        names: list[str | Uuid] = [*topics] if version >= 13 else ["t", "ü", "x" * 120]
        specs = [
            FetchSpec(random.choice(names), random.randrange(9), random.randrange(99), 7, 3, -1)
            for _ in range(random.randrange(3))
        ]
        forgotten = [(random.choice(names), 2) for _ in range(random.choice((0, 0, 1, 2)))]
        message = request(*specs, wait_ms=5, session=(9, 4), forgotten=forgotten, isolation=1)
        message.rack_id = random.choice(("", "", "rack"))
        if version >= 15 and random.random() < 0.3:
            message.replica_state = ReplicaState(replica_id=2, replica_epoch=5)
        data = bytearray(b"".join(ClientConversation("ü").send(message, version)[1])[4:])
        if number % 2:
            for _ in range(random.randrange(1, 3)):
                data[random.randrange(len(data))] = random.choice((0, 1, 2, 127, 128, 255))
            data = data[: random.choice((len(data), random.randrange(len(data))))]
        found = read_frame(memoryview(bytes(data)))
        if found is None:
            continue
        read += 1
        conversation = ServerConversation()
        framed = conversation.receive(len(data).to_bytes(4, "big") + data)
        (asked,) = framed
        decoded = asked.message
        assert isinstance(decoded, FetchRequest)
        by_id = asked.version >= 13
        assert (found.by_id, found.correlation_id) == (by_id, bytes(data[4:8]))
        assert found[2:8] == (
            decoded.max_wait_ms,
            decoded.min_bytes,
            decoded.max_bytes,
            decoded.isolation_level & 0xFF,
            decoded.session_id,
            decoded.session_epoch,
        )
        assert [*found.named.values()] == [*fetch._asked(decoded, by_id)]
        assert [*found.named] == [one.key for one in found.named.values()]
        assert found.forgotten == [*fetch._forgotten(decoded, by_id)]
        assert found.has_rack == bool(decoded.rack_id)
        replica = replica_of(decoded)
        if replica is not None:
            assert (found.replica_id, found.replica_epoch) == replica
        else:
            assert found.replica_id < 0
    assert read > scaled(1000)


@pytest.fixture(params=["handler", "fast path"])
def path(request: pytest.FixtureRequest) -> MakePath:
    return without if request.param == "handler" else mutant()


def use(running: RunningBroker, path: MakePath) -> None:
    for listener in running.node.listeners:
        listener._serve_fetch_frame = path(running)


def led(running: RunningBroker, topic: str, index: int = 0) -> Partition:
    return running.parts.replica_manager.leader_partition(topic, index)


def values(data: bytes) -> list[bytes]:
    """The values of a response, which are all different and have one letter."""
    return [data[at : at + 1] for at in range(len(data)) if data[at - 2 : at] == b"k\x02"]


def test_appends_of_one_turn_give_one_response(tmp_path: Path, path: MakePath) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            use(running, path)
            await create(await running.client(), "t", 1)
            client, partition = await RawClient().connect(running), led(running, "t")
            fetching = asyncio.create_task(
                client.ask(request(FetchSpec("t"), wait_ms=FOREVER_MS), version=12)
            )
            await until(lambda: partition.waiting)
            for value in (b"a", b"b"):
                records = memoryview(batch(value))
                partition.append(records, produce_version=9, acks=1, now_ms=1_700_000_000_000)
            assert values(await fetching) == [b"a", b"b"]
            assert not partition.waiting
            client.socket.close()

    run(scenario)


def test_wait_of_a_partition_that_moves_away_ends_with_its_error(
    tmp_path: Path, path: MakePath
) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        async with broker(tmp_path, disk=disk) as running:
            use(running, path)
            await create(await running.client(), "t", 1)
            client, partition = await running.client(), led(running, "t")

            def asked(offset: int) -> asyncio.Task[list[PartitionData]]:
                message = request(FetchSpec("t", 0, offset), wait_ms=20_000)
                return asyncio.create_task(fetch_partitions(client, message))

            fetching = asked(0)
            await until(lambda: partition.waiting)
            disk.cold = True
            records = memoryview(batch(b"a"))
            partition.append(records, produce_version=9, acks=1, now_ms=1_700_000_000_000)
            (found,) = await fetching
            assert values(bytes(found.records or b"")) == [b"a"], "read from the device"
            fetching = asked(1)
            await until(lambda: partition.waiting)
            del running.parts.replica_manager.partitions[partition.name]
            partition.resign()
            (found,) = await fetching
            assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not partition.waiting

    run(scenario)


def test_waits_end_with_the_time_the_connection_and_the_broker(
    tmp_path: Path, path: MakePath
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            use(running, path)
            await create(await running.client(), "t", 1)
            client, partition = await running.client(), led(running, "t")
            first = request(FetchSpec("t"), session=(0, 0))
            session = (await client.ask(first, FetchResponse, 12)).session_id
            (known,) = running.parts.fetch_sessions._sessions.values()

            def again(wait_ms: int) -> FetchRequest:
                return request(wait_ms=wait_ms, session=(session, known.epoch))

            answer = await client.ask(again(1), FetchResponse, 12)
            assert (answer.error_code, answer.session_id, answer.responses) == (0, session, ())
            assert known.epoch == 2
            await client.send_only(again(20_000), 12)
            await until(lambda: partition.waiting)
            await client.close()
            await until(lambda: not partition.waiting)
            assert known.epoch == 3, "the session counts a request whose client has left"
            other = await running.client()
            waiting = asyncio.create_task(other.ask(again(20_000), FetchResponse, 12))
            await until(lambda: partition.waiting)
        with suppress(EOFError, ConnectionError):
            assert (await waiting).responses == ()

    run(scenario)


def test_request_behind_a_wait_is_served_after_it(tmp_path: Path, path: MakePath) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            use(running, path)
            await create(await running.client(), "t", 1)
            client, partition = await RawClient().connect(running), led(running, "t")
            waiting = request(FetchSpec("t"), wait_ms=20_000)
            await client.send((waiting, 12), (request(FetchSpec("t")), 12), (waiting, 11))
            await until(lambda: partition.waiting)
            records = memoryview(batch(b"a"))
            partition.append(records, produce_version=9, acks=1, now_ms=1_700_000_000_000)
            for _ in range(3):
                assert values(await client.frame()) == [b"a"]
            client.socket.close()

    run(scenario)


def test_wait_that_ends_while_the_client_does_not_read(tmp_path: Path, path: MakePath) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        async with broker(tmp_path, disk=disk) as running:
            use(running, path)
            await create(await running.client(), "t", 1)
            client, partition = await RawClient().connect(running), led(running, "t")
            for value, is_cold in ((b"a", False), (b"b", True)):
                asked = request(FetchSpec("t", 0, partition.high_watermark), wait_ms=20_000)
                fetching = asyncio.create_task(client.ask(asked, 12))
                await until(lambda: partition.waiting)
                (connection,) = (
                    one
                    for one in running.node.listeners[0].connections
                    if one._state is State.SERVING
                )
                connection.pause_writing()
                disk.cold = is_cold
                records = memoryview(batch(value))
                partition.append(records, produce_version=9, acks=1, now_ms=1_700_000_000_000)
                await until(lambda: not partition.waiting)
                await asyncio.sleep(0)
                connection.resume_writing()
                assert values(await fetching) == [value]
                disk.cold = False
            client.socket.close()

    run(scenario)


def open_files(folder: Path) -> list[str]:
    """The open files of a directory, also deleted ones."""
    found = list[str]()
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(one.readlink()))
    return [one for one in found if one.startswith(str(folder))]


@pytest.mark.parametrize("end", ["client leaves", "time is over", "records arrive"])
def test_wait_keeps_no_file_of_a_topic_that_is_deleted(
    tmp_path: Path, path: MakePath, end: str
) -> None:
    """A cycle of references kept it open, perhaps for ever, and its disk space was not freed."""

    async def scenario() -> None:
        async with broker(tmp_path, "log.segment.delete.delay.ms=0") as running:
            use(running, path)
            admin = await running.client()
            await create(admin, "t", 1)
            client, waiting = await running.client(), led(running, "t").waiting
            wait_ms = 200 if end == "time is over" else 20_000
            fetching = asyncio.create_task(
                fetch_partitions(client, request(FetchSpec("t"), wait_ms=wait_ms))
            )
            await until(lambda: waiting)
            if end == "records arrive":
                records = memoryview(batch(b"a"))
                partition = led(running, "t")
                partition.append(records, produce_version=9, acks=1, now_ms=1_700_000_000_000)
                del partition
            if end == "client leaves":
                await client.close()
            with suppress(EOFError, ConnectionError):
                await fetching
            await until(lambda: not waiting)
            del fetching
            assert open_files(tmp_path / "data" / "t-0")
            deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=20_000)
            await admin.ask(deletion, DeleteTopicsResponse, 5)
            await until(lambda: not open_files(tmp_path / "data" / "t-0"))

    gc.collect()
    gc.disable()
    try:
        run(scenario)
    finally:
        gc.enable()
