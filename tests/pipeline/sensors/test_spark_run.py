"""What `make run` does, as a process: without a terminal and with one, on the same data."""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sensors.findings import Averages

from ottla.pipeline.java import NoJava, check_java
from pipeline.conftest import EXAMPLES

PATIENCE_S = 600
pytestmark = pytest.mark.usefixtures("java")


@pytest.fixture(scope="module")
def java() -> None:
    """Spark needs it."""
    try:
        check_java()
    except NoJava as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def command(data: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "sensors", "--port", "0", "--data", str(data), *more]


def environment(**changed: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(EXAMPLES), **changed}


def run(data: Path, *more: str, **changed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(data, *more),
        env=environment(**changed),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


class Terminal:
    """The example on a terminal of its own."""

    def __init__(self, data: Path) -> None:
        self.shown = ""
        self.process_id, self._screen = pty.fork()
        if self.process_id == 0:
            os.execve(sys.executable, command(data), environment(TERM="xterm", COLUMNS="120"))

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def wait_for(self, holds: Callable[[str], Any]) -> None:
        """Read until something holds for what was shown; the end is an empty text."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds(self.shown):
            assert time.monotonic() < deadline_s, self.shown[-4000:]
            ready, _, _ = select.select([self._screen], [], [], 1)
            if ready:
                try:
                    self.shown += self._read()
                except OSError:
                    pytest.fail(f"it has ended:\n{self.shown[-4000:]}")

    def ended(self) -> int:
        """Its exit code, when it has ended by itself."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                ready, _, _ = select.select([self._screen], [], [], 1)
                self.shown += self._read() if ready else ""
            except OSError:  # nobody has the terminal any more
                os.close(self._screen)
                return os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])
            assert time.monotonic() < deadline_s, self.shown[-4000:]

    def _read(self) -> str:
        text = os.read(self._screen, 65536).decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def numbers(text: str) -> dict[str, int]:
    """The counts of a summary."""
    found = re.findall(r"^  ([a-z ]+?) {2,}([\d,]+) ?.*$", text.replace("\r", ""), re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in found}


def averages(data: Path) -> list[tuple[Any, str]]:
    """The window and the device of all that was committed."""
    found: list[tuple[Any, str]] = []

    class All(Averages):
        def take(self, rows: Sequence[Mapping[str, Any]]) -> None:
            found.extend((row["start"], row["device"]) for row in rows)

    All(data / "sensors" / "averages").look()
    return found


