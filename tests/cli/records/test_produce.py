"""`ottla produce` and `ottla perf` on an Ottla broker."""

import asyncio
import json
import os
import pty
import re
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from cases import each_case
from cli.golden import check_golden
from cli.records.harness import BIN, PATIENCE_S, environment, run
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.client.admin import Admin, NewTopic
from ottla.client.producer.producer import Producer

OFFSETS = 60


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    settings = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "100"}
    with ottla_broker(settings) as running:
        asyncio.run(_create(running.bootstrap))
        assert produce(running, "few", stdin=b"a\nb\n").returncode == 0
        yield running


async def _create(servers: str) -> None:
    names = ("plain", "keys", "json", "copied", "files", "packed", "bad", "fast", "golden", "few")
    async with Admin({"bootstrap.servers": servers}) as admin:
        (await admin.create_topics([NewTopic(one, partitions=2) for one in names])).or_raise()
        small = NewTopic("small", partitions=1, config={"max.message.bytes": "200"})
        (await admin.create_topics([small])).or_raise()


def produce(
    broker: OttlaBroker, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return run("ottla", "produce", *arguments, "-b", broker.bootstrap, stdin=stdin)


def shown(broker: OttlaBroker, topic: str, format_: str) -> list[str]:
    done = run("ottla", "consume", topic, "-f", format_ + "\\n", "-b", broker.bootstrap)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.decode().splitlines())


def test_each_line_is_a_record(broker: OttlaBroker) -> None:
    done = produce(broker, "plain", "-p", "1", stdin=b"a\n\nb\r\n\xff\nlast")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"Wrote 5 records to plain.\n"
    raw = run("ottla", "consume", "plain", "-b", broker.bootstrap).stdout
    assert raw == b"a\n\nb\r\n\xff\nlast\n"


