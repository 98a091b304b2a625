"""`ottla broker` and `ottla dev` as processes, with kafka-python as client.

Most are forked (`cli.forked`). Those that concern signals, limits of the process, PATH and memory
start a new interpreter.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest

from broker.event_log import read_json, read_text
from broker.test_listeners import needs_ipv6
from cli.forked import ForkedProcess, run_script
from cli.non_brokers import silent
from file_modes import exposed
from ottla.cli.broker.server import storage_error
from ottla.errors import StorageFailure
from ottla.log.names import CLEAN_SHUTDOWN, HIGH_WATERMARKS

OTTLA = str(Path(sys.executable).parent / "ottla")


class Running:
    def __init__(
        self, process: "subprocess.Popen[str] | ForkedTextProcess", address: str, told: str
    ) -> None:
        self.process = process
        self.address = address
        self.told = told

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


class ForkedTextProcess(ForkedProcess):
    """A forked script with pipes for its output, which the caller reads as text."""

    def __init__(self, command: Sequence[str]) -> None:
        out, err = os.pipe(), os.pipe()
        with open(os.devnull, "rb") as nothing:
            super().__init__(
                command, env=os.environ, stdin=nothing.fileno(), stdout=out[1], stderr=err[1]
            )
        os.close(out[1])
        os.close(err[1])
        self.stdout = open(out[0], encoding="utf-8")  # noqa: SIM115 - closed by `communicate`
        self.stderr = open(err[0], encoding="utf-8")  # noqa: SIM115

    def communicate(self) -> None:
        """Wait for the end, and close the pipes."""
        self.wait(30)
        self.stdout.close()
        self.stderr.close()


@contextmanager
def dev(
    folder: Path,
    *overrides: str,
    log_format: str = "text",
    before: str | None = None,
    path: str | None = None,
    fresh: bool = False,
) -> Generator[Running]:
    """Start a broker; `fresh` starts a new interpreter, as `before` and `path` do."""
    options = [word for one in overrides for word in ("--override", one)]
    command = [OTTLA, "dev", "--port", "0", "--data", str(folder), "--log-format", log_format]
    if before is not None:
        command = ["sh", "-c", f'{before}; exec "$@"', "sh", *command]
    if fresh or before is not None or path is not None:
        process = subprocess.Popen(
            [*command, *options],
            env=None if path is None else {**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    else:
        process = ForkedTextProcess([*command, *options])
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        found = re.search(r"listens on (\S+)\. Data directory: (\S+)\.", told)
        if found is None:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        yield Running(process, found[1], told)
    finally:
        process.kill()
        process.communicate()


def refused(*arguments: str) -> tuple[int, str]:
    done = run_script(
        "ottla", arguments, env=os.environ, stdin=b"", timeout_s=60, folder=Path.cwd()
    )
    return done.returncode, done.stderr.decode()


def values(address: str) -> list[bytes]:
    # Any: the client has no types.
    client: Any = kafka
    consumer = client.KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=500
    )
    try:
        partition = client.TopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return [record.value for record in consumer]
    finally:
        consumer.close()


def test_dev_serves_its_records_after_a_restart(tmp_path: Path) -> None:
    with dev(tmp_path, fresh=True) as running:
        client: Any = kafka
        producer = client.KafkaProducer(bootstrap_servers=running.address)
        for number in range(100):
            producer.send("t", b"%d" % number)
        producer.flush(30)
        producer.close()
        assert values(running.address) == [b"%d" % number for number in range(100)]
        assert running.stop() == 0
    with dev(tmp_path) as running:
        assert values(running.address) == [b"%d" % number for number in range(100)]


def test_other_users_have_no_access_to_the_data(tmp_path: Path) -> None:
    with dev(tmp_path, "log.segment.bytes=1048576", before="umask 0") as running:
        client: Any = kafka
        producer = client.KafkaProducer(bootstrap_servers=running.address, enable_idempotence=True)
        for _ in range(10):
            producer.send("t", bytes(200_000)).get(30)
        producer.close()
        consumer = client.KafkaConsumer(
            "t", bootstrap_servers=running.address, group_id="g", auto_offset_reset="earliest"
        )
        next(consumer)
        consumer.commit()
        consumer.close()
        assert running.stop() == 0
    data = tmp_path / "data"
    names = {path.name for path in data.rglob("*")}
    assert {"t-0", "__consumer_offsets-0", CLEAN_SHUTDOWN, HIGH_WATERMARKS} <= names
    suffixes = {Path(name).suffix for name in names}
    assert {".log", ".index", ".timeindex", ".snapshot", ".journal", ".properties"} <= suffixes
    assert exposed(data) == []


def test_open_data_directory_is_logged_as_a_warning(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    with dev(tmp_path) as running:
        running.stop()
        assert running.process.stderr is not None
        told = running.process.stderr.read()
    line = next(line for line in told.splitlines() if "data directory exposed" in line)
    assert "level=warning " in line
    assert f"directory={tmp_path / 'data'} " in line
    assert "mode=755 " in line


def test_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with dev(tmp_path):
        code, told = refused("dev", "--port", "0", "--data", str(tmp_path))
        assert code == 1
        assert "in use by another process" in told
        assert "--data DIR" in told


def test_directory_of_a_local_cluster_is_refused(tmp_path: Path) -> None:
    for name in ("cluster.json", "cluster.lock"):
        (tmp_path / name).write_text("{}")
    broker = tmp_path / "broker-1"
    broker.mkdir()
    for data in (tmp_path, broker, tmp_path / "broker-2"):
        code, told = refused("dev", "--port", "0", "--data", str(data))
        assert code == 1
        assert f"`ottla cluster start --data {tmp_path}`" in told
    assert not [*broker.iterdir()]


def test_log_directory_of_a_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    code, told = refused("dev", "--port", "0", "--data", str(tmp_path))
    assert code == 1
    assert f"`ottla broker --override log.dirs={tmp_path}`" in told
    assert [one.name for one in tmp_path.iterdir()] == ["meta.properties"]


@pytest.mark.parametrize("command", [["dev"], ["cluster", "start"], ["zookeeper", "start"]])
def test_empty_name_of_a_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, told = refused(*command, "--port", "1", "--data", "")
    assert code == 2
    assert "--data" in told
    assert "the directory name must not be empty" in told
    assert not [*tmp_path.iterdir()]


def test_port_in_use_names_its_process_and_the_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        code, told = refused("dev", "--port", str(port), "--data", str(tmp_path / "new"))
        assert code == 1
        assert f"127.0.0.1:{port} is already in use" in told
        assert "pid" in told
        assert "--port N" in told
    assert not (tmp_path / "new").exists()


def test_address_that_cannot_be_bound_leaves_no_directory(tmp_path: Path) -> None:
    code, told = refused(
        "broker",
        *("--override", "listeners=PLAINTEXT://192.0.2.1:9092"),  # not an address of this machine
        *("--override", f"log.dirs={tmp_path / 'new' / 'data'}"),
    )
    assert code == 1
    assert "192.0.2.1:9092" in told
    assert not (tmp_path / "new").exists()


def test_metrics_port_in_use_names_its_process_and_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with dev(tmp_path, f"ottla.metrics.listener=127.0.0.1:{port}") as running:
            assert running.stop() == 0
            assert running.process.stdout is not None
            told = running.process.stdout.read()
    (line,) = re.findall(r"  metrics  (.*)", told)
    assert line.startswith("none: ")
    assert f"127.0.0.1:{port} is in use by" in line
    assert "pid" in line
    assert "--override ottla.metrics.listener=" in line


def test_disabled_metrics_are_not_mentioned(tmp_path: Path) -> None:
    with dev(tmp_path, "ottla.metrics.listener=") as running:
        running.stop()
        assert running.process.stdout is not None
        assert "  metrics  " not in running.process.stdout.read()


def test_invalid_properties_file_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nnum.partitions=zero\n")
    code, told = refused("broker", "--config", str(file))
    assert code == 2
    assert told.startswith(f"ottla: {file}:2: ")
    assert "num.partitions" in told


def test_missing_zookeeper_is_one_line(tmp_path: Path) -> None:
    code, told = refused(
        "broker",
        *("--override", "zookeeper.connect=127.0.0.1:1,no-such-host.invalid:2181/kafka"),
        *("--override", "zookeeper.connection.timeout.ms=200"),
        *("--override", f"log.dirs={tmp_path / 'new'}", "--log-level", "error"),
        *("--override", "listeners=PLAINTEXT://127.0.0.1:0"),
    )
    assert code == 1
    assert told.startswith(
        "ottla: --override: zookeeper.connect: no ZooKeeper server of "
        "127.0.0.1:1,no-such-host.invalid:2181/kafka answered within 0.2 s; the host "
        "no-such-host.invalid is unknown ("
    )
    assert told.endswith(
        "): start ZooKeeper, correct this setting, or remove it to run a single broker without "
        "ZooKeeper\n"
    )
    assert told.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("broker_id", ["broker.id=0", "broker.id=-1"])
def test_missing_zookeeper_of_an_old_file_names_its_line(tmp_path: Path, broker_id: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"{broker_id}\n"
        "listeners=PLAINTEXT://127.0.0.1:0\n"
        f"log.dirs={tmp_path / 'new'}\n"
        "\n"
        "zookeeper.connect=127.0.0.1:1\n"
        "zookeeper.connection.timeout.ms=200\n"
    )
    expected = (
        f"ottla: {file}:5: zookeeper.connect: no ZooKeeper server of 127.0.0.1:1 answered within "
        "0.2 s: start ZooKeeper, correct this line, or remove it to run a single broker without "
        "ZooKeeper\n"
    )
    assert refused("broker", "--config", str(file), "--log-level", "error") == (1, expected)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("broker_id", ["node.id=1", "broker.id.generation.enable=true"])
def test_signal_ends_a_start_that_waits_for_zookeeper(tmp_path: Path, broker_id: str) -> None:
    with silent() as zookeeper:
        settings = {
            "zookeeper.connect": zookeeper.address,
            "zookeeper.connection.timeout.ms": "600000",
            "zookeeper.session.timeout.ms": "600000",
            "log.dirs": str(tmp_path / "new"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
        }
        options = [f"{name}={value}" for name, value in settings.items()]
        process = subprocess.Popen(
            [OTTLA, "broker", *(f"--override={one}" for one in (*options, broker_id))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert zookeeper.asked.acquire(timeout=60)
            process.send_signal(signal.SIGINT)
            _, log = process.communicate(timeout=60)
        finally:
            process.kill()
    events = [one["event"] for one in map(read_text, log.splitlines())]
    assert (process.returncode, events[-2:]) == (0, ["stop requested", "broker stopped"])


def test_denied_data_directory_has_a_hint() -> None:
    error = StorageFailure("/x/data: mkdir: Permission denied")
    assert storage_error(error, "--data") == "/x/data: mkdir: Permission denied"
    error.__cause__ = PermissionError()
    expected = f"{error}: set --data to a directory that this user may write"
    assert storage_error(error, "--data") == expected


def test_data_directory_that_cannot_be_created_names_its_setting() -> None:
    code, told = refused(
        *("broker", "--override", "log.dirs=/proc/ottla", "--log-level", "error"),
        *("--override", "listeners=PLAINTEXT://127.0.0.1:0"),
    )
    hint = "set log.dirs to a directory that can be created and written"
    assert (code, told) == (1, f"ottla: /proc/ottla: mkdir: No such file or directory: {hint}\n")


# Any below: the client's types are not complete.


async def started_consumer(address: str) -> Any:
    consumer: Any = aiokafka.AIOKafkaConsumer(
        "g",
        bootstrap_servers=address,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    return consumer


async def read(consumers: list[Any], until: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Return what consumers of one group read together, until it is enough."""
    seen: list[bytes] = []
    while not until(seen):
        for consumer in consumers:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                seen += [record.value for record in records]
    return seen


