"""Stored compression: compression.type of a topic and of the broker, also changed at runtime."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer

from broker.nodes import Client, broker, run
from broker.test_bad_input import produce_request
from broker.test_configs import BROKER_RESOURCE, TOPIC_RESOURCE, set_one
from broker.test_node import batch, create, fetch_request, produce
from cases import each_case
from ottla.errors import ErrorCode
from ottla.ids import Uuid
from ottla.log.files import OsDisk
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.batch import batches
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.validation import NONBLOCKING_RECOMPRESS_BYTES

T = TypeVar("T")
NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression


class HeldDisk(OsDisk):
    """A disk whose CPU-bound work waits until a test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.held: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.calls = 0

    async def working(self, call: Callable[[], T]) -> T:
        self.calls += 1
        if self.held is not None:
            self.asked.set()
            await self.held.wait()
        return await super().working(call)

    @contextmanager
    def holding(self) -> Generator[None]:
        """Hold work until the block is left."""
        self.held = held = asyncio.Event()
        try:
            yield
        finally:
            self.held = None
            held.set()


async def codecs(client: Client, topic_id: Uuid) -> list[Compression]:
    """Return the codecs with which a topic's batches are stored."""
    answer = await client.ask(fetch_request(topic_id, 0), FetchResponse)
    return [
        one.header.compression for one in batches(answer.responses[0].partitions[0].records or b"")
    ]


def test_codec_change_applies_to_the_next_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "compression.type=gzip") as running:
            client = await running.client()
            topic_id = await create(client, "t")
            plain = await create(client, "plain", compression_type="producer")
            await produce(client, "t", batch(b"1"))
            await produce(client, "plain", batch(b"1"))
            for codec in ("zstd", "lz4", "snappy", "uncompressed", "producer"):
                assert not await set_one(client, TOPIC_RESOURCE, "t", "compression.type", codec)
                await produce(client, "t", batch(b"2"))
            assert await codecs(client, topic_id) == [GZIP, ZSTD, LZ4, SNAPPY, NONE, NONE]
            assert await codecs(client, plain) == [NONE]
            other = await create(client, "other")
            assert not await set_one(client, BROKER_RESOURCE, "", "compression.type", "zstd")
            await produce(client, "other", batch(b"1"))
            assert await codecs(client, other) == [ZSTD]

    run(scenario)


def test_duplicate_of_a_recompressed_batch_is_recognised(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", compression_type="zstd")
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            given = await client.ask(request, InitProducerIdResponse)
            first = batch(b"a", b"b", producer_id=given.producer_id, sequence=0)
            assert await produce(client, "t", first) == (0, 0)
            assert await produce(client, "t", first) == (0, 0)
            second = batch(b"c", producer_id=given.producer_id, sequence=2)
            assert await produce(client, "t", second) == (0, 2)

    run(scenario)


def test_batch_too_large_after_recompression_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", compression_type="gzip", max_message_bytes="80")
            code, _ = await produce(client, "t", batch(b""))
            assert code == ErrorCode.MESSAGE_TOO_LARGE

    run(scenario)


def test_recompressed_records_are_read_after_a_restart(tmp_path: Path) -> None:
    codec_of = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

    async def read_all(port: int) -> list[tuple[str, bytes]]:
        consumer: Any = AIOKafkaConsumer(
            *codec_of,
            bootstrap_servers=f"127.0.0.1:{port}",
            auto_offset_reset="earliest",
        )
        async with consumer, asyncio.timeout(20):
            return [((one := await anext(consumer)).topic, one.value) for _ in range(8)]

    async def scenario() -> None:
        expected = [(codec, value) for codec in codec_of for value in (b"1", b"2")]
        async with broker(tmp_path, "compression.gzip.level=9") as running:
            client = await running.client()
            for name, codec in codec_of.items():
                topic_id = await create(client, name, compression_type=name)
                await produce(client, name, batch(b"1", b"2"))
                assert await codecs(client, topic_id) == [codec]
            assert sorted(await read_all(running.port)) == sorted(expected)
        async with broker(tmp_path) as running:
            assert sorted(await read_all(running.port)) == sorted(expected)

    run(scenario)


@each_case("codec", ["gzip", "zstd", "lz4", "snappy", "uncompressed"])
def test_large_batches_are_appended_in_order(tmp_path: Path, codec: str) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"compression.type={codec}") as running:
            client = await running.client()
            topic_id = await create(client, "t")
            sizes = [300_000, 10, 200_000, 20, NONBLOCKING_RECOMPRESS_BYTES, 30]
            # Small batches are recompressed on the event loop and follow large ones that take
            # longer.
            requests = [produce_request(batch(bytes(size))) for size in sizes]
            answers = await client.ask_all(requests, ProduceResponse, 12)
            told = [one.responses[0].partition_responses[0].base_offset for one in answers]
            assert told == list(range(len(sizes)))
            found = await client.ask(fetch_request(topic_id, 0), FetchResponse)
            stored = batches(found.responses[0].partitions[0].records or b"")
            assert [len(one.value or b"") for two in stored for one in two.records()] == sizes

    run(scenario)


def test_recompression_does_not_block_the_event_loop(tmp_path: Path) -> None:
    """The disk's threads are busy, so the recompression waits; other clients are served."""

    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, "compression.type=gzip", disk=disk) as running:
            client, other = await running.client(), await running.client()
            await create(client, "t")
            with disk.holding():
                slow = asyncio.create_task(produce(client, "t", batch(bytes(200_000))))
                await disk.asked.wait()
                assert await produce(other, "t", batch(b"small")) == (0, 0)
                assert not slow.done()
            assert await slow == (0, 1)

    run(scenario)


