"""`make run` as a process: without a terminal and with one, on the same data."""

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

from ottla.pipeline.class_archive import ClassArchive
from ottla.pipeline.java import NoJava, check_java, found_java
from pipeline.example_processes import (
    counts,
    ended,
    processes_of,
    started,
    wait_for_results,
    wait_until_gone,
)
from pipeline.sensors.first_run import (
    FIRST_RUN_S,
    PATIENCE_S,
    command,
    environment,
    first_run,
    run,
)
from sampling import sample
from shared.monitor import CommittedRows

pytestmark = pytest.mark.usefixtures("_java")


@pytest.fixture(scope="module")
def _java() -> None:
    """Spark needs Java."""
    try:
        check_java()
    except NoJava as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


class Terminal:
    """The example on its own terminal."""

    def __init__(self, data: Path) -> None:
        self.shown = ""
        self.process_id, self._screen = pty.fork()
        if self.process_id == 0:
            os.execve(sys.executable, command(data), environment(TERM="xterm", COLUMNS="120"))

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def wait_for(self, holds: Callable[[str], Any]) -> None:
        """Read until something holds for the text that was shown."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds(self.shown):
            assert time.monotonic() < deadline_s, self.shown[-4000:]
            ready, _, _ = select.select([self._screen], [], [], 1)
            if ready:
                try:
                    self.shown += self._read()
                except OSError:
                    pytest.fail(f"the example has ended:\n{self.shown[-4000:]}")

    def ended(self) -> int:
        """Wait until the example ends, and return its exit code."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                ready, _, _ = select.select([self._screen], [], [], 1)
                self.shown += self._read() if ready else ""
            except OSError:  # no process has the terminal any more
                os.close(self._screen)
                return os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])
            assert time.monotonic() < deadline_s, self.shown[-4000:]

    def _read(self) -> str:
        text = os.read(self._screen, 65536).decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)

    def check_stopped(self, *codes: int) -> None:
        """Wait for the end, and check the exit code and that there was no traceback."""
        code = self.ended()
        assert code in codes, self.shown[-4000:]
        assert "Traceback" not in self.shown, self.shown[self.shown.index("Traceback") :]


def averages(data: Path) -> list[tuple[Any, str]]:
    """The window and device of all committed averages."""
    found: list[tuple[Any, str]] = []

    class All(CommittedRows):
        def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
            found.extend((row["start"], row["device"]) for row in rows)

    All(data / "sensors" / "device-averages", "end").poll()
    return found


def test_run_prints_what_it_has_done() -> None:
    data, done = first_run()
    assert done.returncode == 0, done.stdout + done.stderr
    first = counts(done.stdout)
    assert first["readings"] >= 800 * FIRST_RUN_S
    assert first["averages"] >= 200
    assert first["alerts"] > 0
    assert first["dead letters"] > 0
    assert first["lag"] == 0
    directories = [
        *re.findall(r"^  averages +[\d,]+ +[\d,]+  (/.*)$", done.stdout, re.MULTILINE),
        *re.findall(r"^  (?:checkpoints|topics) +(/.*)$", done.stdout, re.MULTILINE),
    ]
    assert [Path(path).is_dir() for path in directories] == [True] * 3
    assert len(averages(data)) == first["averages"]
    assert f"`rm -r '{data}'` deletes the data." in done.stdout
    assert ClassArchive(found_java()).exists


def second_run_continues(_: Path) -> None:
    """A run on a terminal, which Ctrl-C ends, continues where the first run has stopped."""
    data, done = first_run()
    first = counts(done.stdout)
    archive = ClassArchive(found_java())
    terminal = Terminal(data)
    terminal.wait_for(
        lambda shown: (
            re.search(r"averages-parquet +[1-9]\d* +\d+\.\d s +[1-9]", shown)
            and re.search(r"[1-9][\d,]* averages", shown)
            and re.search(r"device-\d{3} +\d\d:\d\d:\d\d +\d\d:\d\d:\d\d +\d", shown)
            and re.search(r"mean \d", shown)
        )
    )
    children = processes_of(terminal.process_id)
    (java,) = [name for name in children.values() if "SparkSubmit" in name]
    assert f"-XX:SharedArchiveFile={archive.path}" in java
    assert any("ottla" in name for name in children.values())
    terminal.type("\x03")
    terminal.check_stopped(0)
    assert "continues from here" in terminal.shown
    wait_until_gone(children)
    # No average was written twice, because the second run started where the first had stopped.
    found = averages(data)
    assert len(found) == len(set(found))
    assert len(found) > first["averages"]


