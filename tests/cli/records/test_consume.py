"""`ottla consume` on an Ottla broker: output, positions, limits, and how it ends."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from cases import each_case
from cli.golden import check_golden
from cli.records.harness import BIN, PATIENCE_S, environment, run
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.client.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer

MANY = 5_000_000
LINE_BYTES = 21
MEMORY_MB_MAX = 200

LINES = [
    {"partition": 0, "timestamp": 1000, "key": "ann", "value": "1 apple"},
    {"partition": 0, "timestamp": 2000, "key": None, "value": {"count": 2}, "headers": {"h": "1"}},
    {"partition": 0, "timestamp": 3000, "key": "bob", "value": None},
    {"partition": 1, "timestamp": 1500, "key": {"base64": "/w=="}, "value": "b\u00e9\x1b[31m"},
    {"partition": 1, "timestamp": 2500, "value": "last", "headers": {"a": None, "b": "x"}},
]


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker() as running:
        asyncio.run(_create(running.bootstrap))
        stdin = "".join(json.dumps(line) + "\n" for line in LINES).encode()
        done = run("ottla", "produce", "fruit", "--json", "-b", running.bootstrap, stdin=stdin)
        assert done.returncode == 0, done.stderr
        yield running


async def _create(servers: str) -> None:
    async with Admin({"bootstrap.servers": servers}) as admin:
        kept = {"retention.ms": "-1"}  # its records are old
        await admin.create_topic("fruit", partitions=2, config=kept)
        await admin.create_topic("empty", partitions=1)


def consume(broker: OttlaBroker, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return run("ottla", "consume", *arguments, "-b", broker.bootstrap)


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.decode().splitlines())


def test_values_are_printed_up_to_the_end(broker: OttlaBroker) -> None:
    done = consume(broker, "fruit", "-p", "0")
    assert done.stdout == b'1 apple\n{"count":2}\nnull\n'
    assert (done.returncode, done.stderr) == (0, b"")


def test_output_is_golden(broker: OttlaBroker) -> None:
    whole = consume(broker, "fruit", "-f", "%t %p %o %T %d %K %V %k %v %h\\n", "--key", "hex")
    check_golden("consume.txt", "".join(f"{line}\n" for line in lines(whole)))
    objects = consume(broker, "fruit", "-o", "json", "--value", "json")
    check_golden("consume.json", "".join(f"{line}\n" for line in lines(objects)))


@each_case(
    ("where", "shown"),
    [
        ("start", ["0:0", "0:1", "0:2", "1:0", "1:1"]),
        ("end", []),
        ("1", ["0:1", "0:2", "1:1"]),
        ("-1", ["0:2", "1:1"]),
        ("-0", []),
        ("+2", ["0:2"]),
        ("@2000", ["0:1", "0:2", "1:1"]),
        ("@1970-01-01T00:00:02.500", ["0:2", "1:1"]),
        ("@-1h", []),
    ],
)
def test_offset_selects_the_first_record(broker: OttlaBroker, where: str, shown: list[str]) -> None:
    assert lines(consume(broker, "fruit", f"--offset={where}", "-f", "%p:%o\\n")) == shown


def test_empty_format_prints_nothing(broker: OttlaBroker) -> None:
    said = consume(broker, "fruit", "-f", "")
    assert (said.returncode, said.stdout) == (0, b"")


def test_count_limits_the_records(broker: OttlaBroker) -> None:
    assert len(lines(consume(broker, "fruit", "-n", "2", "-f", "%o\\n"))) == 2
    assert len(lines(consume(broker, "fruit", "-n", "3", "-o", "json"))) == 3


CONSOLE_CONSUMER = "kafka-console-consumer --topic fruit --from-beginning --max-messages 1"


@each_case(
    "command",
    [
        "ottla consume fruit -n 1 -b {servers}",
        "ottla produce empty -b {servers}",
        f"{CONSOLE_CONSUMER} --bootstrap-server {{servers}}",
    ],
)
@each_case("closed", ["<&-", "<&- 2>&-"])
def test_closed_stdin_or_stderr_does_not_break_the_loop(
    broker: OttlaBroker, command: str, closed: str
) -> None:
    """The first opened file gets the lowest free descriptor, which event loops do not expect."""
    done = subprocess.run(
        ["sh", "-c", f"{BIN}/{command.format(servers=broker.bootstrap)} {closed}"],
        capture_output=True,
        check=False,
        env=environment(),
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 1


def test_empty_topic_prints_nothing(broker: OttlaBroker) -> None:
    assert lines(consume(broker, "empty")) == []


def test_group_continues_at_its_committed_offsets(broker: OttlaBroker) -> None:
    first = lines(consume(broker, "fruit", "-g", "readers", "-n", "2", "-f", "%p:%o\\n"))
    rest = lines(consume(broker, "fruit", "-g", "readers", "-e", "-f", "%p:%o\\n"))
    assert sorted(first + rest) == ["0:0", "0:1", "0:2", "1:0", "1:1"]
    assert lines(consume(broker, "fruit", "-g", "readers")) == []


def test_member_without_partitions_ends_with_a_message(broker: OttlaBroker) -> None:
    async def beside_another() -> subprocess.CompletedProcess[bytes]:
        # Static members are assigned first and keep their partition.
        settings = {"group.id": "full", "group.instance.id": "first"}
        servers = {"bootstrap.servers": broker.bootstrap}
        async with Consumer({**servers, **settings}, "empty") as consumer:
            while not consumer.assignment:
                await consumer.poll(0.1)
            other = asyncio.create_task(asyncio.to_thread(consume, broker, "empty", "-g", "full"))
            while not other.done():
                await consumer.poll(0.1)
            return await other

    done = asyncio.run(beside_another())
    said = b"ottla: nothing was read: other members of full own all partitions of empty\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", said)


@each_case(
    ("arguments", "code", "said"),
    [
        (["none"], 1, "topic none does not exist"),
        ([""], 1, "topic '' does not exist\n"),
        (["fruit", "-p", "7"], 1, 'topic "fruit" has 2 partitions: partition 7 does not exist'),
        (["fruit", "-f", "%y"], 2, "'%y' is not valid in a format"),
        (["fruit", "--offset", "soon"], 2, "'soon' is not a position"),
        (["fruit", "-g", "g", "-p", "0"], 2, "--group and --partition exclude each other"),
        (["fruit", "-g", ""], 2, "the group name must not be empty"),
        (["fruit", "-e", "--follow"], 2, "--exit and --follow exclude each other"),
        (["fruit", "--follow", "--exit"], 2, "--exit and --follow exclude each other"),
        (["fruit", "-p", "99999999999"], 2, "99999999999 is not in the range 0<=x<=2147483647"),
        (["fruit", "-g", "g", "--offset=-3"], 2, "`ottla group seek`"),
        (["fruit", "-f", "%v", "-o", "json"], 2, "-f and -o json exclude each other"),
        (["fruit", "--value", "avro"], 2, "--value-schema"),
        (["fruit", "--value-schema", "/none", "--value", "avro"], 2, "/none: No such file"),
        (["fruit", "--key-schema", "/none"], 2, "--key-schema requires --key avro"),
        (["fruit", "-f", "\\q"], 2, "'\\\\q' is not valid"),
        (["fruit", "--nothing"], 2, "--nothing"),
    ],
)
def test_failure_prints_one_line(
    broker: OttlaBroker, arguments: list[str], code: int, said: str
) -> None:
    done = consume(broker, *arguments)
    assert done.returncode == code
    assert done.stdout == b"" or "json" in arguments
    told = (done.stdout if "json" in arguments else done.stderr).decode()
    assert said in told
    assert told.count("\n") == 1


@each_case("output", ["table", "json", "yaml"])
@each_case(
    ("part", "text", "said"),
    [
        ("key", None, "decoding Avro requires a schema: use --key-schema or --value-schema"),
        ("value", "not json", "{path}: invalid Avro schema: 'not json' is not JSON"),
        ("key", '{"type": "foo"}', '{path}: invalid Avro schema: unknown type "foo"'),
        ("value", "5", "{path}: invalid Avro schema: 5 is not a type name"),
    ],
)
def test_avro_requires_a_valid_schema(
    broker: OttlaBroker, tmp_path: Path, output: str, part: str, text: str | None, said: str
) -> None:
    path = tmp_path / "schema.avsc"
    words = ["empty", f"--{part}", "avro", "-o", output]
    if text is not None:
        path.write_text(text)
        words += [f"--{part}-schema", str(path)]
    done = consume(broker, *words)
    assert done.returncode == 2, done.stderr
    if output == "table":
        assert done.stdout == b""
        told = done.stderr.decode().removeprefix("ottla: ")
        assert told.count("\n") == 1
    else:
        assert done.stderr == b""
        error = yaml.safe_load(done.stdout)["error"]  # JSON is valid YAML
        assert error["code"] == "USAGE"
        told = error["message"]
    assert told.startswith(said.format(path=path))


def test_follow_prints_new_records_until_ctrl_c(broker: OttlaBroker) -> None:
    words = [str(BIN / "ottla"), "consume", "empty", "--follow", "-b", broker.bootstrap]
    with _ended(words) as process:
        assert process.stdout is not None
        done = run("ottla", "produce", "empty", "-b", broker.bootstrap, stdin=b"now\n")
        assert done.returncode == 0
        assert process.stdout.readline() == b"now\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, b"", b"ottla: interrupted\n")


# Many records.


@pytest.fixture(scope="module")
def many(broker: OttlaBroker) -> str:
    fill(broker, "many", MANY, batch_bytes=262_144)
    return "many"


@pytest.fixture(scope="module")
def few(broker: OttlaBroker) -> str:
    """Fill a topic with more than a pipe holds, in small batches: YAML takes 1 ms per record."""
    fill(broker, "few", 5_000, batch_bytes=8_192)
    return "few"


def fill(broker: OttlaBroker, topic: str, count: int, *, batch_bytes: int) -> None:
    async def send() -> None:
        import pyarrow

        pa: Any = pyarrow
        rows = min(count, 100_000)
        values = pa.array([b"%020d" % n for n in range(rows)], pa.binary())
        batch = pa.RecordBatch.from_arrays([values], ["value"])
        settings = {"bootstrap.servers": broker.bootstrap}
        async with Admin(settings) as admin:
            await admin.create_topic(topic, partitions=3)
        async with Producer({**settings, "batch.size": batch_bytes}) as producer:
            for _ in range(count // rows):
                await producer.send_arrow(topic, batch, key=None)

    asyncio.run(send())


def command(tool: str, broker: OttlaBroker, topic: str) -> list[str]:
    if tool == "ottla":
        return [str(BIN / "ottla"), "consume", topic, "--exit", "-b", broker.bootstrap]
    return [
        str(BIN / "kafka-console-consumer"), "--topic", topic, "--from-beginning",
        "--max-messages", str(MANY), "--timeout-ms", "60000",
        "--bootstrap-server", broker.bootstrap,
    ]  # fmt: skip


# Started by a small process, because a process counts the memory of its parent until exec. Linux
# counts what the command writes, also to /dev/null.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
[written] = [line.split()[1] for line in open("/proc/self/io") if line.startswith("wchar")]
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, written, file=sys.stderr)
sys.exit(code)
"""


