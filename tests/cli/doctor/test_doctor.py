"""`ottla doctor`: judgements of good and bad facts, the facts of this machine, the command."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cases import each_case
from cli.console import PATIENCE_S, SCRIPTS, ottla, surroundings
from cli.golden import check_golden
from cli.non_brokers import silent, talkative
from judges.ottla_broker import OttlaBroker
from ottla.cli.doctor import addresses, judgements, machine
from ottla.cli.doctor.command import answer
from ottla.cli.doctor.facts import (
    AddressFacts,
    BrokerIdentity,
    ClockFacts,
    ClusterFacts,
    DiskFacts,
    Facts,
    JavaFacts,
    KernelFacts,
    LimitFacts,
    LogDirFacts,
    PortFacts,
    PythonFacts,
)
from ottla.cli.doctor.judgements import OK, PROBLEM, WARNING, Grade, Judgement
from ottla.cli.doctor.log_dirs import log_dirs
from ottla.clock import SystemClock

GIB = 1024**3
HOUR_MS = 3_600_000
DISK = DiskFacts("/d/.ottla", "/d", free_bytes=50 * GIB, total_bytes=100 * GIB)
NOW = ClockFacts(now_ms=10**12, installed_ms=10**12 - HOUR_MS)
THERE = AddressFacts(1, "10.0.0.1", 9092)

GOOD = Facts(
    python=PythonFacts((3, 11, 7), "CPython", asserts=True),
    kernel=KernelFacts(True, "kernel.so"),
    java=JavaFacts(17),
    broker_port=PortFacts(9092, is_free=True),
    metrics_port=PortFacts(9192, is_free=True),
    disk=DISK,
    limits=LimitFacts(1024, 1_048_576),
    clock=NOW,
    cluster=ClusterFacts("10.0.0.1:9092", True, None, [THERE], "ours"),
)


def grade(found: Judgement, expected: Grade, *words: str) -> None:
    assert found.grade is expected, found
    assert bool(found.advice) is (expected is not OK), found
    for word in words:
        assert word in found.found + found.advice


def test_good_facts_have_no_problems() -> None:
    assert {one.grade for one in judgements.judged(GOOD)} == {OK}
    assert answer(GOOD.cluster, [*judgements.judged(GOOD)]).failures == []


def test_old_python_or_missing_assertions_are_problems() -> None:
    grade(judgements.python(GOOD.python), OK, "CPython 3.11.7")
    grade(judgements.python(PythonFacts((3, 10, 9), "CPython", asserts=True)), PROBLEM, "3.11")
    grade(judgements.python(PythonFacts((3, 11, 0), "CPython", asserts=False)), PROBLEM, "-O")


def test_missing_kernel_or_java_is_a_warning() -> None:
    grade(judgements.kernel(KernelFacts(False, "kernel.py")), WARNING, "C compiler")
    grade(judgements.java(JavaFacts(None, "there is none")), WARNING, "there is none", "Spark")
    grade(judgements.java(JavaFacts(21)), OK, "21")


TAKEN = PortFacts(9092, is_free=False, occupant="nginx (pid 7)")


def test_port_of_another_process_is_a_warning() -> None:
    ours = replace(TAKEN, identity=BrokerIdentity("ours", 1))
    unknown = replace(TAKEN, identity=BrokerIdentity())  # it requires authentication
    checks: tuple[Callable[[PortFacts], Judgement], ...] = (
        lambda facts: judgements.broker_port(facts, GOOD.cluster),
        lambda facts: judgements.metrics_port(facts, ours),
    )
    for check in checks:
        grade(check(PortFacts(9092, is_free=True)), OK, "free")
        grade(check(TAKEN), WARNING, "nginx (pid 7)", "N`")
        grade(check(replace(TAKEN, occupant=None)), WARNING, "another process")
        grade(check(ours), OK, "nginx (pid 7)", "broker 1 of cluster ours")
        grade(check(unknown), OK, "nginx (pid 7)", "a broker")


def test_broker_of_another_cluster_is_named() -> None:
    other = replace(TAKEN, identity=BrokerIdentity("theirs", 1))
    found = "broker 1 of cluster theirs; that is not the cluster at 10.0.0.1:9092"
    grade(judgements.broker_port(other, GOOD.cluster), OK, found)


def test_metrics_of_another_broker_are_not_credited() -> None:
    page = PortFacts(9192, is_free=False, identity=BrokerIdentity("ours", 1))
    for other in (BrokerIdentity("theirs", 1), BrokerIdentity("ours", 2)):
        beside = replace(TAKEN, identity=other)
        grade(judgements.metrics_port(page, beside), WARNING, "not of the one on port 9092")
    for without in (TAKEN, PortFacts(9092, is_free=True)):
        found = judgements.metrics_port(page, without)
        grade(found, WARNING, "broker 1 of cluster ours; no broker responds on port 9092")


def test_full_or_read_only_disk_is_a_problem() -> None:
    grade(judgements.writable(DISK), OK, "/d/.ottla")
    grade(judgements.writable(replace(DISK, why_not_writable="Read-only")), PROBLEM, "Read-only")
    grade(judgements.room(DISK), OK, "50.0 GiB of 100.0 GiB")
    grade(judgements.room(replace(DISK, free_bytes=GIB)), WARNING)
    grade(judgements.room(replace(DISK, free_bytes=4 * GIB)), WARNING)  # below 5 %
    grade(judgements.room(replace(DISK, free_bytes=5 * GIB)), OK)
    grade(judgements.room(replace(DISK, free_bytes=200 * 1024**2)), PROBLEM, "200.0 MiB")


def test_full_log_directory_of_a_broker_is_reported() -> None:
    one = LogDirFacts(3, "/data", 50 * GIB, 100 * GIB)
    few = LogDirFacts(4, "/few", GIB, 100 * GIB)
    full = LogDirFacts(5, "/full", 0, 100 * GIB)
    bad = LogDirFacts(6, "/bad", why_not="Disk error.")
    unknown = LogDirFacts(7, "/unknown")
    cluster = replace(GOOD.cluster, log_dirs=[one, few, full, bad, unknown])
    told = [found for found in judgements.judged(replace(GOOD, cluster=cluster)) if found.advice]
    assert [found.about for found in told] == ["broker 4", "broker 5", "broker 6"]
    grade(told[0], WARNING, "1.0 GiB of 100.0 GiB free at /few", "log.dirs")
    grade(told[1], PROBLEM, "0 bytes of 100.0 GiB free at /full")
    grade(told[2], PROBLEM, "/bad: Disk error.")


def test_file_system_without_a_size_is_not_full() -> None:
    of_proc = replace(DISK, free_bytes=0, total_bytes=0, why_not_writable="Permission denied")
    told = [one.about for one in judgements.judged(replace(GOOD, disk=of_proc)) if one.advice]
    assert told == [judgements.writable(of_proc).about]


def test_low_limit_of_open_files_is_reported() -> None:
    grade(judgements.open_files(LimitFacts(None, None)), OK, "unlimited")
    grade(judgements.open_files(LimitFacts(256, 65_536)), OK)  # a broker raises it
    grade(judgements.open_files(LimitFacts(1024, 4096)), WARNING, "LimitNOFILE")
    grade(judgements.open_files(LimitFacts(256, 256)), PROBLEM, "256")


def test_wrong_or_unsynchronized_clock_is_reported() -> None:
    grade(judgements.clock(NOW), OK)
    grade(judgements.clock(replace(NOW, synchronized=True)), OK, "synchronized")
    grade(judgements.clock(replace(NOW, synchronized=False)), WARNING, "chrony")
    grade(judgements.clock(replace(NOW, now_ms=NOW.installed_ms - 12 * HOUR_MS)), OK)
    grade(judgements.clock(replace(NOW, now_ms=NOW.installed_ms - 30 * HOUR_MS)), PROBLEM)


def test_missing_cluster_is_a_problem_only_if_configured() -> None:
    grade(judgements.cluster(GOOD.cluster), OK, "1 broker")
    grade(judgements.cluster(ClusterFacts("a:1", True, "nobody")), PROBLEM, "start the broker")
    grade(judgements.cluster(ClusterFacts("a:1", False, "nobody")), WARNING, "ottla dev")


@each_case(
    ("host", "servers", "expected"),
    [
        ("10.0.0.1", "a:9092", OK),
        ("localhost", "127.0.0.1:9092,[::1]:9092", OK),
        ("127.0.0.1", "a:9092", WARNING),
        ("localhost", "localhost:1,10.0.0.9:1", WARNING),
        ("::1", "a", WARNING),
    ],
)
def test_local_address_is_a_warning_for_remote_clients(
    host: str, servers: str, expected: Grade
) -> None:
    grade(judgements.listener(replace(THERE, host=host), servers), expected)


def test_unreachable_address_is_a_problem() -> None:
    refused = replace(THERE, why_not="connection refused")
    grade(
        judgements.listener(refused, "a:1"), PROBLEM, "connection refused", "advertised.listeners"
    )
    grade(judgements.listener(replace(THERE, is_other=True), "a:1"), PROBLEM, "another cluster")


def test_sizes_have_a_readable_unit() -> None:
    assert [judgements.size(n) for n in (5, 2048, 3 * GIB, 5 * 1024 * GIB)] == [
        "5 bytes",
        "2.0 KiB",
        "3.0 GiB",
        "5.0 TiB",
    ]


# Facts of this machine.


def test_facts_are_gathered_and_leave_nothing_behind(tmp_path: Path) -> None:
    assert judgements.python(machine.python()).grade is OK
    assert machine.kernel().file.endswith((".py", ".so"))
    found = machine.disk(tmp_path / "not" / "there")
    assert (found.nearest, found.why_not_writable) == (str(tmp_path), None)
    assert 0 <= found.free_bytes <= found.total_bytes
    assert [*tmp_path.iterdir()] == []
    assert machine.disk(Path("/proc")).why_not_writable
    assert judgements.clock(machine.clock(SystemClock())).grade is not PROBLEM
    assert machine.java({"PATH": str(tmp_path)}).version is None


def test_forbidden_directory_is_not_writable(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    with nobody():
        for folder in (closed, closed / "data", closed / "below" / "data"):
            found = machine.disk(folder)
            assert found.folder == str(folder)
            assert found.nearest in map(str, folder.parents) or folder == closed
            assert found.why_not_writable == "Permission denied"
            assert 0 <= found.free_bytes <= found.total_bytes
            grade(judgements.writable(found), PROBLEM, "Permission denied")


def test_impossible_directory_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for name, why in (("n" * 300, "too long"), ("file", "directory"), ("loop", "symbolic links")):
        assert why in (machine.disk(tmp_path / name).why_not_writable or "")
    assert "directory" in (machine.disk(tmp_path / "file" / "data").why_not_writable or "")


@contextmanager
def nobody() -> Generator[None]:
    """Run as another user, because root may enter every directory."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_port_is_free_or_names_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        number = holder.getsockname()[1]
        found = machine.port(number, None)
        assert not found.is_free
        assert "pid" in (found.occupant or "pid")
    assert machine.port(number, None).is_free


