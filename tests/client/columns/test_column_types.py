"""Types of columns; `make check` verifies this file with pyright strict.

Arrow has no type stubs, so batches are `Any`: users need no cast.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any, assert_type

import pytest

import ottla.sync
from client.consumer_scenarios import consumer, write
from client.scenario_runner import run
from ottla import Consumer, Producer, RowsAck, RowsNotWritten, WrittenRows
from ottla.testing import Cluster

AVRO = {"type": "record", "name": "o", "fields": [{"name": "item", "type": "string"}]}


async def async_calls(producer: Producer[str, int], reader: Consumer[str, int], table: Any) -> None:
    """Never run; only the type checker reads it."""
    ack = await producer.send_arrow("t", table, key=None, value="v", headers="h", partition=1)
    assert_type(ack, RowsAck)
    await producer.send_arrow("t", table, timestamp="at", partition="p")
    await producer.send_arrow("t", table, partition=1.5)  # pyright: ignore[reportArgumentType]
    try:
        assert_type(await ack, list[WrittenRows])
        assert_type(ack.done, bool)
    except RowsNotWritten as lost:
        assert_type(lost.rows, int)
    batch = await reader.poll_arrow(5.0, value_schema=AVRO)
    if batch is not None:
        print(batch.num_rows, batch.column("offset").to_pylist(), batch.to_pandas())
    async for batch in reader.arrow(value_schema="long"):
        print(batch.num_rows)
        break
    async with aclosing(reader.arrow()) as batches:
        async for batch in batches:
            print(batch.num_rows)
    async with aclosing(reader.batches()) as lists:
        async for records in lists:
            assert_type(records[0].value, int | None)


def sync_calls(
    producer: ottla.sync.Producer[str, int], reader: ottla.sync.Consumer[str, int], table: Any
) -> None:
    """Never run; only the type checker reads it."""
    ack = producer.send_arrow("t", table, key=None, value="v", headers="h", partition=1)
    assert_type(ack, ottla.sync.RowsAck)
    assert_type(ack.result(5), list[WrittenRows])
    assert_type(ack.done(), bool)
    producer.send_arrow("t", table, timestamp="at", partition="p")
    batch = reader.poll_arrow(5.0, value_schema=AVRO)
    if batch is not None:
        print(batch.num_rows)
    assert_type(reader.arrow(value_schema=AVRO), Iterator[Any])
    for batch in reader.arrow():
        print(batch.num_rows)


def test_iteration_can_end_before_the_consumer() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            servers = cluster.bootstrap_servers
            await write(servers, "t", 3)
            async with consumer(servers) as ours:
                ours.assign(("t", 0))
                async with aclosing(ours.arrow()) as batches:
                    assert (await anext(batches)).num_rows > 0
                ours.seek(("t", 0), 0)
                async with aclosing(ours.batches()) as lists:
                    assert (await anext(lists))[0].offset == 0
                with pytest.raises(StopAsyncIteration):
                    await anext(lists)

    run(scenario())
