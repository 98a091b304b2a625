"""How batches are stored: compression.type of a topic and of the broker, while it runs."""

import asyncio
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer

from broker.nodes import Client, broker, run
from broker.test_configs import BROKER_RESOURCE, TOPIC_RESOURCE, set_one
from broker.test_node import batch, create, fetch_request, produce
from ottla.errors import ErrorCode
from ottla.ids import Uuid
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.records.batch import batches
from ottla.records.compression import Compression

NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression


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