async def produce(address: str, numbers: range) -> None:
    producer: Any = aiokafka.AIOKafkaProducer(bootstrap_servers=address)
    await producer.start()
    for number in numbers:
        await producer.send_and_wait("g", b"%d" % number, partition=number % 4)
    await producer.stop()


def test_group_shares_a_topic_and_resumes(tmp_path: Path) -> None:
    async def share(address: str) -> None:
        await produce(address, range(40))
        consumers = [await started_consumer(address) for _ in range(2)]

        def shared(seen: list[bytes]) -> bool:
            shares = [one.assignment() for one in consumers]
            return len(set(seen)) == 40 and [len(one) for one in shares] == [2, 2]

        await read(consumers, shared)
        # Records read before the last rebalance count as well.
        for consumer in consumers:
            await consumer.seek_to_end()
            await consumer.commit(
                {one: await consumer.position(one) for one in consumer.assignment()}
            )
            await consumer.stop()
        await produce(address, range(40, 44))

    async def resume(address: str) -> None:
        consumer = await started_consumer(address)
        seen = await read([consumer], lambda seen: len(seen) >= 4)
        await consumer.stop()
        assert sorted(seen) == [b"40", b"41", b"42", b"43"]

    with dev(tmp_path, "num.partitions=4") as running:
        asyncio.run(asyncio.wait_for(share(running.address), 60))
        assert running.stop() == 0
    with dev(tmp_path) as running:
        asyncio.run(asyncio.wait_for(resume(running.address), 60))


