"""Columns in pandas and polars: conversion takes one call and preserves the data."""

from datetime import UTC, datetime
from typing import Any

import pandas
import polars
import pyarrow
import pytest

from client.scenario_runner import run
from ottla import Consumer, Producer
from ottla.testing import Cluster

pa: Any = pyarrow
pd: Any = pandas
pl: Any = polars

AT_MS = 1_700_000_000_123
AT = datetime.fromtimestamp(AT_MS / 1000, UTC)
JSON_VALUES = [b'{"n": 1, "s": "\xc3\xa9", "f": 1.5}', b'{"n": null, "s": null}', None]
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.utf8()), ("f", pa.float64())])


async def read(servers: str, topic: str, rows: int, value_schema: Any = None) -> Any:
    """Return a table of all rows of a topic, which may arrive in several batches."""
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    async with Consumer(settings) as consumer:
        consumer.assign(*await consumer.partitions(topic))
        batches: list[Any] = []
        while sum(batch.num_rows for batch in batches) < rows:
            batch = await consumer.poll_arrow(20.0, value_schema=value_schema)
            assert batch is not None
            batches.append(batch)
        return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks()


async def sent(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        headers = [("h", b"1"), ("n", None)]
        await producer.send("t", b"v\x00", key=b"k", headers=headers, timestamp_ms=AT_MS)
        await producer.send("t", None, key=b"", timestamp_ms=0)
        await producer.send("t", b"", timestamp_ms=AT_MS + 1)
        for value in JSON_VALUES:
            await producer.send("j", value, timestamp_ms=AT_MS)


def test_batch_converts_to_pandas() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            await sent(cluster.bootstrap_servers)
            frame = (await read(cluster.bootstrap_servers, "t", 3)).to_pandas()
            typed = (await read(cluster.bootstrap_servers, "j", 3, SCHEMA)).to_pandas()
        names = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        assert [*frame.columns] == names
        assert {name: str(frame[name].dtype) for name in names[:4]} == {
            "topic": "category",
            "partition": "int32",
            "offset": "int64",
            "timestamp": "datetime64[ms, UTC]",
        }
        assert [*frame["topic"]] == ["t"] * 3
        assert [*frame["offset"]] == [0, 1, 2]
        assert [*frame["key"]] == [b"k", b"", None]
        assert [*frame["value"]] == [b"v\x00", None, b""]
        assert frame["timestamp"][0].to_pydatetime() == AT
        assert frame["timestamp"][1] == pd.Timestamp(0, tz="UTC")
        assert [[*one] for one in frame["headers"]] == [
            [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
            [],
            [],
        ]
        assert [*typed.columns][:5] == names[:5]
        assert typed["n"][0] == 1
        assert [*typed["n"].isna()] == [False, True, True]
        assert [*typed["s"]] == ["é", None, None]
        assert typed["f"][0] == 1.5
        assert str(typed["f"].dtype) == "float64"

    run(scenario())


def test_batch_converts_to_polars() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            await sent(cluster.bootstrap_servers)
            frame = pl.from_arrow(await read(cluster.bootstrap_servers, "t", 3))
            typed = pl.from_arrow(await read(cluster.bootstrap_servers, "j", 3, SCHEMA))
        assert isinstance(frame, polars.DataFrame)
        kinds = dict(frame.schema)
        assert frame["topic"].to_list() == ["t"] * 3
        assert kinds["partition"] == pl.Int32
        assert kinds["offset"] == pl.Int64
        assert kinds["timestamp"] == pl.Datetime("ms", "UTC")
        assert kinds["key"] == kinds["value"] == pl.Binary
        assert frame["key"].to_list() == [b"k", b"", None]
        assert frame["value"].to_list() == [b"v\x00", None, b""]
        assert frame["timestamp"].to_list()[0] == AT
        assert frame["timestamp"].dt.epoch("ms").to_list() == [AT_MS, 0, AT_MS + 1]
        assert frame["headers"].to_list() == [
            [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
            [],
            [],
        ]
        assert dict(typed.schema)["n"] == pl.Int64
        assert typed["n"].to_list() == [1, None, None]
        assert typed["s"].to_list() == ["é", None, None]
        assert typed["f"].to_list() == [1.5, None, None]

    run(scenario())


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_sent_unchanged(library: str) -> None:
    async def scenario() -> None:
        headers = [[{"key": "h", "value": b"1"}], [], []]
        columns: dict[str, Any] = {
            "who": ["ann", None, ""],
            "what": [b"v", b"", None],
            "at": [AT, datetime.fromtimestamp(0, UTC), None],
            "tags": headers,
            "unused": [1, 2, 3],
        }
        if library == "polars":
            frame = pl.DataFrame(columns)
        else:
            frame = pd.DataFrame(columns, index=[7, 8, 9])
        async with Cluster() as cluster:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                ack = await producer.send_arrow(
                    "t", frame, key="who", value="what", timestamp="at", headers="tags"
                )
                [written] = await ack
                assert (written.partition, written.offset, written.rows) == (0, 0, 3)
            rows = (await read(cluster.bootstrap_servers, "t", 3)).to_pylist()
        assert [row["key"] for row in rows] == [b"ann", None, b""]
        assert [row["value"] for row in rows] == [b"v", b"", None]
        assert [row["timestamp"] for row in rows][:2] == [AT, datetime.fromtimestamp(0, UTC)]
        assert rows[2]["timestamp"] > AT  # the time of the send
        assert [row["headers"] for row in rows] == headers

    run(scenario())
