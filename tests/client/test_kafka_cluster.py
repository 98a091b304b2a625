"""The client against three Apache Kafka brokers that are killed under load.

Properties that Kafka does not guarantee are not tested. Unclean elections are off, as by default,
so a leader has every acknowledged record. How long a partition or a group is unavailable is up to
the cluster. A record that a producer gave up may still be written, once. Records that a group
processed and could not commit are processed again, by any member.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, Protocol, TypeVar

import pytest

from client.chaos_workload import (
    PARTITIONS,
    PATIENT,
    SESSION_MS,
    AsyncWorkload,
    SyncWorkload,
    Workload,
    values,
)
from client.failover_scenarios import (
    CLIENTS,
    PLACES,
    Clients,
    Counting,
    Stage,
    goes_on,
    in_partition,
    send,
    transacts,
)
from judges.kafka_cluster import KafkaCluster
from kafka_java import judge_needed
from ottla.client.admin.administrator import Admin
from ottla.client.admin.reassignments import Election
from ottla.client.consumer.consumer import Consumer
from ottla.client.network.coordinators import CoordinatorKind
from ottla.errors import RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

pytestmark = pytest.mark.judge

SOON_S = 180.0
MINUTE_S = 60.0
# A member that dies with its coordinator cannot leave: the others wait for its session timeout.
SESSIONS = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": SESSION_MS // 5,
    "group.consumer.min.heartbeat.interval.ms": SESSION_MS // 5,
}
THREADS = 32
"""Enough for every blocking call of the sync clients."""

PARTIES = {
    "async-classic": (AsyncWorkload, "classic"),
    "async-consumer": (AsyncWorkload, "consumer"),
    "sync-classic": (SyncWorkload, "classic"),
    "sync-consumer": (SyncWorkload, "consumer"),
}
TRANSACTIONS = {
    f"{name}-{'commits' if commits else 'aborts'}": (clients, commits)
    for name, clients in CLIENTS.items()
    for commits in (True, False)
}
SEEDS = {f"{name}-seed": clients for name, clients in CLIENTS.items()}

T = TypeVar("T")


@pytest.fixture(scope="module")
def kafka() -> Generator[KafkaCluster]:
    with judge_needed():
        cluster = KafkaCluster(SESSIONS)
    with cluster:
        yield cluster
    for broker in cluster.brokers.values():
        assert not broker.running
        assert not broker.data.parent.exists()


@pytest.fixture(params=CLIENTS)
def clients(request: pytest.FixtureRequest) -> Clients:
    return CLIENTS[request.param]


def run(scenario: Coroutine[Any, Any, T], seconds: float = 900) -> T:
    async def bounded() -> T:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        async with asyncio.timeout(seconds):
            return await scenario

    return asyncio.run(bounded())


async def until(holds: Callable[[], bool], tasks: Iterable["asyncio.Task[None]"] = ()) -> None:
    """Wait until a condition holds, unless one of the tasks has failed."""
    async with asyncio.timeout(SOON_S):
        while not holds():
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.05)


async def all_make_progress(
    workloads: Iterable[Workload], tasks: Iterable["asyncio.Task[None]"]
) -> None:
    """Wait until each workload has processed and committed records written from now on."""
    marks = [(workload, workload.sent, workload.kept + 3) for workload in workloads]
    await until(
        lambda: all(one.total > sent and one.kept >= kept for one, sent, kept in marks), tasks
    )


class HasBootstrap(Protocol):
    """A cluster, of Kafka or of Ottla."""

    @property
    def bootstrap(self) -> str: ...


async def made_topic(kafka: HasBootstrap, name: str) -> str:
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        await admin.create_topic(name, PARTITIONS, 3)
    return name


async def check_workload(kafka: HasBootstrap, workload: Workload) -> BaseException | None:
    """Return the error in the results of a workload, or None."""
    found = await asyncio.to_thread(values, kafka.bootstrap, workload.topic, PARTITIONS)
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        kept = (await admin.list_group_offsets(workload.group))[workload.group]
    offsets = [kept[TopicPartition(workload.topic, PartitionIndex(index))] for index in PLACES]
    try:
        workload.judge(
            [[int(value) for value in one] for one in found],
            [-1 if one is None else one.offset for one in offsets],
        )
    except AssertionError as wrong:
        return wrong
    return None


async def outcomes(
    kafka: HasBootstrap,
    tasks: Mapping[str, "asyncio.Task[None]"],
    workloads: Mapping[str, Workload],
) -> dict[str, BaseException | None]:
    """Return the error of each workload, when all have ended."""
    for workload in workloads.values():
        workload.end()
    ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
    wrong = dict(zip(tasks, ended, strict=True))
    return wrong | {
        name: wrong[name] or await check_workload(kafka, workload)
        for name, workload in workloads.items()
    }


# Leaders are killed, one after the other.


@pytest.fixture(scope="module")
def errors_after_leader_kills(kafka: KafkaCluster) -> dict[str, BaseException | None]:
    """Return the errors of workloads that ran while three leaders were killed."""

    async def lived() -> dict[str, BaseException | None]:
        workloads: dict[str, Workload] = {}
        for name, (kind, protocol) in PARTIES.items():
            topic = await made_topic(kafka, f"deaths-{name}")
            workloads[name] = kind(kafka.bootstrap, topic, protocol)
        tasks = {name: asyncio.create_task(workload.live()) for name, workload in workloads.items()}
        try:
            await all_make_progress(workloads.values(), tasks.values())
            for partition, workload in enumerate([*workloads.values()][:3]):
                leader = await asyncio.to_thread(kafka.leader_of, workload.topic, partition)
                await asyncio.to_thread(kafka.kill, leader)
                for one in workloads.values():
                    one.fail()
                await all_make_progress(workloads.values(), tasks.values())
                await asyncio.to_thread(kafka.revive)
                await all_make_progress(workloads.values(), tasks.values())
            # A paused broker still believes that it leads when it is already deposed.
            first = workloads["async-classic"].topic
            leader = await asyncio.to_thread(kafka.leader_of, first, 0)
            with kafka.frozen(leader):
                await asyncio.to_thread(kafka.leader_of, first, 0)
            await asyncio.to_thread(kafka.revive)
            await all_make_progress(workloads.values(), tasks.values())
        except BaseException:
            for workload in workloads.values():
                workload.abandon()
            raise
        return await outcomes(kafka, tasks, workloads)

    return run(lived())


@pytest.mark.parametrize("name", PARTIES)
def test_killed_leaders_lose_duplicate_and_reorder_nothing(
    errors_after_leader_kills: dict[str, BaseException | None], name: str
) -> None:
    if (wrong := errors_after_leader_kills[name]) is not None:
        raise wrong


# One broker is down for a minute. It led partitions, coordinated groups and open transactions, and
# was the only bootstrap server of some clients.


def named(kafka: KafkaCluster, kind: CoordinatorKind, node: int, prefix: str) -> str:
    """Return a name whose coordinator is the given broker."""
    names = (f"{prefix}-{number}" for number in count())
    return next(name for name in names if kafka.coordinator_of(kind, name) == node)


@pytest.fixture(scope="module")
def errors_after_a_minute(kafka: KafkaCluster) -> dict[str, BaseException | None]:
    """Return the errors of workloads that ran while a broker was down for a minute."""

    async def lived() -> dict[str, BaseException | None]:
        await asyncio.to_thread(kafka.revive)
        async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            await admin.elect_leaders(Election.PREFERRED)
        gone = await asyncio.to_thread(kafka.coordinator_of, CoordinatorKind.GROUP, "minute")
        servers, seed, stage = kafka.bootstrap, kafka.bootstrap_of(gone), Stage()
        doing: dict[str, Coroutine[Any, Any, None]] = {}
        workloads: dict[str, Workload] = {}
        for name, (kind, protocol) in PARTIES.items():
            topic = await made_topic(kafka, f"minute-{name}")
            group = await asyncio.to_thread(named, kafka, CoordinatorKind.GROUP, gone, topic)
            workloads[name] = kind(servers, topic, protocol, group)
            doing[name] = workloads[name].live()
        for name, (clients, commits) in TRANSACTIONS.items():
            topic = await made_topic(kafka, f"minute-{name}")
            key = await asyncio.to_thread(named, kafka, CoordinatorKind.TRANSACTION, gone, topic)
            doing[name] = transacts(clients, servers, topic, key, stage, commits=commits)
        for name, clients in SEEDS.items():
            topic = await made_topic(kafka, f"minute-{name}")
            doing[name] = goes_on(clients, seed, topic, stage)
        on_stage = len(TRANSACTIONS) + len(SEEDS)
        tasks = {name: asyncio.create_task(one) for name, one in doing.items()}
        try:
            await until(lambda: stage.ready_count == on_stage, tasks.values())
            await all_make_progress(workloads.values(), tasks.values())
            await asyncio.to_thread(kafka.kill, gone)
            died_s = time.monotonic()
            stage.away.set()
            for workload in workloads.values():
                workload.fail()
            await all_make_progress(workloads.values(), tasks.values())
            await asyncio.sleep(died_s + MINUTE_S - time.monotonic())
            await asyncio.to_thread(kafka.revive)
            stage.back.set()
            await all_make_progress(workloads.values(), tasks.values())
        except BaseException:
            for workload in workloads.values():
                workload.abandon()
            raise
        return await outcomes(kafka, tasks, workloads)

    return run(lived())


@pytest.mark.parametrize("name", PARTIES)
def test_group_survives_a_minute_without_its_coordinator(
    errors_after_a_minute: dict[str, BaseException | None], name: str
) -> None:
    if (wrong := errors_after_a_minute[name]) is not None:
        raise wrong


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_transaction_is_atomic_when_its_coordinator_dies(
    kafka: KafkaCluster, errors_after_a_minute: dict[str, BaseException | None], name: str
) -> None:
    if (wrong := errors_after_a_minute[name]) is not None:
        raise wrong
    _, commits = TRANSACTIONS[name]
    rounds = ([b"before", b"meanwhile"] if commits else []) + [b"next", b"last"]
    topic = f"minute-{name}"
    run(no_open_transactions(kafka, topic))
    assert values(kafka.bootstrap, topic, PARTITIONS, "read_committed") == [
        in_partition(index, *rounds) for index in PLACES
    ]


async def no_open_transactions(kafka: KafkaCluster, topic: str) -> None:
    """Wait until a topic has no open transaction: EndTxn is answered before all markers are
    written.
    """
    ones = [(topic, index) for index in PLACES]
    settings = {"bootstrap.servers": kafka.bootstrap}
    async with (
        asyncio.timeout(SOON_S),
        Consumer(settings) as any_record,
        Consumer(settings, isolation_level="read_committed") as committed,
    ):
        while await committed.end_offsets(*ones) != await any_record.end_offsets(*ones):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("name", SEEDS)
def test_client_with_one_seed_goes_on_with_other_brokers(
    kafka: KafkaCluster, errors_after_a_minute: dict[str, BaseException | None], name: str
) -> None:
    if (wrong := errors_after_a_minute[name]) is not None:
        raise wrong
    assert values(kafka.bootstrap, f"minute-{name}", PARTITIONS) == [
        in_partition(index, b"before", b"meanwhile", b"last") for index in PLACES
    ]


# All brokers are down for a while.

HASTY = {"delivery.timeout.ms": 10_000, "request.timeout.ms": 4000}


@contextmanager
def frozen(kafka: KafkaCluster) -> Generator[None]:
    with kafka.frozen(1, 2, 3):
        yield
    kafka.wait_in_sync()


@contextmanager
def killed(kafka: KafkaCluster) -> Generator[None]:
    for node in kafka.brokers:
        kafka.kill(node)
    yield
    kafka.revive()


@pytest.mark.parametrize("gone", [frozen, killed])
def test_timeout_decides_while_all_brokers_are_gone(
    kafka: KafkaCluster, gone: Callable[[KafkaCluster], AbstractContextManager[None]]
) -> None:
    servers = kafka.bootstrap

    async def scenario(name: str, clients: Clients, stage: Stage) -> None:
        kept, given_up = [await made_topic(kafka, f"{one}-{name}") for one in ("kept", "given-up")]
        async with (
            clients.producer(PATIENT, bootstrap_servers=servers) as patient,
            clients.producer(HASTY, bootstrap_servers=servers) as hasty,
        ):
            for ack in (await send(patient, kept, b"a")) + (await send(hasty, given_up, b"a")):
                await ack
            stage.ready(name)
            await stage.away.wait()
            acks = await send(patient, kept, b"b")
            for ack in await send(hasty, given_up, b"b"):
                with pytest.raises(RequestError, match=rf"given-up-{name}-\d: not written in 10 s"):
                    await ack
            stage.ready(f"{name} again")
            for ack in acks + (await send(patient, kept, b"c")):
                await ack
            await stage.back.wait()
            for ack in await send(hasty, given_up, b"c"):
                await ack
        for index, found in enumerate(values(servers, kept, PARTITIONS)):
            assert found == in_partition(index, b"a", b"b", b"c")
        for index, found in enumerate(values(servers, given_up, PARTITIONS)):
            # Records that were given up may be there, once and in order: a paused broker had
            # received them.
            perhaps = [one for one in in_partition(index, b"b") if one in found]
            assert found == in_partition(index, b"a") + perhaps + in_partition(index, b"c")

    async def all_of_them() -> None:
        await asyncio.to_thread(kafka.revive)
        stage = Stage()
        tasks = [
            asyncio.create_task(scenario(f"{name}-{gone.__name__}", clients, stage))
            for name, clients in CLIENTS.items()
        ]
        await until(lambda: stage.ready_count == len(tasks), tasks)
        with gone(kafka):
            stage.away.set()
            await until(lambda: stage.ready_count == 2 * len(tasks), tasks)
        stage.back.set()
        await asyncio.gather(*tasks)

    run(all_of_them())


# A leader moves, and the old leader returns the new one in its responses (KIP-951).


async def move_leader(kafka: KafkaCluster, topic: str) -> None:
    """Move the leader of the first partition; return when all three brokers know."""
    where = TopicPartition(topic, PartitionIndex(0))
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        first, second, third = (await admin.describe_topic(topic)).partitions[0].replicas
        moved = await admin.alter_reassignments({where: (second, third, first)})
        assert not moved.failed
        elected = await admin.elect_leaders(Election.PREFERRED, [where])
        assert elected[where]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])

    def leader_at(node: int) -> int:
        with kafka.brokers[node].wire() as wire:
            return wire.ask(request, 12, MetadataResponse).topics[0].partitions[0].leader_id

    await until(lambda: [leader_at(node) for node in kafka.brokers] == [second] * 3)


def test_moved_leader_is_found_by_leader_hints(
    kafka: KafkaCluster, clients: Clients, request: pytest.FixtureRequest
) -> None:
    name = f"hints-{request.node.callspec.id}"

    async def scenario() -> None:
        await asyncio.to_thread(kafka.revive)
        topic = await made_topic(kafka, name)
        await asyncio.to_thread(kafka.wait_in_sync)
        writing, reading = Counting(), Counting()
        settings = {"bootstrap.servers": kafka.bootstrap}
        async with (
            clients.producer(settings, network=writing) as ours,
            clients.consumer(settings, network=reading, auto_offset_reset="earliest") as reader,
        ):
            reader.assign((topic, 0))
            await (await ours.send(topic, b"before", partition=0))
            assert [one.value for one in await reader.poll(SOON_S)] == [b"before"]
            reader.pause((topic, 0))
            await until(lambda: not reading.awaited[FetchRequest])
            asked = writing.asked[MetadataRequest], reading.asked[MetadataRequest]
            verified = reading.asked[OffsetForLeaderEpochRequest]
            await move_leader(kafka, topic)
            assert ours.metrics().record_retry_total == 0
            await (await ours.send(topic, b"after", partition=0))
            assert ours.metrics().record_retry_total == 1  # the old leader was asked first
            reader.resume((topic, 0))
            assert [one.value for one in await reader.poll(SOON_S)] == [b"after"]
            # The consumer validated its position at the new leader.
            assert reading.asked[OffsetForLeaderEpochRequest] == verified + 1
            assert (writing.asked[MetadataRequest], reading.asked[MetadataRequest]) == asked

    run(scenario())
