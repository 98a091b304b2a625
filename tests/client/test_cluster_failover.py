"""The client against three brokers that are killed and paused under load.

The brokers are those of Ottla or of Apache Kafka. Properties that Kafka does not guarantee are not
tested. Unclean elections are off, as by default, so a leader has every acknowledged record. How
long a partition or a group is unavailable is up to the cluster. A record that a producer gave up
may still be written, once. Records that a group processed and could not commit are processed again,
by any member.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, TypeVar

import pytest

from client.both_clusters import ClusterTarget, FailingCluster, target
from client.chaos_workload import (
    PARTITIONS,
    PATIENT,
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
from ottla.client.admin.administrator import Admin
from ottla.client.admin.reassignments import Election
from ottla.client.consumer.consumer import Consumer
from ottla.client.network.coordinators import CoordinatorKind
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

__all__ = ["target"]  # a fixture

SOON_S = 180.0
THREADS = 32
"""Enough for every blocking call of the sync clients."""

CLASSIC = {
    "async-classic": (AsyncWorkload, "classic"),
    "sync-classic": (SyncWorkload, "classic"),
}
MODERN = {
    "async-consumer": (AsyncWorkload, "consumer"),
    "sync-consumer": (SyncWorkload, "consumer"),
}
TRANSACTIONS = {
    f"{name}-{'commits' if commits else 'aborts'}": (clients, commits)
    for name, clients in CLIENTS.items()
    for commits in (True, False)
}
SEEDS = {f"{name}-seed": clients for name, clients in CLIENTS.items()}

T = TypeVar("T")


def workloads_for(target: ClusterTarget) -> dict[str, tuple[type[Workload], str]]:
    """Return the workloads, and the group protocol of each."""
    return {**CLASSIC, **(MODERN if target.has_everything else {})}


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
    """Wait until each workload has processed and committed records written from now on.

    A member that is to fail has failed by then.
    """
    marks = [(workload, workload.sent, workload.kept + 3) for workload in workloads]
    await until(
        lambda: all(
            one.total > sent and one.kept >= kept and not one.is_failing
            for one, sent, kept in marks
        ),
        tasks,
    )


async def made_topic(cluster: FailingCluster, name: str) -> str:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        try:
            await admin.create_topic(name, PARTITIONS, 3)
        except RequestError as error:
            # On a busy machine the response is too late, and the client asks again.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    return name


async def check_workload(cluster: FailingCluster, workload: Workload) -> BaseException | None:
    """Return the error in the results of a workload, or None."""
    found = await asyncio.to_thread(values, cluster.bootstrap, workload.topic, PARTITIONS)
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
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


async def check_all(
    cluster: FailingCluster,
    tasks: Mapping[str, "asyncio.Task[None]"],
    workloads: Mapping[str, Workload],
) -> None:
    """Wait until all tasks have ended, and raise the errors of all of them."""
    for workload in workloads.values():
        workload.end()
    ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
    wrong = dict(zip(tasks, ended, strict=True))
    for name, workload in workloads.items():
        wrong[name] = wrong[name] or await check_workload(cluster, workload)
    errors = [error for error in wrong.values() if error is not None]
    if errors:
        names = ", ".join(name for name, error in wrong.items() if error is not None)
        raise BaseExceptionGroup(f"wrong: {names}", errors)


def started(tasks: Mapping[str, Coroutine[Any, Any, None]]) -> "dict[str, asyncio.Task[None]]":
    return {name: asyncio.create_task(one) for name, one in tasks.items()}


@contextmanager
def abandoned_on_failure(workloads: Mapping[str, Workload]) -> Generator[None]:
    """Stop the workloads as soon as possible if the block fails."""
    try:
        yield
    except BaseException:
        for workload in workloads.values():
            workload.abandon()
        raise


# Leaders are killed, one after the other.


def test_killed_leaders_lose_duplicate_and_reorder_nothing(target: ClusterTarget) -> None:
    cluster = target.cluster

    async def scenario() -> None:
        workloads: dict[str, Workload] = {}
        for name, (kind, protocol) in workloads_for(target).items():
            topic = await made_topic(cluster, f"deaths-{name}")
            workloads[name] = kind(cluster.bootstrap, topic, protocol, session_ms=target.session_ms)
        tasks = started({name: workload.live() for name, workload in workloads.items()})
        with abandoned_on_failure(workloads):
            await all_make_progress(workloads.values(), tasks.values())
            for partition, workload in enumerate([*workloads.values()][: target.kills]):
                leader = await asyncio.to_thread(cluster.leader_of, workload.topic, partition)
                await asyncio.to_thread(cluster.kill, leader)
                for one in workloads.values():
                    one.fail()
                await all_make_progress(workloads.values(), tasks.values())
                await asyncio.to_thread(cluster.revive)
                await all_make_progress(workloads.values(), tasks.values())
            # A paused broker still believes that it leads when it is already deposed.
            first = workloads["async-classic"].topic
            leader = await asyncio.to_thread(cluster.leader_of, first, 0)
            with cluster.frozen(leader):
                await asyncio.to_thread(cluster.leader_of, first, 0)
            await asyncio.to_thread(cluster.revive)
            await all_make_progress(workloads.values(), tasks.values())
        await check_all(cluster, tasks, workloads)

    run(scenario())


# One broker is down for a while. It led partitions, coordinated groups and open transactions, and
# was the only bootstrap server of some clients.


def named(cluster: FailingCluster, kind: CoordinatorKind, node: int, prefix: str) -> str:
    """Return a name whose coordinator is the given broker."""
    names = (f"{prefix}-{number}" for number in count())
    return next(name for name in names if cluster.coordinator_of(kind, name) == node)


def test_clients_go_on_without_a_coordinator_or_bootstrap_server(target: ClusterTarget) -> None:
    cluster = target.cluster
    transactions = TRANSACTIONS if target.has_everything else {}

    async def scenario() -> None:
        await asyncio.to_thread(cluster.revive)
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            await admin.elect_leaders(Election.PREFERRED)
        gone = await asyncio.to_thread(cluster.coordinator_of, CoordinatorKind.GROUP, "away")
        servers, seed, stage = cluster.bootstrap, cluster.bootstrap_of(gone), Stage()
        doing: dict[str, Coroutine[Any, Any, None]] = {}
        workloads: dict[str, Workload] = {}
        for name, (kind, protocol) in workloads_for(target).items():
            topic = await made_topic(cluster, f"away-{name}")
            group = await asyncio.to_thread(named, cluster, CoordinatorKind.GROUP, gone, topic)
            workloads[name] = kind(servers, topic, protocol, group, session_ms=target.session_ms)
            doing[name] = workloads[name].live()
        for name, (clients, commits) in transactions.items():
            topic = await made_topic(cluster, f"away-{name}")
            key = await asyncio.to_thread(named, cluster, CoordinatorKind.TRANSACTION, gone, topic)
            doing[name] = transacts(clients, servers, topic, key, stage, commits=commits)
        for name, clients in SEEDS.items():
            topic = await made_topic(cluster, f"away-{name}")
            doing[name] = goes_on(clients, seed, topic, stage)
        on_stage = len(transactions) + len(SEEDS)
        tasks = started(doing)
        with abandoned_on_failure(workloads):
            await until(lambda: stage.ready_count == on_stage, tasks.values())
            await all_make_progress(workloads.values(), tasks.values())
            await asyncio.to_thread(cluster.kill, gone)
            died_s = time.monotonic()
            stage.away.set()
            for workload in workloads.values():
                workload.fail()
            await all_make_progress(workloads.values(), tasks.values())
            await asyncio.sleep(died_s + target.away_s - time.monotonic())
            await asyncio.to_thread(cluster.revive)
            stage.back.set()
            await all_make_progress(workloads.values(), tasks.values())
        await check_all(cluster, tasks, workloads)
        for name, (_, commits) in transactions.items():
            rounds = ([b"before", b"meanwhile"] if commits else []) + [b"next", b"last"]
            topic = f"away-{name}"
            await no_open_transactions(cluster, topic)
            assert await read(cluster, topic, "read_committed") == [
                in_partition(index, *rounds) for index in PLACES
            ]
        for name in SEEDS:
            assert await read(cluster, f"away-{name}") == [
                in_partition(index, b"before", b"meanwhile", b"last") for index in PLACES
            ]

    run(scenario())


async def read(
    cluster: FailingCluster, topic: str, isolation: str = "read_uncommitted"
) -> list[list[bytes]]:
    return await asyncio.to_thread(values, cluster.bootstrap, topic, PARTITIONS, isolation)


async def no_open_transactions(cluster: FailingCluster, topic: str) -> None:
    """Wait until a topic has no open transaction: EndTxn is answered before all markers are
    written.
    """
    ones = [(topic, index) for index in PLACES]
    settings = {"bootstrap.servers": cluster.bootstrap}
    async with (
        asyncio.timeout(SOON_S),
        Consumer(settings) as any_record,
        Consumer(settings, isolation_level="read_committed") as committed,
    ):
        while await committed.end_offsets(*ones) != await any_record.end_offsets(*ones):
            await asyncio.sleep(0.05)


# All brokers are down for a while.


@contextmanager
def frozen(cluster: FailingCluster) -> Generator[None]:
    with cluster.frozen(*cluster.nodes):
        yield
    cluster.wait_in_sync()


@contextmanager
def killed(cluster: FailingCluster) -> Generator[None]:
    for node in cluster.nodes:
        cluster.kill(node)
    yield
    cluster.revive()


@pytest.mark.parametrize("gone", [frozen, killed])
def test_timeout_decides_while_all_brokers_are_gone(
    target: ClusterTarget, gone: Callable[[FailingCluster], AbstractContextManager[None]]
) -> None:
    cluster, servers = target.cluster, target.cluster.bootstrap
    delivery_ms = int(target.delivery_s * 1000)
    hasty_settings = {
        "delivery.timeout.ms": delivery_ms,
        "request.timeout.ms": delivery_ms * 2 // 5,
    }
    given_up_text = rf"\d: not written in {target.delivery_s:g} s"

    async def one_client(name: str, clients: Clients, stage: Stage) -> None:
        topics = [await made_topic(cluster, f"{one}-{name}") for one in ("kept", "given-up")]
        kept, given_up = topics
        async with (
            clients.producer(PATIENT, bootstrap_servers=servers) as patient,
            clients.producer(hasty_settings, bootstrap_servers=servers) as hasty,
        ):
            for ack in (await send(patient, kept, b"a")) + (await send(hasty, given_up, b"a")):
                await ack
            stage.ready(name)
            await stage.away.wait()
            acks = await send(patient, kept, b"b")
            for ack in await send(hasty, given_up, b"b"):
                with pytest.raises(RequestError, match=f"given-up-{name}-{given_up_text}"):
                    await ack
            stage.ready(f"{name} again")
            for ack in acks + (await send(patient, kept, b"c")):
                await ack
            await stage.back.wait()
            for ack in await send(hasty, given_up, b"c"):
                await ack
        for index, found in enumerate(await read(cluster, kept)):
            assert found == in_partition(index, b"a", b"b", b"c")
        for index, found in enumerate(await read(cluster, given_up)):
            # Records that were given up may be there, once and in order: a paused broker had
            # received them.
            perhaps = [one for one in in_partition(index, b"b") if one in found]
            assert found == in_partition(index, b"a") + perhaps + in_partition(index, b"c")

    async def scenario() -> None:
        await asyncio.to_thread(cluster.revive)
        stage = Stage()
        tasks = [
            asyncio.create_task(one_client(f"{name}-{gone.__name__}", clients, stage))
            for name, clients in CLIENTS.items()
        ]
        await until(lambda: stage.ready_count == len(tasks), tasks)
        with gone(cluster):
            stage.away.set()
            await until(lambda: stage.ready_count == 2 * len(tasks), tasks)
        stage.back.set()
        await asyncio.gather(*tasks)

    run(scenario())


# A leader moves, and the old leader returns the new one in its responses (KIP-951).


async def move_leader(cluster: FailingCluster, topic: str) -> None:
    """Move the leader of the first partition; return when all three brokers know."""
    where = TopicPartition(topic, PartitionIndex(0))
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        first, second, third = (await admin.describe_topic(topic)).partitions[0].replicas
        moved = await admin.alter_reassignments({where: (second, third, first)})
        assert not moved.failed
        elected = await admin.elect_leaders(Election.PREFERRED, [where])
        assert elected[where]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])

    def leader_at(node: int) -> int:
        with cluster.wire(node) as wire:
            return wire.ask(request, 12, MetadataResponse).topics[0].partitions[0].leader_id

    await until(lambda: [leader_at(node) for node in cluster.nodes] == [second] * 3)


def test_moved_leader_is_found_by_leader_hints(
    target: ClusterTarget, clients: Clients, request: pytest.FixtureRequest
) -> None:
    cluster = target.cluster
    name = f"hints-{request.node.callspec.id}"

    async def scenario() -> None:
        await asyncio.to_thread(cluster.revive)
        topic = await made_topic(cluster, name)
        await asyncio.to_thread(cluster.wait_in_sync)
        writing, reading = Counting(), Counting()
        settings = {"bootstrap.servers": cluster.bootstrap}
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
            await move_leader(cluster, topic)
            assert ours.metrics().record_retry_total == 0
            await (await ours.send(topic, b"after", partition=0))
            assert ours.metrics().record_retry_total == 1  # the old leader was asked first
            reader.resume((topic, 0))
            assert [one.value for one in await reader.poll(SOON_S)] == [b"after"]
            # The consumer validated its position at the new leader.
            assert reading.asked[OffsetForLeaderEpochRequest] == verified + 1
            assert (writing.asked[MetadataRequest], reading.asked[MetadataRequest]) == asked

    run(scenario())
