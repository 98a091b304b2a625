"""Columns that cannot be sent: the error, and that no row was sent."""

from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow
import pytest

from cases import each_case
from client.scenario_runner import FAST, run
from ottla.client.producer.producer import Producer
from ottla.errors import ErrorCode, RequestError
from ottla.testing import Cluster
from ottla.transport.channel import TimedOut

pa: Any = pyarrow

TABLE = pa.table({"key": ["a", "b"], "value": ["c", "d"], "n": [1, None], "m": [0, 9]})


def with_producer(
    scenario: Callable[[Cluster, Producer], Coroutine[Any, Any, None]], **settings: Any
) -> None:
    async def around() -> None:
        async with (
            Cluster(settings={"num.partitions": 3}) as cluster,
            Producer(FAST, bootstrap_servers=cluster.bootstrap_servers, **settings) as ours,
        ):
            await scenario(cluster, ours)

    run(around())


@each_case(
    ("given", "arguments", "said"),
    [
        (TABLE, {"key": "n"}, r"column 'n' has type int64.*table\['n'\]\.cast\('string'\)"),
        (
            TABLE,
            {"value": "v"},
            r"value='v': the table has no column of this name, its columns are key, value, n, m",
        ),
        (TABLE.rename_columns(["key", "value", "n", "n"]), {"key": "n"}, "more than one column"),
        (TABLE, {"partition": "n"}, "a row has null in column 'n'"),
        (TABLE, {"partition": "value"}, "'value' has type string: partitions must be integers"),
        (TABLE, {"partition": "m"}, "3 partitions: partition 9 does not exist"),
        (TABLE, {"partition": -1}, "3 partitions: partition -1 does not exist"),
        (TABLE, {"headers": "value"}, "headers must be maps or lists of structs"),
        (
            TABLE,
            {"timestamp": "value"},
            "the timestamp column must be int64 or timestamp, not string",
        ),
        (
            TABLE.append_column("at", pa.array([5, -5])),
            {"timestamp": "at"},
            r"column 'at' has the timestamp -5: timestamps are milliseconds since 1970",
        ),
        (
            TABLE.append_column("at", pa.array([None, -2_000_000], pa.timestamp("ns", "UTC"))),
            {"timestamp": "at"},
            "column 'at' has the timestamp -2:",
        ),
        ([b"a"], {}, r"expected a pyarrow RecordBatch or Table such as .*, not list"),
        (pa.table({"key": ["a", "b"], "value": ["c", "x" * 1000]}), {}, r"max\.request\.size=900"),
        (
            pa.table(
                {
                    **{name: TABLE[name] for name in ("key", "value")},
                    "h": [[{"key": None, "value": b"v"}], []],
                }
            ),
            {"headers": "h"},
            r"header \d+: the key is null",
        ),
    ],
)
def test_invalid_table_is_refused_as_a_whole(
    given: Any, arguments: dict[str, Any], said: str
) -> None:
    async def scenario(cluster: Cluster, ours: Producer) -> None:
        await (await ours.send("t", b"first", partition=0))
        with pytest.raises(RequestError, match="(?s)nothing was sent.*" + said) as refused:
            await ours.send_arrow("t", given, **arguments)
        assert not refused.value.retriable or "partitions" in said
        await ours.flush()
        assert ours.metrics().record_send_total == 1

    # The producer waits for a partition that may be added.
    block_ms = 1000 if "partition 9" in said else 60_000
    with_producer(scenario, max_request_size=900, max_block_ms=block_ms)


def test_timeout_notes_how_many_rows_were_sent() -> None:
    async def scenario(cluster: Cluster, ours: Producer) -> None:
        await (await ours.send("t", b"first", partition=0))
        table = pa.table({"value": ["x" * 100] * 1000})
        with (
            cluster.brokers[0].pause(),
            pytest.raises(TimedOut, match=r"buffer\.memory") as late,
        ):
            await ours.send_arrow("t", table, key=None, partition=0)
        [note] = late.value.__notes__
        sent = int(note.split()[0])
        assert note == f"{sent} of 1000 rows were sent before this error"
        await ours.flush()
        assert 0 < ours.metrics().record_send_total - 1 == sent < 1000

    with_producer(scenario, batch_size=1000, buffer_memory=5000, max_block_ms=1500)


def test_unhandled_unwritten_rows_are_raised_by_flush() -> None:
    async def scenario(cluster: Cluster, ours: Producer) -> None:
        await (await ours.send("t", b"there"))
        await cluster.brokers[0].stop()
        unasked = await ours.send_arrow("t", TABLE, partition=1)
        asked = await ours.send_arrow("t", TABLE, partition=2)
        with pytest.raises(RequestError, match="2 of 2 rows were not written") as lost:
            await asked
        assert lost.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(RequestError, match="t-1: not written"):
            await ours.flush()
        assert unasked.done

    with_producer(scenario, delivery_timeout_ms=400, request_timeout_ms=300, linger_ms=0)
