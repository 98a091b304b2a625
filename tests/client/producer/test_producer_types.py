"""Types of the producer; `make check` verifies this file with pyright strict.

A line that must be rejected has an ignore comment; pyright reports an ignore comment that is not
needed.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import asyncio
from dataclasses import dataclass
from typing import assert_type

import pytest

from ottla import Consumer, OffsetAndMetadata, Record, TopicPartition, Transaction
from ottla.client.metrics.producer_metrics import ProducerMetrics
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Ack, Written
from ottla.client.serializers import LONG, STRING, Serializer, json_of


@dataclass
class Order:
    id: int


SETTINGS = {"bootstrap.servers": "localhost:9092"}


def length(topic: str, value: list[int]) -> bytes:
    return bytes(len(value))


def test_producer_types_follow_from_its_serializers() -> None:
    assert_type(Producer(SETTINGS), Producer[bytes, bytes])
    assert_type(Producer(bootstrap_servers="localhost:9092", linger_ms=5), Producer[bytes, bytes])
    assert_type(Producer(SETTINGS, key_serializer=STRING), Producer[str, bytes])
    assert_type(Producer(SETTINGS, value_serializer=LONG), Producer[bytes, int])
    both = Producer(SETTINGS, key_serializer=STRING, value_serializer=json_of(Order))
    assert_type(both, Producer[str, Order])
    assert_type(Producer(SETTINGS, value_serializer=length), Producer[bytes, list[int]])


def test_invalid_serializer_is_refused() -> None:
    with pytest.raises(TypeError, match="a serializer must be a function"):
        Producer(SETTINGS, key_serializer=5)  # pyright: ignore[reportArgumentType]


async def sends(plain: Producer, typed: Producer[str, Order]) -> None:
    """Never run; only the type checker reads it."""
    assert_type(await plain.send("t", b"v", key=b"k"), Ack)
    assert_type(await (await plain.send("t")), Written)
    await plain.send("t", "text")  # pyright: ignore[reportArgumentType]
    await typed.send("t", Order(1), key="k", headers=[("h", b"1"), ("n", None)])
    await typed.send("t", None)
    await typed.send("t", b"bytes")  # pyright: ignore[reportArgumentType]
    await typed.send("t", Order(1), key=b"k")  # pyright: ignore[reportArgumentType]
    assert_type(await typed.send_many("t", [Order(1), None]), list[Ack])
    await typed.send_many("t", ["text"])  # pyright: ignore[reportArgumentType]
    assert_type(typed.metrics(), ProducerMetrics)
    async with typed as entered:
        assert_type(entered, Producer[str, Order])


async def positions(
    consumer: Consumer[bytes, bytes], transaction: Transaction, record: Record[bytes, bytes]
) -> None:
    """Never run; only the type checker reads it."""
    offsets = {record.topic_partition: record.offset + 1}
    await consumer.commit(offsets)
    await consumer.commit({("t", 0): 5, ("t", 1): OffsetAndMetadata(5)})
    await consumer.commit({TopicPartition("t", 0): 5})
    assert_type(consumer.commit_soon(offsets), asyncio.Task[None])
    await consumer.offsets_for_times(offsets)
    await transaction.send_offsets(offsets, consumer.group_member)
    await transaction.send_offsets({("t", 0): 5}, "group")
    await transaction.send_offsets({("t", "0"): 5}, "group")  # pyright: ignore[reportArgumentType]


async def user_functions(serializer: Serializer[Order]) -> None:
    """Never run; only the type checker reads it."""
    async with Producer(SETTINGS, value_serializer=serializer) as producer:
        assert_type(producer, Producer[bytes, Order])
