"""A whole broker: topics are created, records are produced and fetched, also after a restart."""

import asyncio
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.nodes import Client, broker, run
from ottla.broker import node
from ottla.broker.topics import Topics
from ottla.cluster.topic_creation import AskedTopic
from ottla.controller import lease
from ottla.controller.controller import Controller
from ottla.controller.loading import StoredCluster
from ottla.controller.store import ClusterStore, NewTopic
from ottla.coordination.embedded import EmbeddedSession, EmbeddedStore
from ottla.coordination.session import Listener
from ottla.errors import ErrorCode, StorageFailure
from ottla.ids import ZERO_UUID, BrokerEpoch, Uuid
from ottla.log.log_manager import LogManager
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.batch import batches
from ottla.records.builder import BatchBuilder
from ottla.transport.listener import AddressTaken


def batch(*values: bytes, producer_id: int = -1, sequence: int = -1) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(1_700_000_000_000, b"k", value)
    if producer_id < 0:
        return builder.build()
    return builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


async def create(client: Client, name: str, partitions: int = 1, **config: str) -> Uuid:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ],
    )
    (result,) = (await client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)).topics
    assert result.error_code == 0, result.error_message
    return result.topic_id


async def produce(
    client: Client, topic: str, records: bytes, *, acks: int = -1, index: int = 0
) -> tuple[int, int]:
    """Produce a batch and return the error code and the base offset."""
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=index, records=records)]
            )
        ],
    )
    answer = await client.ask(request, ProduceResponse, 12)
    (partition,) = answer.responses[0].partition_responses
    return partition.error_code, partition.base_offset


def fetch_request(
    topic_id: Uuid, offset: int, *, wait_ms: int = 0, bytes_min: int = 1
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )


async def fetch(client: Client, topic_id: Uuid, offset: int = 0, **how: int) -> list[bytes | None]:
    answer = await client.ask(fetch_request(topic_id, offset, **how), FetchResponse)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == 0
    return [
        record.value
        for one in batches(partition.records or b"")
        for record in one.records()
        if record.offset >= offset
    ]


def test_produced_records_are_fetched_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t", 2)
            assert await produce(client, "t", batch(b"a", b"b")) == (0, 0)
            assert await produce(client, "t", batch(b"c"), acks=1) == (0, 2)
            assert await fetch(client, topic_id) == [b"a", b"b", b"c"]
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await fetch(client, topic_id, 1) == [b"b", b"c"]
            assert await produce(client, "t", batch(b"d")) == (0, 3)
            found = await client.ask(MetadataRequest(topics=None), MetadataResponse)
            (topic,) = found.topics
            assert (topic.name, topic.topic_id, len(topic.partitions)) == ("t", topic_id, 2)
            assert {one.leader_epoch for one in topic.partitions} == {1}

    run(scenario)


def test_shutdown_answers_waiting_fetches(tmp_path: Path) -> None:
    async def scenario() -> None:
        answers: list[list[bytes | None]] = []

        async def poll(client: Client, topic_id: Uuid) -> None:
            while True:
                answers.append(await fetch(client, topic_id, wait_ms=50_000))

        async with broker(tmp_path) as running:
            topic_id = await create(await running.client(), "t")
            client = Client(*await asyncio.open_connection("127.0.0.1", running.port))
            polling = asyncio.create_task(poll(client, topic_id))
            await asyncio.sleep(0.05)
            assert not answers
        # A client that waits longer than the grace period is disconnected without a response.
        with pytest.raises((EOFError, ConnectionError)):
            await polling
        await client.close()
        assert answers
        assert not any(answers)

    run(scenario)


def test_topic_creation_finishes_after_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        stored, goes_on = asyncio.Event(), asyncio.Event()
        create_topics, take_over = ClusterStore.create_topics, Topics.take_over
        started: list[Topics] = []

        async def take_over_and_tell(
            topics: Topics, controller: Controller, found: StoredCluster, **how: Any
        ) -> None:
            started.append(topics)
            await take_over(topics, controller, found, **how)

        async def slowly(store: ClusterStore, topics: Sequence[NewTopic]) -> None:
            await create_topics(store, topics)
            stored.set()
            await goes_on.wait()

        monkeypatch.setattr(Topics, "take_over", take_over_and_tell)
        monkeypatch.setattr(ClusterStore, "create_topics", slowly)
        async with broker(tmp_path) as running:
            creating = asyncio.create_task(started[0].create(AskedTopic("t"), {}))
            await stored.wait()
            creating.cancel()
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await creating
            assert await produce(await running.client(), "t", batch(b"a")) == (0, 0)

    run(scenario)


