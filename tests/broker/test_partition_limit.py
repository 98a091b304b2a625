"""The setting ottla.partitions.max, over the wire."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.nodes import Client, RunningBroker, broker, run
from broker.test_configs import BROKER_RESOURCE, set_one
from broker.test_node import batch, create, produce
from ottla import Admin, NewTopic
from ottla.broker.process_limits import ProcessLimits
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.testing import Cluster

LIMIT = "ottla.partitions.max"
Refusal = tuple[int, str]


RESERVED = ", of which 50 are reserved for internal topics"


def exceeded(present: int, more: int, limit: str = f"{LIMIT}=4") -> Refusal:
    counts = f"Broker 1 has {present} partition(s), and {more} more would exceed {limit}."
    return ErrorCode.POLICY_VIOLATION, (
        f"{counts} Delete topics, or raise {LIMIT} in the properties file."
    )


async def make(
    client: Client,
    name: str,
    partitions: int,
    *,
    assigned: bool = False,
    validate_only: bool = False,
) -> Refusal:
    rows = [
        CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(partitions)
    ]
    topic = CreatableTopic(
        name=name,
        num_partitions=-1 if assigned else partitions,
        replication_factor=-1,
        assignments=rows if assigned else [],
        configs=[],
    )
    request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    (result,) = (await client.ask(request, CreateTopicsResponse)).topics
    return result.error_code, result.error_message or ""


async def grow(client: Client, name: str, count: int, *, validate_only: bool = False) -> Refusal:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
    (result,) = (await client.ask(request, CreatePartitionsResponse)).results
    return result.error_code, result.error_message or ""


async def auto_create(client: Client, *names: str) -> list[int]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )
    return [one.error_code for one in (await client.ask(request, MetadataResponse)).topics]


def test_no_way_to_create_partitions_passes_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{LIMIT}=4", "num.partitions=2") as running:
            client = await running.client()
            await create(client, "a", 3)
            for validate_only in (True, False):
                refused = exceeded(3, 2)
                assert await make(client, "b", 2, validate_only=validate_only) == refused
                assert await make(client, "b", -1, validate_only=validate_only) == refused
                assert (
                    await make(client, "b", 2, assigned=True, validate_only=validate_only)
                    == refused
                )
                assert await grow(client, "a", 5, validate_only=validate_only) == refused
            for _ in range(2):  # one warning, although the client asks again
                assert await auto_create(client, "b") == [ErrorCode.INVALID_TOPIC_EXCEPTION]
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            (found,) = (await client.ask(request, FindCoordinatorResponse)).coordinators
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert found.error_message == exceeded(3, 50)[1]
            assert [*running.parts.metadata_cache.image.topics] == ["a"]
            assert len(running.parts.replica_manager.logs) == 3
            assert await grow(client, "a", 4) == (0, "")
            assert await make(client, "b", 1) == exceeded(4, 1)

    run(scenario)
    told = [one.args for one in caplog.records if one.msg == "topic not created"]
    assert told == [{"topic": "b", "reason": exceeded(3, 2)[1]}]


def test_topics_leave_room_for_the_offsets_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{LIMIT}=8", "offsets.topic.num.partitions=3") as running:
            client = await running.client()
            code, text = await make(client, "a", 6)
            assert code == ErrorCode.POLICY_VIOLATION
            assert "of which 3 are reserved for internal topics" in text
            assert await make(client, "a", 5) == (0, "")
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            (found,) = (await client.ask(request, FindCoordinatorResponse)).coordinators
            assert found.error_code == 0

    run(scenario)


def test_offsets_topic_over_the_limit_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{LIMIT}=4") as running:
            client = await running.client()
            for _ in range(2):
                request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
                (found,) = (await client.ask(request, FindCoordinatorResponse)).coordinators
                assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert f"would exceed {LIMIT}=4" in (found.error_message or "")

    run(scenario)
    (warned,) = [one for one in caplog.records if one.message == "offsets topic not created"]
    assert LIMIT in str(warned.args)


def test_racing_requests_do_not_pass_the_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{LIMIT}=4") as running:
            clients = [await running.client() for _ in range(6)]
            await create(clients[0], "a")
            outcomes = await asyncio.gather(
                *(make(one, f"t{number}", 2) for number, one in enumerate(clients[:3])),
                *(grow(one, "a", 3) for one in clients[3:]),
            )
            assert len(running.parts.replica_manager.logs) <= 4
            assert [code for code, _ in outcomes].count(0) == 1

    run(scenario)


async def until_served(running: RunningBroker, connections: int) -> None:
    """Wait until as many connections have a request that is served; run() limits the wait."""
    (listener,) = running.node.listeners
    while sum(not one.is_idle for one in listener.connections) < connections:
        await asyncio.sleep(0)


@pytest.mark.parametrize("first", ["creation", "growth"])
def test_creation_and_growth_in_a_race_keep_the_limit(tmp_path: Path, first: str) -> None:
    """The requests of two connections wait for their turn together."""

    async def scenario() -> None:
        async with broker(tmp_path, f"{LIMIT}=4") as running:
            clients = [await running.client() for _ in range(2)]
            topics, image = running.parts.topics, running.parts.metadata_cache
            for grown_to in (4, 5, 10_002, 2**31 - 1):
                requests = {"creation": make, "growth": grow}
                counts = {"creation": 3, "growth": grown_to}
                sent = dict[str, asyncio.Task[Refusal]]()
                async with asyncio.TaskGroup() as tasks, topics.controller.turn:
                    for name in (first, *(requests.keys() - {first})):
                        change = requests[name](clients[len(sent)], "a", counts[name])
                        sent[name] = tasks.create_task(change)
                        await until_served(running, len(sent))
                assert sent["creation"].result() == (0, "")
                code, _ = sent["growth"].result()
                partitions = 3
                if first == "growth":
                    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif grown_to > 4:
                    assert code == ErrorCode.POLICY_VIOLATION
                else:
                    assert code == 0
                    partitions = 4
                assert len(image.image.topics["a"].partitions) == partitions
                assert len(running.parts.replica_manager.logs) == partitions
                await topics.delete("a")

    run(scenario)


def test_reassignments_do_not_pass_the_limit() -> None:
    async def scenario() -> None:
        async with (
            Cluster(brokers=2, settings={LIMIT: 5}) as cluster,  # one is reserved
            Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        ):
            topics = [
                NewTopic("a", replicas={index: [1] for index in range(3)}),
                NewTopic("b", replicas={index: [2] for index in range(2)}),
            ]
            (await admin.create_topics(topics)).or_raise()
            moved = await admin.alter_reassignments({("a", 0): [2], ("a", 1): [2], ("a", 2): [2]})
            for error in moved.failed.values():
                assert error.code is ErrorCode.POLICY_VIOLATION
                assert "Broker 2 has 2 partition(s), and 3 more would exceed" in str(error)
            assert len(moved.failed) == 3
            more = {("a", 0): [1, 2], ("a", 1): [1, 2], ("a", 2): [1, 2]}
            assert len((await admin.alter_reassignments(more)).failed) == 3
            assert await admin.list_reassignments() == {}
            (await admin.alter_reassignments({("a", 0): [2], ("a", 1): [2, 1]})).or_raise()
            await cluster.settled()
            image = cluster.brokers[0].image
            assert image is not None
            assert [one.replicas for one in image.topics["a"].partitions] == [(2,), (2, 1), (1,)]

    run(scenario)


def test_controller_uses_the_limit_of_each_broker() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3, settings={LIMIT: 6}) as cluster:  # one is reserved
            (limited, other) = (one for one in cluster.brokers if one is not cluster.controller)
            await limited.stop()
            settings = limited._settings  # pyright: ignore[reportPrivateUsage]
            limited._settings = {**settings, LIMIT: 3}  # pyright: ignore[reportPrivateUsage]
            await limited.start()
            async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                for name, count, broker_id in (("a", 3, limited.id), ("b", 5, other.id)):
                    rows = {index: [broker_id] for index in range(count)}
                    created = await admin.create_topics([NewTopic(name, replicas=rows)])
                    if broker_id == other.id:
                        created.or_raise()
                    else:
                        with pytest.raises(RequestError, match=rf"{LIMIT}=3 \(the limit of broker"):
                            created.or_raise()
                (await admin.create_topics([NewTopic("c", replicas={0: [limited.id]})])).or_raise()
                both = {("b", index): [other.id, limited.id] for index in range(2)}
                assert len((await admin.alter_reassignments(both)).failed) == 2
                (await admin.create_topics([NewTopic("d", replicas={0: [limited.id]})])).or_raise()

    run(scenario)


def test_partitions_over_the_limit_open_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            await create(await running.client(), "a", 3)
        async with broker(tmp_path, f"{LIMIT}=2") as running:
            client = await running.client()
            for index in range(3):
                assert await produce(client, "a", batch(b"x"), index=index) == (0, 0)
            assert await make(client, "b", 1) == exceeded(3, 1, f"{LIMIT}=2")
        async with broker(tmp_path, f"{LIMIT}=4") as running:
            assert await make(await running.client(), "b", 1) == (0, "")

    run(scenario)
    told = [one.args for one in caplog.records if one.msg == "partition limit exceeded"]
    assert told == [{"partitions": 3, "limit": f"{LIMIT}=2"}]


def test_clients_cannot_change_the_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{LIMIT}=4") as running:
            client = await running.client()
            for name in ("", "1"):
                refused = await set_one(client, BROKER_RESOURCE, name, LIMIT, "9")
                assert refused == ErrorCode.INVALID_REQUEST
            assert await make(client, "a", 5) == exceeded(0, 5)

    run(scenario)


def test_limits_of_the_process_are_the_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ProcessLimits(lambda: 1_200, lambda: 10, None)

    async def scenario() -> None:
        async with broker(tmp_path, limits=limits) as running:
            client = await running.client()
            refused = exceeded(0, 151, f"{LIMIT}=150 (the default for 1200 open files){RESERVED}")
            assert await make(client, "a", 151, validate_only=True) == refused
            assert await make(client, "a", 100, validate_only=True) == (0, "")

    with caplog.at_level(logging.INFO):
        run(scenario)
    (told,) = [one.args for one in caplog.records if one.msg == "limits set"]
    assert isinstance(told, Mapping)
    assert told == {"open_files": 1_200, "connections": 1_200 - 64 - 10, "partitions": 150}


def test_setting_does_not_take_all_descriptors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ProcessLimits(lambda: 600, lambda: 10, None)

    async def scenario() -> None:
        async with broker(tmp_path, f"{LIMIT}=5000", limits=limits) as running:
            code, text = await make(await running.client(), "a", 376, validate_only=True)
            assert code == ErrorCode.POLICY_VIOLATION
            assert f"{LIMIT}=375 (600 open files do not allow 5000)" in text
            assert "Delete topics, or raise the limit: ulimit -n" in text

    run(scenario)
    (told,) = [one for one in caplog.records if one.msg == "partition limit lowered"]
    assert told.levelno == logging.WARNING
    assert told.args == {
        "limit": f"{LIMIT}=375 (600 open files do not allow 5000)",
        "remedy": "raise the limit: ulimit -n, or LimitNOFILE= of a systemd service",
    }
