"""Columns sent to Ottla and to Kafka: every row once, in order, mixed with single records."""

import asyncio
from random import Random
from typing import Any

import pyarrow
import pytest

from client.both_brokers import CuttableNetwork, Judge, TargetBroker, judge, ottla_target
from client.scenario_runner import FAST, run
from ottla.client.partitioners import Partitions, partition_of_key
from ottla.client.producer.producer import Producer
from ottla.client.producer.row_ack import RowsNotWritten, WrittenRows
from ottla.errors import ErrorCode

pa: Any = pyarrow

__all__ = ["judge"]  # a fixture


def producer(target: TargetBroker, **arguments: Any) -> Producer:
    return Producer(FAST, bootstrap_servers=target.bootstrap, **arguments)


def numbered(count: int, start: int = 0) -> Any:
    """Return rows whose keys and values are their numbers."""
    texts = [str(number) for number in range(start, start + count)]
    return pa.table({"key": texts, "value": texts})


def values(records: list[Any]) -> list[int]:
    return [int(record.value) for record in records]


def test_rows_are_written_completely(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        pairs = [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
        kind = pa.list_(pa.struct([("key", pa.utf8()), ("value", pa.binary())]))
        table = pa.table(
            {
                "id": pa.array(["k", None, "é"]).dictionary_encode(),
                "text": pa.array([b"v", b"", None], pa.large_binary()),
                "tags": pa.array([pairs, None, []], kind),
                "at": pa.array([5, 6, 7], pa.timestamp("ms")),
                "unused": [1, 2, 3],
            }
        )
        async with producer(target) as ours:
            ack = await ours.send_arrow(
                topic, table, key="id", value="text", headers="tags", timestamp="at"
            )
            assert await ack == [WrittenRows(topic, 0, 0, 3)]
            assert ack.done
            assert await ack == await ack
            nothing = await ours.send_arrow(topic, table.slice(0, 0), key="id", value="text")
            assert await nothing == []
        [records] = await target.read(topic)
        assert [(one.key, one.value, one.timestamp, one.headers) for one in records] == [
            (b"k", b"v", 5, (("h", b"1"), ("n", None))),
            (None, b"", 6, ()),
            ("é".encode(), None, 7, ()),
        ]

    judge(scenario)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_partitioned_by_key_in_order(judge: Judge, codec: str) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(3)
        tables = [numbered(2000, start) for start in (0, 2000)]
        async with producer(target, batch_size=700, linger_ms=1, compression_type=codec) as ours:
            both = pa.concat_tables(tables)  # in two chunks
            result = await (await ours.send_arrow(topic, both))
        found = await target.read(topic, 3)
        assert result == [WrittenRows(topic, n, 0, len(one)) for n, one in enumerate(found)]
        for partition, records in enumerate(found):
            mine = [n for n in range(4000) if partition_of_key(b"%d" % n, 3) == partition]
            assert values(records) == mine

    judge(scenario)


def test_rows_without_a_key_fill_batch_after_batch(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(3)
        # Otherwise a slow broker may be left out.
        by_chance = {"partitioner_adaptive_partitioning_enable": False}
        async with producer(target, batch_size=500, linger_ms=0, **by_chance) as ours:
            none = await (await ours.send_arrow(topic, numbered(3000), key=None))
            keys = [None if n % 2 else b"one" for n in range(3000)]
            mixed = numbered(3000).set_column(0, "key", [keys])
            some = await (await ours.send_arrow(topic, mixed))
        assert [len(none), len(some)] == [3, 3]  # every partition got batches
        assert sum(one.rows for one in (*none, *some)) == 6000
        found = await target.read(topic, 3)
        for records, one in zip(found, none, strict=True):
            first = values(records[: one.rows])
            assert first == sorted(first)
        keyed = [record for records in found for record in records if record.key]
        assert values(keyed) == [*range(0, 3000, 2)]
        keyless = [int(r.value) for records in found for r in records if not r.key]
        assert sorted(keyless) == sorted([*range(3000), *range(1, 3000, 2)])

    judge(scenario)


def test_rows_go_to_the_given_partition(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(3)
        table = numbered(300).append_column("place", [pa.array([n % 3 for n in range(300)])])
        async with producer(target) as ours:
            await ours.send_arrow(topic, table, partition=2)
            await ours.send_arrow(topic, table, partition="place")
        found = await target.read(topic, 3)
        third = [[*range(n, 300, 3)] for n in range(3)]
        assert [*map(values, found)] == [third[0], third[1], [*range(300), *third[2]]]

    judge(scenario)


def test_custom_partitioner_sees_every_row() -> None:
    def last_digit(topic: str, key: bytes | None, value: bytes | None, among: Partitions) -> int:
        assert key == value
        return int((value or b"")[-1:]) % among.count

    async def scenario() -> None:
        async with ottla_target() as target:
            topic = await target.topic(3)
            async with producer(target, partitioner=last_digit) as ours:
                await ours.send_arrow(topic, numbered(100))
            found = await target.read(topic, 3)
            for partition, records in enumerate(found):
                assert values(records) == [n for n in range(100) if n % 10 % 3 == partition]

    run(scenario())


def test_records_and_rows_keep_their_order(judge: Judge) -> None:
    """Records before, between and after rows, in shared batches and in separate ones."""

    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(2)
        random, number = Random(4), 0
        async with producer(target, batch_size=500, linger_ms=3) as ours:
            while number < 4000:
                rows = random.choice((0, 1, 5, 200))
                if rows:
                    await ours.send_arrow(topic, numbered(rows, number))
                    number += rows
                else:
                    await ours.send(topic, b"%d" % number, key=b"%d" % number)
                    number += 1
        for partition, records in enumerate(await target.read(topic, 2)):
            mine = [n for n in range(number) if partition_of_key(b"%d" % n, 2) == partition]
            assert values(records) == mine

    judge(scenario)


def test_broken_connections_lose_and_duplicate_nothing(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(2)
        network = CuttableNetwork()
        async with producer(target, network=network, batch_size=300, linger_ms=0) as ours:
            cuts = rows = 0
            while cuts < 12:
                await ours.send_arrow(topic, numbered(50, rows))
                rows += 50
                await asyncio.sleep(0.0002)
                cuts += network.cut()
        for partition, records in enumerate(await target.read(topic, 2)):
            mine = [n for n in range(rows) if partition_of_key(b"%d" % n, 2) == partition]
            assert values(records) == mine

    judge(scenario)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_large_batch_is_split_and_large_rows_are_reported(judge: Judge, codec: str) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(settings={"max.message.bytes": 2000})
        random = Random(6)
        sizes = [random.choice((10, 100, 500, 5000)) for _ in range(300)]
        data = [b"%d " % number + random.randbytes(size) for number, size in enumerate(sizes)]
        table = pa.table({"value": pa.array(data, pa.binary())})
        fits = [number for number, size in enumerate(sizes) if size < 5000]
        async with producer(target, batch_size=30_000, compression_type=codec) as ours:
            ack = await ours.send_arrow(topic, table, key=None)
            with pytest.raises(RowsNotWritten, match=r"of 300 rows were not written") as refused:
                await ack
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert refused.value.rows == 300 - len(fits)
            assert refused.value.written == [WrittenRows(topic, 0, 0, len(fits))]
            assert ack.done
            metrics = ours.metrics()
            assert metrics.batch_split_total > 0
            assert metrics.record_send_total == len(fits)
            assert metrics.buffer_available_bytes == metrics.buffer_total_bytes
        [records] = await target.read(topic)
        assert [int(record.value.split()[0]) for record in records] == fits

    judge(scenario)


def test_table_larger_than_the_buffer_waits_for_memory(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(3)
        async with producer(target, batch_size=1000, buffer_memory=5000, linger_ms=10_000) as ours:
            ack = await ours.send_arrow(topic, numbered(20_000))
            await ours.flush()
            assert sum(one.rows for one in await ack) == 20_000
        for partition, records in enumerate(await target.read(topic, 3)):
            mine = [n for n in range(20_000) if partition_of_key(b"%d" % n, 3) == partition]
            assert values(records) == mine

    judge(scenario)