@pytest.mark.parametrize(("form", "read"), [("text", read_text), ("json", read_json)])
def test_log_has_one_line_per_event(
    tmp_path: Path, form: str, read: Callable[[str], dict[str, str]]
) -> None:
    with dev(tmp_path, "ottla.metrics.listener=127.0.0.1:0", log_format=form) as running:
        running.process.send_signal(signal.SIGINT)
        running.process.wait(30)
        assert running.process.stdout is not None
        assert running.process.stderr is not None
        told, written = running.process.stdout.read(), running.process.stderr.read()
    assert "  metrics  http://127.0.0.1:" in told
    events = [read(line) for line in written.splitlines()]
    assert [one["event"] for one in events] == [
        "broker starting",
        "data directory opened",
        "listener started",
        "metrics page started",
        "controller elected",
        "limits set",
        "broker started",
        "stop requested",
        "broker stopped",
    ]
    assert events[-2]["signal"] == "SIGINT"
    assert {one["level"] for one in events} == {"info"}
    assert running.process.returncode == 0


def test_broker_raises_its_limit_of_open_files(tmp_path: Path) -> None:
    command = f'ulimit -Sn 256; exec "{OTTLA}" dev --port 0 --data "{tmp_path}"'
    process = subprocess.Popen(
        ["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert "listens on" in process.stdout.readline()
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        found = re.search(r"Max open files\s+(\d+)\s+(\d+)", limits)
        assert found is not None
        assert found[1] == found[2] != "256"
    finally:
        process.kill()
        process.communicate()


FEW_MEGABYTES = """
import os
from ottla.cli.entry import run

sysconf = os.sysconf
os.sysconf = lambda name: 28 << 8 if name == "SC_PHYS_PAGES" else sysconf(name)
run()
"""


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-c", FEW_MEGABYTES],  # 28 MiB, if a page has 4 KiB
        ["sh", "-c", f'ulimit -n 896; exec "{OTTLA}" "$@"', "sh"],
    ],
    ids=["memory", "descriptors"],
)
def test_default_partition_limit_fits_the_process(tmp_path: Path, command: list[str]) -> None:
    process = subprocess.Popen(
        [*command, "dev", "--port", "0", "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "listens on" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    (limits,) = [one for one in map(read_text, log.splitlines()) if one["event"] == "limits set"]
    assert limits["partitions"] == "112"


def test_setting_without_effect_is_logged_as_a_warning(tmp_path: Path) -> None:
    with dev(tmp_path, "process.roles=broker") as running:
        running.stop()
        assert running.process.stderr is not None
        told = running.process.stderr.read()
    line = next(line for line in told.splitlines() if "process.roles" in line)
    assert "level=warning " in line
    assert "every broker can become the controller" in line


def test_stop_is_clean_with_few_free_descriptors(tmp_path: Path) -> None:
    many = ("num.partitions=150", "ottla.partitions.max=150")
    with dev(tmp_path, *many, before="ulimit -n 256") as one:
        client: Any = kafka
        producer = client.KafkaProducer(bootstrap_servers=one.address)
        for number in range(150):
            producer.send("t", b"x", partition=number)
        producer.flush(30)
        producer.close()
        assert one.stop() == 0
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def test_writes_continue_when_connections_use_up_descriptors(tmp_path: Path) -> None:
    small = "log.segment.bytes=1048576"
    with dev(tmp_path, small, before="ulimit -n 200") as running, ExitStack() as stack:
        client: Any = kafka
        producer = client.KafkaProducer(bootstrap_servers=running.address, retries=0)
        producer.send("t", b"x").get(30)
        host, port = running.address.rsplit(":", 1)
        for _ in range(300):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
        for _ in range(8):  # each second record rolls a segment
            producer.send("t", bytes(600_000)).get(30)
        producer.close()
        assert running.stop() == 0
        assert running.process.stderr is not None
        told = running.process.stderr.read()
    assert re.search(r'event="?limits set.* open_files=200 connections=\d+', told)
    assert "the limit of 200 open files allows" in told
    assert "data directory filled up" not in told
    assert "file descriptors exhausted" not in told


def test_unclean_stop_exits_with_1_and_the_reason(tmp_path: Path) -> None:
    with dev(tmp_path) as running:
        # A directory at the path of the marker makes the write fail.
        (tmp_path / "data" / f"{CLEAN_SHUTDOWN}.tmp").mkdir()
        assert running.stop() == 1
        assert running.process.stderr is not None
        *_, told = running.process.stderr.read().splitlines()
    assert told.startswith("ottla: stopped, but not cleanly: ")
    assert f"{tmp_path}/data" in told
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def test_broker_exits_with_1_without_data_directories(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    often = "replica.high.watermark.checkpoint.interval.ms=50"
    with dev(tmp_path, f"log.dirs={one},{two}", often) as running:
        # A directory at the path of a checkpoint makes the write fail.
        (two / f"{HIGH_WATERMARKS}.tmp").mkdir()
        assert running.process.stderr is not None
        while "data directory offline" not in (told := running.process.stderr.readline()):
            assert told
        assert running.process.poll() is None  # the other directory is still online
        (one / f"{HIGH_WATERMARKS}.tmp").mkdir()
        assert running.process.wait(30) == 1
        *_, told = running.process.stderr.read().splitlines()
    assert told.startswith("ottla: all data directories have failed: ")
    assert f"{one} (" in told
    assert f"{two} (" in told


def test_data_of_kafka_is_refused_and_not_changed(
    tmp_path: Path,
) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=theirs\nnode.id=3\n")
    settings = ("--override", f"log.dirs={tmp_path}", "--override", "listeners=PLAINTEXT://:0")
    for _ in range(2):
        code, told = refused("broker", *settings)
        assert code == 1
        assert "cluster theirs" in told
        assert f"`ottla log adopt {tmp_path}`" in told
        assert [one.name for one in tmp_path.iterdir()] == ["meta.properties"]


@pytest.mark.parametrize("content", [None, b"", b"\xffgarbage"])
def test_partitions_of_an_unknown_cluster_are_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").touch()
    if content is not None:
        (tmp_path / "meta.properties").write_bytes(content)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    settings = ("--override", f"log.dirs={tmp_path}", "--override", "listeners=PLAINTEXT://:0")
    code, told = refused("broker", *settings)
    assert code == 1
    assert f"{tmp_path} holds partitions of an unknown cluster" in told
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@needs_ipv6
def test_ipv6_address_is_printed_in_brackets(tmp_path: Path) -> None:
    settings = ("listeners=PLAINTEXT://[::1]:0", "ottla.metrics.listener=[::1]:0")
    with dev(tmp_path, *settings) as running:
        assert re.fullmatch(r"\[::1\]:\d+", running.address)
        running.stop()
        assert running.process.stdout is not None
        assert running.process.stderr is not None
        told, logged = running.process.stdout.read(), running.process.stderr.read()
    assert f"kcat -b {running.address} " in told
    assert "  metrics  http://[::1]:" in told
    assert "http://[::1]:" in logged
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as holder:
        port = holder.getsockname()[1]
        taken = f"listeners=PLAINTEXT://[::1]:{port}"
        code, told = refused("dev", "--data", str(tmp_path), "--override", taken)
        assert code == 1
        assert f"[::1]:{port} is already in use" in told


def test_printed_commands_work_in_any_directory(
    tmp_path: Path,
) -> None:
    with dev(Path(os.path.relpath(tmp_path)), path="/usr/bin:/bin") as running:
        running.stop()
        assert running.process.stdout is not None
        told = running.process.stdout.read()
    (command,) = re.findall(r"  files    (.*)", told)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def heeded(number: signal.Signals) -> Generator[None]:
    """Handle the signal, because processes inherit an ignored one (`nohup`)."""
    before = signal.signal(number, signal.SIG_DFL)
    yield
    signal.signal(number, before)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_stops_the_broker_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with dev(tmp_path, fresh=True) as running:
        running.process.send_signal(number)
        assert running.process.wait(30) == 0
        assert running.process.stderr is not None
        assert f"signal={number.name}" in running.process.stderr.read()
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def test_ignored_sighup_stays_ignored(tmp_path: Path) -> None:
    with dev(tmp_path, before="trap '' HUP") as running:
        running.process.send_signal(signal.SIGHUP)
        assert values(running.address) == []
        assert running.stop() == 0
        assert running.process.stderr is not None
        assert "SIGHUP" not in running.process.stderr.read()


EARLY = """
import os, signal, sys
from ottla.cli.entry import run

module = sys.argv.pop(1)

class Finder:
    def find_spec(self, name, *rest):
        if name == module:
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Finder())
run()
"""


@pytest.mark.parametrize("module", ["ottla.cli.main", "ottla.broker.node"])
def test_signal_during_import_is_not_lost(tmp_path: Path, module: str) -> None:
    data = tmp_path / "data"
    done = subprocess.run(
        [sys.executable, "-c", EARLY, module, "dev", "--port", "0", "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "signal=SIGTERM" in done.stderr
    assert not data.exists()  # it was not created
