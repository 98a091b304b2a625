"""`kafka-replica-verification`: equal and different replicas."""

import asyncio
import contextlib
import io
import re
import time

import pytest

from cli.kafka.in_process import run_here
from ottla import NewTopic
from ottla.cli.kafka.replicas.comparison import Fetched, OffsetsDiffer, Verification, compare
from ottla.cli.kafka.replicas.tool import USAGE, act
from ottla.client.partitions import Partition
from ottla.records.batch import HEADER_SIZE
from ottla.sync import Admin, Producer
from ottla.testing import ClusterThread

PATIENCE_S = 60


def batch(base: int, count: int = 1, crc: int = 7) -> bytes:
    """A batch header as on disk, without records: only its offsets and checksum are read."""
    return b"".join(
        (
            base.to_bytes(8),
            (HEADER_SIZE - 12).to_bytes(4),
            bytes(4),
            b"\2",
            crc.to_bytes(4),
            bytes(2),
            (count - 1).to_bytes(4),
            bytes(HEADER_SIZE - 27),
        )
    )


def test_batches_are_compared_up_to_the_high_watermark() -> None:
    rows = {1: Fetched(3, batch(0) + batch(1) + batch(2)), 2: Fetched(2, batch(0) + batch(1))}
    assert compare("t-0", rows, 0).next_offset == 2
    assert compare("t-0", {**rows, 3: Fetched(-1, b"")}, 0).next_offset == 0
    assert compare("t-0", {1: Fetched(1, batch(0) + batch(1))}, 0).next_offset == 1


def test_different_checksum_is_reported() -> None:
    rows = {1: Fetched(2, batch(0, 2)), 2: Fetched(2, batch(0, 2, crc=8))}
    found = compare("t-0", rows, 0)
    assert found.next_offset == 2
    expected = (
        "partition t-0 has unmatched checksum at offset 1; replica 1's checksum 7; replica 2's "
        "checksum 8"
    )
    assert found.complaints == [expected]


def test_different_offsets_end_the_tool() -> None:
    rows = {1: Fetched(9, batch(0)), 2: Fetched(9, batch(0, 2))}
    with pytest.raises(OffsetsDiffer) as caught:
        compare("t-0", rows, 0)
    assert str(caught.value) == (
        "partition t-0: replica 1's offset 0 doesn't match replica 2's offset 1"
    )


def test_report_names_the_partition_with_the_highest_lag() -> None:
    keys: dict[Partition, tuple[int, ...]] = {("t", 0): (1,), ("t", 1): (1,)}
    verification = Verification(keys, {("t", 0): 5, ("t", 1): 5})
    fetched = {1: {("t", 0): Fetched(6, b""), ("t", 1): Fetched(9, b"")}}
    _, report = verification.step(fetched)
    assert report == "max lag is 4 for partition t-1 at offset 5 among 2 partitions"


def test_wrong_flags_print_kafkas_message() -> None:
    cases = {
        "--time -2": 'Missing required argument "[broker-list]"',
        "--broker-list a": "Please provide valid host:port like host1:9091,host2:9092",
    }
    for words, expected in cases.items():
        said = run_here(USAGE.tool, *words.split())
        assert (said.code, said.out, said.err.split("\n")[0]) == (1, "", expected)


def test_equal_replicas_have_no_lag() -> None:
    async def until(servers: str, out: io.StringIO, said: str) -> None:
        words = f"--broker-list {servers} --time -2 --report-interval-ms 0 --max-wait-ms 50"
        tool = asyncio.ensure_future(act(USAGE.read(words.split())))
        deadline_s = time.monotonic() + PATIENCE_S
        while said not in out.getvalue() and not tool.done():
            assert time.monotonic() < deadline_s, out.getvalue()
            await asyncio.sleep(0.01)
        tool.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await tool

    with ClusterThread(brokers=2) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        with Admin(settings) as admin, Producer[bytes, bytes](settings) as producer:
            admin.create_topics([NewTopic("t", replicas={0: [1, 2]})]).or_raise()
            for number in range(30):
                producer.send("t", b"%d" % number)
            producer.flush()
        cluster.settled()
        out = io.StringIO()
        report = ": max lag is 0 for partition t-0 at offset 30 among 1 partitions\n"
        with contextlib.redirect_stdout(out):
            asyncio.run(until(cluster.bootstrap_servers, out, report))
    time_ = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert re.match(f"{time_}: verification process is started\n", out.getvalue())
    assert re.search(f"{time_}{report}", out.getvalue())
    assert "match" not in out.getvalue()
