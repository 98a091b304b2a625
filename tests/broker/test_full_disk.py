"""A broker on a full disk: it starts, serves reads, refuses writes, and recovers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from broker.nodes import Client, broker, run
from broker.test_naming import create_error
from broker.test_node import batch, create, fetch, produce
from ottla.broker import service, topics
from ottla.broker.stop_signals import StopSignals
from ottla.errors import ErrorCode, OttlaError, StorageFailure
from ottla.ids import Uuid
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.settings.config_parser import broker_config
from ottla.testing import Cluster
from ottla.testing.troubled_disk import TroubledDisk


async def connect(cluster: Cluster) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", cluster.brokers[0].port))


async def produce_until_acknowledged(client: Client, topic: str, records: bytes) -> int:
    """Produce until the batch is acknowledged, and return its offset."""
    while True:
        code, offset = await produce(client, topic, records)
        if code == 0:
            return offset
        assert code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def started(
    folder: Path, is_full: Callable[[], bool], *, killed: bool
) -> AsyncGenerator[Client]:
    """Run a broker whose coordination is on the same disk, as in production; yield a client."""
    disk = TroubledDisk(is_full)
    with suppress(StorageFailure):
        async with broker(folder, disk=disk) as running:
            yield await running.client()
            if killed:
                disk.take_away()


@pytest.mark.parametrize("killed", [False, True])
def test_broker_starts_on_a_full_disk_and_recovers(tmp_path: Path, killed: bool) -> None:
    full = False

    async def scenario() -> None:
        nonlocal full
        async with started(tmp_path, lambda: full, killed=killed) as client:
            topic_id = await create(client, "t")
            assert await produce(client, "t", batch(b"a")) == (0, 0)
            full = True
        for _ in range(2):
            async with started(tmp_path, lambda: full, killed=True) as client:
                assert await fetch(client, topic_id) == [b"a"]
                code, _ = await produce(client, "t", batch(b"lost"))
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                code, why = await create_error(client, "u")
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                assert "No space left" in str(why)
                answer = await client.ask(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
                    InitProducerIdResponse,
                )
                assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        async with started(tmp_path, lambda: full, killed=True) as client:
            assert await fetch(client, topic_id) == [b"a"]
            full = False
            assert await produce_until_acknowledged(client, "t", batch(b"b")) == 1
            await create(client, "u")
            assert await produce(client, "u", batch(b"x")) == (0, 0)
        async with started(tmp_path, lambda: full, killed=False) as client:
            assert await fetch(client, topic_id) == [b"a", b"b"]
            assert await produce_until_acknowledged(client, "t", batch(b"c")) == 2
        epochs = (tmp_path / "data" / "t-0" / "leader-epoch-checkpoint").read_text()
        starts = [tuple(map(int, line.split())) for line in epochs.splitlines()[2:]]
        assert [start for _, start in starts] == [0, 1, 2], "each start has its own leader epoch"

    run(scenario)


def test_partition_gets_a_leader_when_space_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "RETRY_SECONDS", 0.05)

    async def leader(client: Client, topic_id: Uuid) -> int:
        answer = await client.ask(MetadataRequest(topics=None), MetadataResponse)
        (found,) = (one for one in answer.topics if one.topic_id == topic_id)
        return found.partitions[0].leader_id

    async def scenario() -> None:
        async with Cluster() as cluster:
            (broker,) = cluster.brokers
            client = await connect(cluster)
            topic_id = await create(client, "t")
            await client.close()
            await broker.stop()
            folder = broker.data / "logs" / "t-0"
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()  # as if the topic had been created when the disk was full
            with broker.disk_full():
                await broker.start()
                client = await connect(cluster)
                assert await leader(client, topic_id) == -1
                code, _ = await produce(client, "t", batch(b"lost"))
                assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await produce_until_acknowledged(client, "t", batch(b"a")) == 0
            assert await leader(client, topic_id) == 1
            await client.close()

    run(scenario)


def test_first_start_on_a_full_disk_fails_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*, open_files_max: object) -> TroubledDisk:
        return TroubledDisk(lambda: True)

    monkeypatch.setattr(service, "OsDisk", full_disk)
    config = broker_config(
        overrides=["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/data"]
    )
    with pytest.raises(OttlaError) as raised:
        service.run(config, lambda node: None, StopSignals())
    assert f"{tmp_path}/data: mkdir: No space left on device" in str(raised.value)
    assert "free some, or set log.dirs to a directory on another disk" in str(raised.value)