def test_without_java_one_line_says_what_to_install(tmp_path: Path) -> None:
    done = run(tmp_path, JAVA_HOME="", PATH=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Spark needs Java" in line
    assert "To run only the broker: " in line
    assert list(tmp_path.iterdir()) == []


def test_java_that_does_not_start_is_reported_in_one_line(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("""#!/bin/sh
[ "$1" = -version ] && echo 'openjdk version "17.0.15"' >&2 && exit
echo no memory >&2
exit 1
""")
    program.chmod(0o755)
    # A directory in which nothing can be saved must not matter.
    changed = {"JAVA_HOME": str(tmp_path), "OTTLA_SPARK_DIRECTORY": str(program)}
    done = run(tmp_path / "data", **changed)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Spark did not start: [JAVA_GATEWAY_EXITED]")
    log = tmp_path / "data" / "sensors" / "spark.log"
    assert line.endswith(f"See {log}.")
    assert "no memory" in log.read_text()


def test_taken_port_is_reported_with_its_owner(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(tmp_path, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "pytest" in done.stderr or "python" in done.stderr
    assert "make run ARGS='--port N'" in done.stderr
    assert "Traceback" not in done.stderr


def java_is_killed(tmp_path: Path) -> None:
    """One line reports it."""
    terminal = Terminal(tmp_path)
    terminal.wait_for(lambda shown: "starting the queries" in shown)
    children = processes_of(terminal.process_id)
    (java,) = [number for number, name in children.items() if "SparkSubmit" in name]
    os.kill(java, signal.SIGKILL)
    terminal.check_stopped(1)
    assert re.search(r"^Spark has ended: .*$", terminal.shown.replace("\r", ""), re.MULTILINE)
    wait_until_gone(children)


def second_ctrl_c(tmp_path: Path) -> None:
    """It ends the example at once."""
    terminal = Terminal(tmp_path)
    terminal.wait_for(lambda shown: "starting Spark" in shown)
    children = processes_of(terminal.process_id)
    for _ in range(2):
        terminal.type("\x03")
        time.sleep(0.3)  # or both would be one signal; every outcome meanwhile is right
    terminal.check_stopped(0, 1)
    assert "checkpoint" in terminal.shown or "continues from here" in terminal.shown
    wait_until_gone(children)


def ctrl_c_while_spark_starts(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.wait_for(lambda shown: "starting Spark" in shown)
    children = processes_of(terminal.process_id)
    assert any("ottla" in name for name in children.values())
    terminal.type("\x03")
    terminal.check_stopped(0)
    assert "continues from here" in terminal.shown
    wait_until_gone(children)


def sigterm_while_spark_starts(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "starting the broker" in process.stdout.readline()
    assert "starting Spark" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert "continues from here" in output
    assert errors == ""


def logs_example_at_ctrl_c(tmp_path: Path) -> None:
    """The other example on Spark has also a collector, which ends in order, too."""
    process = started("logs", tmp_path)
    try:
        wait_for_results(process, "error counts")
        children = processes_of(process.pid)
        assert any("SparkSubmit" in name for name in children.values())
        assert any("collect files" in name for name in children.values())
        process.send_signal(signal.SIGINT)
        summary = ended(process)
    finally:
        process.kill()
    wait_until_gone(children)
    found = counts(summary)
    assert found["lines"] > found["error counts"] > 0
    assert found["dead letters"] > 0
    assert "`make run EXAMPLE=logs ARGS=" in summary
    assert f"`rm -r {tmp_path}` deletes the data." in summary


# Each of them starts Spark. `make test` takes a sample; tests/examples/test_runner.py ends runs in
# every way without Spark.
ENDINGS: list[Callable[[Path], None]] = [
    second_run_continues,
    java_is_killed,
    ctrl_c_while_spark_starts,
    second_ctrl_c,
    sigterm_while_spark_starts,
    logs_example_at_ctrl_c,
]


@pytest.mark.parametrize("ending", sample(ENDINGS, 1), ids=lambda ending: ending.__name__)
def test_ended_example_leaves_no_process(ending: Callable[[Path], None], tmp_path: Path) -> None:
    ending(tmp_path)