def test_records_that_wait_are_not_overwritten_by_the_next_read(tmp_path: Path) -> None:
    """A batch waits for its recompression in the buffer that all connections read into."""

    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, "compression.type=gzip", disk=disk) as running:
            client, other = await running.client(), await running.client()
            topic_id = await create(client, "t")
            requests = running.node.memory.requests
            value = Random(1).randbytes(NONBLOCKING_RECOMPRESS_BYTES)
            with disk.holding():
                slow = asyncio.create_task(produce(client, "t", batch(value)))
                await disk.asked.wait()
                assert requests.held >= len(value)
                assert await produce(other, "t", batch(b"\7" * 1000)) == (0, 0)
            assert await slow == (0, 1)
            found = await client.ask(fetch_request(topic_id, 0), FetchResponse)
            assert requests.held == 0
            stored = batches(found.responses[0].partitions[0].records or b"")
            assert [one.value for two in stored for one in two.records()] == [b"\7" * 1000, value]

    run(scenario)


def test_topic_deleted_during_recompression_is_unknown(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, "compression.type=gzip", disk=disk) as running:
            client, other = await running.client(), await running.client()
            topic_id = await create(client, "t")
            gone = DeleteTopicsRequest(
                topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=9000
            )
            with disk.holding():
                slow = asyncio.create_task(produce(client, "t", batch(bytes(200_000))))
                await disk.asked.wait()
                disk.held = None  # the deletion must not wait
                answer = await other.ask(gone, DeleteTopicsResponse)
                assert answer.responses[0].error_code == 0
            code, _ = await slow
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def compressed(value: bytes, codec: Compression = GZIP) -> bytes:
    builder = BatchBuilder(100 << 20, codec)
    builder.append(1_700_000_000_000, b"k", value)
    return builder.build()


@cache
def bomb() -> bytes:
    return compressed(bytes(40 << 20))


LONG = 3_000_000  # slow to decompress with every codec


@pytest.mark.parametrize("acks", [0, 1])
def test_bomb_check_does_not_block_the_event_loop(tmp_path: Path, acks: int) -> None:
    """The disk's threads are busy, so the bomb waits; other clients are served meanwhile."""

    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, disk=disk) as running:
            client, other = await running.client(), await running.client()
            await create(client, "t")
            with disk.holding():
                await client.send(produce_request(bomb(), acks=acks), 12)
                await disk.asked.wait()
                assert await produce(other, "t", batch(b"small")) == (0, 0)
                assert await produce(other, "t", compressed(b"small")) == (0, 1)
            assert await produce(other, "t", batch(b"small")) == (0, 2)

    run(scenario)


def test_bomb_with_acks_0_closes_the_connection(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client, other = await running.client(), await running.client()
            await create(client, "t")
            await client.send(produce_request(bomb(), acks=0), 12)
            with pytest.raises((EOFError, ConnectionError)):
                await produce(client, "t", batch(b"after it"))
            assert await produce(other, "t", batch(b"small")) == (0, 0)

    run(scenario)


def test_bombs_are_checked_one_at_a_time(tmp_path: Path) -> None:
    """Any number of bombs takes the memory and the thread of one."""

    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, disk=disk) as running:
            clients = [await running.client() for _ in range(5)]
            await create(clients[0], "t")
            before = disk.calls
            with disk.holding():
                slow = [asyncio.create_task(produce(one, "t", bomb())) for one in clients]
                await disk.asked.wait()
                for offset in range(9):  # enough time for all of them to arrive
                    client = await running.client()
                    assert await produce(client, "t", batch(b"small")) == (0, offset)
                assert disk.calls == before + 1
            codes = [code for code, _ in await asyncio.gather(*slow)]
            assert codes == [ErrorCode.MESSAGE_TOO_LARGE] * len(clients)
            assert disk.calls == before + len(clients)

    run(scenario)


@each_case("acks", [0, 1])
@each_case("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_compressed_batches_are_appended_in_order(
    tmp_path: Path, codec: Compression, acks: int
) -> None:
    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, disk=disk) as running:
            client = await running.client()
            topic_id = await create(client, "t")
            before = disk.calls
            sizes = [LONG, 10, LONG + 1, 20, LONG + 2, 30]
            requests = [produce_request(compressed(bytes(one), codec), acks=acks) for one in sizes]
            if acks:
                await client.ask_all(requests, ProduceResponse, 12)
            else:  # the broker receives the batches although the client disconnects
                for request in requests:
                    await client.send(request, 12)
                await client.close()
            other = await running.client()
            async with asyncio.timeout(20):
                while running.parts.replica_manager.leader_partition("t", 0).high_watermark < len(
                    sizes
                ):
                    await asyncio.sleep(0.01)
            assert disk.calls == before + 3  # the large batches
            found = await other.ask(fetch_request(topic_id, 0), FetchResponse)
            stored = batches(found.responses[0].partitions[0].records or b"")
            assert [len(one.value or b"") for two in stored for one in two.records()] == sizes

    run(scenario)


def test_two_batches_for_one_partition_keep_their_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", partitions=2)
            asked = [(0, compressed(bytes(LONG))), (1, batch(b"1")), (0, batch(b"2"))]
            data = [PartitionProduceData(index=index, records=records) for index, records in asked]
            topics = [TopicProduceData(name="t", partition_data=data)]
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
            answer = await client.ask(request, ProduceResponse, 12)
            told = [(one.index, one.base_offset) for one in answer.responses[0].partition_responses]
            assert told == [(0, 0), (1, 0), (0, 1)]

    run(scenario)
