"""In-process clusters with third-party clients: starts, stops and faults."""

import asyncio
import re
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiokafka
import pytest
import uvloop

from broker.nodes import Client
from broker.test_node import create, fetch_request
from ottla import Admin
from ottla.errors import OttlaError
from ottla.log.names import CLEAN_SHUTDOWN
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.settings.invalid_settings import InvalidSettings
from ottla.testing import Cluster

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_there(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(scenario(), 60))

    return run_there


# Any below: the client's types are incomplete.


async def produce(cluster: Cluster, *values: bytes) -> list[int]:
    """Produce records and return the acknowledged offsets."""
    producer: Any = aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all", request_timeout_ms=2000
    )
    await producer.start()
    try:
        return [(await producer.send_and_wait("t", one, partition=0)).offset for one in values]
    finally:
        await producer.stop()


async def consume(cluster: Cluster, count: int) -> list[bytes]:
    consumer: Any = aiokafka.AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        group_id="readers",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def client(cluster: Cluster) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", cluster.brokers[0].port))


def test_cluster_serves_clients_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=1) as cluster:
            assert await produce(cluster, b"a", b"b") == [0, 1]
            assert await consume(cluster, 2) == [b"a", b"b"]

    run(scenario)


def test_only_a_temporary_data_directory_is_deleted(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            folder = cluster.brokers[0].data
            assert folder.is_dir()
        assert not folder.parent.exists()
        async with Cluster(data=tmp_path) as cluster:
            await produce(cluster, b"a")
        async with Cluster(data=tmp_path) as cluster:
            assert await consume(cluster, 1) == [b"a"]

    run(scenario)


def test_killed_broker_keeps_acknowledged_records(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            (broker,) = cluster.brokers
            address = broker.address
            clean = broker.data / "logs" / CLEAN_SHUTDOWN
            for round_number in range(5):
                assert await produce(cluster, b"%d" % round_number) == [round_number]
                await broker.kill()
                assert not broker.running
                assert not clean.exists()
                with pytest.raises(ConnectionRefusedError):
                    await client(cluster)
                await broker.start()
            assert broker.address == address
            assert await consume(cluster, 5) == [b"%d" % n for n in range(5)]

    run(scenario)


def test_killed_broker_stores_and_answers_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            (broker,) = cluster.brokers
            connection = await client(cluster)
            waiting = fetch_request(await create(connection, "t"), 0, wait_ms=30_000)
            asked = asyncio.ensure_future(connection.ask(waiting, FetchResponse))
            other = await client(cluster)
            await other.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            before = contents(broker.data)
            await broker.kill()
            with pytest.raises((EOFError, ConnectionError)):
                await asked
            assert contents(broker.data) == before
            await connection.close()
            await other.close()

    run(scenario)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_stopped_broker_leaves_a_clean_shutdown_mark(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            (broker,) = cluster.brokers
            await produce(cluster, b"a")
            await broker.stop()
            assert (broker.data / "logs" / CLEAN_SHUTDOWN).exists()
            await broker.start()
            assert await consume(cluster, 1) == [b"a"]

    run(scenario)


def test_paused_broker_reads_nothing_until_resumed(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            (broker,) = cluster.brokers
            connection = await client(cluster)
            await connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            with broker.pause():
                late = await client(cluster)
                asked = [
                    asyncio.ensure_future(one.ask(ApiVersionsRequest(), ApiVersionsResponse, 0))
                    for one in (connection, late)
                ]
                done, _ = await asyncio.wait(asked, timeout=0.2)
                assert not done
            for answer in await asyncio.gather(*asked):
                assert answer.error_code == 0
            outer, inner = broker.pause(), broker.pause()
            outer.end()
            outer.end()
            asked[0] = asyncio.ensure_future(
                connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            )
            done, _ = await asyncio.wait(asked[:1], timeout=0.2)
            assert not done, "another pause goes on"
            inner.end()
            assert (await asked[0]).error_code == 0
            await connection.close()
            await late.close()

    run(scenario)


def test_controller_that_was_paused_decides_again(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            (broker,) = cluster.brokers
            with broker.pause():
                await asyncio.sleep(0)
            async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                await admin.create_topic("orders")

    run(scenario)


def test_full_disk_refuses_records_until_there_is_space(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            (broker,) = cluster.brokers
            await produce(cluster, b"a")
            with broker.disk_full():
                with pytest.raises(aiokafka.errors.KafkaError):  # pyright: ignore
                    await produce(cluster, b"lost")
                # Stored records are served.
                assert await consume_first(cluster) == b"a"
            assert await produce(cluster, b"b") == [1]
            assert await consume(cluster, 2) == [b"a", b"b"]

    run(scenario)


async def consume_first(cluster: Cluster) -> bytes:
    consumer: Any = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition("t", 0)
        consumer.assign([partition])
        return (await consumer.getone()).value
    finally:
        await consumer.stop()


def test_given_settings_are_used(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(
            settings={"num.partitions": 3, "auto.create.topics.enable": True}
        ) as cluster:
            producer: Any = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            await producer.start()
            assert await producer.partitions_for("t") == {0, 1, 2}
            await producer.stop()

    run(scenario)


def test_metrics_are_exported(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = {"ottla.metrics.listener": f"127.0.0.1:{port}"}
        async with Cluster(settings=settings):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert b"ok" in await reader.read()
            writer.close()

    run(scenario)


def test_invalid_use_is_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        Cluster(brokers=0)
    with pytest.raises(ValueError, match="listeners"):
        Cluster(settings={"listeners": "PLAINTEXT://:9092"})

    async def scenario() -> None:
        async with Cluster() as cluster:
            (broker,) = cluster.brokers
            with pytest.raises(OttlaError, match="is already running"):
                await broker.start()
            await broker.stop()
            for asked in (broker.stop, broker.kill):
                with pytest.raises(OttlaError, match="is not running"):
                    await asked()
            with pytest.raises(OttlaError, match="is not running"):
                broker.pause()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "value"), [("num.partitions", "many"), ("authorizer.class.name", "acl")]
)
def test_refused_setting_leaves_nothing_behind(
    run: Run, tmp_path: Path, name: str, value: str
) -> None:
    async def scenario() -> None:
        before = asyncio.all_tasks()
        cluster = Cluster(settings={name: value}, data=tmp_path)
        with pytest.raises(InvalidSettings, match=re.escape(name)):
            await cluster.__aenter__()
        assert asyncio.all_tasks() == before
        assert not contents(tmp_path)

    run(scenario)