def test_keys_headers_and_nulls_are_written(broker: OttlaBroker) -> None:
    stdin = b"k1:v1\nk2:-\n"
    done = produce(broker, "keys", "-K", ":", "-H", "a=1", "-H", "b", "--null", "-", stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert shown(broker, "keys", "%k %v %h") == ["k1 v1 a=1,b=null", "k2 null a=1,b=null"]


def test_same_key_keeps_records_in_one_partition(broker: OttlaBroker) -> None:
    done = produce(broker, "fast", "-k", "same", stdin=b"x\n" * 1000)
    assert done.stdout == b"Wrote 1000 records to fast.\n"
    found = shown(broker, "fast", "%p %k")
    assert len(found) == 1000
    assert len(set(found)) == 1


def test_json_output_of_consume_is_accepted(broker: OttlaBroker) -> None:
    line = {
        "key": {"base64": "/w=="}, "value": "v", "headers": [{"key": "h", "value": None}],
        "partition": 1, "timestamp": 1234,
    }  # fmt: skip
    assert produce(broker, "json", "--json", stdin=json.dumps(line).encode()).returncode == 0
    objects = run("ottla", "consume", "json", "-o", "json", "-b", broker.bootstrap).stdout
    assert produce(broker, "copied", "--json", stdin=objects).returncode == 0
    copied = run("ottla", "consume", "copied", "-o", "json", "-b", broker.bootstrap).stdout
    assert copied == objects.replace(b'"json"', b'"copied"')


def test_files_are_read_in_order(broker: OttlaBroker, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2")
    done = produce(broker, "files", "-p", "0", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.stdout == b"Wrote 4 records to files.\n"
    assert shown(broker, "files", "%o %v") == ["0 a1", "1 a2", "2 b1", "3 b2"]


def test_batches_are_compressed(broker: OttlaBroker) -> None:
    done = produce(broker, "packed", "-z", "zstd", "--acks", "1", "-p", "0", stdin=b"x\n" * 10_000)
    assert done.returncode == 0, done.stderr
    size = sum(path.stat().st_size for path in broker.data.rglob("packed-0/*.log"))
    assert 0 < size < 10_000


def test_output_is_golden(broker: OttlaBroker) -> None:
    table = produce(broker, "golden", stdin=b"a\n").stdout
    objects = produce(broker, "golden", "-o", "json", stdin=b"a\n").stdout
    check_golden("produce.txt", table.decode())
    check_golden("produce.json", objects.decode())


@pytest.mark.parametrize("columns", [(), ("--columns",)])
def test_perf_consume_does_not_wait_for_compacted_offsets(
    broker: OttlaBroker, gaps: str, columns: Sequence[str]
) -> None:
    done = run(
        "ottla", "perf", "consume", gaps, *columns, "-o", "json", "-b", broker.bootstrap
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["records"] < OFFSETS


@pytest.fixture(scope="module")
def gaps(broker: OttlaBroker) -> str:
    """Create a topic with fewer records than offsets, by compaction."""
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "segment.bytes": "1048576",
    }

    async def fill() -> None:
        settings = {"bootstrap.servers": broker.bootstrap}
        async with Admin(settings) as admin:
            new = NewTopic("gaps", partitions=1, config=config)
            (await admin.create_topics([new])).or_raise()
        async with Producer(settings) as producer:
            for _ in range(OFFSETS):
                await (await producer.send("gaps", b"x" * 100_000, key=b"same"))

    asyncio.run(fill())
    deadline_s = time.monotonic() + PATIENCE_S
    while len(shown(broker, "gaps", "%o")) >= OFFSETS / 2:
        assert time.monotonic() < deadline_s, "it is not compacted"
    return "gaps"


def test_invalid_line_stops_produce(broker: OttlaBroker) -> None:
    done = produce(
        broker, "bad", "--json", stdin=b'{"value": "1"}\n{"value": 2}\n{\n{"value": 4}\n'
    )
    assert done.returncode == 1
    assert done.stderr.decode().startswith("ottla: line 3: not JSON: ")
    assert done.stderr.decode().endswith("; 2 records were written to bad\n")
    assert shown(broker, "bad", "%v") == ["1", "2"]
    told = produce(broker, "bad", "--json", "-o", "json", stdin=b"{\n")
    assert told.returncode == 1
    assert json.loads(told.stdout)["error"]["code"] == "BAD_RECORD"


def test_line_with_a_missing_partition_is_named(broker: OttlaBroker) -> None:
    lines = b'{"value": "a", "partition": 1}\n{"value": "b", "partition": 7}\n'
    done = produce(broker, "plain", "--json", stdin=lines)
    assert done.returncode == 1
    why = 'line 2: topic "plain" has 2 partitions: partition 7 does not exist'
    why += "; 1 record was written to plain"
    assert done.stderr.decode() == f"ottla: {why}\n"
    told = produce(broker, "plain", "--json", "-o", "json", stdin=lines)
    error = json.loads(told.stdout)["error"]
    assert error == {"code": "UNKNOWN_TOPIC_OR_PARTITION", "message": why}


def test_refused_record_stops_produce(broker: OttlaBroker) -> None:
    done = produce(broker, "small", stdin=b"a\nb\n" + b"x" * 1000 + b"\n")
    assert done.returncode == 1
    assert re.search(r"; [012] records? (was|were) written to small\n$", done.stderr.decode())
    large = produce(broker, "bad", stdin=b"x" * 2_000_000)
    assert large.returncode == 1
    assert "max.request.size" in large.stderr.decode()
    assert large.stderr.decode().endswith("; 0 records were written to bad\n")


@pytest.mark.parametrize(
    ("topic", "unusual"), [("bad name", "' ' at index 3"), ("n\xefce", r"'\xef' at index 1")]
)
def test_invalid_topic_names_get_one_sentence(
    broker: OttlaBroker, topic: str, unusual: str
) -> None:
    done = produce(broker, topic, stdin=b"x\n")
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"ottla: invalid topic name {topic!a}: A topic name can contain letters A to Z and a to "
        f"z, digits, '.', '_' and '-' only; this one has {unusual}; "
        f"0 records were written to {topic}\n"
    )


def test_empty_topic_name_is_wrong_usage(broker: OttlaBroker) -> None:
    done = produce(broker, "", stdin=b"x\n")
    assert done.returncode == 2
    assert done.stderr.decode() == "ottla: the topic name must not be empty\n"


def test_overlong_line_stops_produce(broker: OttlaBroker) -> None:
    command = f"(echo first; head -c 200M /dev/zero) | {BIN}/ottla produce bad -b"
    done = subprocess.run(
        ["sh", "-c", f"{command} {broker.bootstrap}"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert done.stderr == ("ottla: line 2: longer than 64 MB; 1 record was written to bad\n")


@each_case(
    ("arguments", "code", "said"),
    [
        (["none", "-X", "max.block.ms=500"], 1, "the topic does not exist"),
        (["none", "-X", "max.block.ms=500"], 1, "create the topic with `ottla topic create`"),
        (["plain", "-p", "9"], 1, "has 2 partitions: partition 9 does not exist"),
        (["plain", "/no/such/file"], 2, "/no/such/file: No such file"),
        (["plain", "-H", "=x"], 2, "is not a header: use name=value"),
        (["plain", "--json", "-K", ":"], 2, "--json cannot be combined with"),
        (["plain", "-k", "a", "-K", ":"], 2, "--key-separator"),
        (["plain", "-z", "rar"], 2, "rar"),
        (["plain", "-X", "acks=7"], 2, "acks"),
        (["plain", "-p", "99999999999"], 2, "99999999999 is not in the range 0<=x<=2147483647"),
    ],
)
def test_failure_prints_one_line(
    broker: OttlaBroker, arguments: list[str], code: int, said: str
) -> None:
    done = produce(broker, *arguments, stdin=b"x\n")
    assert done.returncode == code, done.stderr
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""


# Performance.

NUMBER = re.compile(r"\d+(\.\d+)?")


def perf(broker: OttlaBroker, *arguments: str) -> bytes:
    done = run("ottla", "perf", *arguments, "-b", broker.bootstrap)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plain(text: bytes) -> str:
    """Replace the measured numbers and the width of their columns."""
    return re.sub(r" +", " ", NUMBER.sub("0", text.decode()))


def test_perf_prints_its_measurements(broker: OttlaBroker) -> None:
    asyncio.run(_create_one(broker.bootstrap, "perf"))
    check_golden("perf-produce.txt", plain(perf(broker, "produce", "perf", "-n", "5000")))
    told = perf(broker, "produce", "perf", "-n", "5000", "--size", "10", "-o", "json")
    check_golden("perf-produce.json", plain(told))
    assert json.loads(told)["records"] == 5000
    assert json.loads(told)["bytes"] == 50_000
    for more in ((), ("--columns",)):
        told = perf(broker, "consume", "perf", *more, "-o", "json")
        assert json.loads(told)["records"] == 10_000
        assert json.loads(told)["bytes"] == 550_000
    check_golden("perf-consume.txt", plain(perf(broker, "consume", "perf")))
    check_golden("perf-consume.json", plain(told))
    check_golden("perf-latency.txt", plain(perf(broker, "latency", "perf", "-n", "50")))
    check_golden(
        "perf-latency.json", plain(perf(broker, "latency", "perf", "-n", "50", "-o", "json"))
    )


async def _create_one(servers: str, name: str) -> None:
    async with Admin({"bootstrap.servers": servers}) as admin:
        await admin.create_topic(name, partitions=2)


@each_case(
    ("arguments", "said"),
    [
        (["consume", "none"], "topic none does not exist"),
        (["latency", "none"], "topic none does not exist"),
        (
            ["consume", "few", "-n", "99", "--timeout", "3"],
            "received 2 of 99 records, and none for 3 s",
        ),
        (["produce", "none", "-X", "max.block.ms=500"], "the topic does not exist"),
    ],
)
def test_perf_fails_without_its_topic_or_records(
    broker: OttlaBroker, arguments: list[str], said: str
) -> None:
    done = run("ottla", "perf", *arguments, "-b", broker.bootstrap)
    assert done.returncode == 1
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_files_have_a_progress_bar_on_a_terminal(broker: OttlaBroker, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 99 + b"\n" + b"y\n" * 200_000)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [BIN / "ottla", "produce", "fast", str(path), "-b", broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**environment(), "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # raised at the end
        while data := os.read(ours, 1000):
            shown += data
    os.close(ours)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert out == b"Wrote 200001 records to fast.\n"
    assert b"kB" in shown