def test_non_brokers_are_not_taken_for_brokers() -> None:
    with talkative() as rubbish, silent() as mute:
        assert asyncio.run(addresses.broker_at(rubbish.port)) is None
        assert asyncio.run(addresses.metrics_page_at(rubbish.port)) is None
        assert mute.port != rubbish.port
    assert asyncio.run(addresses.unreached(f"127.0.0.1:{rubbish.port}")) == "connection refused"
    assert asyncio.run(addresses.unreached("no.such.host.invalid:1"))


# The command.


@pytest.fixture(scope="module")
def metrics_port() -> Generator[int]:
    with socket.socket() as reserved:  # bound without listening: the broker can listen on it
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, metrics_port: int) -> Generator[OttlaBroker]:
    folder = tmp_path_factory.mktemp("broker")
    with OttlaBroker(folder, f"ottla.metrics.listener=127.0.0.1:{metrics_port}") as running:
        running.start()
        yield running


def test_reachable_broker_is_ok(broker: OttlaBroker, metrics_port: int, tmp_path: Path) -> None:
    ports = ("--port", str(broker.port), "--metrics-port", str(metrics_port))
    done = ottla("doctor", "-b", broker.bootstrap, *ports, "-o", "json", folder=tmp_path)
    told = json.loads(done.stdout)
    checks = {one["about"]: one for one in told["checks"]}
    assert checks["cluster"]["grade"] == "ok"
    assert checks["broker 1"] == {
        "about": "broker 1",
        "grade": "ok",
        "found": f"reachable at {broker.bootstrap}",
        "advice": None,
    }
    cluster = told["cluster"]
    assert cluster == {"bootstrap_servers": broker.bootstrap, "id": cluster["id"]}
    assert cluster["id"]
    who = f"broker 1 of cluster {cluster['id']}"
    assert checks[f"port {broker.port}"]["found"].endswith(f", which serves {who}")
    page = checks[f"port {metrics_port}"]
    assert page["found"].endswith(f", which serves the metrics of {who}")
    assert page["grade"] == "ok"
    problems = [one for one in told["checks"] if one["grade"] == "problem"]
    assert done.returncode == (1 if problems else 0)
    assert told["ok"] is not bool(problems)
    assert [*tmp_path.iterdir()] == []