def test_storage_failure_is_returned_to_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async def fail(*args: object) -> None:
            raise StorageFailure("the journal: Input/output error")

        monkeypatch.setattr(ClusterStore, "create_topics", fail)
        async with broker(tmp_path) as running:
            client = await running.client()
            with pytest.raises(AssertionError, match="Input/output error"):
                await create(client, "t")

    run(scenario)


def test_deleted_topic_can_be_recreated(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            first = await create(client, "t", retention_ms="5000")
            await produce(client, "t", batch(b"old"))
            state = DeleteTopicState(name="t", topic_id=Uuid(bytes(16)))
            answer = await client.ask(
                DeleteTopicsRequest(topics=[state], timeout_ms=1000), DeleteTopicsResponse
            )
            assert [one.error_code for one in answer.responses] == [0]
            second = await create(client, "t")
            assert first != second
            assert await fetch(client, second) == []
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await fetch(client, second) == []
            found = await client.ask(fetch_request(first, 0), FetchResponse)
            assert found.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(scenario)


def test_interrupted_deletion_leaves_no_records_to_a_new_topic(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        left, aside = tmp_path / "data" / "t-0", tmp_path / "aside"
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            await produce(client, "t", batch(b"old"))
        shutil.copytree(left, aside)
        async with broker(tmp_path) as running:
            client = await running.client()
            await client.ask(
                DeleteTopicsRequest(
                    topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1000
                ),
                DeleteTopicsResponse,
            )
        shutil.copytree(aside, left)  # as if the broker had died after it stored the deletion
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            assert await produce(client, "t", batch(b"new")) == (0, 0)
        async with broker(tmp_path) as running:
            assert await produce(await running.client(), "t", batch(b"newer")) == (0, 1)

    run(scenario)


def test_session_that_expires_during_the_start_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[EmbeddedSession] = []
    stores: list[EmbeddedStore] = []
    connect, open_logs, register = EmbeddedStore.connect, LogManager.open, lease.register

    async def connected(store: EmbeddedStore, listener: Listener) -> EmbeddedSession:
        stores.append(store)
        sessions.append(await connect(store, listener))
        return sessions[-1]

    async def opened(*args: Any, **options: Any) -> LogManager:
        await stores[0].expire(sessions[0].id)  # the logs take longer than the session timeout
        return await open_logs(*args, **options)

    async def registered(*args: Any, **options: Any) -> BrokerEpoch:
        epoch = await register(*args, **options)
        if len(sessions) == 2:  # before the election
            await stores[0].expire(sessions[1].id)
        return epoch

    monkeypatch.setattr(EmbeddedStore, "connect", connected)
    monkeypatch.setattr(LogManager, "open", opened)
    monkeypatch.setattr(node, "register", registered)

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            assert len(sessions) == 3
            assert running.parts.topics.is_controller
            await create(await running.client(), "t")

    run(scenario)


def test_failed_start_releases_its_resources(tmp_path: Path) -> None:
    """A later start in the same process can use the same addresses and directories."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        first = f"PLAINTEXT://127.0.0.1:{port}"
        protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
        with socket.create_server(("127.0.0.1", 0)) as holder:
            taken = int(holder.getsockname()[1])
            listeners = f"listeners={first},OTHER://127.0.0.1:{taken}"
            with pytest.raises(AddressTaken):
                async with broker(tmp_path, listeners, protocols):
                    pass
        async with broker(tmp_path, f"listeners={first}") as running:
            assert running.port == port
            client = await running.client()
            await create(client, "t")
            assert await produce(client, "t", batch(b"x")) == (0, 0)

    run(scenario)


def test_connections_are_closed_before_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = LogManager.close
    tried: list[bool] = []

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            # This client is not closed before the broker.
            client = Client(*await asyncio.open_connection("127.0.0.1", running.port))
            await create(client, "t")

            async def look(logs: LogManager, epoch: BrokerEpoch) -> dict[str, BaseException]:
                with pytest.raises((EOFError, ConnectionError)):
                    await produce(client, "t", batch(b"too late"))
                with pytest.raises(ConnectionError):
                    await running.client()
                tried.append(True)
                return await close(logs, epoch)

            monkeypatch.setattr(LogManager, "close", look)

        await client.close()

    run(scenario)
    assert tried == [True]
