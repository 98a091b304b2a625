"""How batches are stored: compression.type of a topic and of the broker, while it runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer

from broker.nodes import Client, broker, run
from broker.test_bad_input import produce_request
from broker.test_configs import BROKER_RESOURCE, TOPIC_RESOURCE, set_one
from broker.test_node import batch, create, fetch_request, produce
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
from ottla.protocol.messages.produce import ProduceResponse
from ottla.records.batch import batches
from ottla.records.compression import Compression
from ottla.replication.partition import IN_A_THREAD_BYTES

T = TypeVar("T")
NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression


class HeldDisk(OsDisk):
    """Whatever may wait for the device waits until a test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.held: asyncio.Event | None = None
        self.asked = asyncio.Event()

    async def blocking(self, call: Callable[[], T]) -> T:
        if self.held is not None:
            self.asked.set()
            await self.held.wait()
        return await super().blocking(call)


async def codecs(client: Client, topic_id: Uuid) -> list[Compression]:
    """What the batches of a topic are stored as."""
    answer = await client.ask(fetch_request(topic_id, 0), FetchResponse)
    return [
        one.header.compression for one in batches(answer.responses[0].partitions[0].records or b"")
    ]


def test_a_change_of_the_codec_counts_for_the_next_batch(tmp_path: Path) -> None:
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


def test_a_repeat_is_recognised_though_it_is_stored_otherwise(tmp_path: Path) -> None:
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


def test_what_grows_too_large_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", compression_type="gzip", max_message_bytes="80")
            code, _ = await produce(client, "t", batch(b""))
            assert code == ErrorCode.MESSAGE_TOO_LARGE

    run(scenario)


def test_a_client_reads_what_was_recompressed_also_after_a_restart(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy", "uncompressed"])
def test_large_batches_of_a_client_are_appended_in_their_order(tmp_path: Path, codec: str) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"compression.type={codec}") as running:
            client = await running.client()
            topic_id = await create(client, "t")
            sizes = [300_000, 10, 200_000, 20, IN_A_THREAD_BYTES, 30]
            # Small ones are recompressed at once and follow those that take longer.
            requests = [produce_request(batch(bytes(size))) for size in sizes]
            answers = await client.ask_all(requests, ProduceResponse, 12)
            told = [one.responses[0].partition_responses[0].base_offset for one in answers]
            assert told == list(range(len(sizes)))
            found = await client.ask(fetch_request(topic_id, 0), FetchResponse)
            stored = batches(found.responses[0].partitions[0].records or b"")
            assert [len(one.value or b"") for two in stored for one in two.records()] == sizes

    run(scenario)


def test_the_loop_goes_on_while_a_large_batch_is_recompressed(tmp_path: Path) -> None:
    """The disk's threads are taken, so the recompression waits; others are served meanwhile."""

    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, "compression.type=gzip", disk=disk) as running:
            client, other = await running.client(), await running.client()
            await create(client, "t")
            disk.held = asyncio.Event()
            slow = asyncio.create_task(produce(client, "t", batch(bytes(200_000))))
            await disk.asked.wait()
            assert await produce(other, "t", batch(b"small")) == (0, 0)
            assert not slow.done()
            disk.held.set()
            assert await slow == (0, 1)

    run(scenario)


def test_a_topic_that_goes_while_its_batch_is_recompressed(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, "compression.type=gzip", disk=disk) as running:
            client, other = await running.client(), await running.client()
            topic_id = await create(client, "t")
            disk.held = held = asyncio.Event()
            slow = asyncio.create_task(produce(client, "t", batch(bytes(200_000))))
            await disk.asked.wait()
            disk.held = None  # the deletion does not wait
            gone = DeleteTopicsRequest(
                topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=9000
            )
            answer = await other.ask(gone, DeleteTopicsResponse)
            assert answer.responses[0].error_code == 0
            held.set()
            code, _ = await slow
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)