def test_space_of_log_directories_is_asked(broker: OttlaBroker) -> None:
    [found] = asyncio.run(log_dirs({"bootstrap.servers": broker.bootstrap}))
    assert (found.broker, found.path, found.why_not) == (1, str(broker.data), None)
    assert found.free_bytes is not None
    assert found.total_bytes is not None
    assert 0 <= found.free_bytes <= found.total_bytes


def test_first_line_says_that_port_does_not_choose_the_cluster(
    broker: OttlaBroker, tmp_path: Path
) -> None:
    done = ottla("doctor", "--port", str(broker.port), folder=tmp_path)
    first = "Checked: this machine, and the cluster at 127.0.0.1:9092"
    assert done.stdout.splitlines()[0].startswith(first)
    assert done.stdout.splitlines()[0].endswith(", the default; choose another with -b")


def test_wrong_advertised_listener_is_a_problem(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nowhere = gone.getsockname()[1]
    with OttlaBroker(tmp_path, f"advertised.listeners=PLAINTEXT://127.0.0.1:{nowhere}") as broker:
        broker.start()
        done = ottla("doctor", "-b", broker.bootstrap, folder=tmp_path)
        assert done.returncode == 1
        first = f"Checked: this machine, and the cluster at {broker.bootstrap} (cluster id "
        assert done.stdout.startswith(first)
        assert f"it advertises 127.0.0.1:{nowhere}: connection refused" in done.stdout
        assert "advertised.listeners" in done.stdout
        assert done.stderr.startswith("ottla: 1 problem: broker 1: ")
        assert done.stderr.count("\n") == 1


def test_disk_is_not_checked_for_a_cluster_elsewhere(tmp_path: Path) -> None:
    for words, is_checked in (
        (("-b", "nohost.invalid:9092"), False),
        (("-b", "nohost.invalid:9092,127.0.0.1:1"), True),
        (("-b", "nohost.invalid:9092", "--data", str(tmp_path)), True),
    ):
        done = ottla("doctor", *words, "-o", "json", folder=tmp_path)
        checks = {one["about"] for one in json.loads(done.stdout)["checks"]}
        assert ({"disk", "data directory"} <= checks) is is_checked, words
        assert "port 9092" in checks


def test_addresses_of_this_machine_are_recognised() -> None:
    for host, is_own in (
        ("127.0.0.1", True),
        ("localhost", True),
        (socket.gethostname(), True),
        ("192.0.2.1", False),
        ("nohost.invalid", False),
    ):
        found = addresses.is_here({"bootstrap.servers": f"{host}:9092"})
        assert asyncio.run(found) is is_own, host


def test_deleted_current_directory_is_reported(tmp_path: Path) -> None:
    """`ottla doctor` and `ottla dev` print one line each."""
    for words, said in (
        ("doctor", "data directory: . is not writable: the current directory was deleted"),
        (
            "dev --port 0",
            "the current directory was deleted: change to another one, or set --data /DIR",
        ),
    ):
        folder = tmp_path / "gone"
        folder.mkdir()
        done = subprocess.run(
            ["/bin/sh", "-c", 'rmdir "$PWD" && exec "$0" "$@"', SCRIPTS / "ottla", *words.split()],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env=surroundings(tmp_path),
        )
        assert done.returncode == 1
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_output_is_golden() -> None:
    bad = replace(
        GOOD,
        limits=LimitFacts(256, 256),
        kernel=KernelFacts(False, "kernel.py"),
        cluster=replace(GOOD.cluster, addresses=[replace(THERE, why_not="connection refused")]),
    )
    from ottla.cli.result import Table

    for name, facts in (("doctor-ok", GOOD), ("doctor-problems", bad)):
        found = answer(facts.cluster, [*judgements.judged(facts)])
        lines: list[str] = []
        for one in found.shown:
            lines += one.lines() if isinstance(one, Table) else [one]
        check_golden(f"{name}.txt", "\n".join(lines) + "\n")
        check_golden(f"{name}.json", json.dumps(found.object(), indent=1) + "\n")