class Measured(NamedTuple):
    """Result and measurements of a command."""

    code: int
    said: list[str]
    memory_mb: float
    written_bytes: int


@contextmanager
def measured(words: list[str], stdout: int) -> Generator[Callable[[], Measured]]:
    """Start a command; the yielded function waits for its end."""
    with subprocess.Popen(
        [sys.executable, "-c", MEASURED, *words],
        stdout=stdout, stderr=subprocess.PIPE, env=environment(), text=True,
        start_new_session=True,
    ) as process:  # fmt: skip

        def ended() -> Measured:
            _, said = process.communicate(timeout=PATIENCE_S)
            *lines, numbers = said.splitlines()
            memory_kb, written = numbers.split()
            return Measured(process.returncode, lines, int(memory_kb) / 1024, int(written))

        try:
            yield ended
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("tool", ["ottla", "kafka-console-consumer"])
def test_memory_is_bounded_for_five_million_records(
    broker: OttlaBroker, many: str, tool: str
) -> None:
    with measured(command(tool, broker, many), subprocess.DEVNULL) as ended:
        found = ended()
    total = [] if tool == "ottla" else [f"Processed a total of {MANY} messages"]
    assert (found.code, found.said) == (0, total)
    assert found.written_bytes >= MANY * LINE_BYTES
    assert found.memory_mb <= MEMORY_MB_MAX


