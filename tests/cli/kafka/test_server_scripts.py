"""`kafka-server-start` and `kafka-server-stop`: a broker from a Kafka properties file.

Brokers are stopped by their id, because others may run on this machine.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from cases import each_case
from cli.console import PATIENCE_S, SCRIPTS, command, surroundings
from ottla.cli.kafka.flags import BadFlags
from ottla.cli.kafka.server.processes import (
    BrokerCommand,
    BrokerProcess,
    command_of,
    node_id_of,
    running,
)
from ottla.cli.kafka.server.start import USAGE as START
from ottla.cli.kafka.server.start import Order, order
from ottla.cli.kafka.server.stop import USAGE as STOP
from ottla.cli.kafka.server.stop import chosen_of

NODE_ID = 40_000 + os.getpid() % 20_000


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def wait_until_served(port: int, log: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 5).close()
            return
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.02)


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        f"# as Kafka has it\nnode.id={NODE_ID}\nlog.dirs={tmp_path / 'data'}\n"
        "num.network.threads=3\nlisteners=PLAINTEXT://127.0.0.1:1\n"
        "confluent.balancer.enable=true\n"
    )
    return path


@pytest.fixture
def started(properties: Path, tmp_path: Path) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SCRIPTS / "kafka-server-start"), properties.name,
             "--override", f"listeners=PLAINTEXT://127.0.0.1:{port}"],
            stdout=output, stderr=output, env=surroundings(tmp_path), cwd=tmp_path,
        )  # fmt: skip
    try:
        wait_until_served(port, log)
        yield process, port
    finally:
        process.kill()
        process.wait()


def test_broker_is_started_and_stopped(started: tuple[subprocess.Popen[bytes], int]) -> None:
    process, port = started
    told = command("kafka-broker-api-versions", "--bootstrap-server", f"127.0.0.1:{port}")
    assert f"(id: {NODE_ID} rack: null" in told.stdout
    found = {one.node_id: one.pid for one in running()}
    assert found[NODE_ID] == process.pid
    told = command("kafka-server-stop", f"--node-id={NODE_ID}")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    assert process.wait(PATIENCE_S) == 0
    told = command("kafka-server-stop", "--node-id", str(NODE_ID))
    assert (told.returncode, told.stdout + told.stderr) == (1, "No kafka server to stop\n")


def test_daemon_survives_sighup_and_writes_to_its_file(properties: Path, tmp_path: Path) -> None:
    port = free_port()
    words = ["-daemon", str(properties), "--override", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
    done = command("kafka-server-start", *words, env={"LOG_DIR": str(tmp_path / "logs")})
    assert done.returncode == 0, done.stderr
    pid = int(done.stderr.split()[2].rstrip(";"))
    try:
        output = tmp_path / "logs" / "kafkaServer.out"
        wait_until_served(port, output)
        assert os.getsid(pid) == pid  # without a terminal
        os.kill(pid, signal.SIGHUP)
        told = command("kafka-broker-api-versions", "--bootstrap-server", f"127.0.0.1:{port}")
        assert told.returncode == 0
        assert command("kafka-server-stop", f"--node-id={NODE_ID}").returncode == 0
        deadline_s = time.monotonic() + PATIENCE_S
        while "broker stopped" not in output.read_text():
            assert time.monotonic() < deadline_s, output.read_text()
            time.sleep(0.02)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-daemon"], "USAGE: "),
        (["a", "b"], "Found non argument parameters: b"),
        (["/nonexistent"], "/nonexistent: No such file or directory"),
        (["{file}", "--override"], "Option override requires an argument"),
        (["{file}", "--override", "x"], "--override: expected key=value"),
        (["{file}", "--override", "num.partitions=x"], 'num.partitions: invalid value "x"'),
        (["{file}", "--nothing"], "nothing is not a recognized option"),
        (
            ["-daemon", "{file}", "--override", "num.partitions=x"],
            'num.partitions: invalid value "x"',
        ),
    ],
)
def test_failed_start_prints_the_reason_and_exits_with_1(
    arguments: list[str], says: str, properties: Path, tmp_path: Path
) -> None:
    words = [word.replace("{file}", str(properties)) for word in arguments]
    done = command("kafka-server-start", *words, folder=tmp_path)
    assert done.returncode == 1
    assert says in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "logs").exists()
    assert not (tmp_path / "data").exists()


def test_start_without_arguments_prints_kafkas_usage() -> None:
    told = command("kafka-server-start")
    assert (told.returncode, told.stderr) == (1, "")
    assert told.stdout.startswith("USAGE: kafka-server-start [-daemon] server.properties ")


def test_help_of_stop_stops_no_broker() -> None:
    told = command("kafka-server-stop", "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert "--node-id" in told.stdout


@each_case(
    ("line", "expected"),
    [
        ("python /x/ottla broker --config f --override a=1 --override=b=2",
         BrokerCommand("f", ["a=1", "b=2"])),
        ("/x/ottla broker", BrokerCommand(None, [])),
        ("python /x/ottla dev --data /d", BrokerCommand(None, ["log.dirs=/d/data"])),
        ("python /x/ottla dev", BrokerCommand(None, ["log.dirs=.ottla/data"])),
        ("python /x/kafka-server-start f --override a=1", BrokerCommand("f", ["a=1"])),
        ("python /x/kafka-server-start.sh f --override a=1", BrokerCommand("f", ["a=1"])),
        ("python /x/kafka-server-start -daemon f", None),
        ("python /x/ottla topic list", None),
        ("java kafka.Kafka server.properties", None),
        ("vi ottla broker", None),
        ("grep x /x/ottla", None),
        ("", None),
    ],
)  # fmt: skip
def test_broker_is_recognized_by_its_command_line(
    line: str, expected: BrokerCommand | None
) -> None:
    assert command_of(line.split()) == expected


def test_broker_id_is_read_where_the_broker_reads_it() -> None:
    files = {
        "f": "node.id=7\nlog.dirs=/d\n",
        "old": "broker.id=8\n",
        "auto": "log.dirs=/d,/e\n",
        "bad": "num.partitions=x\n",
        "/d/meta.properties": "version=1\nnode.id=9\n",
    }

    def who(file: str | None, *overrides: str) -> int | None:
        return node_id_of(BrokerCommand(file, overrides), files.get)

    assert who("f") == 7
    assert who("f", "node.id=5") == 5
    assert who("old") == 8
    assert who("auto") == 9
    assert who(None, "log.dirs=/none") == 1
    assert who("bad") is None
    assert who("gone") is None


def test_stop_selects_brokers_by_id_or_role() -> None:
    found = [BrokerProcess(1, 1), BrokerProcess(2, 2), BrokerProcess(3, None)]

    def chosen(*arguments: str) -> list[int]:
        return [one.pid for one in chosen_of(found, STOP.read(arguments))]

    assert chosen() == [1, 2, 3]
    assert chosen("--process-role=broker") == [1, 2, 3]
    assert chosen("--process-role", "observer") == []
    assert chosen("--node-id=2") == [2]
    assert chosen("--node-id=2", "--process-role=controller") == [2]
    assert chosen("--node-id=4") == []
    with pytest.raises(BadFlags):
        chosen("--node-id=x")


def test_start_arguments_are_parsed() -> None:
    def wanted(*arguments: str) -> Order:
        return order(START.read(arguments))

    assert wanted("f") == Order("f", (), False)
    assert wanted("-daemon", "f", "--override", "a=1", "--override", "b=2") == Order(
        "f", ["a=1", "b=2"], True
    )
    with pytest.raises(BadFlags):
        wanted()
