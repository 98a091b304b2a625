"""`ottla collect files` with real files, a real broker, and processes that are killed."""

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from cli.golden import check_golden
from cli.records.harness import BIN, PATIENCE_S, broker_with, environment, run
from cli.stopping import silent, unignored, wait_until
from cli.terminal import Terminal
from judges.ottla_broker import OttlaBroker
from ottla.cli.collect.collector import Counts
from ottla.cli.collect.progress_line import ProgressLine, progress_text
from ottla.client.admin import NewTopic
from ottla.sync import Consumer
from sampling import SOAK

TOPICS = (
    "once",
    "again",
    "none",
    "long",
    "end",
    "stop-2",
    "stop-15",
    "away",
    "state",
    "other",
    "killed",
    "shown",
)


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    topics = [NewTopic(one, partitions=2) for one in TOPICS]
    small = NewTopic("small", partitions=1, config={"max.message.bytes": "400"})
    with broker_with(*topics, small) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def heard() -> Generator[None]:
    with unignored():
        yield


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the logs; the working directory is above it."""
    monkeypatch.chdir(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    return logs


def words(broker: OttlaBroker, topic: str, *more: str) -> list[str]:
    state = str(Path("state").absolute())
    said = ["collect", "files", str(Path("logs").absolute() / "*.log"), "--topic", topic]
    return [*said, "--state", state, "-b", broker.bootstrap, *more]


def collect_once(broker: OttlaBroker, topic: str, *more: str) -> dict[str, Any]:
    done = run("ottla", *words(broker, topic, "--once", "-o", "json", *more))
    assert (done.returncode, done.stderr) == (0, b""), done
    return json.loads(done.stdout)


@contextmanager
def collecting(broker: OttlaBroker, topic: str, *more: str) -> Generator["subprocess.Popen[bytes]"]:
    """Run a collector that has found its files."""
    state = Path("state", "files.json")
    before = state.stat().st_mtime_ns if state.exists() else 0
    with subprocess.Popen(
        [str(BIN / "ottla"), *words(broker, topic, *more)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        try:
            wait_until(process, lambda: state.exists() and state.stat().st_mtime_ns != before)
            yield process
        finally:
            process.kill()


def records(broker: OttlaBroker, topic: str) -> list[Any]:
    """Return all records of a topic."""
    found: list[Any] = []
    settings = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        partitions = consumer.partitions(topic)
        consumer.assign(*partitions)
        ends = consumer.end_offsets(*partitions)
        while len(found) < sum(ends.values()):
            found += consumer.poll(PATIENCE_S)
    return found


def values(broker: OttlaBroker, topic: str) -> list[bytes]:
    return [one.value for one in records(broker, topic)]


def position(path: Path) -> int:
    """Return the stored position of a file."""
    files = json.loads(Path("state", "files.json").read_text())["files"]
    return max((one["position"] for one in files if one["path"] == str(path)), default=0)


def test_lines_become_records_with_file_and_host(broker: OttlaBroker, folder: Path) -> None:
    (folder / "a.log").write_bytes(b"one\n\ntwo\nincomplete")
    (folder / "b.log").write_bytes(b"\xff\xfe\n")
    (folder / "c.txt").write_bytes(b"not matched\n")
    done = run("ottla", *words(broker, "once", "--once", "-o", "json"))
    assert (done.returncode, done.stderr) == (0, b""), done
    check_golden("collect-files.json", done.stdout.decode())
    found = records(broker, "once")
    a, b = (str(folder / name).encode() for name in ("a.log", "b.log"))
    assert [one.value for one in found if one.key == a] == [b"one", b"", b"two"]
    assert [one.value for one in found if one.key == b] == [b"\xff\xfe"]
    host = gethostname().encode()
    assert all([*one.headers] == [("file", one.key), ("host", host)] for one in found)


def test_next_run_continues(broker: OttlaBroker, folder: Path) -> None:
    log = folder / "a.log"
    log.write_bytes(b"one\ntw")
    done = run("ottla", *words(broker, "again", "--once"))
    assert (done.returncode, done.stderr) == (0, b""), done
    check_golden("collect-files.txt", done.stdout.decode())
    assert collect_once(broker, "again")["lines"] == 0
    with log.open("ab") as file:
        file.write(b"o\nthree\n")
    log.rename(folder / "a.1")  # no pattern matches it
    (folder / "b.log").write_bytes(b"four\n")
    assert collect_once(broker, "again")["lines"] == 3
    assert sorted(values(broker, "again")) == [b"four", b"one", b"three", b"two"]


def test_pattern_without_a_file_is_named(broker: OttlaBroker, folder: Path) -> None:
    done = run("ottla", *words(broker, "none", "--once"))
    assert (done.returncode, done.stdout) == (0, b"Wrote 0 lines of 0 files to none.\n"), done
    assert done.stderr.decode() == f"ottla: no file matches {folder}/*.log\n"
    with collecting(broker, "none") as process:
        assert process.stderr is not None
        expected = f"ottla: no file matches {folder}/*.log; waiting for one\n"
        assert process.stderr.readline().decode() == expected
        (folder / "a.log").write_bytes(b"one\n")
        wait_until(process, lambda: position(folder / "a.log") == 4)
    assert values(broker, "none") == [b"one"]


def test_long_line_becomes_several_records(broker: OttlaBroker, folder: Path) -> None:
    line = bytes(65 + at % 26 for at in range(2_500))
    (folder / "a.log").write_bytes(b"short\n" + line + b"\nshort\n")
    assert collect_once(broker, "long", "--line-bytes", "1000")["lines"] == 5
    found = [(one.value, dict(one.headers)) for one in records(broker, "long")]
    parts = [(value, more.get("part"), more.get("parts")) for value, more in found]
    assert parts == [
        (b"short", None, None),
        (line[:1000], b"1", None),
        (line[1000:2000], b"2", None),
        (line[2000:], b"3", b"3"),
        (b"short", None, None),
    ]


def test_from_end_skips_lines_only_at_the_first_start(broker: OttlaBroker, folder: Path) -> None:
    (folder / "a.log").write_bytes(b"old\n")
    assert collect_once(broker, "end", "--from-end")["lines"] == 0
    with (folder / "a.log").open("ab") as file:
        file.write(b"new\n")
    (folder / "b.log").write_bytes(b"new, too\n")
    assert collect_once(broker, "end", "--from-end")["lines"] == 2
    assert sorted(values(broker, "end")) == [b"new", b"new, too"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stores_the_positions_and_exits_with_0(
    broker: OttlaBroker, folder: Path, number: signal.Signals
) -> None:
    log, topic = folder / "a.log", f"stop-{int(number)}"
    with collecting(broker, topic) as process:
        log.write_bytes(b"one\ntwo\n")  # a file that did not exist at the start
        wait_until(process, lambda: position(log) == 8)
        with log.open("ab") as file:
            file.write(b"three\n")
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    lines = 2 if position(log) == 8 else 3
    said = f"Wrote {lines} lines of 1 file to {topic}.\n"
    waiting = f"ottla: no file matches {folder}/*.log; waiting for one\n"
    assert (process.returncode, out.decode(), err.decode()) == (0, said, waiting)
    assert collect_once(broker, topic)["lines"] == 3 - lines
    assert values(broker, topic) == [b"one", b"two", b"three"]


def test_terminal_shows_the_progress(broker: OttlaBroker, folder: Path) -> None:
    (folder / "a.log").write_bytes(b"one\ntwo\n")
    with Terminal(
        "ottla", *words(broker, "shown"), env={"TERM": "xterm", "COLUMNS": "120"}
    ) as terminal:
        terminal.read_until("1 file to shown   2 lines   0.0 MB")
        terminal.interrupt()
        assert terminal.end() == 0
    assert terminal.said.endswith("Wrote 2 lines of 1 file to shown.\n")


def test_progress_names_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    counts = Counts(files=2, lines=1_500, bytes=2_000_000, behind_bytes=500_000)
    assert progress_text("t", counts, 250_000) == (
        "2 files to t   1,500 lines   2.0 MB   0.2 MB/s   0.5 MB behind"
    )
    with ProgressLine("t", is_quiet=True) as line:
        counts.problems = (("/a.log", "Permission denied"),)
        for now_s in (0.0, 1.0):
            line.show(counts, now_s)
    assert capsys.readouterr().err.splitlines() == [
        "ottla: /a.log: Permission denied; it is tried again",
    ]
    assert progress_text("t", Counts(waiting_s=3.0), 0.0).endswith(
        "waiting for the brokers for 3 s"
    )


def read_bytes(process: "subprocess.Popen[bytes]") -> int:
    """Return the bytes that a process has read."""
    text = Path(f"/proc/{process.pid}/io").read_text()
    return int(text.split()[1])


def test_reading_stops_at_a_limit_while_the_broker_is_away(
    broker: OttlaBroker, folder: Path
) -> None:
    log = folder / "a.log"
    lines = [b"%07d %s" % (at, b"." * 91) for at in range(80_000)]
    log.write_bytes(b"first\n")
    size_max = 1 << 20
    with (
        collecting(broker, "away", "-o", "json", "-X", f"buffer.memory={size_max}") as process,
    ):
        wait_until(process, lambda: position(log) == 6)
        with silent(broker):
            begun = read_bytes(process)
            with log.open("ab") as file:
                file.write(b"\n".join(lines) + b"\n")
            wait_until(process, lambda: read_bytes(process) > begun + size_max // 2)
            process.terminate()
            out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, b"")
    told = json.loads(out)
    assert told["lines"] == 1
    assert 0 < told["unacknowledged_lines"] * 100 <= size_max + (1 << 18)
    assert collect_once(broker, "away")["lines"] == len(lines)
    assert {*values(broker, "away")} == {b"first", *lines}


def failure(broker: OttlaBroker, topic: str, *more: str) -> str:
    done = run("ottla", *words(broker, topic, "--once", *more))
    assert (done.returncode, done.stdout) == (1, b""), done
    return done.stderr.decode()


def test_problems_with_the_state_are_reported(broker: OttlaBroker, folder: Path) -> None:
    (folder / "a.log").write_bytes(b"one\n")
    collect_once(broker, "state")
    state = Path("state", "files.json")
    whole = f"ottla: {state.absolute()} is "
    assert failure(broker, "other") == (
        f"{whole}of topic state, not of other; choose another directory with --state\n"
    )
    with collecting(broker, "state"):
        assert failure(broker, "state") == (
            f"ottla: another process uses the state directory {state.parent.absolute()}: stop it, "
            "or choose another one with --state\n"
        )
    state.write_text('{"version": 1, "topic": "state", "files": [{}]}')
    assert failure(broker, "state") == (
        f"{whole}damaged (KeyError: 'head'); delete it to collect all files again\n"
    )


def test_refused_line_ends_the_command(broker: OttlaBroker, folder: Path) -> None:
    (folder / "a.log").write_bytes(b"x" * 1_000 + b"\n")
    told = failure(broker, "small")
    assert told.endswith("; 0 lines were written to small\n")
    assert collect_once(broker, "small", "--line-bytes", "100")["lines"] == 10


class Program:
    """Writes lines to a log, and rotates it."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[bytes] = []
        self._path = folder / "app.log"
        self._file = self._path.open("ab", buffering=0)
        self._random = random.Random(7)

    def write(self, count: int) -> None:
        """Write lines, each in two pieces."""
        for _ in range(count):
            line = b"%d %s" % (len(self.lines), b"." * self._random.randrange(300))
            at = self._random.randrange(len(line))
            self._file.write(line[:at])
            self._file.write(line[at:] + b"\n")
            self.lines.append(line)

    def rename(self) -> None:
        self._shift()
        self._path.rename(self._path.with_name("app.1.log"))
        self._file.close()
        self._file = self._path.open("ab", buffering=0)

    def copy_truncate(self) -> None:
        self._shift()
        self._path.with_name("app.1.log").write_bytes(self._path.read_bytes())
        os.truncate(self._path, 0)

    def close(self) -> None:
        self._file.close()

    def _shift(self) -> None:
        for number in range(99, 0, -1):
            old = self._path.with_name(f"app.{number}.log")
            if old.exists():
                old.rename(self._path.with_name(f"app.{number + 1}.log"))


def test_kill_9_loses_and_cuts_no_line(broker: OttlaBroker, folder: Path) -> None:
    with closing(Program(folder)) as program:
        _kill_often(broker, program)
    collect_once(broker, "killed")
    found = Counter(values(broker, "killed"))
    assert [one for one in program.lines if one not in found] == []
    assert {*found} == {*program.lines}


def _kill_often(broker: OttlaBroker, program: Program) -> None:
    steps: list[Callable[[], None]] = [program.rename, program.copy_truncate, lambda: None]
    state = Path("state", "files.json")
    for turn in range(40 if SOAK else 9):
        program.write(200)
        with collecting(broker, "killed") as process:
            program.write(500)
            steps[turn % 3]()
            program.write(300)
            written = state.stat().st_mtime_ns
            wait_until(process, lambda written=written: state.stat().st_mtime_ns != written)
            program.write(200)
            process.kill()
        steps[turn // 3 % 3]()