@each_case("read_bytes", [0, 1_000_000])
@each_case("tool", ["ottla", "kafka-console-consumer"])
def test_closed_pipe_exits_with_141(
    broker: OttlaBroker, many: str, tool: str, read_bytes: int
) -> None:
    ours, theirs = os.pipe()
    with open(ours, "rb") as reader, measured(command(tool, broker, many), theirs) as ended:
        os.close(theirs)
        assert len(reader.read(read_bytes)) == read_bytes
        reader.close()
        found = ended()
    assert found.code == 141, found
    assert len(found.said) == (0 if tool == "ottla" else 1)
    assert "Traceback" not in "".join(found.said)
    assert found.memory_mb <= MEMORY_MB_MAX


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_ctrl_c_works_while_nobody_reads_the_pipe(
    broker: OttlaBroker, many: str, few: str, form: str
) -> None:
    ours, theirs = os.pipe()
    words = [*command("ottla", broker, few if form == "yaml" else many), "-o", form]
    words += ["-X", "max.partition.fetch.bytes=8192"] if form == "yaml" else []
    with subprocess.Popen(
        words, stdout=theirs, stderr=subprocess.PIPE, env=environment()
    ) as process:
        try:
            _wait_until_full(theirs)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
            assert process.stderr is not None
            assert process.stderr.read() == b"ottla: interrupted\n"
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)


@contextmanager
def _ended(words: list[str]) -> Generator[subprocess.Popen[bytes]]:
    """Run a command that is killed at the end of the block."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_until_full(pipe: int) -> None:
    """Wait until a pipe is full: one write is larger than the pipe, so the writer blocks."""
    deadline_s = time.monotonic() + PATIENCE_S
    while select.select([], [pipe], [], 0)[1]:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


# On a terminal.


def test_terminal_follows_and_escapes_control_characters(broker: OttlaBroker) -> None:
    ours, theirs = pty.openpty()
    words = [str(BIN / "ottla"), "consume", "fruit", "-p", "1", "-b", broker.bootstrap]
    with subprocess.Popen(words, stdout=theirs, env=environment()) as process:
        os.close(theirs)
        try:
            shown = b""
            while b"last\r\n" not in shown:
                shown += os.read(ours, 1000)
            assert shown == "b\u00e9\\x1b[31m\r\nlast\r\n".encode()
            assert process.poll() is None  # waits for more records
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
        finally:
            process.kill()
            os.close(ours)