def test_a_run_and_the_next_one_which_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "kept für später"  # spaces and letters, as folders have them
    done = run(data, "--seconds", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    first = numbers(done.stdout)
    assert first["readings in"] >= 30_000
    assert first["averages written"] >= 200
    assert first["alerts"] > 0
    assert first["dead letters"] > 0
    assert first["lag"] == 0
    kept = re.findall(r"^  (?:averages|checkpoints|topics) +(/.*)$", done.stdout, re.MULTILINE)
    assert [Path(path).is_dir() for path in kept] == [True] * 3
    assert len(averages(data)) == first["averages written"]
    assert f"`rm -r '{data}'` begins anew" in done.stdout

    terminal = Terminal(data)
    terminal.wait_for(
        lambda shown: (
            re.search(r"averages +[1-9]\d* +\d+\.\d s +[1-9]", shown)
            and re.search(r"[1-9][\d,]* averages", shown)
            and re.search(r"device-\d{3} +\d\d:\d\d:\d\d +\d\d:\d\d:\d\d +\d", shown)
            and re.search(r"usually \d", shown)
        )
    )
    children = processes_of(terminal.process_id)
    assert any("java" in name for name in children.values())
    assert any("ottla" in name for name in children.values())
    terminal.type("\x03")
    assert terminal.ended() == 0, terminal.shown[-4000:]
    assert "Traceback" not in terminal.shown, terminal.shown[terminal.shown.index("Traceback") :]
    assert "goes on from here" in terminal.shown
    wait_until_gone(children)
    # Nothing was averaged twice, although what the second one read began where the first had ended.
    found = averages(data)
    assert len(found) == len(set(found))
    assert len(found) > first["averages written"]


def processes_of(parent: int) -> dict[int, str]:
    """All processes that a process and its children have started, with their commands."""
    told = subprocess.run(["ps", "-ewwo", "pid=,ppid=,args="], capture_output=True, text=True)
    rows = [line.split(None, 2) for line in told.stdout.splitlines()]
    found: dict[int, str] = {}
    parents = {parent}
    while True:
        new = {
            int(row[0]): row[2]
            for row in rows
            if int(row[1]) in parents and int(row[0]) not in found
        }
        if not new:
            return found
        found |= new
        parents = set(new)


def wait_until_gone(processes: dict[int, str]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    for number, name in processes.items():
        while Path(f"/proc/{number}/cmdline").exists():
            if Path(f"/proc/{number}/cmdline").read_bytes() == b"":
                break  # a zombie
            assert time.monotonic() < deadline_s, f"{name} still runs"
            time.sleep(0.1)


def test_without_java_one_line_says_what_to_install(tmp_path: Path) -> None:
    done = run(tmp_path, JAVA_HOME="", PATH=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Spark needs Java, and there is none: install" in line
    assert "The broker alone needs none" in line
    assert list(tmp_path.iterdir()) == []


def test_a_java_that_does_not_start_spark_is_told_in_a_line(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("""#!/bin/sh
[ "$1" = -version ] && echo 'openjdk version "17.0.15"' >&2 && exit
echo no room >&2
exit 1
""")
    program.chmod(0o755)
    done = run(tmp_path / "data", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Spark does not start: [JAVA_GATEWAY_EXITED]")
    log = tmp_path / "data" / "sensors" / "spark.log"
    assert line.endswith(f"{log} may say why.")
    assert "no room" in log.read_text()


def test_a_java_that_is_killed_is_told_in_a_line(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.wait_for(lambda shown: "starting the queries" in shown)
    children = processes_of(terminal.process_id)
    javas = [number for number, name in children.items() if "SparkSubmit" in name]
    assert len(javas) == 1, children
    os.kill(javas[0], signal.SIGKILL)
    assert terminal.ended() == 1
    assert re.search(r"^Spark has ended: .*$", terminal.shown.replace("\r", ""), re.MULTILINE)
    assert "Traceback" not in terminal.shown, terminal.shown[terminal.shown.index("Traceback") :]
    wait_until_gone(children)


def test_who_cannot_wait_for_the_end_sees_no_traceback(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.wait_for(lambda shown: "starting Spark" in shown)
    children = processes_of(terminal.process_id)
    for _ in range(2):
        terminal.type("\x03")
        time.sleep(0.3)  # or both would be one signal; whatever happens meanwhile is right
    assert terminal.ended() in (0, 1), terminal.shown[-4000:]
    assert "Traceback" not in terminal.shown, terminal.shown[terminal.shown.index("Traceback") :]
    assert "checkpoint" in terminal.shown or "goes on from here" in terminal.shown
    wait_until_gone(children)


def test_ctrl_c_while_spark_starts_leaves_no_java(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.wait_for(lambda shown: "starting Spark" in shown)
    children = processes_of(terminal.process_id)
    assert any("ottla" in name for name in children.values())
    terminal.type("\x03")
    assert terminal.ended() == 0, terminal.shown[-4000:]
    assert "Traceback" not in terminal.shown, terminal.shown[terminal.shown.index("Traceback") :]
    assert "goes on from here" in terminal.shown
    wait_until_gone(children)


def test_an_archive_of_classes_that_does_not_fit_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    bad = tmp_path / "of another Java.jsa"
    bad.write_bytes(b"no archive" * 10_000)
    script = """
import sys
from pathlib import Path
from sensors import archive
from sensors.local_spark import LocalSpark
bad, log = map(Path, sys.argv[1:])
with LocalSpark("local[1]", log, archive.home(bad), archive.options(bad)) as spark:
    (bad.parent / "count").write_text(str(spark.session().range(3).count()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(bad), str(log)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + log.read_text()
    assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "count").read_text() == "3"


def test_a_port_that_is_taken_is_said_and_by_whom(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(tmp_path, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "pytest" in done.stderr or "python" in done.stderr
    assert "choose another port" in done.stderr
    assert "make run ARGS='--port N'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_signal_while_it_starts_ends_it_cleanly(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "starting a broker" in process.stdout.readline()
    assert "starting Spark" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    told, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert "goes on from here" in told
    assert errors == ""
