"""Consumer scenarios that run on Ottla and on Apache Kafka."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

import pyarrow
import pytest

from client.scenario_runner import FAST
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.position_resolver import NoPosition
from ottla.client.consumer.record import Record
from ottla.client.producer.producer import Producer
from ottla.client.serializers import INT, JSON, STRING, DeserializationFailed, Json
from ottla.errors import ErrorCode, RequestError
from ottla.records import TimestampType

pa: Any = pyarrow

FROM_START: dict[str, object] = {"auto.offset.reset": "earliest"}
_names = itertools.count()

Scenario: TypeAlias = Callable[[str, str], Coroutine[Any, Any, None]]
"""Arguments: bootstrap servers and a topic of its own."""


def new_topic(name: str) -> str:
    return f"{name}-{next(_names)}"


def consumer(servers: str, **arguments: object) -> Consumer[bytes, bytes]:
    named = {name.replace("_", "."): value for name, value in arguments.items()}
    return Consumer({**FAST, **FROM_START, "bootstrap.servers": servers, **named})


async def write(
    servers: str, topic: str, count: int, *, partition: int = 0, start: int = 0, **settings: object
) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    async with Producer({**FAST, "bootstrap.servers": servers, **named}) as producer:
        for n in range(start, start + count):
            await producer.send(topic, b"%d" % n, partition=partition, timestamp_ms=1000 + n)


async def take(ours: Consumer[Any, Any], count: int) -> list[Record[Any, Any]]:
    """Return the next records, one by one."""
    taken: list[Record[Any, Any]] = []
    async for record in ours:
        taken.append(record)
        if len(taken) == count:
            break
    return taken


def numbers(records: Iterable[Record[Any, Any]]) -> list[int]:
    return [int(record.value or b"") for record in records]


# Records.


async def record_has_all_its_fields(servers: str, topic: str) -> None:
    async with Producer({**FAST, "bootstrap.servers": servers}) as producer:
        await producer.send(
            topic, b"v", key=b"k", partition=0, headers=[("h", b"1"), ("n", None)], timestamp_ms=5
        )
        await producer.send(topic, None, partition=0, headers=None, timestamp_ms=6)
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        first, second = await take(ours, 2)
    assert first[:8] == (
        *(topic, 0, 0, 5, TimestampType.CREATE_TIME, b"k", b"v"),
        (("h", b"1"), ("n", None)),
    )
    assert first.leader_epoch >= 0
    assert first.topic_partition == (topic, 0)
    assert (second.offset, second.key, second.value, second.headers) == (1, None, None, ())


async def every_compression_is_read(servers: str, topic: str) -> None:
    for index, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        start = index * 100
        await write(servers, topic, 100, start=start, compression_type=codec, batch_size=500)
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        assert numbers(await take(ours, 500)) == [*range(500)]


async def poll_returns_at_most_max_records(servers: str, topic: str) -> None:
    await write(servers, topic, 1200, batch_size=1000)
    async with consumer(servers, max_poll_records=500) as ours:
        ours.assign((topic, 0))
        found: list[Record[bytes, bytes]] = []
        while len(found) < 1200:
            polled = await ours.poll(10, max_records=7 if len(found) < 100 else None)
            assert 0 < len(polled) <= (7 if len(found) < 100 else 500)
            found += polled
        assert numbers(found) == [*range(1200)]
        assert await ours.poll(0.05) == []
        with pytest.raises(ValueError, match="max_records must be at least 1"):
            await ours.poll(0.05, max_records=0)


async def poll_waits_after_a_loop_read_the_last_record(servers: str, topic: str) -> None:
    await write(servers, topic, 10)
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        await take(ours, 10)
        polled = asyncio.create_task(ours.poll(20))
        await asyncio.sleep(0.05)
        assert not polled.done()
        await write(servers, topic, 1, start=10)
        assert numbers(await polled) == [10]


async def each_batch_is_of_one_partition(servers: str, topic: str) -> None:
    for partition in range(3):
        await write(servers, topic, 200, partition=partition)
    async with consumer(servers) as ours:
        ours.assign(*((topic, partition) for partition in range(3)))
        found: dict[int, list[Record[bytes, bytes]]] = {0: [], 1: [], 2: []}
        async for batch in ours.batches():
            assert len({record.partition for record in batch}) == 1
            found[batch[0].partition] += batch
            if sum(map(len, found.values())) == 600:
                break
        assert all(numbers(records) == [*range(200)] for records in found.values())


async def alternating_read_methods_miss_nothing(servers: str, topic: str) -> None:
    await write(servers, topic, 1000, batch_size=300)
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        found: list[int] = []
        while len(found) < 1000:
            found += numbers(await take(ours, 13))
            found += numbers(await ours.poll(5, max_records=11))
            arrow = await ours.poll_arrow(0.05)
            if arrow is not None:
                found += [int(value) for value in arrow.column("value").to_pylist()]
        assert found == [*range(1000)]
        assert await ours.position((topic, 0)) == 1000


async def columns_equal_the_records(servers: str, topic: str) -> None:
    async with Producer({**FAST, "bootstrap.servers": servers}) as producer:
        for n in range(500):
            key = None if n % 3 else b"k%d" % n
            headers = [("h", b"%d" % n)] * (n % 3)
            await producer.send(
                topic, b"%d" % n, key=key, partition=0, headers=headers, timestamp_ms=n
            )
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        records = await take(ours, 500)
        ours.seek((topic, 0), 10)
        rows: list[dict[str, Any]] = []
        async for batch in ours.arrow():
            rows += batch.to_pylist()
            if len(rows) == 490:
                break
        assert await ours.position((topic, 0)) == 500
    for row, record in zip(rows, records[10:], strict=True):
        assert (row["topic"], row["partition"], row["offset"]) == (topic, 0, record.offset)
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert row["timestamp"].timestamp() * 1000 == record.timestamp_ms
        assert [(one["key"], one["value"]) for one in row["headers"]] == [*record.headers]


async def typed_columns_equal_the_values(servers: str, topic: str) -> None:
    values = [b'{"n": %d}' % n for n in range(300)]
    values[100] = b"bad"
    async with Producer({**FAST, "bootstrap.servers": servers}) as producer:
        rows = pa.table({"value": pa.array(values, pa.binary())})
        await producer.send_arrow(topic, rows, key=None, partition=0)
    schema = pa.schema([("n", pa.int32())])
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        assert [record.offset for record in await take(ours, 10)] == [*range(10)]
        before = await ours.poll_arrow(10, value_schema=schema)
        assert before.column("n").to_pylist() == [*range(10, 100)]
        for _ in range(2):  # until the application handles the error
            with pytest.raises(DeserializationFailed, match="partition 0, offset 100"):
                await ours.poll_arrow(10, value_schema=schema)
        assert await ours.position((topic, 0)) == 100
        ours.seek((topic, 0), 101)
        found: list[int] = []
        async for batch in ours.arrow(value_schema=schema):
            assert batch.schema.names == ["topic", "partition", "offset", "timestamp", "key", "n"]
            found += batch.column("n").to_pylist()
            if len(found) == 199:
                break
        assert found == [*range(101, 300)]
        assert await ours.position((topic, 0)) == 300
    told: list[int] = []
    settings = {**FAST, **FROM_START, "bootstrap.servers": servers}
    async with Consumer(settings, bad_record=lambda bad: told.append(bad.offset)) as skipping:
        skipping.assign((topic, 0))
        found = []
        while len(found) < 299:
            batch = await skipping.poll_arrow(10, value_schema=schema)
            found += batch.column("n").to_pylist()
        assert found == [*range(100), *range(101, 300)]
    assert told == [100]


async def keys_and_values_are_deserialized(servers: str, topic: str) -> None:
    async with Producer({**FAST, "bootstrap.servers": servers}) as producer:
        await producer.send(topic, b'{"a": [1, null]}', key="é".encode(), partition=0)
        await producer.send(topic, None, partition=0)
    ours: Consumer[str, Json] = Consumer(
        {**FAST, **FROM_START, "bootstrap.servers": servers},
        key_deserializer=STRING,
        value_deserializer=JSON,
    )
    async with ours:
        ours.assign((topic, 0))
        first, second = await take(ours, 2)
    assert (first.key, first.value) == ("é", {"a": [1, None]})
    assert (second.key, second.value) == (None, None)


async def bad_record_raises_and_can_be_skipped(servers: str, topic: str) -> None:
    async with Producer({**FAST, "bootstrap.servers": servers}) as producer:
        for value in (b"\0\0\0\1", b"\0\0\0\2", b"bad", b"\0\0\0\4"):
            await producer.send(topic, value, partition=0)
    settings = {**FAST, **FROM_START, "bootstrap.servers": servers}
    async with Consumer(settings, value_deserializer=INT) as ours:
        ours.assign((topic, 0))
        assert [record.value for record in await take(ours, 2)] == [1, 2]
        with pytest.raises(DeserializationFailed):
            await ours.poll(5)
        with pytest.raises(
            DeserializationFailed
        ) as caught:  # until the application handles the error
            await ours.poll(5)
        assert (caught.value.topic, caught.value.partition) == (topic, 0)
        assert (caught.value.offset, caught.value.data) == (2, b"bad")
        assert await ours.position((topic, 0)) == 2
        ours.seek((topic, 0), caught.value.offset + 1)
        assert [record.value for record in await take(ours, 1)] == [4]
    told: list[int] = []
    skipping = Consumer(
        settings, value_deserializer=INT, bad_record=lambda bad: told.append(bad.offset)
    )
    async with skipping:
        skipping.assign((topic, 0))
        assert [record.value for record in await take(skipping, 3)] == [1, 2, 4]
    assert told == [2]


# Positions.


async def seek_sets_the_position(servers: str, topic: str) -> None:
    await write(servers, topic, 1000, batch_size=500)
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        assert numbers(await take(ours, 3)) == [0, 1, 2]
        ours.seek((topic, 0), 500)
        assert numbers(await take(ours, 2)) == [500, 501]
        assert await ours.position((topic, 0)) == 502
        lag = ours.lag((topic, 0))
        assert lag == 498
        ours.seek_to_beginning()
        assert numbers(await take(ours, 2)) == [0, 1]
        ours.seek_to_time(1000 + 700, (topic, 0))
        assert numbers(await take(ours, 1)) == [700]
        ours.seek_to_time(1000 + 5000)
        assert await ours.position((topic, 0)) == 1000
        ours.seek_to_end((topic, 0))
        assert await ours.position((topic, 0)) == 1000  # the end is looked up before it moves
        assert await ours.poll(0.05) == []
        await write(servers, topic, 1, start=1000)
        assert numbers(await take(ours, 1)) == [1000]
        with pytest.raises(ValueError, match="an offset must be from 0"):
            ours.seek((topic, 0), -1)
        with pytest.raises(RequestError, match="not assigned"):
            ours.seek((topic, 5), 1)


async def seek_inside_a_loop_applies(servers: str, topic: str) -> None:
    await write(servers, topic, 300)
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        found: list[int] = []
        async for record in ours:
            found.append(record.offset)
            if len(found) == 5:
                ours.seek((topic, 0), 200)
            if len(found) == 8:
                break
        assert found == [0, 1, 2, 3, 4, 200, 201, 202]


async def paused_partitions_lose_nothing(servers: str, topic: str) -> None:
    for partition in range(2):
        await write(servers, topic, 300, partition=partition)
    async with consumer(servers) as ours:
        ours.assign((topic, 0), (topic, 1))
        found: dict[int, list[Record[bytes, bytes]]] = {0: [], 1: []}
        async for record in ours:
            found[record.partition].append(record)
            if len(found[0]) == 10 and not ours.paused:
                ours.pause((topic, 0))
                assert ours.paused == {(topic, 0)}
            if len(found[1]) == 300:
                break
        if not ours.paused:  # the other partition was returned first, as a whole
            return
        assert len(found[0]) == 10
        assert await ours.poll(0.1) == []
        ours.resume((topic, 0))
        found[0] += await take(ours, 290)
        assert numbers(found[0]) == [*range(300)]


async def end_offsets_and_offsets_for_times(servers: str, topic: str) -> None:
    await write(servers, topic, 10)
    one = (topic, 0)
    async with consumer(servers) as ours:
        assert await ours.beginning_offsets(one) == {one: 0}
        assert await ours.end_offsets(one) == {one: 10}
        found = await ours.offsets_for_times({one: 1004, (topic, 1): 1})
        at = found[ours_partition(one)]
        assert at is not None
        assert (at.offset, at.timestamp_ms) == (4, 1004)
        assert found[ours_partition((topic, 1))] is None
        assert [one.partition for one in await ours.partitions(topic)] == [0, 1, 2]
        with pytest.raises(RequestError):
            await ours.end_offsets((topic, 77), timeout_s=0.3)


def ours_partition(pair: tuple[str, int]) -> Any:
    return pair  # they are equal and have the same hash


async def missing_position_raises(servers: str, topic: str) -> None:
    await write(servers, topic, 10)
    async with consumer(servers, auto_offset_reset="none") as ours:
        ours.assign((topic, 0))
        with pytest.raises(NoPosition, match="there is no starting offset") as caught:
            await ours.poll(5)
        assert "auto.offset.reset" in caught.value.hint
        ours.seek((topic, 0), 3)
        assert numbers(await take(ours, 7)) == [*range(3, 10)]
        ours.seek((topic, 0), 99)
        with pytest.raises(NoPosition, match="99 is out of range"):
            await ours.poll(5)
        ours.seek((topic, 0), 9)
        assert numbers(await take(ours, 1)) == [9]


async def position_out_of_range_is_reset(servers: str, topic: str) -> None:
    await write(servers, topic, 10)
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        ours.seek((topic, 0), 99)
        assert numbers(await take(ours, 10)) == [*range(10)]
    async with consumer(servers, auto_offset_reset="latest") as ours:
        ours.assign((topic, 0))
        assert await ours.position((topic, 0)) == 10
    async with consumer(servers, auto_offset_reset="by_duration:PT1H") as ours:
        ours.assign((topic, 0))  # the records have timestamps of 1970
        assert await ours.position((topic, 0)) == 10


# Offsets of a group, without membership.


async def committed_offsets_are_found_again(servers: str, topic: str) -> None:
    await write(servers, topic, 100)
    one = (topic, 0)
    async with consumer(servers, group_id=topic, enable_auto_commit=False) as ours:
        ours.assign(one)
        await take(ours, 5)
        assert (await ours.committed(one))[ours_partition(one)] is None
        await ours.commit()
        kept = (await ours.committed(one))[ours_partition(one)]
        assert kept is not None
        assert kept.offset == 5
        await take(ours, 5)
        await ours.commit_soon()
        with pytest.raises(ZeroDivisionError):
            async with ours.committing():
                raise ZeroDivisionError
        await take(ours, 1)
    async with consumer(servers, group_id=topic, enable_auto_commit=False) as ours:
        ours.assign(one)
        async for record in ours:
            assert record.offset == 10
            break
        async with ours.committing():
            pass
        kept = (await ours.committed(one))[ours_partition(one)]
        assert kept is not None
        assert kept.offset == 11
        async with ours.committing():
            await take(ours, 4)  # inside the block, so part of what succeeded
        kept = (await ours.committed(one))[ours_partition(one)]
        assert kept is not None
        assert kept.offset == 15
        await ours.commit({one: 42})
    async with consumer(servers, group_id=topic) as ours:
        ours.assign(one)
        assert await ours.position(one) == 42
    async with consumer(servers) as ours:
        with pytest.raises(RequestError, match=r"group\.id") as caught:
            await ours.commit()
        assert caught.value.code is ErrorCode.INVALID_GROUP_ID


# Concurrent and cancelled calls.


async def concurrent_calls_are_refused(servers: str, topic: str) -> None:
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        waiting = asyncio.create_task(ours.poll(0.5))
        await asyncio.sleep(0.05)
        with pytest.raises(RuntimeError, match="one task at a time"):
            await ours.poll(0.1)
        assert await waiting == []


async def cancelled_poll_leaves_nothing(servers: str, topic: str) -> None:
    async with consumer(servers) as ours:
        ours.assign((topic, 0))
        for _ in range(5):
            waiting = asyncio.create_task(ours.poll(30))
            await asyncio.sleep(0.02)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await write(servers, topic, 3)
        assert numbers(await take(ours, 3)) == [0, 1, 2]


ANYWHERE: list[Scenario] = [
    record_has_all_its_fields,
    every_compression_is_read,
    poll_returns_at_most_max_records,
    poll_waits_after_a_loop_read_the_last_record,
    each_batch_is_of_one_partition,
    alternating_read_methods_miss_nothing,
    columns_equal_the_records,
    typed_columns_equal_the_values,
    keys_and_values_are_deserialized,
    bad_record_raises_and_can_be_skipped,
    seek_sets_the_position,
    seek_inside_a_loop_applies,
    paused_partitions_lose_nothing,
    end_offsets_and_offsets_for_times,
    missing_position_raises,
    position_out_of_range_is_reset,
    committed_offsets_are_found_again,
    concurrent_calls_are_refused,
    cancelled_poll_leaves_nothing,
]
